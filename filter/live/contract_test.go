package live

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"
)

// Guards against filters made for no elements, which return true for every key after a few
// additions.
func TestItemsAreRequired(t *testing.T) {
	source := func(context.Context) iter.Seq2[string, error] { return nil }
	for name, make := range map[string]func() error{
		"Bloom": func() error { _, err := NewBloom(BloomOptions[string]{FPR: 0.01}); return err },
		"Blocked": func() error {
			_, err := NewBloom(BloomOptions[string]{FPR: 0.01, Scheme: Blocked})
			return err
		},
		"Guava":       func() error { _, err := NewBloom(BloomOptions[string]{FPR: 0.01, Scheme: Guava}); return err },
		"Counting":    func() error { _, err := NewCounting(CountingOptions[string]{FPR: 0.01}); return err },
		"Cuckoo":      func() error { _, err := NewCuckoo(CuckooOptions[string]{FPR: 0.01}); return err },
		"Generations": func() error { _, err := NewGenerations(GenerationsOptions[string]{FPR: 0.01}); return err },
		"Rotating": func() error {
			_, err := NewRotating(RotatingOptions[string]{FPR: 0.01, Source: source})
			return err
		},
		"Dedup":       func() error { _, err := NewDedup(DedupOptions[string]{FPR: 0.01}); return err },
		"Dedup, span": func() error { _, err := NewDedup(DedupOptions[string]{FPR: 0.01, Span: time.Hour}); return err },
		"Pair": func() error {
			_, err := NewPair(BloomOptions[string]{Items: 1, FPR: 0.01}, BloomOptions[string]{FPR: 0.01})
			return err
		},
	} {
		if make() == nil {
			t.Errorf("%s: no error without Items", name)
		}
	}
}

// Guards against a Get after Learn that joins a load from before the key existed.
func TestGuardLearnDetachesLoads(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	g := must(NewGuard(GuardOptions[string, string]{AbsentFor: time.Hour}))
	loading, finish := make(chan struct{}), make(chan struct{})
	early := make(chan error, 1)
	go func() {
		_, err := g.Get(ctx, "k", func(context.Context, string) (string, error) {
			close(loading)
			<-finish
			return "", ErrAbsent // the key was not in the database yet
		})
		early <- err
	}()
	<-loading
	if err := g.Learn(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	found := func(context.Context, string) (string, error) { return "v", nil }
	if v, err := g.Get(ctx, "k", found); v != "v" || err != nil {
		t.Errorf("after Learn: %q, %v", v, err)
	}
	close(finish)
	if err := <-early; !errors.Is(err, ErrAbsent) {
		t.Errorf("the early load: %v", err)
	}
	if v, err := g.Get(ctx, "k", found); v != "v" || err != nil {
		t.Errorf("after the early load ended: %q, %v", v, err)
	}
}

// Guards against the loss of an element that is added while the source is counted.
func TestRotatingAddDuringCount(t *testing.T) {
	var r *Rotating[string]
	fail := errors.New("no source")
	var failing bool
	r = must(NewRotating(RotatingOptions[string]{
		Items: 100, FPR: 1e-9,
		Count: func(context.Context) (uint64, error) {
			r.Add("early")
			if failing {
				return 0, fail
			}
			return 100, nil
		},
		Source: func(context.Context) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				r.Add("late")
				yield("source", nil)
			}
		},
	}))
	for _, failing = range []bool{false, true} {
		r.Add("before")
		if err := r.Rebuild(t.Context()); failing != errors.Is(err, fail) {
			t.Fatal(err)
		}
		for _, v := range []string{"early", "late", "source"} {
			if !r.MayContain(v) {
				t.Errorf("%s is lost", v)
			}
		}
		if r.MayContain("before") != failing {
			t.Error("an element that is not in the source was kept, or was forgotten by a failed rebuild")
		}
	}
}

// Guards against an element that is added only to a filter that a rotation has just replaced as the
// newest.
func TestGenerationsAddDuringRotation(t *testing.T) {
	onFunnel := func() {}
	g := must(NewGenerations(GenerationsOptions[string]{
		Items: 100, FPR: 1e-9, Generations: 3,
		Funnel: func(dst []byte, v string) []byte {
			onFunnel() // Add has loaded the ring, but not added yet
			return append(dst, v...)
		},
	}))
	onFunnel = func() {
		for range 3 {
			g.Rotate()
		}
	}
	if !g.Add("a") {
		t.Error("a is not new")
	}
	onFunnel = func() {}
	for i := range 2 {
		if !g.MayContain("a") {
			t.Fatalf("a is lost after %d rotations", i)
		}
		g.Rotate()
	}
}
