package live

import (
	"math"
	"sync"
	"testing"
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

// TestShardedShards checks that the shards may be Sharded themselves, of filters that hash elements
// themselves and with another funnel.
func TestShardedShards(t *testing.T) {
	inner := ShardedOptions[string]{Shards: 2, Funnel: GuavaUTF16}
	generations := must(NewSharded(ShardedOptions[string]{Shards: 2}, func(int) (Filter[string], error) {
		return NewSharded(inner, func(int) (*Generations[string], error) {
			return NewGenerations(GenerationsOptions[string]{Items: 1000, FPR: 1e-6})
		})
	}))
	blooms := must(NewSharded(ShardedOptions[string]{Shards: 2}, func(int) (Filter[string], error) {
		return NewSharded(inner, func(int) (*Bloom[string], error) { return New[string](1000, 1e-6) })
	}))
	for _, s := range []*Sharded[string, Filter[string]]{generations, blooms} {
		positive := make([]bool, 1)
		for i := range 100 {
			if isNew, err := s.Add(member(i)); err != nil || !isNew {
				t.Fatalf("Add: %t, %v", isNew, err)
			}
			s.MayContainMany([]string{member(i)}, positive)
			if !s.MayContain(member(i)) || !positive[0] {
				t.Fatalf("%d: lost", i)
			}
		}
	}
}
