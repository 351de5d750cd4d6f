package live

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// GenerationsOptions are the parameters of Generations. Items is required. Elements are
// forgotten by number and, with Span, also by time.
type GenerationsOptions[T any] struct {
	// Items is how many of the newest elements are remembered. With Span, it is the expected
	// maximum number of elements in one span: if there are more, the oldest are forgotten earlier,
	// so that the FPR still holds.
	Items uint64
	// Span, if not zero, is how long elements are remembered.
	Span time.Duration
	// FPR is the false positive rate that the filter stays below.
	FPR float64
	// Generations is the number of filters, 2 to 64; 4 if zero. With more filters, elements are
	// forgotten closer to the right time, and lookups are slower.
	Generations int
	// Scheme, Seed and Funnel are those of the filters; see BloomOptions.
	Scheme Scheme
	Seed   uint64
	Funnel func(dst []byte, v T) []byte
	// Now returns the time; time.Now if nil.
	Now func() time.Time
}

// Generations is a Bloom filter that forgets. It is a ring of filters: elements are added
// to the newest, lookups probe all, and the oldest is dropped as a whole. With g filters an
// element is remembered for at least Span and at most Span × g/(g-1). The same holds for
// Items. Each time the clock is set back, elements are remembered up to Span/(g-1) longer.
//
// Adding an element again renews it. Generations is safe for concurrent use; only a call that
// drops a filter, or finds that the clock was set back, takes a lock.
type Generations[T any] struct {
	key   funnel.Key[T]
	o     BloomOptions[T] // of one filter
	count int
	each  time.Duration // how long elements are added to the newest filter; 0: no limit
	now   func() time.Time

	ring atomic.Pointer[ring[T]] // replaced, never changed
	mu   sync.Mutex              // held to replace it
}

// ring is the state at one moment.
type ring[T any] struct {
	filters []*Bloom[T]    // the newest first
	until   int64          // when the next one replaces the newest, in Unix nanoseconds
	used    *atomic.Uint64 // elements in the newest
}

const (
	defaultGenerations = 4
	maxGenerations     = 64
)

// NewGenerations returns an empty filter, or an *OptionError.
func NewGenerations[T any](o GenerationsOptions[T]) (*Generations[T], error) {
	if o.Generations == 0 {
		o.Generations = defaultGenerations
	}
	switch {
	case o.Generations < 2 || o.Generations > maxGenerations:
		return nil, optionError("Generations", "%d is not in 2..64", o.Generations)
	case o.Items == 0:
		return nil, optionError("Items", "is zero")
	case o.Span < 0 || o.Span > 0 && o.Span < time.Duration(o.Generations):
		return nil, optionError("Span", "%v is too short", o.Span)
	case o.FPR == 0:
		return nil, optionError("FPR", "is missing or zero")
	case !(o.FPR > 0 && o.FPR < 1):
		return nil, optionError("FPR", "%v is not between 0 and 1", o.FPR)
	}
	older := uint64(o.Generations - 1)
	g := &Generations[T]{
		o: BloomOptions[T]{
			Items: (o.Items + older - 1) / older, FPR: o.FPR / float64(o.Generations),
			Scheme: o.Scheme, Seed: o.Seed, Funnel: o.Funnel,
		},
		count: o.Generations,
		each:  o.Span / time.Duration(older),
		now:   o.Now,
	}
	if o.Span%time.Duration(older) != 0 {
		g.each++
	}
	if g.now == nil {
		g.now = time.Now
	}
	first, err := NewBloom(g.o)
	if err != nil {
		return nil, err
	}
	g.key = first.key
	g.ring.Store(&ring[T]{filters: []*Bloom[T]{first}, until: g.deadline(g.now()), used: new(atomic.Uint64)})
	return g, nil
}

func (g *Generations[T]) deadline(now time.Time) int64 { return later(now.UnixNano(), g.each) }

// later returns the time d after t in Unix nanoseconds, or the latest representable one.
func later(t int64, d time.Duration) int64 {
	if t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}

// current returns the state, after dropping filters that are too old. If the clock was set back,
// elements are added to the newest filter for a whole interval from now on.
func (g *Generations[T]) current() *ring[T] {
	r := g.ring.Load()
	if g.each == 0 {
		return r
	}
	if now := g.now().UnixNano(); now < r.until && r.until-now <= int64(g.each) {
		return r
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for r = g.ring.Load(); now.UnixNano() >= r.until; r = g.ring.Load() {
		until := later(r.until, g.each)
		if late := now.UnixNano() - r.until; late/int64(g.each) >= int64(g.count) {
			until = g.deadline(now) // all filters are too old
			r = &ring[T]{}
		}
		g.rotate(r, until)
	}
	if r.until-now.UnixNano() > int64(g.each) { // the clock was set back
		r = &ring[T]{filters: r.filters, until: g.deadline(now), used: r.used}
		g.ring.Store(r)
	}
	return r
}

// rotate begins a new filter after those of r, and drops the oldest. The caller
// holds the lock.
func (g *Generations[T]) rotate(r *ring[T], until int64) {
	newest := &Bloom[T]{g.key, g.ring.Load().filters[0].empty()}
	keep := min(len(r.filters), g.count-1)
	g.ring.Store(&ring[T]{
		filters: append([]*Bloom[T]{newest}, r.filters[:keep]...),
		until:   until,
		used:    new(atomic.Uint64),
	})
}

// Rotate drops the oldest filter and begins a new one now, for callers that decide when to
// forget.
func (g *Generations[T]) Rotate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rotate(g.ring.Load(), g.deadline(g.now()))
}

// Add adds an element and reports whether it was new: if so, none of the filters contained
// it.
func (g *Generations[T]) Add(v T) bool {
	r := g.current()
	return g.add(r, r.filters[0].digest(v))
}

func (g *Generations[T]) add(r *ring[T], d digest) bool {
	isNew := !r.has(d)
	added := r.add(d)
	isNew = isNew && added
	for {
		if added && r.used.Add(1) == g.o.Items && g.rotateFull(r) {
			return isNew
		}
		// If the ring has rotated meanwhile, the element is in a filter that will be dropped too
		// early, or has been dropped already: add it again.
		now := g.ring.Load()
		if now == r {
			return isNew
		}
		r = now
		added = r.add(d)
	}
}

// rotateFull begins a new filter if the newest of r, which is full, is still the newest.
func (g *Generations[T]) rotateFull(r *ring[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ring.Load().used != r.used {
		return false
	}
	g.rotate(r, g.deadline(g.now()))
	return true
}

// add adds an element to the newest filter.
func (r *ring[T]) add(d digest) bool { return r.filters[0].add(d) }

// has reports whether any of the filters may contain an element.
func (r *ring[T]) has(d digest) bool {
	for _, f := range r.filters {
		if f.has(d) {
			return true
		}
	}
	return false
}

// AddMany adds elements one by one; see Adder.
func (g *Generations[T]) AddMany(vs []T, isNew []bool) {
	for i, v := range vs {
		if added := g.Add(v); isNew != nil {
			isNew[i] = added
		}
	}
}

// MayContain reports false only if the element was not added, or has been forgotten.
func (g *Generations[T]) MayContain(v T) bool {
	r := g.current()
	return r.has(r.filters[0].digest(v))
}

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(positive) >= len(vs).
func (g *Generations[T]) MayContainMany(vs []T, positive []bool) {
	r := g.current()
	var ds [batch]digest
	for len(vs) > 0 {
		n := min(batch, len(vs))
		for i, v := range vs[:n] {
			ds[i] = r.filters[0].digest(v)
		}
		for i, d := range ds[:n] {
			positive[i] = r.has(d)
		}
		vs, positive = vs[n:], positive[n:]
	}
}

// ApproxCount estimates how many different elements are remembered. It reads all
// filters and needs the memory of one more while it runs.
func (g *Generations[T]) ApproxCount() uint64 {
	r := g.current()
	all := r.filters[0].clone()
	for _, f := range r.filters[1:] {
		all.merge(&f.table)
	}
	return all.approxCount()
}

// FPR is the share of elements that were not added, or are forgotten, for which
// MayContain is true now. It reads all filters.
func (g *Generations[T]) FPR() float64 {
	no := 1.0
	for _, f := range g.current().filters {
		no *= 1 - f.FPR()
	}
	return 1 - no
}

// FillRatio is the share of bits that are set in the present filters, 0 to 1. It reads
// all filters.
func (g *Generations[T]) FillRatio() float64 {
	sum := 0.0
	filters := g.current().filters
	for _, f := range filters {
		sum += f.FillRatio()
	}
	return sum / float64(len(filters))
}

// MemoryBytes is the memory that all filters take once the ring is full.
func (g *Generations[T]) MemoryBytes() int { return g.ring.Load().filters[0].MemoryBytes() * g.count }

// Clone returns a copy with at least the elements whose Add has returned.
func (g *Generations[T]) Clone() *Generations[T] {
	c := &Generations[T]{key: g.key, o: g.o, count: g.count, each: g.each, now: g.now}
	r := g.ring.Load()
	n := &ring[T]{until: r.until, used: new(atomic.Uint64)}
	for _, f := range r.filters {
		n.filters = append(n.filters, f.Clone())
	}
	n.used.Store(r.used.Load())
	c.ring.Store(n)
	if n.used.Load() >= g.o.Items { // the newest is full, and an Add is about to replace it in g
		c.rotate(n, c.deadline(c.now()))
	}
	return c
}

// Equal reports whether the filters have the same parameters and bits, and will forget
// at the same time.
func (g *Generations[T]) Equal(o *Generations[T]) bool {
	a, b := g.current(), o.current()
	if g.o.Items != o.o.Items || g.o.FPR != o.o.FPR || g.count != o.count || g.each != o.each ||
		g.each != 0 && a.until != b.until || a.used.Load() != b.used.Load() || len(a.filters) != len(b.filters) {
		return false
	}
	for i := range a.filters {
		if !a.filters[i].Equal(b.filters[i]) {
			return false
		}
	}
	return true
}

// Reset removes all elements. An element whose Add runs at the same time may be
// lost.
func (g *Generations[T]) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rotate(&ring[T]{}, g.deadline(g.now()))
}
