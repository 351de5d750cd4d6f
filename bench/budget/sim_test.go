package budget

import (
	"math"
	"testing"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/result"
)

func small() *Options {
	return &Options{
		TableKeys: 50_000, Levels: []int{1, 10, 100}, ZeroTables: 1, Filters: []string{"ribbon(16)"}, BitsPerKey: []float64{4, 8},
		Lookups: 100_000, WarmSeconds: 30, MeasuredSeconds: 60, ShiftSeconds: 30, Seed: 1,
	}
}

// TestOrder checks what must hold for all traffic: nothing is better than the optimum, Monkey
// equals it on even traffic, and the plan comes close to it.
func TestOrder(t *testing.T) {
	o := small()
	f := result.New(result.Meta{})
	if err := Run(o, f); err != nil {
		t.Fatal(err)
	}
	reads := map[[3]string]float64{}
	for _, r := range f.Rows {
		if r.Num != o.Keys() || r.Of(result.FilterBytes).N != 1 {
			t.Errorf("a row with another number of keys, or without filter bytes: %+v", r)
		}
		reads[[3]string{r.Benchmark, r.State, r.Store}] = r.Of(result.BlockReads).Median
	}
	for _, kind := range Traffics() {
		for _, bits := range []string{"4 bits/key", "8 bits/key"} {
			of := func(who string) float64 {
				v, ok := reads[[3]string{kind, bits, who}]
				if !ok {
					t.Fatalf("%s, %s: no result for %s", kind, bits, who)
				}
				return v
			}
			uniform, monkey, ours, best := of(Uniform), of(Monkey), of(Planned+"ribbon(16)"), of(Hindsight)
			steps := of(BestSteps + "ribbon(16)")
			if best > steps || steps > ours*1.001 {
				t.Errorf("%s, %s: in whole steps the optimum wastes %v, with fractions %v, the plan %v", kind, bits, steps, best, ours)
			}
			t.Logf("%-16s %s: uniform %.3f, Monkey %.3f, sift %.3f, in whole bits %.3f, optimum %.3f", kind, bits, uniform, monkey, ours, steps, best)
			if best > min(uniform, monkey, ours)*1.0001 {
				t.Errorf("%s, %s: the optimum wastes %v, uniform %v, Monkey %v, the plan %v", kind, bits, best, uniform, monkey, ours)
			}
			switch {
			case kind == Even && math.Abs(monkey/best-1) > 1e-6:
				t.Errorf("%s: Monkey wastes %v on even traffic, the optimum %v", bits, monkey, best)
			case kind == Ranges && ours > monkey:
				t.Errorf("%s: on hot ranges the plan wastes %v, Monkey %v", bits, ours, monkey)
			case ours > 2.5*best:
				t.Errorf("%s, %s: the plan wastes %v, the optimum %v", kind, bits, ours, best)
			}
		}
	}
}

// TestWaterfill checks the conditions of an optimum: the budget is spent, and false positive rates
// below 1 are inversely proportional to how often tables are probed.
func TestWaterfill(t *testing.T) {
	probed := []float64{1, 0.5, 0.1, 0.01, 0}
	rates := waterfill(probed, 2)
	var halvings float64
	for i, p := range rates {
		halvings -= math.Log2(p)
		if p < 1 && math.Abs(p*probed[i]/(rates[0]*probed[0])-1) > 1e-9 {
			t.Errorf("rates %v are not inversely proportional to probes %v", rates, probed)
		}
		if p > 1 || p <= 0 {
			t.Errorf("rate %v is not in (0, 1]", p)
		}
	}
	if math.Abs(halvings-2*float64(len(probed))) > 1e-6 {
		t.Errorf("%v halvings spent, want %d", halvings, 2*len(probed))
	}
	if rates[4] != 1 {
		t.Errorf("a table that is never probed has rate %v", rates[4])
	}
	for _, p := range waterfill(probed, 0) {
		if p != 1 {
			t.Errorf("without memory the rate is %v", p)
		}
	}
}

func TestPoisson(t *testing.T) {
	r := data.Rand(5)
	for _, mean := range []float64{0.5, 20, 400} {
		const n = 20_000
		var sum, squares float64
		for range n {
			v := float64(poisson(r, mean))
			sum, squares = sum+v, squares+v*v
		}
		got := sum / n
		if variance := squares/n - got*got; math.Abs(got/mean-1) > 0.05 || math.Abs(variance/mean-1) > 0.1 {
			t.Errorf("mean %v: drew a mean of %v with variance %v", mean, got, variance)
		}
	}
}
