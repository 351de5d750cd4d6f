package live

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// DedupOptions are the parameters of a Dedup.
type DedupOptions[T any] struct {
	// Items is the number of different elements in the stream or, if it has no
	// end, among which duplicates shall be found (Window).
	Items uint64
	// FPR is the share of new elements that are taken for duplicates, and lost,
	// once Items were seen. It is less before; see Dedup.Loss.
	FPR float64
	// Window is for streams without end: duplicates are found if they come within
	// Items elements or, if Span is set, within that time.
	Window bool
	Span   time.Duration
	// Seed and Funnel are those of the filter; see BloomOptions.
	Seed   uint64
	Funnel func(dst []byte, v T) []byte
}

// Dedup drops the duplicates of a stream. What it lets pass is new for certain,
// each element once; what it drops is a duplicate, or in a small share of cases,
// Loss, a new element that is lost. A stream that must not lose any has to look
// up what was dropped.
//
// Dedup is safe for concurrent use: of several callers with the same element, one
// is told that it is the first.
type Dedup[T any] struct {
	key    funnel.Key[T]
	filter interface {
		Add(v T) bool
		FPR() float64
		SizeBytes() int
	}
	loss    float64
	locks   [64]paddedMutex // by element
	seen    atomic.Uint64
	dropped atomic.Uint64
}

// NewDedup returns a Dedup that has seen nothing.
func NewDedup[T any](o DedupOptions[T]) (*Dedup[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	d := &Dedup[T]{key: key}
	if o.Window || o.Span != 0 {
		g, err := NewGenerations(GenerationsOptions[T]{
			Items: o.Items, Span: o.Span, FPR: o.FPR, Seed: o.Seed, Funnel: o.Funnel, Scheme: Blocked,
		})
		if err != nil {
			return nil, err
		}
		d.filter, d.loss = g, o.FPR // it is always about full
		return d, nil
	}
	b, err := NewBloom(BloomOptions[T]{Items: o.Items, FPR: o.FPR, Seed: o.Seed, Funnel: o.Funnel})
	if err != nil {
		return nil, err
	}
	d.filter, d.loss = b, FillLoss(b.Bits(), b.Hashes(), o.Items)
	return d, nil
}

// First reports whether an element is seen for the first time.
func (d *Dedup[T]) First(v T) bool {
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

// Unique goes over the elements of a stream that are seen for the first time.
func (d *Dedup[T]) Unique(stream iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for v := range stream {
			if d.First(v) && !yield(v) {
				return
			}
		}
	}
}

// Loss is the share of the different elements of a whole stream that will be
// taken for duplicates, with the options' number of them: 0.17 % for an FPR of
// 1 %, since the filter errs less while it is filling. With a window it is the FPR at
// most.
func (d *Dedup[T]) Loss() float64 { return d.loss }

// FPR is the share of new elements that are taken for duplicates now. It reads
// the whole filter.
func (d *Dedup[T]) FPR() float64 { return d.filter.FPR() }

// Seen is the number of elements that came, Dropped how many of them were taken
// for duplicates.
func (d *Dedup[T]) Seen() uint64    { return d.seen.Load() }
func (d *Dedup[T]) Dropped() uint64 { return d.dropped.Load() }

// SizeBytes is the memory that the filter takes.
func (d *Dedup[T]) SizeBytes() int { return d.filter.SizeBytes() }
