package filter

import (
	"errors"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/siftdb/sift/filter/internal/ribbon"
	"github.com/siftdb/sift/filter/internal/xxh3"
)

// Bounds of Ribbon's bits per key, columns and FPR.
const (
	minRibbonBits     = 1
	maxRibbonBits     = 20
	defaultRibbonBits = 10
	maxRibbonColumns  = 20
	maxRibbonFPR      = 0.5
	minRibbonFPR      = 1.0 / (1 << maxRibbonColumns)

	// ribbonColumnShare is the minimum number of columns per bit per key. Below a few thousand
	// keys, where the rest of a filter weighs more, it takes more bits per key instead.
	ribbonColumnShare = 0.95
	// ribbonSplit is the size of the columns in bytes from which a filter may have several
	// units.
	ribbonSplit = 16 << 10
)

// ribbonPolicy is the policy of Ribbon, which sets bitsPerKey, and of RibbonFPR, which sets
// fpr. The other field is 0.
type ribbonPolicy struct{ bitsPerKey, fpr float64 }

// Ribbon returns the policy for bumped ribbon filters, the smallest of this package: at a
// million keys they are 0.3% above the information limit. bitsPerKey is the total size, 1
// to 20 and not necessarily whole. The false positive rates are:
//
//	bits per key           4      6      8       10      12       14        16        20
//	FPR at a million keys  6.39% 1.60% 0.402% 0.101% 0.0252% 0.00633% 0.00159% 0.00010%
//	FPR at 100,000         6.42% 1.61% 0.404% 0.101% 0.0255% 0.00639% 0.00161% 0.00010%
//	FPR at 10,000          6.57% 1.66% 0.418% 0.106% 0.0266% 0.00709% 0.00181% 0.00012%
//
// Below about 2,000 keys, filters take more bits per key, since their FPR would be much
// higher otherwise. Values out of bounds are clamped; NaN stands for 10.
//
// From 16 KiB on, a filter is written in units of 4 bits per key, the last of 2 to 5 (a
// single unit if 5 suffice). The last units can be dropped and loaded again: the first k
// units, if not all, are a filter with an FPR of 16^-k. Readers are Resizers, and Trim
// shortens a unit in steps of one bit per key.
//
// Building takes 8 bytes of memory per key, and another 25 for each key of the chunks that
// are being built. A chunk has about 130,000 keys. Chunks are built in parallel where
// processors are idle. The filter's bytes depend only on the set of keys and on how many
// were added, duplicates included.
func Ribbon(bitsPerKey float64) Policy {
	if math.IsNaN(bitsPerKey) {
		bitsPerKey = defaultRibbonBits
	}
	return ribbonPolicy{bitsPerKey: min(max(bitsPerKey, minRibbonBits), maxRibbonBits)}
}

// RibbonFPR returns the policy for bumped ribbon filters with a false positive rate of
// fpr, 2^-20 to 0.5, at any number of keys. Their size is log2(1/fpr) bits per key, plus
// 0.3% at a million keys, 1% at 10,000, 3% at 2,000. If fpr is not a power of two, the
// rate is one of the neighboring powers for some keys and the other one for the rest, which
// costs up to another 0.09 bits per key: 1.2% for an FPR of 1%.
//
// Values out of bounds are clamped; NaN stands for 0.001.
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

	// Filters must have the same bytes on every machine. So products are rounded, by a
	// conversion to float64, before they are added (Go may fuse x*y + z), and nothing depends
	// on how a logarithm is rounded.
	var count, cut int
	if p.fpr != 0 {
		// A share q of the keys has one column fewer: (1 + q) / 2^count = fpr.
		_, exp := math.Frexp(p.fpr)
		count = 1 - exp
		q := math.Ldexp(p.fpr, count) - 1
		cut = sort.Search(int(segments), func(i int) bool {
			return layers.ShareBelow(i+1, ribbon.ExpectBumped) > q
		})
	} else {
		unit := float64(ribbonTrailerSize + len(layers))
		size := float64(thresholds) + unit
		if p.bitsPerKey*float64(n) >= 8*ribbonSplit {
			size += float64(math.Floor(p.bitsPerKey/ribbon.PlaneColumns) * unit)
		}
		c := (float64(p.bitsPerKey*float64(n)) - float64(8*size)) / max(float64(segments)*64, 1)
		c = min(max(c, ribbonColumnShare*p.bitsPerKey, 1), maxRibbonColumns)
		count = int(math.Ceil(c))
		cut = int(math.Round((float64(count) - c) * float64(segments)))
		if cut == int(segments) && count > 1 {
			count, cut = count-1, 0
		}
	}
	last := ribbon.Columns{Count: count, Cut: cut}
	var all []ribbon.Columns
	if uint64(count)*segments*8 >= ribbonSplit {
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

// MayContain probes the first plane directly, since most probes end there.
func (r *ribbonReader) MayContain(key Key) bool {
	v := r.table.Probe(key.Hash)
	if v == ribbon.Rejected {
		return false
	}
	return r.table.After(key.Hash, v)
}

// MayContainBytes hashes the key and probes the first plane in one function, for the reason that
// NewKey states.
func (r *ribbonReader) MayContainBytes(key []byte) bool {
	var hash uint64
	if n := len(key); n > 8 && n <= 16 {
		hash = xxh3.Sum9to16(key)
	} else {
		hash = Hash(key)
	}
	v := r.table.Probe(hash)
	if v == ribbon.Rejected {
		return false
	}
	return r.table.After(hash, v)
}

// Prefetch implements Prefetcher.
func (r *ribbonReader) Prefetch(hash uint64) { r.table.Prefetch(hash) }

func (r *ribbonReader) MayContainMany(keys []Key, positive []bool) {
	positive = positive[:len(keys)]
	var hashes [ribbon.Batch]uint64
	for len(keys) > 0 {
		n := min(len(keys), len(hashes))
		for i := range keys[:n] {
			hashes[i] = keys[i].Hash
		}
		r.table.ContainsMany(hashes[:n], positive[:n])
		keys, positive = keys[n:], positive[n:]
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

// Resizer is a Reader whose units can be dropped and added again.
type Resizer interface {
	Reader
	// Resize returns a reader over units, a non-empty prefix of the units of the same filter. It
	// does not verify again the units that the receiver already has in the same memory: dropping
	// units is cheap, and adding one takes one pass over it. The receiver is unchanged.
	Resize(units [][]byte) (Reader, error)
}

func (r *ribbonReader) Resize(units [][]byte) (Reader, error) {
	return openRibbonAfter(r, units)
}
