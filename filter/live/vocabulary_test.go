package live

import (
	"bytes"
	"errors"
	"io"
	"math"
	"sync"
	"testing"
	"time"
)

// The interfaces that each kind implements.
var (
	_ Filter[string] = (*Bloom[string])(nil)
	_ Filter[string] = (*Scalable[string])(nil)
	_ Filter[string] = (*Counting[string])(nil)
	_ Filter[string] = (*Cuckoo[string])(nil)
	_ Filter[string] = (*Pair[string])(nil)
	_ Filter[string] = (*Rotating[string])(nil)
	_ Filter[string] = (*Generations[string])(nil)
	_ Filter[string] = (*Dedup[string])(nil)
	_ Filter[string] = (*Sharded[string, *Cuckoo[string]])(nil)

	_ Adder[string] = (*Bloom[string])(nil)
	_ Adder[string] = (*Scalable[string])(nil)
	_ Adder[string] = (*Counting[string])(nil)
	_ Adder[string] = (*Rotating[string])(nil)
	_ Adder[string] = (*Generations[string])(nil)
	_ Adder[string] = (*Dedup[string])(nil)

	_ FallibleAdder[string] = (*Cuckoo[string])(nil)
	_ FallibleAdder[string] = (*Pair[string])(nil)
	_ FallibleAdder[string] = (*Sharded[string, *Cuckoo[string]])(nil)

	_ Deleter[string] = (*Counting[string])(nil)
	_ Deleter[string] = (*Cuckoo[string])(nil)
	_ Deleter[string] = (*Pair[string])(nil)

	_ Merger[*Bloom[string]]                    = (*Bloom[string])(nil)
	_ Merger[*Counting[string]]                 = (*Counting[string])(nil)
	_ Merger[*Cuckoo[string]]                   = (*Cuckoo[string])(nil)
	_ Merger[*Pair[string]]                     = (*Pair[string])(nil)
	_ Merger[*Sharded[string, *Cuckoo[string]]] = (*Sharded[string, *Cuckoo[string]])(nil)
	_ Cloner[*Bloom[string]]                    = (*Bloom[string])(nil)
	_ Cloner[*Counting[string]]                 = (*Counting[string])(nil)
	_ Cloner[*Cuckoo[string]]                   = (*Cuckoo[string])(nil)
	_ Cloner[*Scalable[string]]                 = (*Scalable[string])(nil)
	_ Cloner[*Pair[string]]                     = (*Pair[string])(nil)
	_ Cloner[*Generations[string]]              = (*Generations[string])(nil)
	_ Merger[*Dedup[string]]                    = (*Dedup[string])(nil)
	_ Cloner[*Dedup[string]]                    = (*Dedup[string])(nil)
	_ Cloner[*Rotating[string]]                 = (*Rotating[string])(nil)
	_ Cloner[*Sharded[string, *Cuckoo[string]]] = (*Sharded[string, *Cuckoo[string]])(nil)
)

// For every kind of Config, batches give the same results as single calls, the statistics are
// plausible, and Reset empties the filter.
func TestEveryKind(t *testing.T) {
	const n = 3000
	for _, text := range []string{
		"bloom(items=3000,fpr=0.01)", "bloom(items=3000,fpr=0.01,scheme=blocked)", "bloom(items=3000,fpr=0.01,scheme=guava)",
		"counting(items=3000,fpr=0.01)", "cuckoo(items=3000,fpr=0.001)", "cuckoo(items=3000,fpr=0.03)",
		"scalable(items=100,fpr=0.01)", "generations(items=9000,fpr=0.01)", "generations(items=9000,fpr=0.01,scheme=guava)",
		"dedup(items=3000,fpr=0.01)", "dedup(items=9000,fpr=0.01,window=true)", "rotating(items=3000,fpr=0.01)",
		"pair(added=bloom(items=3000,fpr=0.01),removed=bloom(items=10,fpr=1e-9))",
		"sharded(shards=8,of=bloom(items=450,fpr=0.01))", "sharded(shards=8,of=bloom(items=450,fpr=0.01,scheme=guava))",
		"sharded(shards=8,of=cuckoo(items=450,fpr=0.001))", "sharded(shards=8,of=dedup(items=450,fpr=0.01))",
	} {
		t.Run(text, func(t *testing.T) {
			build := func() Filter[string] {
				return must(Build(must(Parse(text)), BuildOptions[string]{Source: noSource}))
			}
			one, many := build(), build()
			vs := make([]string, n)
			for i := range vs {
				vs[i] = member(i * 9 / 10) // some of them twice
			}
			isNew := make([]bool, n)
			if k, err := TryAddMany(many, vs, isNew); k != n || err != nil {
				t.Fatal(k, err)
			}
			for i, v := range vs {
				if got := must(TryAdd(one, v)); got != isNew[i] {
					t.Fatalf("%d: %v one by one, %v in a batch", i, got, isNew[i])
				}
			}
			if _, err := TryAddMany(many, vs[:1], nil); err != nil {
				t.Fatal(err)
			}
			for i := range vs {
				vs[i] = []string{member(i), nonMember(i)}[i%2]
			}
			positive := make([]bool, n)
			many.MayContainMany(vs, positive)
			for i, v := range vs {
				if one.MayContain(v) != positive[i] {
					t.Fatalf("%s: %v one by one", v, !positive[i])
				}
			}
			if c := float64(one.ApproxCount()); math.Abs(c-0.9*n) > 0.12*n { // Cuckoo counts each as often as it was added
				t.Errorf("counts %v", c)
			}
			if p := one.FPR(); !(p > 0 && p < 0.05) {
				t.Errorf("FPR %v", p)
			}
			if r := one.FillRatio(); !(r > 0.1 && r <= 1) {
				t.Errorf("fill %v", r)
			}
			if one.MemoryBytes() < n/2 {
				t.Errorf("%d bytes", one.MemoryBytes())
			}
			clone := one.(anyCloner).cloneAny().(Filter[string])
			if !equalAs(one, clone) || equalAs(one, build()) {
				t.Error("the clone is not equal, or an empty filter is")
			}
			before := must(one.MarshalBinary())
			for i := range 5 * n { // generations end, links grow, a cuckoo becomes full
				if _, err := TryAdd(Prober[string](clone), nonMember(i)); err != nil && !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
			}
			if equalAs(one, clone) || !bytes.Equal(before, must(one.MarshalBinary())) {
				t.Error("the clone shares memory")
			}
			r, ok := one.(Resetter)
			if !ok {
				return
			}
			r.Reset()
			if one.ApproxCount() != 0 || one.MayContain(member(1)) || one.FPR() != 0 {
				t.Error("not empty after Reset")
			}
			if isNew := must(TryAdd(one, member(1))); !isNew || !one.MayContain(member(1)) {
				t.Error("does not work after Reset")
			}
		})
	}
}

// cloneAndMerge checks that clones are equal until one of them changes, that Merge makes the
// union, and that filters with other parameters cannot be merged.
func cloneAndMerge[F interface {
	Filter[string]
	Cloner[F]
	Merger[F]
}](t *testing.T, a, b, other F) {
	t.Helper()
	for i := range 100 {
		must(TryAdd(Prober[string](a), member(i)))
		must(TryAdd(Prober[string](b), member(100+i)))
	}
	c := a.Clone()
	if !c.Equal(a) || !a.Equal(c) || a.Equal(b) || a.Equal(other) {
		t.Errorf("%T: Equal", a)
	}
	if err := a.Merge(other); !errors.Is(err, ErrIncompatible) {
		t.Errorf("%T: merged with an incompatible filter: %v", a, err)
	}
	if !c.Equal(a) {
		t.Errorf("%T: a failed merge has changed the filter", a)
	}
	if err := c.Merge(b); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if !c.MayContain(member(i)) {
			t.Fatalf("%T: %d is not in the union", a, i)
		}
	}
	if n := c.ApproxCount(); n < 190 || n > 210 {
		t.Errorf("%T: ApproxCount of the union is %d", a, n)
	}
	if a.MayContain(member(150)) && a.MayContain(member(151)) && a.MayContain(member(152)) {
		t.Errorf("%T: the clone shares memory", a)
	}
	before := b.Clone()
	if err := b.Merge(b); err != nil && !errors.Is(err, ErrFull) {
		t.Errorf("%T: merged with itself: %v", b, err)
	}
	if !b.MayContain(member(120)) || !before.MayContain(member(120)) {
		t.Errorf("%T: lost by a merge with itself", b)
	}
}

func TestCloneAndMerge(t *testing.T) {
	bloom := func(seed uint64) *Bloom[string] {
		return must(NewBloom(BloomOptions[string]{Items: 300, FPR: 0.001, Seed: seed}))
	}
	cloneAndMerge(t, bloom(1), bloom(1), bloom(2))
	counting := func(items uint64) *Counting[string] {
		return must(NewCounting(CountingOptions[string]{Items: items, FPR: 0.001}))
	}
	cloneAndMerge(t, counting(300), counting(300), counting(301))
	for _, fpr := range []float64{0.03, 0.001} {
		cuckoo := func(items uint64) *Cuckoo[string] {
			return must(NewCuckoo(CuckooOptions[string]{Items: items, FPR: fpr}))
		}
		cloneAndMerge(t, cuckoo(500), cuckoo(500), cuckoo(700))
	}
	pair := func(seed uint64) *Pair[string] {
		o := BloomOptions[string]{Items: 300, FPR: 0.001, Seed: seed}
		return must(NewPair(o, o))
	}
	cloneAndMerge(t, pair(1), pair(1), pair(2))
	dedup := func(items uint64) *Dedup[string] {
		return must(NewDedup(DedupOptions[string]{Items: items, FPR: 0.001}))
	}
	cloneAndMerge(t, dedup(300), dedup(300), dedup(3000))
	sharded := func(shards int) *Sharded[string, *Cuckoo[string]] {
		return must(NewSharded(ShardedOptions[string]{Shards: shards}, func(int) (*Cuckoo[string], error) {
			return NewCuckoo(CuckooOptions[string]{Items: 300, FPR: 0.001})
		}))
	}
	cloneAndMerge(t, sharded(3), sharded(3), sharded(4))
}

// Merging Dedups adds their counts. Dedups with a window cannot be merged.
func TestDedupMerge(t *testing.T) {
	a := must(NewDedup(DedupOptions[string]{Items: 100, FPR: 0.001}))
	b := a.Clone()
	for range 3 {
		a.Add("a")
		b.Add("b")
	}
	if err := a.Merge(b); err != nil || a.Seen() != 6 || a.Dropped() != 4 || a.Add("b") {
		t.Errorf("%v, %d seen, %d dropped", err, a.Seen(), a.Dropped())
	}
	w := must(NewDedup(DedupOptions[string]{Items: 100, FPR: 0.001, Window: true}))
	if err := w.Merge(w.Clone()); !errors.Is(err, ErrIncompatible) {
		t.Errorf("windows: %v", err)
	}
}

// A Dedup that is saved or reset while duplicates are added can be read again: Dropped never
// exceeds Seen.
func TestDedupSaveWhileDropping(t *testing.T) {
	d := must(NewDedup(DedupOptions[string]{Items: 10, FPR: 0.01}))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					d.Add("again")
				}
			}
		})
	}
	for i := range sized(4000) {
		if err := new(Dedup[string]).UnmarshalBinary(must(d.MarshalBinary())); err != nil {
			t.Error(err)
			break
		}
		if i%8 == 0 {
			d.Reset()
		}
	}
	close(stop)
	wg.Wait()
}

// Filters in a Sharded of a kind that the caller has defined are cloned if they have a Clone.
func TestShardedCloneOfOthers(t *testing.T) {
	type customFilter struct{ *Bloom[string] } // whose Clone is a *Bloom
	s := must(NewSharded(ShardedOptions[string]{Shards: 2}, func(int) (customFilter, error) {
		return customFilter{must(New[string](10, 0.1))}, nil
	}))
	defer func() {
		if p := recover(); p != "live: a live.customFilter has no Clone" {
			t.Errorf("panics with %v", p)
		}
	}()
	s.Clone()
}

// Merging Countings adds their counts: an element of both must be deleted twice.
func TestCountingMerge(t *testing.T) {
	a := must(NewCounting(CountingOptions[string]{Items: 100, FPR: 0.001}))
	b := a.Clone()
	for range 12 {
		a.Add("often")
		b.Add("often")
	}
	a.Add("x")
	b.Add("x")
	if err := a.Merge(b); err != nil {
		t.Fatal(err)
	}
	if a.Saturated() == 0 {
		t.Error("a counter of 24 additions is not saturated at 15")
	}
	if !a.Delete("x") || !a.MayContain("x") || !a.Delete("x") || a.MayContain("x") {
		t.Error("x was not counted twice")
	}
}

// A merge of Cuckoos that does not fit leaves the filter unchanged.
func TestCuckooMergeFull(t *testing.T) {
	a := must(NewCuckoo(CuckooOptions[int]{Items: 1000, FPR: 0.001}))
	b := a.Clone()
	for i := range 700 {
		a.Add(i)
		b.Add(10_000 + i)
	}
	if err := a.Merge(b); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if a.ApproxCount() != 700 {
		t.Errorf("%d elements after a failed merge", a.ApproxCount())
	}
	for i := range 700 {
		if !a.Delete(i) {
			t.Fatalf("%d is lost", i)
		}
	}
	if a.ApproxCount() != 0 {
		t.Error("elements of the failed merge are left")
	}
}

// The estimates of unions and intersections are near the true numbers.
func TestUnionAndIntersection(t *testing.T) {
	for _, s := range []Scheme{Scattered, Blocked, Guava} {
		a := must(NewBloom(BloomOptions[string]{Items: 20_000, FPR: 0.01, Scheme: s}))
		b := a.Clone()
		for i := range 10_000 {
			a.Add(member(i))
			b.Add(member(i + 6000))
		}
		union, inBoth := must(a.ApproxUnion(b)), must(a.ApproxIntersection(b))
		if math.Abs(float64(union)-16_000) > 400 || math.Abs(float64(inBoth)-4000) > 400 {
			t.Errorf("%v: union %d, intersection %d", s, union, inBoth)
		}
		if n := a.ApproxCount(); math.Abs(float64(n)-10_000) > 300 {
			t.Errorf("%v: the estimate changed a filter: %d", s, n)
		}
	}
	if _, err := must(New[int](10, 0.1)).ApproxUnion(must(New[int](1000, 0.1))); !errors.Is(err, ErrIncompatible) {
		t.Error(err)
	}
}

// An element of a Sharded is hashed once, with the Sharded's funnel.
func TestShardedHashesOnce(t *testing.T) {
	calls := 0
	funnel := func(dst []byte, v float64) []byte {
		calls++
		return append(dst, byte(v))
	}
	s := must(NewSharded(ShardedOptions[float64]{Shards: 4, Funnel: funnel}, func(int) (*Cuckoo[float64], error) {
		return NewCuckoo(CuckooOptions[float64]{Items: 100, FPR: 0.001, Funnel: func([]byte, float64) []byte {
			panic("a shard's funnel was used")
		}})
	}))
	if isNew, err := s.Add(3); !isNew || err != nil || calls != 1 {
		t.Errorf("%v %v, %d calls", isNew, err, calls)
	}
	if !s.MayContain(3) || calls != 2 {
		t.Errorf("%d calls", calls)
	}
	if !s.Of(3).Delete(3) || s.MayContain(3) {
		t.Error("not deleted")
	}
}

// A Counting that is saved while it changes contains each element completely or not at all:
// deleting one that was saved in part would decrement the counters of others.
func TestCountingCut(t *testing.T) {
	f := must(NewCounting(CountingOptions[int]{Items: 200, FPR: 0.001}))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				v := w*1000 + i%10
				f.Add(v)
				f.Delete(v)
			}
		})
	}
	for range sized(400) {
		g := must(ReadCounting(bytes.NewReader(must(f.MarshalBinary())), ReadOptions[int]{}))
		for w := range 4 {
			for i := range 10 {
				for g.Delete(w*1000 + i) {
				}
			}
		}
		if used, _ := g.tally(); used != 0 {
			t.Errorf("%d counters are left when all elements are deleted: one was saved in part", used)
			break
		}
	}
	close(stop)
	wg.Wait()
}

// A saved filter of any kind has the elements that were added before, whatever is added
// meanwhile.
func TestSaveWhileAdding(t *testing.T) {
	for _, text := range []string{
		"bloom(items=20000,fpr=0.001)", "counting(items=20000,fpr=0.001)", "cuckoo(items=20000,fpr=0.001)",
		"scalable(items=100,fpr=0.001)", "generations(items=200000,fpr=0.001)", "dedup(items=20000,fpr=0.001)",
		"pair(added=bloom(items=20000,fpr=0.001),removed=bloom(items=10,fpr=1e-9))",
		"sharded(shards=4,of=scalable(items=100,fpr=0.001))",
	} {
		t.Run(text, func(t *testing.T) {
			f := must(Build(must(Parse(text)), BuildOptions[int]{}))
			var mu sync.Mutex
			added := 0
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range 15_000 {
					select {
					case <-stop:
						return
					default:
					}
					must(TryAdd(f, i))
					mu.Lock()
					added = i + 1
					mu.Unlock()
				}
			})
			for range 8 {
				mu.Lock()
				n := added
				mu.Unlock()
				var b bytes.Buffer
				must(f.WriteTo(&b))
				g := must(Read(&b, ReadOptions[int]{}))
				for i := range n {
					if !g.MayContain(i) {
						t.Fatalf("%d of %d is not in the saved filter", i, n)
					}
				}
			}
			close(stop)
			wg.Wait()
		})
	}
}

// After a restart, Generations forget elements when they would have without it.
func TestGenerationsRestart(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	clock := func() time.Time { return now }
	o := GenerationsOptions[string]{Items: 1000, Span: 4 * time.Hour, FPR: 0.001, Generations: 5, Now: clock}
	g := must(NewGenerations(o))
	g.Add("old")
	now = now.Add(2 * time.Hour)
	g.Add("new")
	form := must(g.MarshalBinary())
	restart := func() *Generations[string] {
		r := must(NewGenerations(GenerationsOptions[string]{Items: 1, FPR: 0.5, Now: clock}))
		if err := r.UnmarshalBinary(form); err != nil {
			t.Fatal(err)
		}
		return r
	}
	now = now.Add(time.Hour)
	if r := restart(); !r.MayContain("old") || !r.MayContain("new") || !r.Equal(restart()) {
		t.Error("forgotten after an hour")
	}
	now = now.Add(2*time.Hour + time.Minute)
	if r := restart(); r.MayContain("old") || !r.MayContain("new") {
		t.Error("after five hours old is remembered, or new is not")
	}
	now = now.Add(24 * time.Hour)
	if r := restart(); r.MayContain("new") || r.ApproxCount() != 0 {
		t.Error("an element is remembered after a day")
	}
	now = time.Unix(1_600_000_000, 0) // the clock was set back
	r := restart()
	now = now.Add(6 * time.Hour)
	if r.MayContain("new") {
		t.Error("an element is remembered after the clock was set back")
	}
}

// A Layered in one file: the hot layer is read into memory, the cold one stays in the file.
func TestOpenLayered(t *testing.T) {
	var b bytes.Buffer
	must(layeredOfAll(t).WriteTo(&b))
	l, err := OpenLayered(bytes.NewReader(b.Bytes()), int64(b.Len()), ReadOptions[string]{MaxBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if !must(l.MayContain(member(i))) {
			t.Fatalf("%d is lost", i)
		}
	}
	if l.Layers()[1].(Adder[string]).Add("fresh"); len(l.Layers()) != 2 || l.MemoryBytes() == 0 {
		t.Errorf("%d layers in memory of %d bytes", len(l.Layers()), l.MemoryBytes())
	}
	l.Layers()[0].(Adder[string]).Add("fresh")
	if !must(l.MayContain("fresh")) {
		t.Error("an element that was added to the layers is lost")
	}
	reads := l.layers[1].(newer[string]).older.(*Cold[string]).Reads()
	if reads == 0 {
		t.Error("the cold layer was not read")
	}
	damaged := bytes.Clone(b.Bytes())
	damaged[len(damaged)-100] ^= 1 // in the cold layer's blocks
	l, err = OpenLayered(bytes.NewReader(damaged), int64(len(damaged)), ReadOptions[string]{})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for i := range 50 {
		positive, err := l.MayContain(member(i))
		found = found || isFormat(err)
		if !positive {
			t.Fatalf("%d is lost to damage", i)
		}
	}
	if !found {
		t.Error("damage in the cold layer was not reported")
	}
	if _, err := NewLayered[string](brokenLayer{}).WriteTo(io.Discard); !errors.Is(err, ErrIncompatible) {
		t.Errorf("a layer that cannot be saved: %v", err)
	}
}

type brokenLayer struct{}

func (brokenLayer) MayContain(string) (bool, error) { return true, nil }

// Filters that Build has made can be merged and compared if they are of the same kind, even in a
// Sharded.
func TestMergeOfAnyKind(t *testing.T) {
	for _, text := range []string{
		"bloom(items=100,fpr=0.01)", "counting(items=100,fpr=0.01)", "cuckoo(items=200,fpr=0.001)",
		"sharded(shards=3,of=cuckoo(items=200,fpr=0.001))", "sharded(shards=3,of=bloom(items=200,fpr=0.001))",
	} {
		a, b := must(Build(must(Parse(text)), BuildOptions[int]{})), must(Build(must(Parse(text)), BuildOptions[int]{}))
		must(TryAdd(a, 1))
		must(TryAdd(b, 2))
		if err := Merge(a, b); err != nil || !a.MayContain(1) || !a.MayContain(2) {
			t.Errorf("%s: %v", text, err)
		}
		if err := Merge(a, Filter[int](must(New[int](7, 0.1)))); !errors.Is(err, ErrIncompatible) {
			t.Errorf("%s with another: %v", text, err)
		}
	}
	scalable := must(Build(must(Parse("scalable(fpr=0.1)")), BuildOptions[int]{}))
	if err := Merge(scalable, scalable); !errors.Is(err, ErrIncompatible) {
		t.Error(err)
	}
	sharded := func(of string) *Sharded[int, Filter[int]] {
		return must(Build(must(Parse("sharded(shards=2,of="+of+")")), BuildOptions[int]{})).(*Sharded[int, Filter[int]])
	}
	if a, b := sharded("scalable(fpr=0.1)"), sharded("scalable(fpr=0.1)"); !a.Equal(b) || a.Merge(b) == nil {
		t.Error("two empty filters are not equal, or can be merged")
	} else if must(a.Add(1)); a.Equal(b) {
		t.Error("equal to a filter with another element")
	}
}
