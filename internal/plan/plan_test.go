package plan

import (
	"math"
	"math/rand/v2"
	"testing"
)

// columns makes a table of n keys whose filter has units of one bit per key.
func columns(n int64, units int, accessRate float64) Table {
	t := Table{AccessRate: accessRate, FPR: math.Exp2(-float64(units))}
	for range units {
		t.Steps = append(t.Steps, n/8)
	}
	return t
}

// TestMonkey compares the plan for uniform traffic with Monkey's formula: in the best
// allocation, the false positive rate of a level is proportional to its number of keys.
func TestMonkey(t *testing.T) {
	const ratio = 8 // three bits
	var tables []Table
	keys := int64(8000)
	var all int64
	for range 5 {
		tables = append(tables, columns(keys, 40, 1))
		all += keys
		keys *= ratio
	}
	// The budget for an FPR of 2^-9 at the largest level.
	var budget int64
	for i := range tables {
		budget += tables[i].Steps[0] * int64(9+3*(len(tables)-1-i))
	}
	held := Choose(tables, budget)
	for i, n := range held {
		if want := 9 + 3*(len(tables)-1-i); n != want {
			t.Errorf("level %d: %d bits per key, want %d by Monkey's formula (all: %v)", i, n, want, held)
		}
	}
	if got := Bytes(tables, held); got != budget {
		t.Errorf("%d bytes used of %d", got, budget)
	}
	// The same bytes spread evenly waste many times as many reads.
	even := make([]int, len(tables))
	for i := range even {
		even[i] = int(budget * 8 / all)
	}
	if w, e := Wasted(tables, held), Wasted(tables, even); w*3 > e {
		t.Errorf("%v wasted reads, %v with an even allocation", w, e)
	}
}

// TestOptimal compares the plan with the best of all possible allocations.
func TestOptimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		tables := make([]Table, 3)
		for i := range tables {
			tables[i] = columns(1000, 1+rng.IntN(4), rng.ExpFloat64())
		}
		budget := int64(125 * rng.IntN(10))
		best := math.Inf(1)
		held := make([]int, 3)
		for held[0] = 0; held[0] <= len(tables[0].Steps); held[0]++ {
			for held[1] = 0; held[1] <= len(tables[1].Steps); held[1]++ {
				for held[2] = 0; held[2] <= len(tables[2].Steps); held[2]++ {
					if Bytes(tables, held) <= budget {
						best = min(best, Wasted(tables, held))
					}
				}
			}
		}
		if got := Wasted(tables, Choose(tables, budget)); got > best*(1+1e-9) {
			t.Fatalf("%v wasted reads, %v at best: %+v, %d bytes", got, best, tables, budget)
		}
	}
}

func TestBudgetIsKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		tables := make([]Table, rng.IntN(50))
		for i := range tables {
			tables[i] = columns(int64(rng.IntN(5000)), rng.IntN(6), rng.ExpFloat64())
			tables[i].Held = rng.IntN(len(tables[i].Steps) + 1)
		}
		budget := int64(rng.IntN(20000))
		want := Choose(tables, budget)
		if n := Bytes(tables, want); n > budget {
			t.Fatalf("%d bytes of %d", n, budget)
		}
		// Nor is it exceeded between the changes, unless it was before.
		now := make([]int, len(tables))
		for i := range now {
			now[i] = tables[i].Held
		}
		start := Bytes(tables, now)
		limit := int64(rng.IntN(5000))
		var read int64
		loaded := 0
		for _, s := range Changes(tables, want, limit) {
			before := Bytes(tables, now)
			loaded += max(0, s.Steps-now[s.Table])
			now[s.Table] = s.Steps
			after := Bytes(tables, now)
			read += max(0, after-before)
			if after > max(budget, start) {
				t.Fatalf("%d bytes between changes, budget %d", after, budget)
			}
		}
		if read > limit && loaded > 1 {
			t.Fatalf("%d bytes read of %d, %d steps", read, limit, loaded)
		}
	}
	if got := Choose([]Table{columns(100, 3, 1)}, 0); got[0] != 0 {
		t.Errorf("%d units within 0 bytes", got[0])
	}
}

// TestLargeSteps checks that filters whose only step is larger than what a tick may read are loaded
// one per tick, and replace another one.
func TestLargeSteps(t *testing.T) {
	const step, limit = 1000, 100
	tables := []Table{columns(8*step, 1, 1), columns(8*step, 1, 100), columns(8*step, 1, 100)}
	tables[0].Held = 1
	for tick, want := range [][]int{{0, 1, 0}, {0, 1, 1}, {0, 1, 1}} {
		for _, c := range Changes(tables, Choose(tables, 2*step), limit) {
			tables[c.Table].Held = c.Steps
		}
		for i, n := range want {
			if tables[i].Held != n {
				t.Errorf("tick %d: table %d has %d steps of its filter, want %d", tick, i, tables[i].Held, n)
			}
		}
	}
}

// TestSteady checks that small changes of the traffic do not change the plan, and that large
// ones do.
func TestSteady(t *testing.T) {
	tables := []Table{columns(1000, 4, 1), columns(1000, 4, 1.1)}
	held := Choose(tables, 4*125)
	for i := range tables {
		tables[i].Held = held[i]
	}
	for _, rates := range [][2]float64{{1.1, 1}, {1, 1.2}, {1.2, 1.1}} {
		tables[0].AccessRate, tables[1].AccessRate = rates[0], rates[1]
		if now := Choose(tables, 4*125); now[0] != held[0] || now[1] != held[1] {
			t.Errorf("traffic %v moves units from %v to %v", rates, held, now)
		}
	}
	tables[0].AccessRate, tables[1].AccessRate = 100, 1
	if now := Choose(tables, 4*125); now[0] != 4 {
		t.Errorf("a hot table gets %d of 4 units", now[0])
	}
}

func TestNextSaves(t *testing.T) {
	tables := []Table{columns(1000, 4, 8)}
	if got := NextSaves(tables, 0, 125); got != 4 {
		t.Errorf("the first bit saves %v reads of 8; want 4", got)
	}
	if got := NextSaves(tables, 500, 125); got != 0 {
		t.Errorf("bytes beyond the filter save %v", got)
	}
}

func BenchmarkChoose(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 3))
	tables := make([]Table, 10000)
	for i := range tables {
		tables[i] = columns(100000, 4, rng.ExpFloat64())
	}
	for b.Loop() {
		Choose(tables, 10000*2*12500)
	}
}

// TestRates checks that Rates are used if a filter's steps are not of equal value.
func TestRates(t *testing.T) {
	tables := []Table{
		{AccessRate: 1, Steps: []int64{10, 10}, FPR: 0.01},
		{AccessRate: 1, Steps: []int64{10, 10}, Rates: []float64{0.95, 0.01}},
	}
	for _, tt := range []struct {
		budget int64
		want   [2]int
		wasted float64
	}{{10, [2]int{1, 0}, 1.1}, {20, [2]int{2, 0}, 1.01}, {30, [2]int{2, 1}, 0.96}, {40, [2]int{2, 2}, 0.02}} {
		held := choose(tables, tt.budget, 1)
		if [2]int(held) != tt.want || math.Abs(Wasted(tables, held)-tt.wasted) > 1e-9 {
			t.Errorf("%d bytes: %v, %.4f wasted reads, want %v and %.4f", tt.budget, held, Wasted(tables, held), tt.want, tt.wasted)
		}
	}
}
