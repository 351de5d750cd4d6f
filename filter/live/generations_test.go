package live

import (
	"bytes"
	"errors"
	"io"
	"math"
	"sync/atomic"
	"testing"
	"time"
)

type fakeClock struct{ at atomic.Int64 }

func (c *fakeClock) now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.at.Add(int64(d)) }

func TestGenerationsByTime(t *testing.T) {
	var clock fakeClock
	g := must(NewGenerations(GenerationsOptions[string]{Items: 1000, Span: time.Hour, FPR: 1e-6, Generations: 5, Now: clock.now}))
	const step = time.Minute
	added := map[int]time.Time{}
	for i := range 300 {
		if !g.Add(member(i)) {
			t.Fatalf("%d: not new", i)
		}
		if g.Add(member(i)) {
			t.Fatalf("%d: new twice", i)
		}
		added[i] = clock.now()
		clock.advance(step)
		for j, at := range added {
			age := clock.now().Sub(at)
			switch has := g.MayContain(member(j)); {
			case age < time.Hour && !has:
				t.Fatalf("forgotten after %v", age)
			case age >= time.Hour*5/4 && has:
				t.Fatalf("remembered after %v", age)
			}
		}
	}
	// Adding an element again renews it.
	g.Add("again")
	clock.advance(50 * time.Minute)
	if g.Add("again") {
		t.Error("forgotten too early")
	}
	clock.advance(50 * time.Minute)
	if !g.MayContain("again") {
		t.Error("not renewed")
	}
	clock.advance(1000 * time.Hour)
	if g.MayContain("again") || g.FPR() != 0 {
		t.Error("remembered after a long pause")
	}
}

// After the clock is set back, elements are not remembered until it has caught up.
func TestGenerationsClockSetBack(t *testing.T) {
	var clock fakeClock
	clock.advance(1000 * time.Hour)
	g := must(NewGenerations(GenerationsOptions[string]{Items: 1000, Span: 4 * time.Hour, FPR: 0.001, Generations: 5, Now: clock.now}))
	g.Add("old")
	clock.advance(-500 * time.Hour)
	if g.Add("old") {
		t.Error("forgotten when the clock was set back")
	}
	clock.advance(4*time.Hour - time.Minute)
	if !g.MayContain("old") {
		t.Error("forgotten within Span")
	}
	clock.advance(2 * time.Hour)
	if g.MayContain("old") {
		t.Error("remembered for six hours after the clock was set back")
	}
}

// MaxBytes limits the memory of all filters of the ring, including those that it has yet to create.
func TestGenerationsMaxBytes(t *testing.T) {
	g := must(NewGenerations(GenerationsOptions[string]{Items: 1000, FPR: 0.01}))
	form := must(g.MarshalBinary())
	limit := int64(g.MemoryBytes())
	if _, err := ReadGenerations(bytes.NewReader(form), ReadOptions[string]{MaxBytes: limit}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("with no bytes for the ring's state: %v", err)
	}
	limit += 3 * 8
	if r, err := ReadGenerations(bytes.NewReader(form), ReadOptions[string]{MaxBytes: limit}); err != nil || r.MemoryBytes() != g.MemoryBytes() {
		t.Errorf("as large as the limit: %v", err)
	}
}

func TestGenerationsByItems(t *testing.T) {
	const items, fpr = 20_000, 0.01
	g := must(NewGenerations(GenerationsOptions[string]{Items: items, FPR: fpr, Scheme: Blocked}))
	for i := range 10 * items {
		g.Add(member(i))
		if old := i - items + 1; old >= 0 && i%97 == 0 && !g.MayContain(member(old)) {
			t.Fatalf("after %d elements, %d is forgotten", i, old)
		}
	}
	got := measureFPR(300_000, g.MayContain)
	checkFPRBelow(t, "after ten times the elements", got, fpr, 300_000)
	checkFPR(t, "FPR()", got, g.FPR(), 300_000, 0.05)
	remembered := 0
	for i := range items {
		if g.MayContain(member(i)) {
			remembered++
		}
	}
	checkFPRBelow(t, "elements that should be forgotten", float64(remembered)/items, fpr, items)
	g.Rotate()
	g.Rotate()
	g.Rotate()
	g.Rotate()
	if g.MayContain(member(10*items - 1)) {
		t.Error("remembered after four rotations")
	}
}

func TestGenerationsOptions(t *testing.T) {
	for _, tc := range []struct {
		desc string
		o    GenerationsOptions[string]
	}{
		{"no items", GenerationsOptions[string]{FPR: 0.1, Span: time.Hour}},
		{"one generation", GenerationsOptions[string]{Items: 1, FPR: 0.1, Generations: 1}},
		{"65 generations", GenerationsOptions[string]{Items: 1, FPR: 0.1, Generations: 65}},
		{"negative span", GenerationsOptions[string]{Items: 1, FPR: 0.1, Span: -1}},
		{"FPR 0", GenerationsOptions[string]{Items: 1}},
	} {
		if _, err := NewGenerations(tc.o); err == nil {
			t.Errorf("%s: no error", tc.desc)
		}
	}
}

func TestReadGenerations(t *testing.T) {
	g := must(NewGenerations(GenerationsOptions[string]{Items: 100, FPR: 1e-6}))
	for i := range 80 {
		g.Add(member(i))
	}
	r, err := ReadGenerations(bytes.NewReader(must(g.MarshalBinary())), ReadOptions[string]{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 160 {
		if r.MayContain(member(i)) != (i < 80) {
			t.Fatalf("element %d: MayContain is %t", i, i >= 80)
		}
	}
}

// With the longest possible span, nothing is forgotten by time, not even after the filter is read
// again.
func TestGenerationsForever(t *testing.T) {
	for _, generations := range []int{2, 4} {
		g := must(NewGenerations(GenerationsOptions[string]{Items: 100, Span: math.MaxInt64, FPR: 1e-6, Generations: generations}))
		done := make(chan error, 1)
		go func() {
			g.Add("a")
			saved, err := g.MarshalBinary()
			if err == nil {
				err = g.UnmarshalBinary(saved)
			}
			if err == nil && !g.MayContain("a") {
				err = errors.New("forgotten")
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%d generations: %v", generations, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%d generations: an operation does not end", generations)
		}
	}
}

// A clone whose newest filter is full begins a new one. That occurs if an Add has filled the
// original's newest filter and has yet to begin the next.
func TestCloneFullGenerations(t *testing.T) {
	const items, fpr = 300, 0.01
	g := must(NewGenerations(GenerationsOptions[string]{Items: items, FPR: fpr}))
	g.Add("first")
	g.ring.Load().used.Store(g.o.Items)
	c := g.Clone()
	if !c.MayContain("first") {
		t.Error("an element of the original is forgotten")
	}
	for i := range 100 * items {
		c.Add(member(i))
	}
	if rate := c.FPR(); rate > 2*fpr {
		t.Errorf("the copy has an FPR of %v", rate)
	}
}

// addingWriter calls add before it writes the header of a Generations.
type addingWriter struct {
	bytes.Buffer
	add func()
}

func (w *addingWriter) Write(b []byte) (int, error) {
	if len(b) == recordSize && recordKind(b[9]) == kindGenerations {
		w.add()
	}
	return w.Buffer.Write(b)
}

// TestGenerationsCountWhileSaving checks that the FPR stays below its limit if a filter, also that
// of a Dedup with a window, is saved and read again and again, and elements are added during each
// save.
func TestGenerationsCountWhileSaving(t *testing.T) {
	const items, fpr = 300, 0.01
	for name, f := range map[string]interface {
		Adder[string]
		FPR() float64
		io.WriterTo
		io.ReaderFrom
	}{
		"Generations": must(NewGenerations(GenerationsOptions[string]{Items: items, FPR: fpr})),
		"Dedup":       must(NewDedup(DedupOptions[string]{Items: items, FPR: fpr, Window: true})),
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			add := func(k int) {
				for range k {
					f.Add(member(n))
					n++
				}
			}
			for range 50 {
				add(10)
				w := &addingWriter{add: func() { add(items / 4) }} // three quarters of one of four filters
				must(f.WriteTo(w))
				kept := n - items/4
				must(f.ReadFrom(w))
				for i := kept - 10; i < kept; i++ {
					if !f.MayContain(member(i)) {
						t.Fatalf("%d is lost", i)
					}
				}
			}
			if p := f.FPR(); p > 2*fpr {
				t.Errorf("the FPR is %v, the limit %v", p, fpr)
			}
		})
	}
}
