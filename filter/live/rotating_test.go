package live

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tableSource is a source that tests change.
type tableSource struct {
	mu   sync.Mutex
	rows map[string]bool
	err  error
	each func(i int) // called for each row
}

func newTableSource(n int) *tableSource {
	s := &tableSource{rows: map[string]bool{}}
	for i := range n {
		s.rows[member(i)] = true
	}
	return s
}

func (s *tableSource) put(v string)    { s.mu.Lock(); s.rows[v] = true; s.mu.Unlock() }
func (s *tableSource) delete(v string) { s.mu.Lock(); delete(s.rows, v); s.mu.Unlock() }

func (s *tableSource) scan(context.Context) iter.Seq2[string, error] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows []string
	for v := range s.rows {
		rows = append(rows, v)
	}
	return func(yield func(string, error) bool) {
		for i, v := range rows {
			if s.each != nil {
				s.each(i)
			}
			if !yield(v, nil) {
				return
			}
		}
		if s.err != nil {
			yield("", s.err)
		}
	}
}

func TestRotatingRebuild(t *testing.T) {
	ctx := context.Background()
	s := newTableSource(5000)
	r := must(NewRotating(RotatingOptions[string]{Items: 100, FPR: 0.01, Source: s.scan,
		Count: func(context.Context) (uint64, error) { return uint64(len(s.rows)), nil }}))
	if err := r.Rebuild(ctx); err != nil {
		t.Fatal(err)
	}
	if p := r.Progress(); p.Running || p.Done != 5000 || p.Expected != 5000 || p.Rebuilds != 1 || p.Err != nil {
		t.Errorf("progress %+v", p)
	}
	checkFPRBelow(t, "grown", measureFPR(100_000, r.MayContain), 0.01, 100_000)
	for i := range 2500 {
		s.delete(member(i))
	}
	// Elements that are added during the rebuild stay, even if they are not in the source.
	s.each = func(i int) {
		if i%2 == 0 {
			r.Add(nonMember(i))
			if p := r.Progress(); !p.Running || p.Done != uint64(i) {
				t.Errorf("progress at %d: %+v", i, p)
			}
		}
	}
	if err := r.Rebuild(ctx); err != nil {
		t.Fatal(err)
	}
	left := 0
	for i := range 5000 {
		if r.MayContain(member(i)) {
			left++
		} else if i >= 2500 {
			t.Fatalf("%d is lost", i)
		}
	}
	if left > 2500+100 {
		t.Errorf("%d of 2500 deleted elements are still there", left-2500)
	}
	for i := 0; i < 2500; i += 2 {
		if !r.MayContain(nonMember(i)) {
			t.Fatalf("%d, added during the rebuild, is lost", i)
		}
	}

	s.each = nil
	s.err = errors.New("connection lost")
	before := r.Current()
	if err := r.Rebuild(ctx); err != s.err || r.Current() != before || r.Progress().Err != s.err || r.Progress().Rebuilds != 2 {
		t.Errorf("failed rebuild: %v, %+v", err, r.Progress())
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := r.Rebuild(ended); !errors.Is(err, context.Canceled) || r.Current() != before {
		t.Errorf("canceled rebuild: %v", err)
	}
}

// Writers add elements, to the source first, while the filter is rebuilt repeatedly: an element
// is found once Add has returned.
func TestRotatingLosesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := newTableSource(500)
	r := must(NewRotating(RotatingOptions[string]{Items: 500, FPR: 0.001, Source: s.scan}))
	var rebuilds sync.WaitGroup
	rebuilds.Go(func() {
		for ctx.Err() == nil {
			r.Rebuild(ctx)
		}
	})
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 400 {
				v := nonMember(w*1000 + i)
				s.put(v)
				r.Add(v)
				for j := 0; j <= i; j += 7 {
					if !r.MayContain(nonMember(w*1000 + j)) {
						t.Errorf("writer %d, after %d: %d is lost", w, i, j)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	cancel()
	rebuilds.Wait()
	if n := r.Progress().Rebuilds; n < 2 {
		t.Errorf("only %d rebuilds", n)
	}
}

// waitFor fails the test if a condition does not become true.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 2000 {
		if cond() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("timeout: %s", what)
}

// runRotating starts Run. It returns a function that ends it.
func runRotating(t *testing.T, r *Rotating[string]) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run: %v", err)
		}
	}
}

func TestRotatingRun(t *testing.T) {
	s := newTableSource(10)
	r := must(NewRotating(RotatingOptions[string]{Items: 10, FPR: 0.01, Every: 10 * time.Millisecond, Source: s.scan}))
	stop := runRotating(t, r)
	waitFor(t, "rebuilds by time", func() bool { return r.Progress().Rebuilds >= 3 })
	stop()

	s = newTableSource(0)
	r = must(NewRotating(RotatingOptions[string]{
		Items: 100, FPR: 0.01, MaxFPR: 0.02, Check: 5 * time.Millisecond, Source: s.scan,
	}))
	stop = runRotating(t, r)
	time.Sleep(20 * time.Millisecond)
	if n := r.Progress().Rebuilds; n != 0 {
		t.Errorf("%d rebuilds of an empty filter", n)
	}
	for i := range 5000 {
		s.put(member(i))
		r.Add(member(i))
	}
	waitFor(t, "a rebuild by fill", func() bool { return r.Progress().Rebuilds >= 1 && r.Current().FPR() < 0.02 })
	stop()
	for i := range 5000 {
		if !r.MayContain(member(i)) {
			t.Fatalf("%d is lost", i)
		}
	}
}

// TestRotatingCountTooLow checks that the FPR falls below MaxFPR even if Count always returns far
// too few elements.
func TestRotatingCountTooLow(t *testing.T) {
	s := newTableSource(5000)
	r := must(NewRotating(RotatingOptions[string]{
		Items: 100, FPR: 0.01, MaxFPR: 0.02, Check: time.Millisecond, Source: s.scan,
		Count: func(context.Context) (uint64, error) { return 100, nil },
	}))
	if err := r.Rebuild(t.Context()); err != nil || r.Current().FPR() < 0.5 {
		t.Fatalf("%v, the FPR is %v", err, r.Current().FPR())
	}
	defer runRotating(t, r)()
	waitFor(t, "a filter that is large enough", func() bool { return r.Current().FPR() <= 0.02 })
	if p := r.Progress(); p.Expected != 5000 {
		t.Errorf("%+v", p)
	}
}

// TestRotatingChecksSaturated checks that the next filter does not become larger with each failed
// rebuild of a saturated one.
func TestRotatingChecksSaturated(t *testing.T) {
	const failures = 10
	var calls atomic.Int64
	rows := newTableSource(100)
	r := must(NewRotating(RotatingOptions[string]{
		Items: 100, FPR: 0.01, MaxFPR: 0.02, Check: time.Millisecond,
		Source: func(ctx context.Context) iter.Seq2[string, error] {
			if calls.Add(1) > failures {
				return rows.scan(ctx)
			}
			return func(yield func(string, error) bool) { yield("", errors.New("no connection")) }
		},
	}))
	for i := range 100_000 {
		r.Add(nonMember(i))
	}
	if n := r.ApproxCount(); n != math.MaxUint64 {
		t.Fatalf("not saturated: %d elements", n)
	}
	small := r.MemoryBytes()
	defer runRotating(t, r)()
	waitFor(t, "a rebuild", func() bool { return r.Progress().Rebuilds > 0 })
	if got := r.MemoryBytes(); got > 2*small || calls.Load() <= failures {
		t.Errorf("%d bytes after %d calls of Source; it was made with %d", got, calls.Load(), small)
	}
}

func TestRotatingOptions(t *testing.T) {
	s := newTableSource(1)
	for _, tc := range []struct {
		desc string
		o    RotatingOptions[string]
	}{
		{"no source", RotatingOptions[string]{Items: 1, FPR: 0.1}},
		{"no FPR", RotatingOptions[string]{Items: 1, Source: s.scan}},
		{"MaxFPR below FPR", RotatingOptions[string]{Items: 1, FPR: 0.1, MaxFPR: 0.05, Source: s.scan}},
		{"negative Every", RotatingOptions[string]{Items: 1, FPR: 0.1, Every: -1, Source: s.scan}},
	} {
		if _, err := NewRotating(tc.o); err == nil {
			t.Errorf("%s: no error", tc.desc)
		}
	}
}

// TestRotatingPanic checks that a panic of the source ends the rebuild that Progress shows.
func TestRotatingPanic(t *testing.T) {
	s := newTableSource(10)
	s.each = func(int) { panic("source") }
	r := must(NewRotating(RotatingOptions[string]{Items: 10, FPR: 0.01, Source: s.scan}))
	func() {
		defer func() { recover() }()
		r.Rebuild(context.Background())
	}()
	if p := r.Progress(); p.Running || p.Err == nil {
		t.Errorf("%+v", p)
	}
}

// TestRotatingReadSize checks that the first Rebuild after ReadFrom makes the filter large enough
// for the elements that were saved, if there is no Count.
func TestRotatingReadSize(t *testing.T) {
	o := RotatingOptions[string]{Items: 100, FPR: 0.01, Source: newTableSource(20_000).scan}
	r := must(NewRotating(o))
	for range 2 { // the first does not know how many there are
		if err := r.Rebuild(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	again := must(NewRotating(o))
	must(again.ReadFrom(bytes.NewReader(must(r.MarshalBinary()))))
	if err := again.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fpr := again.FPR(); fpr > 0.02 {
		t.Errorf("after ReadFrom and a Rebuild the FPR is %v", fpr)
	}
}
