package ranges

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/sstable"
)

// Rate is the size and the false positive rates of a table's range filter.
type Rate struct {
	BitsPerKey float64
	FPR        map[uint64]float64 // by range length; without lengths for which hardly any range is empty
}

// Lengths are the lengths of the ranges.
var Lengths = []uint64{1, 10, 100, 1000}

const rangesPerLength = 50_000

// table writes a table with the keys of s.
func table(s *Set, o *sstable.WriterOptions) (*sstable.Reader, error) {
	var file bytes.Buffer
	w := sstable.NewWriter(&file, o)
	for i, k := range s.Keys {
		if err := w.Add(k, uint64(i), sstable.KindSet, nil); err != nil {
			return nil, err
		}
	}
	info, err := w.Finish()
	if err != nil {
		return nil, err
	}
	if info.FilterErr != nil {
		return nil, info.FilterErr
	}
	return sstable.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()), nil)
}

// Prefixes writes a table with the keys of s and probes its point filter for prefixes.
// BitsPerKey are the bits that the prefixes add to the filter.
func Prefixes(s *Set, p sstable.Prefixer, policy filter.Policy) (r Rate, err error) {
	keys, err := table(s, &sstable.WriterOptions{Filter: policy})
	if err != nil {
		return r, err
	}
	reader, err := table(s, &sstable.WriterOptions{Filter: policy, Prefix: p})
	if err != nil {
		return r, err
	}
	r.BitsPerKey = 8 * float64(reader.Properties().FilterBytes-keys.Properties().FilterBytes) / float64(len(s.Keys))
	r.FPR = rates(s, func(from, to []byte) bool {
		n := sstable.RangePrefixLen(p, from, to)
		return n < 0 || reader.MayContain(filter.NewKey(from[:n]))
	})
	return r, nil
}

// Measure writes a table with the keys of s and probes its range filter.
func Measure(s *Set, p filter.RangePolicy) (r Rate, err error) {
	reader, err := table(s, &sstable.WriterOptions{Range: p})
	if err != nil {
		return r, err
	}
	if state, err := reader.RangeFilterStatus(); state != sstable.FilterOK {
		return r, fmt.Errorf("%s: the range filter is in state %v: %w", s.Name, state, err)
	}
	r.BitsPerKey = 8 * float64(reader.RangeFilterBytes()) / float64(len(s.Keys))
	r.FPR = rates(s, reader.MayContainRange)
	return r, nil
}

// rates returns the false positive rate of mayContain by range length.
func rates(s *Set, mayContain func(from, to []byte) bool) map[uint64]float64 {
	fpr := map[uint64]float64{}
	for _, length := range Lengths {
		rng := rand.New(rand.NewPCG(7, length))
		empty, wrong := 0, 0
		for range rangesPerLength {
			from, to := s.Range(rng, length)
			if bytes.Compare(from, to) >= 0 || s.has(from, to) {
				continue
			}
			if empty++; mayContain(from, to) {
				wrong++
			}
		}
		if empty > rangesPerLength/100 {
			fpr[length] = float64(wrong) / float64(empty)
		}
	}
	return fpr
}

// Trie computes the rate of a trie of the shortest distinguishing prefixes, as in SuRF, with
// more additional bytes of each key. The false positive rates are exact; the size is taken as
// 10 bits per edge, the minimum of SuRF's encoding.
func Trie(s *Set, more int) (r Rate) {
	cut := make([][]byte, len(s.Keys))
	edges := 0
	for i, k := range s.Keys {
		n := 0
		if i > 0 {
			n = common(s.Keys[i-1], k)
		}
		if i+1 < len(s.Keys) {
			n = max(n, common(s.Keys[i+1], k))
		}
		cut[i] = k[:min(n+1, len(k))]
		if i == 0 {
			edges += len(cut[i])
		} else {
			edges += len(cut[i]) - common(cut[i-1], cut[i])
		}
		cut[i] = k[:min(len(cut[i])+more, len(k))]
	}
	r.BitsPerKey = 10*float64(edges)/float64(len(s.Keys)) + 8*float64(more)
	r.FPR = rates(s, func(from, to []byte) bool {
		// The last prefix below from may be a prefix of keys at or after from; the next one
		// lies at or after it.
		lo, hi := 0, len(cut)
		for lo < hi {
			if m := (lo + hi) / 2; bytes.Compare(cut[m], from) < 0 {
				lo = m + 1
			} else {
				hi = m
			}
		}
		return lo > 0 && bytes.HasPrefix(from, cut[lo-1]) && len(cut[lo-1]) < len(s.Keys[lo-1]) ||
			lo < len(cut) && bytes.Compare(cut[lo], to) < 0
	})
	return r
}

func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
