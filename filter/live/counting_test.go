package live

import (
	"bytes"
	"math"
	"sync"
	"testing"
)

func TestCountingModel(t *testing.T) {
	f := must(NewCounting(CountingOptions[string]{Items: 500, FPR: 0.01}))
	r := seededRand(t)
	model := map[string]int{}
	for range 50_000 {
		v := member(r.IntN(500))
		switch r.IntN(3) {
		case 0:
			if model[v] < 3 { // so that even shared counters stay well below 15
				f.Add(v)
				model[v]++
			}
		case 1:
			if model[v] > 0 {
				if !f.Delete(v) {
					t.Fatalf("%s: added %d times, but Delete returns false", v, model[v])
				}
				model[v]--
			}
		case 2:
			if model[v] > 0 && !f.MayContain(v) {
				t.Fatalf("%s: lost", v)
			}
		}
	}
	saturated := f.Saturated()
	for v, n := range model {
		for range n {
			f.Delete(v)
		}
	}
	used, _ := f.tally()
	if f.Saturated() != saturated || used != saturated {
		t.Errorf("after all deletes %d counters are in use, %d were saturated", used, saturated)
	}
}

func TestCountingFPR(t *testing.T) {
	t.Parallel()
	n, probes := 1_000_000, 1_000_000
	if !*million {
		n, probes = 20_000, sized(200_000)
	}
	for _, fpr := range []float64{0.01, 0.001} {
		f := must(NewCounting(CountingOptions[string]{Items: uint64(n), FPR: fpr}))
		for i := range n {
			f.Add(member(i))
		}
		got := measureFPR(probes, f.MayContain)
		t.Logf("FPR %.3g for %v, %.2f bits per element", got, fpr, float64(f.MemoryBytes()*8)/float64(n))
		checkFPR(t, "FPR()", got, f.FPR(), probes, 0.02)
		checkFPRBelow(t, "target", got, fpr*1.02, probes)
		if c := float64(f.ApproxCount()); math.Abs(c-float64(n)) > 5*math.Sqrt(float64(n)) {
			t.Errorf("ApproxCount %v", c)
		}
		if f.Saturated() != 0 {
			t.Errorf("%d counters are saturated", f.Saturated())
		}
		for i := range n / 2 {
			f.Delete(member(i))
		}
		for i := n / 2; i < n; i++ {
			if !f.MayContain(member(i)) {
				t.Fatalf("%d: lost when others were deleted", i)
			}
		}
		if gone := f.FPR(); gone > fpr/10 {
			t.Errorf("FPR %v with half of the elements deleted", gone)
		}
	}
}

func TestCountingSaturates(t *testing.T) {
	f := must(NewCounting(CountingOptions[string]{Items: 100, FPR: 0.01}))
	for range 20 {
		f.Add("often")
	}
	for range 100 {
		f.Delete("often")
	}
	if !f.MayContain("often") {
		t.Error("a counter of 15 was decremented: another element could be lost")
	}
	if f.Saturated() == 0 || f.Saturated() > uint64(f.Hashes()) {
		t.Errorf("%d saturated", f.Saturated())
	}
}

// As the comment of Counting says, deleting absent elements mostly does nothing, but deleting false
// positives removes other elements.
func TestCountingDeleteAbsent(t *testing.T) {
	const n, absent = 2000, 20_000
	f := must(NewCounting(CountingOptions[string]{Items: n, FPR: 0.05}))
	for i := range n {
		f.Add(member(i))
	}
	fpr, accepted := f.FPR(), 0
	for i := range absent {
		if !f.MayContain(nonMember(i)) {
			var before, after bytes.Buffer
			if i < 10 {
				f.WriteTo(&before)
			}
			if f.Delete(nonMember(i)) {
				t.Fatal("deleted an element that MayContain excludes")
			}
			if i < 10 {
				f.WriteTo(&after)
				if !bytes.Equal(before.Bytes(), after.Bytes()) {
					t.Fatal("a Delete that returned false changed the filter")
				}
			}
			continue
		}
		accepted++
		f.Delete(nonMember(i))
	}
	lost := 0
	for i := range n {
		if !f.MayContain(member(i)) {
			lost++
		}
	}
	t.Logf("%d of %d absent deleted at FPR %.3f, %d of %d members lost", accepted, absent, fpr, lost, n)
	if accepted == 0 || lost == 0 {
		t.Error("no false negatives, but the comment of Counting describes them")
	}
}

func TestCountingConcurrent(t *testing.T) {
	const workers, n = 16, 3000
	f := must(NewCounting(CountingOptions[string]{Items: n + workers*n, FPR: 0.001}))
	for i := range n {
		f.Add(member(i)) // these stay
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			mine := func(i int) string { return nonMember(w*n + i) }
			for i := range n {
				f.Add(mine(i))
			}
			for i := range n {
				if !f.MayContain(member(i)) || !f.MayContain(mine(i)) {
					t.Errorf("%d: lost", i)
					return
				}
				f.Delete(mine(i))
			}
		})
	}
	wg.Wait()
	want := must(NewCounting(CountingOptions[string]{Items: n + workers*n, FPR: 0.001}))
	for i := range n {
		want.Add(member(i))
	}
	for i := range f.words {
		if f.words[i] != want.words[i] {
			t.Fatalf("word %d is %x, want %x", i, f.words[i], want.words[i])
		}
	}
}

// Of many deletes of an element that was added once, exactly one succeeds, and elements that
// share its counters stay.
func TestCountingConcurrentDelete(t *testing.T) {
	f := must(NewCounting(CountingOptions[string]{Items: 10, FPR: 0.1}))
	for i := range 10 {
		f.Add(member(i))
	}
	for round := range 200 {
		v := nonMember(round)
		if f.MayContain(v) {
			continue // a false positive; deleting it too often is the caller's fault
		}
		f.Add(v)
		deleted := make([]bool, 8)
		var wg sync.WaitGroup
		for w := range deleted {
			wg.Go(func() { deleted[w] = f.Delete(v) })
		}
		wg.Wait()
		n := 0
		for _, d := range deleted {
			if d {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("%d of 8 deletes succeeded", n)
		}
		for i := range 10 {
			if !f.MayContain(member(i)) {
				t.Fatalf("%d: lost", i)
			}
		}
	}
}

func FuzzReadCounting(f *testing.F) {
	c := must(NewCounting(CountingOptions[string]{Items: 5, FPR: 0.1}))
	c.Add("a")
	var buf bytes.Buffer
	c.WriteTo(&buf)
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		resealAll(file)
		g, err := ReadCounting(bytes.NewReader(file), ReadOptions[string]{MaxBytes: 1 << 20})
		if err != nil {
			return
		}
		g.Add("c")
		if !g.MayContain("c") || g.FPR() < 0 || g.FPR() > 1 {
			t.Error("the filter does not work after it was read")
		}
		g.Delete("c")
		g.ApproxCount()
	})
}
