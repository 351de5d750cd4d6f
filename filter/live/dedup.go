package live

import (
	"fmt"
	"io"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// DedupOptions are the parameters of a Dedup.
type DedupOptions[T any] struct {
	// Items is the number of different elements in the stream or, with Window, the number of
	// latest elements whose duplicates are found.
	Items uint64
	// FPR is the share of new elements that are wrongly dropped as duplicates, and so lost,
	// once Items have been seen. It is lower before; see Dedup.Loss.
	FPR float64
	// Window is for endless streams: duplicates are found if they come within Items elements and,
	// if Span is set, within that time. Span implies Window.
	Window bool
	Span   time.Duration
	// Seed and Funnel are those of the filter; see BloomOptions.
	Seed   uint64
	Funnel func(dst []byte, v T) []byte
	// Now returns the time, for Span; time.Now if nil.
	Now func() time.Time
}

// Dedup drops the duplicates of a stream. An element that it passes on is certainly new; with
// Window, it was not seen within the window. An element that it drops is a duplicate or, with a
// small probability (Loss), a new element, which is lost. For streams that must not lose any
// element there is package livestore, which keeps them in a store.
//
// Dedup is safe for concurrent use: if several callers add the same element, Add returns true
// to at most one.
type Dedup[T any] struct {
	key     funnel.Key[T]
	filter  dedupFilter[T]
	loss    float64
	locks   [64]paddedMutex // by element
	seen    atomic.Uint64
	dropped atomic.Uint64
}

// dedupFilter is a Bloom or, with a window, Generations.
type dedupFilter[T any] interface {
	Filter[T]
	Adder[T]
	Resetter
	saved
}

// NewDedup returns a Dedup that has seen nothing, or an *OptionError.
func NewDedup[T any](o DedupOptions[T]) (*Dedup[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	d := &Dedup[T]{key: key}
	if o.Window || o.Span != 0 {
		g, err := NewGenerations(GenerationsOptions[T]{
			Items: o.Items, Span: o.Span, FPR: o.FPR, Seed: o.Seed, Funnel: o.Funnel, Scheme: Blocked, Now: o.Now,
		})
		if err != nil {
			return nil, err
		}
		d.filter, d.loss = g, o.FPR // it is nearly always full
		return d, nil
	}
	b, err := NewBloom(BloomOptions[T]{Items: o.Items, FPR: o.FPR, Seed: o.Seed, Funnel: o.Funnel})
	if err != nil {
		return nil, err
	}
	d.filter, d.loss = b, FillLoss(b.Bits(), b.Hashes(), o.Items)
	return d, nil
}

// Add adds an element and reports whether it is seen for the first time. Of several
// concurrent calls with the same element, at most one returns true.
func (d *Dedup[T]) Add(v T) bool {
	mu := &d.locks[mix(d.key.Sum64(v))%uint64(len(d.locks))]
	mu.Lock()
	first := d.filter.Add(v)
	mu.Unlock()
	d.seen.Add(1)
	if !first {
		d.dropped.Add(1)
	}
	return first
}

// AddMany adds elements one by one; see Adder.
func (d *Dedup[T]) AddMany(vs []T, isNew []bool) {
	for i, v := range vs {
		if first := d.Add(v); isNew != nil {
			isNew[i] = first
		}
	}
}

// MayContain reports whether Add would drop an element as a duplicate.
func (d *Dedup[T]) MayContain(v T) bool { return d.filter.MayContain(v) }

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(positive) >= len(vs).
func (d *Dedup[T]) MayContainMany(vs []T, positive []bool) { d.filter.MayContainMany(vs, positive) }

// Unique returns the elements of a stream that are seen for the first time.
func (d *Dedup[T]) Unique(stream iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for v := range stream {
			if d.Add(v) && !yield(v) {
				return
			}
		}
	}
}

// Loss is the expected share of a stream's different elements that are wrongly dropped as
// duplicates, if there are Items of them: 0.17% for an FPR of 1%, since the filter has a
// lower FPR while it fills. With a window it is at most the FPR.
func (d *Dedup[T]) Loss() float64 { return d.loss }

// FPR is the share of new elements that would be dropped as duplicates now. It reads
// the whole filter.
func (d *Dedup[T]) FPR() float64 { return d.filter.FPR() }

// ApproxCount estimates how many different elements are remembered. It reads the
// whole filter.
func (d *Dedup[T]) ApproxCount() uint64 { return d.filter.ApproxCount() }

// FillRatio is the share of bits that are set, 0 to 1. It reads the whole filter.
func (d *Dedup[T]) FillRatio() float64 { return d.filter.FillRatio() }

// Seen is the number of elements added, including duplicates.
func (d *Dedup[T]) Seen() uint64 { return d.seen.Load() }

// Dropped is the number of elements that were dropped as duplicates.
func (d *Dedup[T]) Dropped() uint64 { return d.dropped.Load() }

// counts returns Seen and Dropped. Dropped never exceeds Seen, although Add and Reset change them
// one after the other.
func (d *Dedup[T]) counts() (seen, dropped uint64) {
	dropped = d.dropped.Load()
	seen = d.seen.Load()
	return seen, min(seen, dropped)
}

// MemoryBytes is the memory that the filter takes.
func (d *Dedup[T]) MemoryBytes() int { return d.filter.MemoryBytes() }

// Reset forgets all elements, and sets Seen and Dropped to zero. An element whose Add
// runs at the same time may be forgotten too.
func (d *Dedup[T]) Reset() {
	d.filter.Reset()
	d.seen.Store(0)
	d.dropped.Store(0)
}

// Compatible returns nil if o can be merged into d; see Merger. A Dedup with a window
// cannot be merged.
func (d *Dedup[T]) Compatible(o *Dedup[T]) error { return compatibleAs(d.filter, o.filter) }

// Merge makes d also drop what o has seen, and adds o's Seen and Dropped to those of d; see Merger.
func (d *Dedup[T]) Merge(o *Dedup[T]) error {
	if err := d.Compatible(o); err != nil {
		return err
	}
	seen, dropped := o.counts()
	if err := any(d.filter).(anyMerger).mergeAny(o.filter); err != nil {
		return err
	}
	d.seen.Add(seen)
	d.dropped.Add(dropped)
	return nil
}

// Clone returns a copy that has seen at least the elements whose Add has returned.
func (d *Dedup[T]) Clone() *Dedup[T] {
	c := &Dedup[T]{key: d.key, loss: d.loss}
	seen, dropped := d.counts()
	c.seen.Store(seen)
	c.dropped.Store(dropped)
	c.filter = cloneAs(d.filter)
	return c
}

// Equal reports whether the filters have the same parameters and bits. It ignores Seen and
// Dropped.
func (d *Dedup[T]) Equal(o *Dedup[T]) bool { return equalAs(d.filter, o.filter) }

// WriteTo writes the Dedup in the format that ReadDedup and ReadFrom read, so that a
// stream can continue after a restart. It includes all elements whose Add has returned;
// one that is added meanwhile may be missing. To pass on each element exactly once across
// restarts, save the Dedup between two elements, together with the position in the stream.
func (d *Dedup[T]) WriteTo(w io.Writer) (int64, error) {
	seen, dropped := d.counts()
	return writeParts(w, record{kind: kindDedup, elements: d.key.Kind(), hashes: 1, words: 3},
		[]uint64{seen, dropped, math.Float64bits(d.loss)}, d.filter)
}

// ReadFrom replaces the Dedup with one that WriteTo wrote, whatever its parameters; see
// Filter.
func (d *Dedup[T]) ReadFrom(r io.Reader) (int64, error) { return readFrom(d, r) }

// MarshalBinary returns what WriteTo writes.
func (d *Dedup[T]) MarshalBinary() ([]byte, error) { return marshal(d) }

// UnmarshalBinary replaces the Dedup with one that MarshalBinary wrote; see Filter.
func (d *Dedup[T]) UnmarshalBinary(data []byte) error { return unmarshal(d, data) }

// ReadDedup reads a Dedup that WriteTo wrote; see ReadBloom.
func ReadDedup[T any](r io.Reader, o ReadOptions[T]) (*Dedup[T], error) {
	return readNew(r, o, func(key funnel.Key[T]) *Dedup[T] { return &Dedup[T]{key: key} })
}

func (d *Dedup[T]) elementKind() (funnel.Kind, error) { return elementKind(&d.key) }

func (d *Dedup[T]) read(s *source) error {
	if err := d.readFilter(s); err != nil {
		return fmt.Errorf("read dedup: %w", err)
	}
	return nil
}

func (d *Dedup[T]) readFilter(s *source) error {
	rec, err := readHeader(s, kindDedup)
	if err != nil {
		return err
	}
	if rec != (record{kind: kindDedup, elements: rec.elements, hashes: 1, words: 3}) {
		return formatError("fields that a Dedup does not have")
	}
	words, err := readBody(s, rec)
	if err != nil {
		return err
	}
	loss := math.Float64frombits(words[2])
	if words[1] > words[0] || !(loss >= 0 && loss <= 1) {
		return formatError("%d of %d dropped, loss %v", words[1], words[0], loss)
	}
	kind, err := peekKind(s)
	if err != nil {
		return err
	}
	var f dedupFilter[T]
	switch kind {
	case kindBloom:
		f = &Bloom[T]{key: d.key}
	case kindGenerations:
		g := &Generations[T]{key: d.key}
		if old, ok := d.filter.(*Generations[T]); ok {
			g.now = old.now
		}
		f = g
	default:
		return formatError("a Dedup of a %v", kind)
	}
	if err := f.read(s); err != nil {
		return err
	}
	d.filter, d.loss = f, loss
	d.seen.Store(words[0])
	d.dropped.Store(words[1])
	return nil
}
