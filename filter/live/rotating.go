package live

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// RotatingOptions are the parameters of a Rotating.
type RotatingOptions[T any] struct {
	// Items is the number of elements that the first filter is made for. Later ones are made for a
	// quarter more elements than Count returns or, without Count, than the last successful rebuild
	// has read (Items before the first one), and at least for Items.
	Items uint64
	// FPR is the false positive rate with that many elements.
	FPR float64
	// Source returns all elements, such as the rows of a table, from the start on each
	// call. An error ends the rebuild, and the old filter stays in use.
	Source func(ctx context.Context) iter.Seq2[T, error]
	// Count, if not nil, is called before a rebuild and returns about how many elements the source
	// has. Without it, the number of elements in the last successful rebuild is used, or about that
	// of the filter that ReadFrom has read.
	Count func(ctx context.Context) (uint64, error)
	// Every, if not zero, is the interval at which Run rebuilds.
	Every time.Duration
	// MaxFPR, if not zero, makes Run rebuild when the FPR has risen above it because more elements
	// were added than the filter was made for. It must be above FPR. The new filter is made for the
	// elements of the old one, and for those of the last successful rebuild, even if Count returns
	// fewer.
	MaxFPR float64
	// Check is the interval at which Run checks the FPR, which reads the whole filter;
	// a minute if zero.
	Check time.Duration
	// Scheme, Seed and Funnel are those of the filter; see BloomOptions.
	Scheme Scheme
	Seed   uint64
	Funnel func(dst []byte, v T) []byte
}

// Rotating is a Bloom filter that is rebuilt from its source while it is in use. So it grows,
// and forgets elements that are no longer in the source. It takes the memory of a Bloom filter,
// and of two during a rebuild.
//
// During a rebuild, elements are added to the old filter and to the new one. A rebuild never
// loses an element whose Add has returned, if Add was called during the rebuild or if the
// element was in the source before Add was called. So write to the source first, then call
// Add.
//
// Rotating is safe for concurrent use. MayContain and Add take no locks, except for an Add
// while Count runs: until the size of the new filter is known, each Add appends 16 bytes to a
// list.
type Rotating[T any] struct {
	o     RotatingOptions[T]
	state atomic.Pointer[rotation[T]] // replaced, never changed

	mu       sync.Mutex // held during a rebuild
	progress atomic.Pointer[RotatingProgress]
	added    atomic.Uint64 // by the rebuild under way
	last     atomic.Uint64 // elements in the last successful rebuild or ReadFrom; Items before
}

// rotation is the current filter and the one being built, if any. Until its size is
// known, early has the elements to be added to it.
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

// addTo adds the elements to a filter. An element that is added later is not lost: the Add sees
// that the state has changed, and adds the element to that filter, too.
func (a *additions) addTo(t *table) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.all {
		t.add(d)
	}
}

// RotatingProgress is the progress of the present rebuild, or the result of the last one.
type RotatingProgress struct {
	// Running reports whether a rebuild is under way.
	Running bool
	// Done is the number of elements that the source has returned, Expected the
	// expected total.
	Done, Expected uint64
	// Started is when the rebuild began, Took how long it has taken.
	Started time.Time
	Took    time.Duration
	// Rebuilds is the number of successful rebuilds, Err the error of the last
	// rebuild.
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
	r.last.Store(o.Items)
	r.progress.Store(&RotatingProgress{Expected: o.Items})
	return r, nil
}

func (r *Rotating[T]) newFilter(items uint64) (*Bloom[T], error) {
	return NewBloom(BloomOptions[T]{
		Items: max(items, r.o.Items), FPR: r.o.FPR, Scheme: r.o.Scheme, Seed: r.o.Seed, Funnel: r.o.Funnel,
	})
}

// Add adds an element to the current filter and, during a rebuild, to the new one. It
// reports whether a bit of the current filter changed.
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
		// If the filters have been replaced meanwhile, the element may be missing
		// in one of the new ones: add it again.
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

// MayContain reports false only if the element was neither in the source at the last
// rebuild nor added since.
func (r *Rotating[T]) MayContain(v T) bool { return r.state.Load().current.MayContain(v) }

// MayContainMany sets positive[i] to MayContain(vs[i]) for each i, faster than one by
// one. len(positive) >= len(vs).
func (r *Rotating[T]) MayContainMany(vs []T, positive []bool) {
	r.Current().MayContainMany(vs, positive)
}

// ApproxCount is that of the current filter. It reads the whole filter.
func (r *Rotating[T]) ApproxCount() uint64 { return r.Current().ApproxCount() }

// FPR is that of the current filter. It reads the whole filter.
func (r *Rotating[T]) FPR() float64 { return r.Current().FPR() }

// FillRatio is that of the current filter. It reads the whole filter.
func (r *Rotating[T]) FillRatio() float64 { return r.Current().FillRatio() }

// MemoryBytes is the memory that the current filter takes. A rebuild needs that of the new filter,
// too.
func (r *Rotating[T]) MemoryBytes() int { return r.Current().MemoryBytes() }

// Clone returns a filter with the same options and a copy of the current filter. It does
// not copy a rebuild under way.
func (r *Rotating[T]) Clone() *Rotating[T] {
	c := &Rotating[T]{o: r.o}
	last := r.last.Load()
	c.state.Store(&rotation[T]{current: r.Current().Clone()})
	c.last.Store(last)
	c.progress.Store(&RotatingProgress{Expected: last})
	return c
}

// Equal reports whether the current filters have the same parameters and bits.
func (r *Rotating[T]) Equal(o *Rotating[T]) bool { return r.Current().Equal(o.Current()) }

// WriteTo writes the current filter, as Bloom.WriteTo does, for ReadFrom or ReadBloom.
func (r *Rotating[T]) WriteTo(w io.Writer) (int64, error) { return r.Current().WriteTo(w) }

// ReadFrom replaces the current filter with one that WriteTo wrote, so that a program can
// start without a rebuild. It waits for a rebuild under way. r must have been made by
// NewRotating.
func (r *Rotating[T]) ReadFrom(src io.Reader) (int64, error) { return readFrom(r, src) }

// MarshalBinary returns what WriteTo writes.
func (r *Rotating[T]) MarshalBinary() ([]byte, error) { return marshal(r) }

// UnmarshalBinary replaces the current filter; see ReadFrom.
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
	// Digests of the old filter must be valid for the new one.
	if f.scheme.guava() != current.scheme.guava() {
		return incompatible("schemes", current.scheme, f.scheme)
	}
	if n := f.ApproxCount(); n <= maxBits { // else it is saturated
		r.last.Store(n)
	}
	r.state.Store(&rotation[T]{current: f})
	return nil
}

// Current returns the current filter, for reading: elements added to it are not added to the
// one being built.
func (r *Rotating[T]) Current() *Bloom[T] { return r.state.Load().current }

// Progress returns the progress of the present rebuild, or the result of the last one.
func (r *Rotating[T]) Progress() RotatingProgress {
	p := *r.progress.Load()
	if p.Running {
		p.Done = r.added.Load()
		p.Took = time.Since(p.Started)
	}
	return p
}

// Rebuild makes a new filter of the elements in the source and those that are added meanwhile, and
// replaces the old one with it. After an error the old one stays in use. If another Rebuild is in
// progress, Rebuild first waits for it, even if ctx ends meanwhile.
func (r *Rotating[T]) Rebuild(ctx context.Context) (err error) { return r.rebuild(ctx, 0) }

// rebuild is Rebuild for a source that is expected to have at least a number of elements.
func (r *Rotating[T]) rebuild(ctx context.Context, atLeast uint64) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := *r.progress.Load()
	p.Running, p.Done, p.Started, p.Err = true, 0, time.Now(), nil
	r.added.Store(0)
	r.progress.Store(&p)

	var n uint64
	err = errors.New("live: Source or Count has panicked") // unless build returns
	defer func() {
		end := *r.progress.Load()
		end.Running, end.Done, end.Took, end.Err = false, r.added.Load(), time.Since(p.Started), err
		if err == nil {
			end.Rebuilds++
			end.Expected = n
			r.last.Store(n)
		}
		r.progress.Store(&end)
	}()
	n, err = r.build(ctx, atLeast)
	return err
}

// build builds the new filter. It returns the number of elements in the source.
func (r *Rotating[T]) build(ctx context.Context, atLeast uint64) (n uint64, err error) {
	old := r.state.Load().current
	early := new(additions)
	r.state.Store(&rotation[T]{current: old, early: early})
	done := false
	defer func() {
		if !done { // an error, or a panic of the caller's functions
			r.state.Store(&rotation[T]{current: old})
		}
	}()
	expected := r.last.Load()
	if r.o.Count != nil {
		if expected, err = r.o.Count(ctx); err != nil {
			return 0, err
		}
	}
	p := *r.progress.Load()
	p.Expected = max(expected, atLeast)
	r.progress.Store(&p)
	next, err := r.newFilter(p.Expected + p.Expected/4)
	if err != nil {
		return 0, err
	}
	next.key = old.key // a Sharded may have set it
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

// Run rebuilds at the interval Every and when the FPR exceeds MaxFPR, until ctx ends. It does not
// rebuild when it begins: call Rebuild first. It returns ctx's error. A rebuild that fails does not
// change when the next one begins; until then, Progress returns its error.
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
		atLeast := uint64(0)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every:
		case <-check:
			if r.Current().FPR() <= r.o.MaxFPR {
				continue
			}
			atLeast = r.known()
		}
		r.rebuild(ctx, atLeast)
	}
}

// known returns the number of elements in the current filter, or in the last successful rebuild if
// that is larger. How many are in a saturated filter is unknown until a rebuild has read them.
func (r *Rotating[T]) known() uint64 {
	n := r.Current().ApproxCount()
	if n > maxBits { // saturated
		n = 0
	}
	return max(n, r.last.Load())
}

// useKey waits for a rebuild under way. It replaces the filter instead of changing its key, since
// others may be using it.
func (r *Rotating[T]) useKey(key funnel.Key[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Store(&rotation[T]{current: &Bloom[T]{key, r.Current().table}})
}
