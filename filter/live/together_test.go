package live

import (
	"bytes"
	"context"
	"io"
	"iter"
	"sync"
	"testing"
	"time"
)

// Filters that consist of others keep their FPR with a million elements.
func TestMillionFPR(t *testing.T) {
	t.Parallel()
	n, probes := 1_000_000, 500_000
	if !*million {
		n, probes = sized(50_000), sized(100_000)
	}
	const fpr = 0.01
	all := func(add func(string)) {
		for i := range n {
			add(member(i))
		}
	}
	for name, make := range map[string]func(t *testing.T) (has func(string) bool, limit float64){
		"Pair": func(*testing.T) (func(string) bool, float64) {
			o := BloomOptions[string]{Items: uint64(n), FPR: fpr}
			p := must(NewPair(o, o))
			all(func(v string) { p.Add(v) })
			return p.MayContain, fpr
		},
		"Rotating": func(t *testing.T) (func(string) bool, float64) {
			r := must(NewRotating(RotatingOptions[string]{Items: uint64(n), FPR: fpr, Source: func(context.Context) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					for i := range n {
						if !yield(member(i), nil) {
							return
						}
					}
				}
			}}))
			if err := r.Rebuild(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r.MayContain, fpr
		},
		"Generations": func(*testing.T) (func(string) bool, float64) {
			g := must(NewGenerations(GenerationsOptions[string]{Items: uint64(n), FPR: fpr}))
			all(func(v string) { g.Add(v) })
			return g.MayContain, fpr
		},
		"Sharded": func(*testing.T) (func(string) bool, float64) {
			s := must(NewSharded(ShardedOptions[string]{Shards: 16}, func(int) (*Bloom[string], error) {
				return NewBloom(BloomOptions[string]{Items: uint64(n / 16), FPR: fpr})
			}))
			all(func(v string) { s.Of(v).Add(v) })
			return func(v string) bool { return s.Of(v).MayContain(v) }, fpr * 1.02 // shards get different numbers of elements
		},
		"Layered": func(t *testing.T) (func(string) bool, float64) {
			hot := must(NewBloom(BloomOptions[string]{Items: uint64(n), FPR: 0.1, Seed: 1}))
			o := BloomOptions[string]{Items: uint64(n), FPR: 0.1, Seed: 2, Scheme: Blocked}
			f := must(NewBloom(o))
			all(func(v string) { hot.Add(v); f.Add(v) })
			var b bytes.Buffer
			must(f.WriteCold(&b))
			l := NewLayered(Hot[string](hot), must(OpenCold(bytes.NewReader(b.Bytes()), int64(b.Len()), ReadOptions[string]{})))
			return func(v string) bool { return must(l.MayContain(v)) }, fpr
		},
	} {
		t.Run(name, func(t *testing.T) {
			has, limit := make(t)
			for i := 0; i < n; i += 37 {
				if !has(member(i)) && name != "Pair" {
					t.Fatalf("%d is lost", i)
				}
			}
			checkFPRBelow(t, name, measureFPR(probes, has), limit, probes)
		})
	}
}

// Sixteen goroutines share a filter: an element is found once its Add has returned.
func TestSixteenGoroutines(t *testing.T) {
	const workers, each = 16, 2000
	pair := must(NewPair(BloomOptions[string]{Items: workers * each, FPR: 1e-6}, BloomOptions[string]{Items: workers * each, FPR: 1e-9}))
	var clock fakeClock
	gens := must(NewGenerations(GenerationsOptions[string]{Items: 4 * workers * each, Span: time.Hour, FPR: 1e-6, Now: clock.now}))
	file := coldFile(t, 1000, BloomOptions[string]{Items: 1000, FPR: 1e-6, Scheme: Blocked})
	recent := must(NewBloom(BloomOptions[string]{Items: workers * each, FPR: 1e-6}))
	layered := NewLayered(Newer[string](recent, must(OpenCold(bytes.NewReader(file), int64(len(file)), ReadOptions[string]{}))))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				v := nonMember(w*each + i)
				if err := addErr(pair, v); err != nil || !pair.MayContain(v) {
					t.Errorf("Pair: %s: %v", v, err)
				}
				if i%3 == 0 && (!pair.Delete(v) || pair.MayContain(v)) {
					t.Errorf("Pair: %s is still there", v)
				}
				gens.Add(v)
				if i%100 == 0 {
					clock.advance(time.Second)
				}
				if !gens.MayContain(v) {
					t.Errorf("Generations: %s is lost", v)
				}
				recent.Add(v)
				for _, v := range []string{v, member(i % 1000)} {
					if positive, err := layered.MayContain(v); !positive || err != nil {
						t.Errorf("Layered: %s: %v", v, err)
					}
				}
				if i%500 == 0 {
					pair.WriteTo(io.Discard)
					gens.FPR()
					layered.Stats()
				}
			}
		})
	}
	wg.Wait()
}
