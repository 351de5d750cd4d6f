package live

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"sync"
	"testing"
	"time"
)

func TestSharded(t *testing.T) {
	const n = 40_000
	s := must(NewSharded(ShardedOptions[string]{Shards: 16}, func(i int) (*Counting[string], error) {
		return NewCounting(CountingOptions[string]{Items: n / 16 * 11 / 10, FPR: 0.01})
	}))
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < n; i += 16 {
				s.Of(member(i)).Add(member(i))
			}
		})
	}
	wg.Wait()
	counts := make([]int, s.Len())
	for i := range n {
		if !s.Of(member(i)).MayContain(member(i)) {
			t.Fatalf("%d: lost", i)
		}
		counts[s.Index(member(i))]++
	}
	for i, c := range counts {
		if math.Abs(float64(c)-n/16) > 6*math.Sqrt(n/16) {
			t.Errorf("shard %d has %d elements of %d", i, c, n)
		}
	}
	total := uint64(0)
	for _, f := range s.All() {
		total += f.ApproxCount()
	}
	if math.Abs(float64(total)-n) > n/50 {
		t.Errorf("the shards count %d elements", total)
	}
	// The positions within a shard are independent of the choice of the shard.
	checkFPRBelow(t, "sharded", measureFPR(200_000, func(v string) bool { return s.Of(v).MayContain(v) }), 0.0105, 200_000)
	if s.Index("alice") != 7 {
		t.Errorf("alice is in shard %d of 16, want 7: saved filters would have false negatives", s.Index("alice"))
	}
	shard := func(int) (*Bloom[string], error) { return New[string](10, 0.01) }
	if _, err := NewSharded(ShardedOptions[string]{}, shard); err == nil {
		t.Error("no error for no shards")
	}
	_ = must(NewSharded(ShardedOptions[string]{Shards: 3, Funnel: GuavaUTF16}, shard))
	if _, err := NewSharded(ShardedOptions[float64]{Shards: 3}, func(int) (*Bloom[float64], error) { return nil, nil }); err == nil {
		t.Error("floats need a funnel")
	}
}

// TestShardedShards checks that a shard cannot be a Sharded: an element is in the same shard on
// both levels, so each of them would fill only one of its filters.
func TestShardedShards(t *testing.T) {
	type embedding struct {
		*Sharded[string, *Bloom[string]]
	}
	for _, wrap := range []func(*Sharded[string, *Bloom[string]]) Filter[string]{
		func(s *Sharded[string, *Bloom[string]]) Filter[string] { return s },
		func(s *Sharded[string, *Bloom[string]]) Filter[string] { return embedding{s} },
	} {
		_, err := NewSharded(ShardedOptions[string]{Shards: 2}, func(int) (Filter[string], error) {
			inner, err := NewSharded(ShardedOptions[string]{Shards: 2}, func(int) (*Bloom[string], error) {
				return New[string](1000, 0.01)
			})
			return wrap(inner), err
		})
		if oe := (*OptionError)(nil); !errors.As(err, &oe) {
			t.Errorf("a Sharded as a shard: %v", err)
		}
	}
}

// TestShardReadsOtherScheme checks that elements of Guava's filters are found after these were read
// into the shards of a Sharded of another scheme, and the other way round.
func TestShardReadsOtherScheme(t *testing.T) {
	sharded := func(scheme Scheme) *Sharded[string, *Bloom[string]] {
		return must(NewSharded(ShardedOptions[string]{Shards: 4}, func(int) (*Bloom[string], error) {
			return NewBloom(BloomOptions[string]{Items: 1000, FPR: 1e-6, Scheme: scheme})
		}))
	}
	for _, schemes := range [][2]Scheme{{Guava, Scattered}, {GuavaMitz32, Blocked}, {Scattered, Guava}} {
		from, to := sharded(schemes[0]), sharded(schemes[1])
		for i := range 500 {
			must(from.Add(member(i)))
		}
		for i, f := range to.All() {
			if err := f.UnmarshalBinary(must(from.shards[i].MarshalBinary())); err != nil {
				t.Fatal(err)
			}
		}
		vs, positive := make([]string, 1000), make([]bool, 1000)
		for i := range vs {
			if vs[i] = member(i); i >= 500 {
				must(to.Add(vs[i]))
			}
		}
		to.MayContainMany(vs, positive)
		for i, v := range vs {
			if !to.MayContain(v) || !positive[i] || !to.Of(v).MayContain(v) {
				t.Fatalf("%v read into %v: %d is lost", schemes[0], schemes[1], i)
			}
		}
	}
}

// invertedFilter is a kind that embeds a Bloom and has other answers.
type invertedFilter struct {
	*Bloom[string]
	adds int
}

func (f *invertedFilter) MayContain(v string) bool { return !f.Bloom.MayContain(v) }
func (f *invertedFilter) Add(v string) bool {
	f.adds++
	return f.Bloom.Add(v)
}

// TestShardedAsksOtherKinds checks that a Sharded calls the methods of shards whose kind embeds one
// of this package, not those of the embedded filter.
func TestShardedAsksOtherKinds(t *testing.T) {
	s := must(NewSharded(ShardedOptions[string]{Shards: 2}, func(int) (*invertedFilter, error) {
		return &invertedFilter{Bloom: must(New[string](100, 1e-9))}, nil
	}))
	positive := make([]bool, 1)
	s.MayContainMany([]string{"a"}, positive)
	if !s.MayContain("a") || !positive[0] {
		t.Error("MayContain of the embedded Bloom was called")
	}
	must(s.Add("a"))
	if s.MayContain("a") || s.Of("a").adds != 1 {
		t.Error("Add of the embedded Bloom was called")
	}
}

// TestShardedRotating checks that shards that are Rotating use the Sharded's funnel, before and
// after a rebuild and after they are read again.
func TestShardedRotating(t *testing.T) {
	upper := func(dst []byte, v string) []byte { return append(dst, bytes.ToUpper([]byte(v))...) }
	source := func(context.Context) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) { yield("rebuilt", nil) }
	}
	for name, funnel := range map[string]func([]byte, string) []byte{"none": nil, "another": upper} {
		t.Run(name, func(t *testing.T) {
			s := must(NewSharded(ShardedOptions[string]{Shards: 2, Funnel: GuavaUTF16}, func(int) (Filter[string], error) {
				return NewRotating(RotatingOptions[string]{Items: 1000, FPR: 1e-9, Funnel: funnel, Source: source})
			}))
			check := func(when string, n int) {
				t.Helper()
				read, err := ReadSharded[string, *Bloom[string]](
					bytes.NewReader(must(s.MarshalBinary())), ReadOptions[string]{Funnel: GuavaUTF16})
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				for i := range n {
					if v := member(i); !s.MayContain(v) || !read.MayContain(v) {
						t.Fatalf("%s: %d is lost", when, i)
					}
				}
				if s.MayContain(nonMember(1)) || s.MayContain("USER:1") {
					t.Errorf("%s: another funnel was used", when)
				}
			}
			for i := range 100 {
				must(s.Add(member(i)))
			}
			check("new", 100)
			s = s.Clone()
			for _, f := range s.All() {
				if err := f.(*Rotating[string]).Rebuild(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if !s.MayContain("rebuilt") || s.MayContain(member(1)) {
				t.Error("not rebuilt")
			}
			for i := range 100 {
				must(s.Add(member(i)))
			}
			check("rebuilt", 100)
		})
	}
}

// TestShardedKeepsClocks checks that shards that are read keep the clock of those that they
// replace.
func TestShardedKeepsClocks(t *testing.T) {
	now := func() time.Time { return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, text := range []string{
		"sharded(shards=2,of=generations(items=100,fpr=0.001,span=1h))",
		"sharded(shards=2,of=dedup(items=100,fpr=0.001,span=1h))",
	} {
		build := func() Filter[string] { return must(Build(must(Parse(text)), BuildOptions[string]{Now: now})) }
		f, g := build(), build()
		must(TryAdd[string](f, "x"))
		if err := g.UnmarshalBinary(must(f.MarshalBinary())); err != nil {
			t.Fatal(err)
		}
		if !g.MayContain("x") {
			t.Errorf("%s: forgotten, since the clock is not that of the filter", text)
		}
	}
}
