package live

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// ErrRemoved is returned by Pair.Add for an element that was deleted, or is a false
// positive of the filter of deleted elements. The Pair is unchanged.
var ErrRemoved = errors.New("live: element was removed")

// Pair is two Bloom filters, one of added and one of deleted elements. It contains an element if
// the first may contain it and the second excludes it. The idea is common, and takes only twice
// the memory of a Bloom filter, half that of a Counting. But it has two flaws:
//
// Elements disappear. An element that is a false positive of the second filter counts as deleted:
// it is a false negative of the Pair. The share of such elements is the second filter's FPR. No
// other filter in this package has false negatives if only added elements are deleted.
//
// Elements cannot be added again. A deleted element stays in the second filter, and Add returns
// ErrRemoved.
//
// Prefer Counting or Cuckoo, which delete; or Rotating, which forgets deleted elements when it is
// rebuilt; or a Bloom and an exact list of the elements deleted since. Pair fits where a false
// negative costs no more than a false positive, and deleted elements stay deleted, such as revoked
// tokens.
type Pair[T any] struct {
	added, removed *Bloom[T]
}

// NewPair returns a pair of empty filters. Their parameters may differ: the FPR of
// removed is the share of elements that will disappear.
func NewPair[T any](added, removed BloomOptions[T]) (*Pair[T], error) {
	a, err := NewBloom(added)
	if err != nil {
		return nil, err
	}
	r, err := NewBloom(removed)
	if err != nil {
		return nil, err
	}
	if added.Unshared || removed.Unshared {
		return nil, optionError("Unshared", "is not for a Pair")
	}
	if a.key.Kind() != r.key.Kind() {
		return nil, incompatible("kinds of elements", a.key.Kind(), r.key.Kind())
	}
	return &Pair[T]{a, r}, nil
}

// Add adds an element and reports whether it was new. It returns ErrRemoved and changes
// nothing if the element was deleted, or is a false positive of the filter of deleted elements.
func (p *Pair[T]) Add(v T) (isNew bool, err error) {
	if p.removed.MayContain(v) {
		return false, ErrRemoved
	}
	return p.added.Add(v), nil
}

// AddMany adds elements until one is rejected; see FallibleAdder.
func (p *Pair[T]) AddMany(vs []T, isNew []bool) (n int, err error) { return addEach(p, vs, isNew) }

// Delete removes an element permanently, however often it was added, and reports whether MayContain
// was true for it before. It does nothing if it was not.
func (p *Pair[T]) Delete(v T) bool {
	if !p.added.MayContain(v) {
		return false
	}
	return p.removed.Add(v)
}

// MayContain reports false for elements that were not added, unless they are false positives; for
// deleted elements; and for a share FalseNegativeRate of the others.
func (p *Pair[T]) MayContain(v T) bool {
	return p.added.MayContain(v) && !p.removed.MayContain(v)
}

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(positive) >= len(vs).
func (p *Pair[T]) MayContainMany(vs []T, positive []bool) {
	p.added.MayContainMany(vs, positive)
	removed := make([]bool, len(vs))
	p.removed.MayContainMany(vs, removed)
	for i, r := range removed {
		positive[i] = positive[i] && !r
	}
}

// ApproxCount estimates how many different elements were added and not deleted;
// MaxUint64 if all bits of one of the filters are set. It reads both filters.
func (p *Pair[T]) ApproxCount() uint64 {
	added, removed := p.added.ApproxCount(), p.removed.ApproxCount()
	if added == math.MaxUint64 || removed == math.MaxUint64 {
		return math.MaxUint64
	}
	return added - min(added, removed)
}

// FPR is the share of elements that were never added for which MayContain is true now. It
// reads both filters.
func (p *Pair[T]) FPR() float64 { return p.added.FPR() * (1 - p.removed.FPR()) }

// FalseNegativeRate is the share of the elements that were added and not deleted for
// which MayContain is false now. It reads the filter of deleted elements.
func (p *Pair[T]) FalseNegativeRate() float64 { return p.removed.FPR() }

// FillRatio is that of the fuller filter.
func (p *Pair[T]) FillRatio() float64 { return max(p.added.FillRatio(), p.removed.FillRatio()) }

// MemoryBytes is the memory that the bits take.
func (p *Pair[T]) MemoryBytes() int { return p.added.MemoryBytes() + p.removed.MemoryBytes() }

// Compatible returns nil if o can be merged into p; see Merger.
func (p *Pair[T]) Compatible(o *Pair[T]) error {
	if err := p.added.Compatible(o.added); err != nil {
		return err
	}
	return p.removed.Compatible(o.removed)
}

// Merge adds to p what was added to o, and deletes from p what was deleted from o; see
// Merger.
func (p *Pair[T]) Merge(o *Pair[T]) error {
	if err := p.Compatible(o); err != nil {
		return err
	}
	p.added.merge(&o.added.table)
	p.removed.merge(&o.removed.table)
	return nil
}

// Clone returns a copy with at least the elements whose Add has returned.
func (p *Pair[T]) Clone() *Pair[T] { return &Pair[T]{p.added.Clone(), p.removed.Clone()} }

// Equal reports whether the filters have the same parameters and bits.
func (p *Pair[T]) Equal(o *Pair[T]) bool {
	return p.added.Equal(o.added) && p.removed.Equal(o.removed)
}

// Reset removes all elements, and forgets which were deleted. An element whose Add or
// Delete runs at the same time may be lost.
func (p *Pair[T]) Reset() {
	p.added.Reset()
	p.removed.Reset()
}

// WriteTo writes the filter in the format that ReadPair and ReadFrom read. It includes all
// additions and deletions that have returned; one that runs meanwhile may be missing.
func (p *Pair[T]) WriteTo(w io.Writer) (int64, error) {
	return writeParts(w, record{kind: kindPair, elements: p.added.key.Kind(), hashes: 2}, nil, p.added, p.removed)
}

// ReadFrom replaces the filter with one that WriteTo wrote; see Filter.
func (p *Pair[T]) ReadFrom(r io.Reader) (int64, error) { return readFrom(p, r) }

// MarshalBinary returns what WriteTo writes.
func (p *Pair[T]) MarshalBinary() ([]byte, error) { return marshal(p) }

// UnmarshalBinary replaces the filter with one that MarshalBinary wrote; see Filter.
func (p *Pair[T]) UnmarshalBinary(data []byte) error { return unmarshal(p, data) }

// ReadPair reads a filter that WriteTo wrote; see ReadBloom.
func ReadPair[T any](r io.Reader, o ReadOptions[T]) (*Pair[T], error) {
	return readNew(r, o, func(key funnel.Key[T]) *Pair[T] {
		return &Pair[T]{added: &Bloom[T]{key: key}, removed: &Bloom[T]{key: key}}
	})
}

func (p *Pair[T]) elementKind() (funnel.Kind, error) {
	if p.added == nil {
		p.added, p.removed = new(Bloom[T]), new(Bloom[T])
	}
	if _, err := p.removed.elementKind(); err != nil {
		return 0, err
	}
	return p.added.elementKind()
}

func (p *Pair[T]) read(s *source) error {
	rec, err := readHeader(s, kindPair)
	if err == nil && rec != (record{kind: kindPair, elements: rec.elements, hashes: 2}) {
		err = formatError("fields that a Pair does not have")
	}
	if err == nil {
		_, err = readBody(s, rec)
	}
	if err != nil {
		return fmt.Errorf("read pair: %w", err)
	}
	added, removed := &Bloom[T]{key: p.added.key}, &Bloom[T]{key: p.removed.key}
	if err := added.read(s); err != nil {
		return fmt.Errorf("read pair: added: %w", err)
	}
	if err := removed.read(s); err != nil {
		return fmt.Errorf("read pair: removed: %w", err)
	}
	*p = Pair[T]{added, removed}
	return nil
}
