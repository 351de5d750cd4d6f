package filter

import (
	"errors"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/siftdb/sift/filter/internal/ribbon"
)

// The bits per key and the columns that Ribbon takes.
const (
	minRibbonBits     = 1
	maxRibbonBits     = 20
	defaultRibbonBits = 10
	maxRibbonColumns  = 20
	maxRibbonFPR      = 0.5
	minRibbonFPR      = 1.0 / (1 << maxRibbonColumns)

	// ribbonColumnShare is the share of the bits per key that are columns in any
	// case: below some thousand keys a filter takes more bits instead.
	ribbonColumnShare = 0.95
	// ribbonSplit is the number of bytes from which on a filter has several units.
	ribbonSplit = 16 << 10
)

// ribbonPolicy is what Ribbon and RibbonFPR make: one of its numbers is 0.
type ribbonPolicy struct{ bitsPerKey, fpr float64 }

// Ribbon returns the policy for bumped ribbon filters, the smallest filter: 0.3 %
// above the information limit from a million keys on. bitsPerKey, 1 to 20 and not
// necessarily whole, is all that the filter takes, and gives these false positive rates:
//
//	bits per key           4      6      8       10       12       14        16        20
//	FPR from 100k keys on  6.4 %  1.60 % 0.402 % 0.1005 % 0.0252 % 0.00628 % 0.00157 % 0.000098 %
//	FPR at 10k keys        6.8 %  1.69 % 0.423 % 0.106 %  0.0265 % 0.00660 % 0.00165 % 0.000104 %
//
// Below 2,000 keys a filter takes more bits per key rather than a higher FPR.
// From 16 KiB on it is written in units of 4 columns, 2.5 MB each for 5 million
// keys, of which the first k alone have an FPR of 16^-k.
//
// Values outside are moved to the nearest bound, and NaN to 10.
func Ribbon(bitsPerKey float64) Policy {
	if math.IsNaN(bitsPerKey) {
		bitsPerKey = defaultRibbonBits
	}
	return ribbonPolicy{bitsPerKey: min(max(bitsPerKey, minRibbonBits), maxRibbonBits)}
}

// RibbonFPR returns the policy for bumped ribbon filters with a false positive rate
// of fpr, 2^-20 to 0.5. They take log2(1/fpr) bits per key and 0.3 % more from a
// million keys on, unless fpr is not a power of two: it is then the mean of the two
// powers next to it, which costs up to another 0.09 bits per key.
//
// Values outside are moved to the nearest bound, and NaN to 0.001.
func RibbonFPR(fpr float64) Policy {
	if math.IsNaN(fpr) {
		fpr = 0.001
	}
	return ribbonPolicy{fpr: min(max(fpr, minRibbonFPR), maxRibbonFPR)}
}

const ribbonFPRArgument = "fpr="

func (p ribbonPolicy) Name() string {
	if p.fpr != 0 {
		return "ribbon(" + ribbonFPRArgument + formatFloat(p.fpr) + ")"
	}
	return "ribbon(" + formatFloat(p.bitsPerKey) + ")"
}

func (p ribbonPolicy) Family() string { return ribbonFamily }

func (p ribbonPolicy) NewWriter() Writer { return &ribbonWriter{policy: p} }

func (p ribbonPolicy) Open(units [][]byte) (Reader, error) { return openRibbon(units) }

func parseRibbon(args []string) (Policy, error) {
	if len(args) == 1 {
		if s, ok := strings.CutPrefix(args[0], ribbonFPRArgument); ok {
			p, err := strconv.ParseFloat(s, 64)
			if err != nil || !(p >= minRibbonFPR && p <= maxRibbonFPR) {
				return nil, errors.New("want an FPR from 2^-20 to 0.5")
			}
			return RibbonFPR(p), nil
		}
	}
	b, err := parseBits(args, minRibbonBits, maxRibbonBits)
	if err != nil {
		return nil, err
	}
	return Ribbon(b), nil
}

// columns returns the columns of the planes of a filter over n keys.
func (p ribbonPolicy) columns(n int) []ribbon.Columns {
	layers := ribbon.Estimate(n)
	segments, thresholds, _ := layers.Sizes()
	rows := float64(segments * 64)

	var count, cut float64
	if p.fpr != 0 {
		// A share q of the keys has a column less: (1 + q) / 2^count = fpr.
		count = math.Ceil(-math.Log2(p.fpr))
		q := p.fpr*math.Exp2(count) - 1
		cut = float64(sort.Search(int(segments), func(i int) bool {
			return layers.ShareBelow(i+1, ribbon.ExpectBumped) > q
		}))
	} else {
		size := float64(thresholds) + float64(ribbonTrailerSize+len(layers))
		if all := p.bitsPerKey / 8 * float64(n); all >= ribbonSplit {
			size += float64(ribbonTrailerSize+len(layers)) * math.Floor(p.bitsPerKey/4)
		}
		c := (p.bitsPerKey*float64(n) - 8*size) / max(rows, 1)
		c = min(max(c, ribbonColumnShare*p.bitsPerKey, 1), maxRibbonColumns)
		count = math.Ceil(c)
		cut = math.Round((count - c) * float64(segments))
		if cut == float64(segments) && count > 1 {
			count, cut = count-1, 0
		}
	}
	last := ribbon.Columns{Count: int(count), Cut: int(cut)}
	var all []ribbon.Columns
	if count*rows/8 >= ribbonSplit {
		for last.Count > ribbon.PlaneColumns+1 {
			all = append(all, ribbon.Columns{First: last.First, Count: ribbon.PlaneColumns})
			last.First += ribbon.PlaneColumns
			last.Count -= ribbon.PlaneColumns
		}
	}
	return append(all, last)
}

// ribbonWriter is the Writer of Ribbon.
type ribbonWriter struct {
	policy  ribbonPolicy
	builder ribbon.Builder
	last    uint64
}

func (w *ribbonWriter) Add(key Key) {
	if key.Hash == w.last && w.builder.Len() > 0 {
		return
	}
	w.last = key.Hash
	w.builder.Add(key.Hash)
}

func (w *ribbonWriter) NumKeys() int { return w.builder.Len() }

func (w *ribbonWriter) Finish() ([][]byte, error) {
	n := w.builder.Len()
	return encodeRibbon(w.builder.Build(w.policy.columns(n), ribbonSpare(n))), nil
}

// ribbonReader is the Reader of Ribbon.
type ribbonReader struct {
	table ribbon.Table
	units [][]byte
	sum   uint32 // checksum of unit 0
}

func (r *ribbonReader) MayContain(key Key) bool { return r.table.Contains(key.Hash) }

func (r *ribbonReader) MayContainMany(keys []Key, maybe []bool) {
	maybe = maybe[:len(keys)]
	var hashes [ribbon.Batch]uint64
	for len(keys) > 0 {
		n := min(len(keys), len(hashes))
		for i := range keys[:n] {
			hashes[i] = keys[i].Hash
		}
		r.table.ContainsMany(hashes[:n], maybe[:n])
		keys, maybe = keys[n:], maybe[n:]
	}
}

func (r *ribbonReader) FPR() float64 { return r.table.FPR() }

func (r *ribbonReader) SizeBytes() int {
	n := 0
	for _, u := range r.units {
		n += len(u)
	}
	return n
}

// Resizer is a Reader whose units can be taken away and given back.
type Resizer interface {
	Reader
	// Resize returns a reader over other units of the same filter, a non-empty
	// prefix of them. Units that the receiver has, in the same memory, are not
	// checked again, so that dropping units takes no time and adding one takes a
	// pass over that one. The receiver stays as it is.
	Resize(units [][]byte) (Reader, error)
}

func (r *ribbonReader) Resize(units [][]byte) (Reader, error) {
	return openRibbonAfter(r, units)
}
