package filter

import (
	"fmt"
	"math"
	"testing"
)

// near checks that got is within a relative error of want.
func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > within*math.Abs(want) {
		t.Errorf("%s: %.6g, want %.6g within %v", what, got, want, within)
	}
}

// TestTutorialClaims checks figures that tutorials often get wrong.
func TestTutorialClaims(t *testing.T) {
	const million, billion = 1e6, 1e9
	near(t, "10 bits per key, 7 probes", ClassicFPR(million, 10*million, 7), 0.00819, 0.002)
	near(t, "10 bits per key, 3 probes", ClassicFPR(million, 10*million, 3), 0.0174, 0.002)
	near(t, "10 bits per key, 10 probes", ClassicFPR(million, 10*million, 10), 0.0102, 0.004)
	near(t, "bits per key for 10%", ClassicBits(0.1), 4.79, 0.001)
	near(t, "bits per key for 1%", ClassicBits(0.01), 9.585, 0.001)
	near(t, "bits per key for 0.1%", ClassicBits(0.001), 14.38, 0.001)
	near(t, "bytes of a million keys at 0.1%", ClassicNumBits(million, 0.001)/8, 1.80e6, 0.002)
	near(t, "a million keys in 1.2 MB", ClassicFPR(million, 8*1.2e6, 7), 0.01, 0.01)
	near(t, "100 million keys in 12 MB", ClassicFPR(100*million, 8*12e6, 1), 0.65, 0.01)
	near(t, "bytes of 100 million keys at 0.01%", ClassicNumBits(100*million, 0.0001)/8, 240e6, 0.003)
	near(t, "a billion keys in 120 MB", ClassicFPR(billion, 8*120e6, 1), 0.65, 0.01)
	near(t, "GiB of a billion keys at 0.001%", ClassicNumBits(billion, 0.00001)/8/(1<<30), 2.79, 0.001)
	near(t, "bits per key for 0.001%", ClassicBits(0.00001), 23.96, 0.001)
	near(t, "8 bits per key", ClassicFPRLimit(8, float64(ClassicProbes(8))), 0.0216, 0.002)
	near(t, "factor in FPR per bit per key", math.Pow(ClassicFPRLimit(1000, 1000*math.Ln2), 1.0/1000), 0.6185, 0.0001)

	if m := ClassicNumBits(6000, 1e-9); m != 258797 {
		t.Errorf("6000 keys at 1e-9 take %v bits", m)
	}
	near(t, "6000 keys at 1e-9 with 30 probes", ClassicFPR(6000, 258797, 30), 1.0000e-9, 1e-3)
	near(t, "6000 keys at 1e-9 with 31 probes", ClassicFPR(6000, 258797, 31), 1.0084e-9, 1e-3)
	for _, c := range []struct {
		bits float64
		k    int
	}{{258797.0 / 6000, 30}, {9.585, 7}, {10, 7}, {14.38, 10}, {24, 17}, {8, 6}, {1, 1}, {0.1, 1}, {0, 1}} {
		if k := ClassicProbes(c.bits); k != c.k {
			t.Errorf("%v bits per key: %d probes, want %d", c.bits, k, c.k)
		}
	}

	// The share of unique lines that a filter for 1% drops while it fills up.
	const steps = 10_000
	sum := 0.0
	for i := range steps {
		sum += ClassicFPR((float64(i)+0.5)/steps*million, 9.6*million, 7)
	}
	near(t, "mean FPR while filling up", sum/steps, 0.0017, 0.03)
}

func TestSizingEdges(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		desc      string
		got, want float64
	}{
		{"limit for 0", LimitBits(0), inf},
		{"limit for 1", LimitBits(1), 0},
		{"limit above 1", LimitBits(2), 0},
		{"limit below 0", LimitBits(-0.1), nan},
		{"limit of NaN", LimitBits(nan), nan},
		{"limit of a half", LimitBits(0.5), 1},
		{"limit of the smallest number", LimitBits(math.SmallestNonzeroFloat64), 1074},
		{"bits for 0", ClassicBits(0), inf},
		{"no keys", ClassicNumBits(0, 0.01), 0},
		{"no keys at 0", ClassicNumBits(0, 0), 0},
		{"negative keys", ClassicNumBits(-1, 0.01), nan},
		{"at 0", ClassicNumBits(1, 0), inf},
		{"at 1", ClassicNumBits(1e9, 1), 0},
		{"infinite keys", ClassicNumBits(inf, 0.5), inf},
		{"infinite keys at 1", ClassicNumBits(inf, 1), 0},
		{"FPR of infinite keys in infinite bits with NaN probes", ClassicFPR(inf, inf, nan), nan},
		{"FPR of no keys", ClassicFPR(0, 100, 7), 0},
		{"FPR of no keys in no bits", ClassicFPR(0, 0, 7), 0},
		{"FPR in no bits", ClassicFPR(1, 0, 7), 1},
		{"FPR in one bit", ClassicFPR(1, 1, 7), 1},
		{"FPR without probes", ClassicFPR(0, 100, 0), 1},
		{"FPR of infinite keys", ClassicFPR(inf, 100, 7), 1},
		{"FPR in infinite bits", ClassicFPR(100, inf, 7), 0},
		{"FPR of infinite keys in infinite bits", ClassicFPR(inf, inf, 7), nan},
		{"FPR of infinite probes", ClassicFPR(100, 1000, inf), nan},
		{"FPR of NaN keys", ClassicFPR(nan, 1000, 7), nan},
		{"FPR of NaN bits", ClassicFPR(10, nan, 7), nan},
		{"FPR of NaN probes", ClassicFPR(10, 10, nan), nan},
		{"FPR of negative keys", ClassicFPR(-1, 1000, 7), nan},
		{"FPR in two bits", ClassicFPR(1, 2, 1), 0.5},
		{"FPR at no bits", ClassicFPRLimit(0, 7), 1},
		{"FPR at infinite bits", ClassicFPRLimit(inf, 7), 0},
	} {
		if c.got != c.want && !(math.IsNaN(c.got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, want %v", c.desc, c.got, c.want)
		}
	}
	for _, bits := range []float64{-1, nan, inf, 1e300} {
		if k := ClassicProbes(bits); k != 0 {
			t.Errorf("%v bits per key: %d probes", bits, k)
		}
	}
	// For many keys the formula agrees with its limit and does not lose precision.
	near(t, "a million billion keys", ClassicFPR(1e15, 43e15, 30), ClassicFPRLimit(43, 30), 1e-6)
}

// TestExpect builds filters and compares them with Expect.
func TestExpect(t *testing.T) {
	for _, p := range []Policy{Bloom(1), Bloom(4.5), Bloom(10), Bloom(20), Fuse(4), Fuse(11), Ribbon(7), RibbonFPR(0.01), RocksDBBloom(3), RocksDBBloom(10), RocksDBBloom(17)} {
		for _, n := range []int{1, 2, 40, 700, 30_000, 300_000} {
			want, ok := Expect(p, float64(n))
			if !ok {
				t.Fatalf("%s: Expect is not ok", p.Name())
			}
			w := p.NewWriter()
			for i := range n {
				var b [8]byte
				for j := range b {
					b[j] = byte(i >> (8 * j))
				}
				w.Add(NewKey(b[:]))
			}
			units, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Open(units)
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, u := range units {
				size += len(u)
			}
			// The exact layers of a ribbon filter are known only after building.
			within := 0.0
			if p.Family() == ribbonFamily && n > 2 {
				within = 0.05
			}
			near(t, fmt.Sprintf("bytes of %s, %d keys", p.Name(), n), float64(size), want.Bytes, within)
			// With few lines loads are uneven, and few hits prove little.
			if n >= 30_000 && want.FPR > 5e-3 {
				near(t, p.Name(), r.FPR(), want.FPR, 0.08)
			}
		}
	}
	if _, ok := Expect(None(), 10); ok {
		t.Error("Expect has a size for None")
	}
	if _, ok := Expect(Bloom(10), maxSizeKeys); !ok {
		t.Error("Bloom(10) has no size for 2^48 keys")
	}
	for _, n := range []float64{0, -1, math.NaN(), math.Inf(1), maxSizeKeys + 1, 1e300} {
		if _, ok := Expect(Bloom(10), n); ok {
			t.Errorf("Bloom(10) has a size for %v keys", n)
		}
	}
}

func TestCompareSizes(t *testing.T) {
	for _, n := range []float64{1, 1000, 1e6, 1e9, 1 << 48} {
		for _, p := range []float64{0.9, 0.5, 0.01, 0.001, 1e-5, 1e-12} {
			sizes, err := CompareSizes(n, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range sizes {
				if s.Reached != (s.FPR <= p*1.005) {
					t.Errorf("%v keys, FPR %v: %s has an FPR of %v, Reached is %v", n, p, s.Name, s.FPR, s.Reached)
				}
				if !(s.OverLimit >= 0.998) || math.IsInf(s.OverLimit, 0) != (s.FPR == 1) {
					t.Errorf("%v keys, %v: %s is %v times the limit", n, p, s.Name, s.OverLimit)
				}
				if _, err := Parse(s.Name); err != nil && s.Name != "limit" && s.Name != "classic bloom" {
					t.Error(err)
				}
			}
		}
	}
	sizes, err := CompareSizes(1e9, 0.001)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "limit", sizes[0].Bytes, 1.246e9, 0.001)
	near(t, "classic", sizes[1].BitsPerKey, 14.38, 0.001)
	if s := sizes[2]; s.Name != "bloom(15.55)" || !s.Reached {
		t.Errorf("Bloom for 0.1 %%: %+v", s)
	}
	for _, c := range []struct{ n, p float64 }{
		{0, 0.01}, {-1, 0.01}, {math.NaN(), 0.01}, {math.Inf(1), 0.01}, {1e17, 0.01},
		{1, 0}, {1, 1}, {1, -1}, {1, 2}, {1, math.NaN()},
	} {
		if _, err := CompareSizes(c.n, c.p); err == nil {
			t.Errorf("%v keys at %v have sizes", c.n, c.p)
		}
	}
}

// TestChoosersExactly checks that a policy is chosen for exactly its rate. If no rate of a family
// is low enough, a policy near its lowest rate must be chosen.
func TestChoosersExactly(t *testing.T) {
	const n = 1_000_000
	for _, c := range []struct {
		choose func(n, p float64) Policy
		bound  Policy // for rates out of reach
		at     []Policy
	}{
		{chooseBloom, Bloom(30), []Policy{Bloom(1), Bloom(15.55), Bloom(30)}},
		{chooseFuse, Fuse(16), []Policy{Fuse(4), Fuse(9), Fuse(16)}},
		{chooseRocksDB, RocksDBBloom(92), []Policy{RocksDBBloom(1), RocksDBBloom(9), RocksDBBloom(100)}},
	} {
		for _, want := range c.at {
			s, ok := Expect(want, n)
			if got := c.choose(n, s.FPR); !ok || got != want {
				t.Errorf("for an FPR of %v: %s, want %s", s.FPR, got.Name(), want.Name())
			}
		}
		if got := c.choose(n, 1e-12); got != c.bound {
			t.Errorf("for a rate out of reach: %s, want %s", got.Name(), c.bound.Name())
		}
	}
}
