package filter

import (
	"iter"
	"math/bits"
	"slices"
	"strings"
)

// Trim halves the universe of a Grafite filter, once or more: a place in the smaller universe
// is the place in the larger one modulo the smaller size. So the numbers of a block still have
// consecutive places that wrap around. Each halving saves a bit per key and doubles the FPR.
// Trimmed filters exist only in memory.

// RangeTrimmer is a RangeReader that can be trimmed to less memory. The readers of Range are
// RangeTrimmers.
type RangeTrimmer interface {
	RangeReader
	// Trim returns a filter over the same keys with bitsPerKey bits per key. Each bit less
	// doubles the FPR. It returns nil if bitsPerKey is too small, for Range less than 4, and the
	// receiver if that has no more bits. A new filter does not alias the receiver's block.
	Trim(bitsPerKey int) RangeReader
}

// RangeStep is a size to which a range filter can be trimmed.
type RangeStep struct {
	BitsPerKey int
	Bytes      int64   // upper bound on the memory
	FPR        float64 // upper bound for ranges of the length passed to RangeSteps
}

// RangeSteps returns the useful sizes, ascending, of a filter over that many keys. policy is the
// name of the policy that wrote it, keyed or not. A size is useful if its false positive rate for
// ranges of the given length, in the units of Range, is at most one half; the full size always is.
// RangeSteps returns nil for unknown policies.
func RangeSteps(policy string, keys int, length uint64) []RangeStep {
	if inner, keyed := strings.CutPrefix(policy, "keyed("); keyed {
		policy = strings.TrimSuffix(inner, ")")
	}
	parsed, err := ParseRange(policy)
	if err != nil {
		return nil
	}
	p := parsed.(rangePolicy)
	var steps []RangeStep
	for b := minRangeBits; b <= p.bits; b++ {
		fpr := RangeFPR(b, length)
		if fpr > 0.5 && b < p.bits {
			continue
		}
		s := newRangeShape(uint64(keys), uint64(keys)<<(b-2), uint(b-2))
		steps = append(steps, RangeStep{b, int64(s.size() + s.sampleBytes()), fpr})
	}
	return steps
}

// Trim implements RangeTrimmer.
func (f *rangeReader) Trim(bitsPerKey int) RangeReader {
	drop := int(f.l) + 2 - bitsPerKey
	switch {
	case bitsPerKey < minRangeBits:
		return nil
	case drop <= 0 || f.r&(1<<drop-1) != 0: // a universe that cannot be halved that many times; no writer of this package makes one
		return f
	}
	r := f.r >> drop
	places := make([]uint64, 0, f.n)
	for place := range f.places() {
		places = append(places, place%r)
	}
	slices.Sort(places)
	places = slices.Compact(places)
	t := &rangeReader{rangeShape: newRangeShape(uint64(len(places)), r, f.l-uint(drop)), hash: f.hash, drop: f.drop}
	t.bytes = AlignedBytes(t.size())
	t.encode(t.bytes, places)
	t.sample()
	return t
}

// places returns the places in ascending order.
func (f *rangeReader) places() iter.Seq[uint64] {
	return func(yield func(place uint64) bool) {
		i := uint64(0)
		for w := range f.upper {
			for ones := f.word(w); ones != 0; ones &= ones - 1 {
				rest := uint64(64*w+bits.TrailingZeros64(ones)) - i
				if !yield(rest<<f.l | f.low(i)) {
					return
				}
				i++
			}
		}
	}
}
