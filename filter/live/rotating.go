package live

import (
	"context"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// RotatingOptions are the parameters of a Rotating.
type RotatingOptions[T any] struct {
	// Items and FPR are the size of the first filter, and the least of the later
	// ones: a filter is made for a quarter more elements than there are.
	Items uint64
	FPR   float64
	// Source goes over all elements, from the start each time: the rows of a
	// table, say. An error ends the rebuild, and the filter stays as it was.
	Source func(ctx context.Context) iter.Seq2[T, error]
	// Count, if not nil, tells before a rebuild how many elements the source has,
	// about. Without it a filter is made for what the last rebuild met.
	Count func(ctx context.Context) (uint64, error)
	// Every, if not zero, is when Run rebuilds: so long after the last time.
	Every time.Duration
	// MaxFPR, if not zero, makes Run rebuild when the FPR has risen above it:
	// more elements were added than the filter was made for.
	MaxFPR float64
	// Check is how often Run looks at the FPR; a minute if zero. A look reads the
	// whole filter.
	Check time.Duration
	// Scheme, Seed and Funnel are those of the filter; see BloomOptions.
	Scheme Scheme
	Seed   uint64
	Funnel func(dst []byte, v T) []byte
}

// Rotating is a Bloom filter that is rebuilt from its source while it is used,
// and so forgets what the source no longer has, and grows: what deletes are
// for, at the memory of a Bloom filter, and twice that during a rebuild.
//
// During a rebuild elements are added to the old filter and to the new one. An
// element whose Add has returned is never lost to a rebuild if Add was called
// during it, or if the element was in the source before Add was called. So: write
// to the source first, then Add.
//
// Rotating is safe for concurrent use. MayContain and Add take no locks, but for an
// Add while Count runs: until the size of the new filter is known, a list of 16
// bytes an element keeps what is added.
type Rotating[T any] struct {
	o     RotatingOptions[T]
	state atomic.Pointer[rotation[T]] // replaced, never changed

	mu       sync.Mutex // held during a rebuild
	progress atomic.Pointer[RotatingProgress]
	added    atomic.Uint64 // by the rebuild under way
}

// rotation is the filter that is asked, and the one that is being built, if any.
// While that has no size yet, early has the elements that it will get.
type rotation[T any] struct {
	current, next *Bloom[T]
	early         *additions
}

// additions are elements that were added before there was a filter for them.
type additions struct {
	mu  sync.Mutex
	all []digest
}

func (a *additions) add(d digest) {
	a.mu.Lock()
	a.all = append(a.all, d)
	a.mu.Unlock()
}

// addTo adds the elements to a filter. Who adds one later finds that filter.
func (a *additions) addTo(t *table) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.all {
		t.add(d)
	}
}

// RotatingProgress is how the rebuild under way, or the last one, gets on.
type RotatingProgress struct {
	// Running is whether a rebuild is under way.
	Running bool
	// Done is the number of elements that the source has given, Expected how many
	// it should have.
	Done, Expected uint64
	// Started is when the rebuild began, Took how long it took.
	Started time.Time
	Took    time.Duration
	// Rebuilds is the number of rebuilds that ended well, Err the error of the
	// last one.
	Rebuilds uint64
	Err      error
}

// NewRotating returns an empty filter, or an *OptionError. Call Rebuild to fill it.
func NewRotating[T any](o RotatingOptions[T]) (*Rotating[T], error) {
	if o.Check == 0 {
		o.Check = time.Minute
	}
	switch {
	case o.Source == nil:
		return nil, optionError("Source", "is nil")
	case o.Every < 0 || o.Check < 0:
		return nil, optionError("Every and Check", "must not be negative")
	case o.MaxFPR != 0 && !(o.MaxFPR > o.FPR && o.MaxFPR < 1):
		return nil, optionError("MaxFPR", "%v is not between FPR and 1", o.MaxFPR)
	}
	r := &Rotating[T]{o: o}
	first, err := r.newFilter(o.Items)
	if err != nil {
		return nil, err
	}
	r.state.Store(&rotation[T]{current: first})
	r.progress.Store(&RotatingProgress{Expected: o.Items})
	return r, nil
}

func (r *Rotating[T]) newFilter(items uint64) (*Bloom[T], error) {
	return NewBloom(BloomOptions[T]{
		Items: max(items, r.o.Items), FPR: r.o.FPR, Scheme: r.o.Scheme, Seed: r.o.Seed, Funnel: r.o.Funnel,
	})
}

// Add adds an element, also to the filter that is being built. It reports whether
// that changed a bit of the filter that is asked.
func (r *Rotating[T]) Add(v T) bool { return r.add(r.state.Load().current.digest(v)) }

func (r *Rotating[T]) add(d digest) bool {
	s := r.state.Load()
	changed := s.current.add(d)
	for {
		switch {
		case s.next != nil:
			s.next.add(d)
		case s.early != nil:
			s.early.add(d)
		}
		// If the filters were changed meanwhile, the element may be missing in
		// one of the new ones.
		now := r.state.Load()
		if now == s {
			return changed
		}
		s = now
		s.current.add(d)
	}
}

// AddMany adds elements one by one; see Adder.
func (r *Rotating[T]) AddMany(vs []T, isNew []bool) {
	for i, v := range vs {
		if changed := r.Add(v); isNew != nil {
			isNew[i] = changed
		}
	}
}

// MayContain reports false only if the element was not added, or was not in the
// source at the last rebuild nor added since.
func (r *Rotating[T]) MayContain(v T) bool { return r.state.Load().current.MayContain(v) }

// MayContainMany sets maybe[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(maybe) >= len(vs).
func (r *Rotating[T]) MayContainMany(vs []T, maybe []bool) { r.Current().MayContainMany(vs, maybe) }

// ApproxCount, FPR, FillRatio and MemoryBytes are those of the filter that is asked.
// A rebuild takes as much memory again.
func (r *Rotating[T]) ApproxCount() uint64 { return r.Current().ApproxCount() }
func (r *Rotating[T]) FPR() float64        { return r.Current().FPR() }
func (r *Rotating[T]) FillRatio() float64  { return r.Current().FillRatio() }
func (r *Rotating[T]) MemoryBytes() int    { return r.Current().MemoryBytes() }

// Clone returns a filter with the same options, and with a copy of the filter that is
// asked. A rebuild that is under way is not copied.
func (r *Rotating[T]) Clone() *Rotating[T] {
	c := &Rotating[T]{o: r.o}
	p := r.Progress()
	current := r.Current().Clone()
	c.state.Store(&rotation[T]{current: current})
	c.progress.Store(&RotatingProgress{Expected: p.Expected})
	return c
}

// Equal reports whether the filters that are asked have the same parameters and bits.
func (r *Rotating[T]) Equal(o *Rotating[T]) bool { return r.Current().Equal(o.Current()) }

// WriteTo writes the filter that is asked, as Bloom.WriteTo does: for ReadFrom, or
// for ReadBloom.
func (r *Rotating[T]) WriteTo(w io.Writer) (int64, error) { return r.Current().WriteTo(w) }

// ReadFrom replaces the filter that is asked by one that WriteTo wrote, until the
// next rebuild: a start without one. It waits for a rebuild that is under way. The
// filter must have been made by NewRotating.
func (r *Rotating[T]) ReadFrom(src io.Reader) (int64, error) { return readFrom(r, src) }

// MarshalBinary returns what WriteTo writes.
func (r *Rotating[T]) MarshalBinary() ([]byte, error) { return marshal(r) }

// UnmarshalBinary replaces the filter that is asked; see ReadFrom.
func (r *Rotating[T]) UnmarshalBinary(data []byte) error { return unmarshal(r, data) }

func (r *Rotating[T]) elementKind() (funnel.Kind, error) {
	s := r.state.Load()
	if s == nil {
		return 0, optionError("Source", "is missing: a Rotating is made by NewRotating")
	}
	return s.current.elementKind()
}

func (r *Rotating[T]) read(s *source) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.Current()
	f := &Bloom[T]{key: current.key}
	if err := f.read(s); err != nil {
		return err
	}
	// Digests that were made for the old filter must fit the new one.
	if f.scheme.guava() != current.scheme.guava() {
		return incompatible("schemes", current.scheme, f.scheme)
	}
	r.state.Store(&rotation[T]{current: f})
	return nil
}

// Current is the filter that is asked now, to be looked at. Elements added to it are
// not added to the next.
func (r *Rotating[T]) Current() *Bloom[T] { return r.state.Load().current }

// Progress tells how the rebuild gets on.
func (r *Rotating[T]) Progress() RotatingProgress {
	p := *r.progress.Load()
	if p.Running {
		p.Done = r.added.Load()
		p.Took = time.Since(p.Started)
	}
	return p
}

// Rebuild makes a new filter of what the source has now and of what is added
// meanwhile, and puts it in the place of the old one. After an error the old one
// stays. A Rebuild waits for another one that is under way.
func (r *Rotating[T]) Rebuild(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := *r.progress.Load()
	p.Running, p.Done, p.Started, p.Err = true, 0, time.Now(), nil
	r.added.Store(0)
	r.progress.Store(&p)

	n, err := r.build(ctx)
	end := *r.progress.Load()
	end.Running, end.Done, end.Took, end.Err = false, r.added.Load(), time.Since(p.Started), err
	if err == nil {
		end.Rebuilds++
		end.Expected = n
	}
	r.progress.Store(&end)
	return err
}

// build returns how many elements the source has.
func (r *Rotating[T]) build(ctx context.Context) (n uint64, err error) {
	old := r.state.Load().current
	early := new(additions)
	r.state.Store(&rotation[T]{current: old, early: early})
	done := false
	defer func() {
		if !done { // an error, or a panic of the caller's functions
			r.state.Store(&rotation[T]{current: old})
		}
	}()
	p := *r.progress.Load()
	if r.o.Count != nil {
		if p.Expected, err = r.o.Count(ctx); err != nil {
			return 0, err
		}
		r.progress.Store(&p)
	}
	next, err := r.newFilter(p.Expected + p.Expected/4)
	if err != nil {
		return 0, err
	}
	r.state.Store(&rotation[T]{current: old, next: next})
	early.addTo(&next.table)
	for v, err := range r.o.Source(ctx) {
		if err == nil && n%1024 == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return n, err
		}
		next.Add(v)
		n++
		r.added.Add(1)
	}
	done = true
	r.state.Store(&rotation[T]{current: next})
	return n, nil
}

// Run rebuilds by time and by fill, as the options say, until ctx ends, and
// returns its error. Errors of a rebuild are in Progress; the next one comes when
// it would have come anyway, after Check or Every.
func (r *Rotating[T]) Run(ctx context.Context) error {
	var every, check <-chan time.Time
	if r.o.Every > 0 {
		t := time.NewTicker(r.o.Every)
		defer t.Stop()
		every = t.C
	}
	if r.o.MaxFPR > 0 {
		t := time.NewTicker(r.o.Check)
		defer t.Stop()
		check = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every:
		case <-check:
			if r.Current().FPR() <= r.o.MaxFPR {
				continue
			}
			r.expectMore()
		}
		r.Rebuild(ctx)
	}
}

// expectMore makes the next filter large enough for what is in the current one.
func (r *Rotating[T]) expectMore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := *r.progress.Load()
	n := r.Current().ApproxCount()
	if n > maxBits { // saturated: no one knows
		n = 2 * p.Expected
	}
	p.Expected = max(p.Expected, n)
	r.progress.Store(&p)
}
