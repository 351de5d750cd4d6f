package live

import (
	"errors"
	"io"
)

// ErrRemoved is returned by Pair.Add for an element that was removed, or that
// looks as if it was. Nothing was changed.
var ErrRemoved = errors.New("live: element was removed")

// Pair is two Bloom filters, one of what was added and one of what was removed;
// it may contain what the first may contain and the second does not. It is a
// common idea, and cheap: twice a Bloom filter, half of a Counting. It breaks two
// things.
//
// Elements vanish. One that is in the filter, and that the second filter takes
// for removed, gets a "no": that is a false negative, for as many of the elements
// as the FPR of the second filter says. No other filter here does that.
//
// Elements do not come back. One that was removed cannot be taken out of the
// second filter again; Add tells so with ErrRemoved.
//
// Use Counting or Cuckoo, which delete; or Rotating, which forgets removed
// elements when it is rebuilt; or a Bloom and an exact list of what was removed
// since. Pair is right where a wrong "no" costs no more than a wrong "maybe", and
// removed elements stay removed: revoked tokens, say.
type Pair[T any] struct {
	added, removed *Bloom[T]
}

// NewPair returns a pair of empty filters. Their parameters may differ: the FPR of
// removed is the share of elements that will vanish.
func NewPair[T any](added, removed BloomOptions[T]) (*Pair[T], error) {
	a, err := NewBloom(added)
	if err != nil {
		return nil, err
	}
	r, err := NewBloom(removed)
	if err != nil {
		return nil, err
	}
	if a.key.Kind() != r.key.Kind() {
		return nil, incompatible("kinds of elements", a.key.Kind(), r.key.Kind())
	}
	return &Pair[T]{a, r}, nil
}

// Add adds an element. It returns ErrRemoved, and does nothing, if the element
// was removed, or is a false positive of what was.
func (p *Pair[T]) Add(v T) error {
	if p.removed.MayContain(v) {
		return ErrRemoved
	}
	p.added.Add(v)
	return nil
}

// Remove removes an element for good, and reports whether it may have been in the
// filter.
func (p *Pair[T]) Remove(v T) bool {
	if !p.added.MayContain(v) {
		return false
	}
	return p.removed.Add(v)
}

// MayContain is false for what was not added, for what was removed, and for a
// share FalseNegativeRate of what was added and not removed.
func (p *Pair[T]) MayContain(v T) bool {
	return p.added.MayContain(v) && !p.removed.MayContain(v)
}

// FPR is the share of elements never added for which MayContain is true now. It
// reads both filters.
func (p *Pair[T]) FPR() float64 { return p.added.FPR() * (1 - p.removed.FPR()) }

// FalseNegativeRate is the share of elements, added and not removed, for which
// MayContain is false now. It reads the second filter.
func (p *Pair[T]) FalseNegativeRate() float64 { return p.removed.FPR() }

// SizeBytes is the memory that the bits take.
func (p *Pair[T]) SizeBytes() int { return p.added.SizeBytes() + p.removed.SizeBytes() }

// WriteTo writes the two filters, each as Bloom.WriteTo does: added, removed.
func (p *Pair[T]) WriteTo(w io.Writer) (int64, error) {
	n, err := p.added.WriteTo(w)
	if err != nil {
		return n, err
	}
	m, err := p.removed.WriteTo(w)
	return n + m, err
}

// ReadPair reads a pair that WriteTo wrote; see ReadBloom. maxBytes is for both
// filters together.
func ReadPair[T any](r io.Reader, maxBytes int64, f func(dst []byte, v T) []byte) (*Pair[T], error) {
	a, err := ReadBloom(r, maxBytes, f)
	if err != nil {
		return nil, err
	}
	b, err := ReadBloom(r, maxBytes-int64(a.SizeBytes()), f)
	if err != nil {
		return nil, err
	}
	return &Pair[T]{a, b}, nil
}
