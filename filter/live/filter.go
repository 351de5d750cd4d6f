package live

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Prober reports whether an element may have been added.
type Prober[T any] interface {
	// MayContain reports false only if the element was not added.
	MayContain(v T) bool
}

// Filter is what all filters in memory have in common: lookups, statistics, and saving.
type Filter[T any] interface {
	Prober[T]
	// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
	// one. len(positive) >= len(vs).
	MayContainMany(vs []T, positive []bool)
	// ApproxCount estimates how many different elements are in the filter; a Cuckoo counts repeated
	// ones.
	ApproxCount() uint64
	// FPR is the share of absent elements for which MayContain is true now.
	FPR() float64
	// FillRatio is the share of bits, counters or slots in use, 0 to 1.
	FillRatio() float64
	// MemoryBytes is the memory of the bits, counters or slots, in bytes.
	MemoryBytes() int

	// WriteTo writes the saved form. It includes all elements whose Add has returned;
	// one that is added meanwhile may be missing.
	io.WriterTo
	// ReadFrom and UnmarshalBinary replace the filter with one that WriteTo or MarshalBinary wrote,
	// of the same kind and with the same kind of elements. No other call may run at the same time.
	// ReadFrom reads nothing after the filter. After an error the filter is unchanged. The error
	// matches ErrFormat if the data is damaged, and ErrIncompatible if the kind of filter or of its
	// elements differs. There is one exception: if bytes follow the filter in its argument,
	// UnmarshalBinary replaces the filter, and returns an error that matches ErrFormat.
	io.ReaderFrom
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Adder is a filter that accepts any number of elements.
type Adder[T any] interface {
	Prober[T]
	// Add adds an element and reports whether it was new. If so, the element was not
	// in the filter before.
	Add(v T) bool
	// AddMany adds elements, and sets isNew[i] to what Add would have returned for
	// vs[i]. isNew may be nil; otherwise len(isNew) >= len(vs).
	AddMany(vs []T, isNew []bool)
}

// FallibleAdder is a filter that may reject an element, because the filter is full
// (ErrFull) or because the element was deleted (ErrRemoved).
type FallibleAdder[T any] interface {
	Prober[T]
	// Add adds an element and reports whether it was new. On an error nothing is
	// added.
	Add(v T) (isNew bool, err error)
	// AddMany adds elements in order, as Add does, until one is rejected. It returns
	// how many it has added. isNew may be nil; otherwise len(isNew) >= len(vs).
	AddMany(vs []T, isNew []bool) (n int, err error)
}

// Deleter is a filter that supports deletion.
type Deleter[T any] interface {
	Prober[T]
	// Delete undoes one Add of an element, or in a Pair removes the element permanently. It reports
	// whether the filter may have contained the element.
	Delete(v T) bool
}

// Resetter is a filter that can be emptied.
type Resetter interface {
	// Reset removes all elements. An element whose Add runs at the same time may be
	// lost.
	Reset()
}

// Merger is a filter F to which the elements of another F can be added.
type Merger[F any] interface {
	// Compatible returns nil if the other can be merged into this one, otherwise an
	// error that matches ErrIncompatible and names the parameter in which they differ.
	// It cannot compare custom funnels.
	Compatible(F) error
	// Merge adds all elements of the other, if it is Compatible. Elements that are
	// added to the other meanwhile may be missing.
	Merge(F) error
}

// Cloner is a filter F that can be copied and compared.
type Cloner[F any] interface {
	// Clone returns a copy with at least the elements whose Add has returned.
	Clone() F
	// Equal reports whether the filters have the same parameters and the same bits, and
	// so give the same answers. The result is meaningful only while neither is changed.
	Equal(F) bool
}

// TryAdd adds an element to any filter that adds, an Adder or a FallibleAdder. It
// panics if f is neither.
func TryAdd[T any](f Prober[T], v T) (isNew bool, err error) {
	if f, ok := f.(Adder[T]); ok {
		return f.Add(v), nil
	}
	return f.(FallibleAdder[T]).Add(v)
}

// TryAddMany adds elements to any filter that adds; see TryAdd.
func TryAddMany[T any](f Prober[T], vs []T, isNew []bool) (n int, err error) {
	if f, ok := f.(Adder[T]); ok {
		f.AddMany(vs, isNew)
		return len(vs), nil
	}
	return f.(FallibleAdder[T]).AddMany(vs, isNew)
}

// batch is the number of elements that are hashed together: see eachBatch.
const batch = 16

// Merge calls f's Merge with o, for filters whose kind is known only at run time. If they
// are of different kinds, or of a kind that cannot be merged, the error matches
// ErrIncompatible.
func Merge[T any](f, o Filter[T]) error {
	if err := compatibleAs(f, o); err != nil {
		return err
	}
	return any(f).(anyMerger).mergeAny(o)
}

// compatibleAs is Compatible for filters whose kind is known only at run time. If it returns nil, f
// is an anyMerger.
func compatibleAs(f, o any) error {
	m, ok := f.(anyMerger)
	if !ok {
		return fmt.Errorf("%w: a %s cannot be merged", ErrIncompatible, filterName(reflect.TypeOf(f)))
	}
	return m.compatibleAny(o)
}

// anyMerger is a Merger whose kind is checked at run time.
type anyMerger interface {
	compatibleAny(o any) error
	mergeAny(o any) error // o is compatible
}

// anyCloner is a Cloner whose kind is checked at run time.
type anyCloner interface {
	cloneAny() any
	equalAny(o any) bool
}

func compatibleAny[F Merger[F]](f F, o any) error {
	other, ok := o.(F)
	if !ok {
		return incompatible("kinds of filter", filterName(reflect.TypeFor[F]()), filterName(reflect.TypeOf(o)))
	}
	return f.Compatible(other)
}

// filterName is the name of a filter's type, without package and element type.
func filterName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

func equalAny[F interface{ Equal(F) bool }](f F, o any) bool {
	other, ok := o.(F)
	return ok && f.Equal(other)
}

// equalAs is Equal for filters whose kind is known only at run time. Filters of a kind that cannot
// be compared are not equal.
func equalAs(f, o any) bool {
	e, ok := f.(anyCloner)
	return ok && e.equalAny(o)
}

// cloneAs is Clone for filters whose kind is known only at run time. It panics if f has no Clone.
func cloneAs[F any](f F) F {
	switch c := any(f).(type) {
	case interface{ Clone() F }:
		return c.Clone()
	case anyCloner:
		if c, ok := c.cloneAny().(F); ok {
			return c
		}
	}
	panic(fmt.Sprintf("live: a %T has no Clone", f))
}

func (f *Bloom[T]) compatibleAny(o any) error      { return compatibleAny(f, o) }
func (f *Counting[T]) compatibleAny(o any) error   { return compatibleAny(f, o) }
func (f *Cuckoo[T]) compatibleAny(o any) error     { return compatibleAny(f, o) }
func (p *Pair[T]) compatibleAny(o any) error       { return compatibleAny(p, o) }
func (d *Dedup[T]) compatibleAny(o any) error      { return compatibleAny(d, o) }
func (s *Sharded[T, F]) compatibleAny(o any) error { return compatibleAny(s, o) }

func (f *Bloom[T]) mergeAny(o any) error      { return f.Merge(o.(*Bloom[T])) }
func (f *Counting[T]) mergeAny(o any) error   { return f.Merge(o.(*Counting[T])) }
func (f *Cuckoo[T]) mergeAny(o any) error     { return f.Merge(o.(*Cuckoo[T])) }
func (p *Pair[T]) mergeAny(o any) error       { return p.Merge(o.(*Pair[T])) }
func (d *Dedup[T]) mergeAny(o any) error      { return d.Merge(o.(*Dedup[T])) }
func (s *Sharded[T, F]) mergeAny(o any) error { return s.Merge(o.(*Sharded[T, F])) }

func (f *Bloom[T]) equalAny(o any) bool       { return equalAny(f, o) }
func (f *Counting[T]) equalAny(o any) bool    { return equalAny(f, o) }
func (f *Cuckoo[T]) equalAny(o any) bool      { return equalAny(f, o) }
func (f *Scalable[T]) equalAny(o any) bool    { return equalAny(f, o) }
func (p *Pair[T]) equalAny(o any) bool        { return equalAny(p, o) }
func (r *Rotating[T]) equalAny(o any) bool    { return equalAny(r, o) }
func (g *Generations[T]) equalAny(o any) bool { return equalAny(g, o) }
func (d *Dedup[T]) equalAny(o any) bool       { return equalAny(d, o) }
func (s *Sharded[T, F]) equalAny(o any) bool  { return equalAny(s, o) }

func (f *Bloom[T]) cloneAny() any       { return f.Clone() }
func (f *Counting[T]) cloneAny() any    { return f.Clone() }
func (f *Cuckoo[T]) cloneAny() any      { return f.Clone() }
func (f *Scalable[T]) cloneAny() any    { return f.Clone() }
func (p *Pair[T]) cloneAny() any        { return p.Clone() }
func (r *Rotating[T]) cloneAny() any    { return r.Clone() }
func (g *Generations[T]) cloneAny() any { return g.Clone() }
func (d *Dedup[T]) cloneAny() any       { return d.Clone() }
func (s *Sharded[T, F]) cloneAny() any  { return s.Clone() }

// hasher is a filter whose operations start from a 64-bit hash.
type hasher interface {
	hasSum(sum uint64) bool
}

// hashAdder is a hasher that adds.
type hashAdder interface {
	hasher
	addSum(sum uint64) (isNew bool)
}

// mayContainMany is the MayContainMany of filters that hash to 64 bits.
func mayContainMany[T any](sumOf func(T) uint64, f hasher, vs []T, positive []bool) {
	eachBatch(sumOf, vs, func(at int, sums []uint64) {
		for i, sum := range sums {
			positive[at+i] = f.hasSum(sum)
		}
	})
}

// addMany is the AddMany of filters that hash to 64 bits and cannot fail.
func addMany[T any](sumOf func(T) uint64, f hashAdder, vs []T, isNew []bool) {
	eachBatch(sumOf, vs, func(at int, sums []uint64) {
		for i, sum := range sums {
			if changed := f.addSum(sum); isNew != nil {
				isNew[at+i] = changed
			}
		}
	})
}

// eachBatch calls do with the hashes of a batch of elements at a time, those from vs[at] on. More
// cache misses of successive operations overlap if no hashing lies between them.
func eachBatch[T any](sumOf func(T) uint64, vs []T, do func(at int, sums []uint64)) {
	var sums [batch]uint64
	for at := 0; at < len(vs); at += batch {
		part := vs[at:min(at+batch, len(vs))]
		for i, v := range part {
			sums[i] = sumOf(v)
		}
		do(at, sums[:len(part)])
	}
}

// addEach is the AddMany of filters that add one by one, and may fail.
func addEach[T any](f interface{ Add(T) (bool, error) }, vs []T, isNew []bool) (int, error) {
	for i, v := range vs {
		n, err := f.Add(v)
		if err != nil {
			return i, err
		}
		if isNew != nil {
			isNew[i] = n
		}
	}
	return len(vs), nil
}
