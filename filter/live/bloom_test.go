package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func isFormat(err error) bool { return errors.Is(err, ErrFormat) }

func TestBloomOptions(t *testing.T) {
	for _, tc := range []struct {
		desc string
		o    BloomOptions[string]
		ok   bool
	}{
		{"items and FPR", BloomOptions[string]{Items: 10, FPR: 0.1}, true},
		{"no items", BloomOptions[string]{FPR: 0.1}, false},
		{"bits and hashes", BloomOptions[string]{Bits: 10, Hashes: 1}, true},
		{"nothing", BloomOptions[string]{}, false},
		{"FPR 1", BloomOptions[string]{Items: 10, FPR: 1}, false},
		{"FPR NaN", BloomOptions[string]{Items: 10, FPR: math.NaN()}, false},
		{"too many items", BloomOptions[string]{Items: math.MaxUint64, FPR: 0.1}, false},
		{"too low an FPR for Blocked", BloomOptions[string]{Items: 1000, FPR: 1e-60, Scheme: Blocked}, false},
		{"the lowest FPR for Blocked", BloomOptions[string]{Items: 1, FPR: 1e-300, Scheme: Blocked}, false},
		{"a low FPR for Blocked", BloomOptions[string]{Items: 1000, FPR: 1e-15, Scheme: Blocked}, true},
		{"bits without hashes", BloomOptions[string]{Bits: 10}, false},
		{"hashes without bits", BloomOptions[string]{Hashes: 3}, false},
		{"256 hashes", BloomOptions[string]{Bits: 10, Hashes: 256}, false},
		{"both ways", BloomOptions[string]{Items: 10, FPR: 0.1, Bits: 10, Hashes: 1}, false},
		{"too many bits", BloomOptions[string]{Bits: maxBits + 1, Hashes: 1}, false},
		{"too many bits for Guava", BloomOptions[string]{Bits: 1 << 38, Hashes: 1, Scheme: Guava}, false},
		{"seed for Guava", BloomOptions[string]{Items: 10, FPR: 0.1, Seed: 1, Scheme: Guava}, false},
		{"unknown scheme", BloomOptions[string]{Items: 10, FPR: 0.1, Scheme: 9}, false},
	} {
		if _, err := NewBloom(tc.o); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.desc, err)
		}
	}
	if _, err := NewBloom(BloomOptions[float64]{Items: 1, FPR: 0.1}); err == nil {
		t.Error("floats need a funnel")
	}
}

// allSchemes runs f on a filter of each scheme.
func allSchemes(t *testing.T, items uint64, fpr float64, f func(t *testing.T, b *Bloom[string])) {
	for _, s := range []Scheme{Scattered, Blocked, Guava, GuavaMitz32} {
		t.Run(s.String(), func(t *testing.T) {
			f(t, must(NewBloom(BloomOptions[string]{Items: items, FPR: fpr, Scheme: s})))
		})
	}
}

func TestBloomHoldsWhatWasAdded(t *testing.T) {
	for _, n := range []int{0, 1, 2, 63, 64, 65, 1000, 20000} {
		allSchemes(t, uint64(max(1, n)), 0.01, func(t *testing.T, f *Bloom[string]) {
			for i := range n {
				f.Add(member(i))
				if !f.MayContain(member(i)) {
					t.Fatalf("%d of %d: lost", i, n)
				}
				if f.Add(member(i)) {
					t.Fatalf("%d of %d: changed bits twice", i, n)
				}
			}
			for i := range n {
				if !f.MayContain(member(i)) {
					t.Fatalf("%d of %d: lost in the end", i, n)
				}
			}
			if n == 0 && f.MayContain("") {
				t.Error("an empty filter contains an element")
			}
		})
	}
}

// The FPR with a million elements is as requested, and agrees with FPR(). Smaller filters, down
// to one block, and very low rates reach it as well.
func TestBloomFPR(t *testing.T) {
	t.Parallel()
	probes := 1_000_000
	sizes := []struct {
		n   int
		fpr float64
	}{{1_000_000, 0.01}, {1_000_000, 0.001}, {10_000, 1e-3}, {1000, 1e-4}, {100, 1e-3}, {20, 0.03}}
	if !*million {
		probes, sizes = sized(200_000), sizes[2:]
	}
	for _, size := range sizes {
		allSchemes(t, uint64(size.n), size.fpr, func(t *testing.T, f *Bloom[string]) {
			for i := range size.n {
				f.Add(member(i))
			}
			what := fmt.Sprintf("n %d", size.n)
			got := measureFPR(probes, f.MayContain)
			t.Logf("%s: FPR %.3g for %.3g, %.2f bits per element", what, got, size.fpr, float64(f.Bits())/float64(size.n))
			// With Guava's double hashing, small filters have a minimum FPR, which
			// FPR() does not include, since it does not depend on the fill.
			if !f.Scheme().guava() || size.n > 10_000 {
				checkFPR(t, what+", FPR()", got, f.FPR(), probes, 0.05)
				checkFPRBelow(t, what, got, size.fpr*(1+1/math.Sqrt(float64(size.n))), probes)
			}
			if c := float64(f.ApproxCount()); math.Abs(c-float64(size.n)) > 4+4*math.Sqrt(float64(size.n)) {
				t.Errorf("%s: ApproxCount %v", what, c)
			}
			if e := f.ExpectedFPR(uint64(size.n)); e > size.fpr*1.02 && !f.Scheme().guava() {
				t.Errorf("%s: ExpectedFPR %.3g above the target %.3g", what, e, size.fpr)
			}
		})
	}
}

// A hundred small filters reach a rate that double hashing would not reach at this size
// (3.5e-4 instead of 1e-4).
func TestBloomSmallHasNoFloor(t *testing.T) {
	for _, s := range []Scheme{Scattered, Blocked} {
		const n, filters, fpr = 100, 100, 1e-4
		probes := sized(20_000)
		sum, expected := 0.0, 0.0
		for seed := range uint64(filters) {
			f := must(NewBloom(BloomOptions[string]{Items: n, FPR: fpr, Scheme: s, Seed: seed}))
			for i := range n {
				f.Add(member(i))
			}
			sum += measureFPR(probes, f.MayContain)
			expected += f.FPR()
		}
		checkFPR(t, s.String(), sum/filters, expected/filters, filters*probes, 0.05)
		checkFPRBelow(t, s.String(), sum/filters, fpr*1.05, filters*probes)
	}
}

func TestBloomSeedsAreIndependent(t *testing.T) {
	a := must(NewBloom(BloomOptions[string]{Items: 10_000, FPR: 0.05, Seed: 1}))
	b := must(NewBloom(BloomOptions[string]{Items: 10_000, FPR: 0.05, Seed: 2}))
	for i := range 10_000 {
		a.Add(member(i))
		b.Add(member(i))
	}
	both := measureFPR(400_000, func(s string) bool { return a.MayContain(s) && b.MayContain(s) })
	checkFPR(t, "both", both, a.FPR()*b.FPR(), 400_000, 0.1)
}

func TestBloomAll(t *testing.T) {
	allSchemes(t, 1000, 0.01, func(t *testing.T, f *Bloom[string]) {
		one := f.Clone()
		var vs []string
		for i := range 1000 {
			vs = append(vs, member(i%900))
		}
		changed := 0
		for _, v := range vs {
			if one.Add(v) {
				changed++
			}
		}
		isNew := make([]bool, len(vs))
		f.AddMany(vs, isNew)
		got := 0
		for _, n := range isNew {
			if n {
				got++
			}
		}
		if got != changed {
			t.Errorf("%d are new to AddMany, %d to Add", got, changed)
		}
		for i := range 900 {
			vs = append(vs, nonMember(i))
		}
		positive := make([]bool, len(vs))
		f.MayContainMany(vs, positive)
		for i, v := range vs {
			if positive[i] != one.MayContain(v) {
				t.Errorf("%s: %v", v, positive[i])
			}
		}
	})
}

func TestBloomMergeCloneReset(t *testing.T) {
	allSchemes(t, 1000, 0.01, func(t *testing.T, f *Bloom[string]) {
		g := f.Clone()
		for i := range 500 {
			f.Add(member(i))
			g.Add(member(i + 500))
		}
		if f.MayContain(member(777)) && f.MayContain(member(778)) && f.MayContain(member(779)) {
			t.Error("a clone shares its bits")
		}
		if err := f.Merge(g); err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			if !f.MayContain(member(i)) {
				t.Fatalf("%d: lost in Merge", i)
			}
		}
		f.Reset()
		if f.ones() != 0 || f.ApproxCount() != 0 || f.FPR() != 0 {
			t.Error("not empty after Reset")
		}
	})
	base := BloomOptions[string]{Bits: 1024, Hashes: 3}
	for _, tc := range []struct {
		desc   string
		change func(*BloomOptions[string])
	}{
		{"bits", func(o *BloomOptions[string]) { o.Bits = 2048 }},
		{"hashes", func(o *BloomOptions[string]) { o.Hashes = 4 }},
		{"scheme", func(o *BloomOptions[string]) { o.Scheme = Blocked }},
		{"seed", func(o *BloomOptions[string]) { o.Seed = 7 }},
		{"funnel", func(o *BloomOptions[string]) { o.Funnel = GuavaUTF16 }},
	} {
		o := base
		tc.change(&o)
		f, g := must(NewBloom(base)), must(NewBloom(o))
		if err := f.Merge(g); !errors.Is(err, ErrIncompatible) {
			t.Errorf("%s: %v", tc.desc, err)
		}
	}
}

func TestBloomSaturated(t *testing.T) {
	for _, s := range []Scheme{Scattered, Blocked} {
		f := must(NewBloom(BloomOptions[string]{Bits: 512, Hashes: 4, Scheme: s}))
		for i := range 20_000 {
			f.Add(member(i))
		}
		if f.ApproxCount() != math.MaxUint64 || f.FPR() != 1 || f.FillRatio() != 1 {
			t.Errorf("%v: count %d, FPR %v, fill %v", s, f.ApproxCount(), f.FPR(), f.FillRatio())
		}
	}
}

type point struct{ x, y int32 }

func TestBloomElements(t *testing.T) {
	type name string
	type blob []byte
	check := func(what string, got, want uint64) {
		if got != want {
			t.Errorf("%s: hash %x, want %x", what, got, want)
		}
	}
	b := must(newKey[[]byte](nil))
	str, nam, blb := must(newKey[string](nil)), must(newKey[name](nil)), must(newKey[blob](nil))
	want := b.Sum64([]byte("abc"))
	check("string", str.Sum64("abc"), want)
	check("name", nam.Sum64("abc"), want)
	check("blob", blb.Sum64(blob("abc")), want)
	pt := must(newKey(func(dst []byte, p point) []byte {
		return append(dst, byte(p.x), byte(p.y))
	}))
	check("point", pt.Sum64(point{1, 2}), b.Sum64([]byte{1, 2}))

	eight := b.Sum64([]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	i, i64, i32, i16, i8, u := must(newKey[int](nil)), must(newKey[int64](nil)), must(newKey[int32](nil)), must(newKey[int16](nil)), must(newKey[int8](nil)), must(newKey[uint](nil))
	check("int", i.Sum64(-2), eight)
	check("int64", i64.Sum64(-2), eight)
	check("int32", i32.Sum64(-2), b.Sum64([]byte{0xfe, 0xff, 0xff, 0xff}))
	check("int16", i16.Sum64(-2), b.Sum64([]byte{0xfe, 0xff}))
	check("int8", i8.Sum64(-2), b.Sum64([]byte{0xfe}))
	check("uint", u.Sum64(5), b.Sum64([]byte{5, 0, 0, 0, 0, 0, 0, 0}))
	if got := i.Append([]byte{9}, 1); len(got) != 9 || got[1] != 1 {
		t.Errorf("Append: %v", got)
	}
}

// Sixteen goroutines add overlapping elements: no bit is lost, and Add returns true for each
// new element to at least one of them.
func TestBloomConcurrent(t *testing.T) {
	const workers = 16
	n := sized(20_000)
	allSchemes(t, uint64(n), 0.001, func(t *testing.T, f *Bloom[string]) {
		newTo := make([]atomic.Int32, n)
		want := f.Clone()
		for i := range n {
			want.Add(member(i))
		}
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range n {
					v := (i + w*n/workers/2) % n
					if f.Add(member(v)) {
						newTo[v].Add(1)
					}
					if !f.MayContain(member(v)) {
						t.Errorf("%d: lost", v)
						return
					}
				}
			})
		}
		wg.Wait()
		never := 0
		for i := range newTo {
			if newTo[i].Load() == 0 {
				never++
			}
		}
		if never > n/100 {
			t.Errorf("Add never returned true for %d of %d elements", never, n)
		}
		for i := range f.words {
			if f.words[i] != want.words[i] {
				t.Fatalf("word %d is %x, with one goroutine %x", i, f.words[i], want.words[i])
			}
		}
	})
}

func TestBloomAllocatesNothing(t *testing.T) {
	s := must(NewBloom(BloomOptions[string]{Items: 100, FPR: 0.01}))
	u := must(NewBloom(BloomOptions[uint64]{Items: 100, FPR: 0.01, Scheme: Blocked}))
	g := must(NewBloom(BloomOptions[int32]{Items: 100, FPR: 0.01, Scheme: Guava}))
	if n := testing.AllocsPerRun(100, func() {
		s.Add("a")
		s.MayContain("b")
		u.Add(1)
		u.MayContain(2)
		g.Add(1)
		g.MayContain(2)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An Unshared filter has the same bits and gives the same answers, and can be shared after
// Share.
func TestUnshared(t *testing.T) {
	for _, scheme := range []Scheme{Scattered, Blocked, Guava, GuavaMitz32} {
		o := BloomOptions[string]{Items: 1000, FPR: 0.01, Scheme: scheme}
		shared := must(NewBloom(o))
		o.Unshared = true
		alone, many := must(NewBloom(o)), must(NewBloom(o))
		var vs []string
		for i := range 1500 {
			vs = append(vs, member(i%1200))
		}
		isNew := make([]bool, len(vs))
		many.AddMany(vs, isNew)
		for i, v := range vs {
			if a, b := shared.Add(v), alone.Add(v); a != b || a != isNew[i] {
				t.Fatalf("%v: %d is new: %v shared, %v alone, %v in a batch", scheme, i, a, b, isNew[i])
			}
		}
		if !alone.Equal(shared) || !many.Equal(shared) {
			t.Errorf("%v: bits differ", scheme)
		}
		alone.Share()
		for _, f := range []*Bloom[string]{alone, many.Clone()} { // the race detector watches
			var wg sync.WaitGroup
			for w := range 2 {
				wg.Go(func() {
					for i := range 500 {
						f.Add(nonMember(w*250 + i))
					}
				})
			}
			wg.Wait()
		}
	}
	o := BloomOptions[string]{Items: 10, FPR: 0.01, Unshared: true}
	if _, err := NewPair(o, o); err == nil {
		t.Error("a Pair accepted Unshared options")
	}
}

// TestSecretSeedCollision checks what BloomOptions.Seed says: elements can be computed that are
// false positives with any seed. The hash of an element is XXH64, which adds each eight bytes of
// the first half of such an element to a state, and then those of the second half to the result.
// Any change of the former can be undone by the latter.
func TestSecretSeedCollision(t *testing.T) {
	const p1, p2 = 0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f // of XXH64
	inverse := uint64(p2)                                 // of p2, modulo 2^64
	for range 6 {
		inverse *= 2 - p2*inverse
	}
	var start uint64 = p1
	start += p2
	round := func(word uint64) uint64 { return bits.RotateLeft64(start+word*p2, 31) * p1 }
	element := func(first uint64) string {
		b := []byte(strings.Repeat("x", 64))
		binary.LittleEndian.PutUint64(b, first)
		binary.LittleEndian.PutUint64(b[32:], (round(0)-round(first))*inverse)
		return string(b)
	}
	rnd := seededRand(t)
	for range 10 {
		f := must(NewBloom(BloomOptions[string]{Items: 1000, FPR: 1e-9, Seed: rnd.Uint64()}))
		f.Add(element(0))
		for range 100 {
			if !f.MayContain(element(rnd.Uint64())) {
				t.Fatal("the elements have different hashes; correct the comment of Seed")
			}
		}
	}
}
