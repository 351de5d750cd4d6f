package filter_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/filtertest"
)

func TestRangeConforms(t *testing.T) {
	keyed, err := filter.KeyedRange(filter.Range(12, 0), filter.Secret{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []filter.RangePolicy{filter.Range(4, 0), filter.Range(10, 0), filter.Range(32, 0), keyed} {
		t.Run(p.Name(), func(t *testing.T) { filtertest.RunRange(t, p) })
	}
	units := filter.Range(16, 7)
	t.Run(units.Name(), func(t *testing.T) { filtertest.RunRangeWith(t, units, filtertest.Options{RangeUnit: 1 << 7}) })
}

func TestParseRange(t *testing.T) {
	for _, name := range []string{"range(12)", "range(4)", "range(32,56)", "range(20,1)"} {
		p, err := filter.ParseRange(name)
		if err != nil || p.Name() != name {
			t.Errorf("ParseRange(%q) = %v, %v", name, p, err)
		}
	}
	for _, name := range []string{"", "range", "range()", "range(3)", "range(33)", "range(12,57)", "range(12,-1)", "range(12,)", "range(12,1,1)", "range(,1)", "bloom(10)", "range(12)x", "range(12", "12)"} {
		if p, err := filter.ParseRange(name); err == nil {
			t.Errorf("ParseRange(%q) = %s, want an error", name, p.Name())
		}
	}
}

// rangeExample is the filter over 1, 2 and 100 at 4 bits per key: places 3, 8 and 9 of 12,
// with 2 low bits each.
const rangeExample = "1900000000000000" + // upper
	"1300000000000000" + // lower
	"0300000000000000" + "0c00000000000000" + // n, r
	"0000000000000000" + "0000000000000000" + // not keyed
	"02000100" + "cd3d115c"

// TestRangeFormat checks the example in the format comment.
func TestRangeFormat(t *testing.T) {
	w := filter.Range(4, 0).NewWriter()
	for _, x := range []uint64{1, 2, 100} {
		w.Add(nil, x)
	}
	block, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(block); got != rangeExample {
		t.Errorf("the filter over 1, 2 and 100 is\n%s\nwant\n%s", got, rangeExample)
	}
}

// TestRangeKeyedSecret checks that another secret does not open a filter.
func TestRangeKeyedSecret(t *testing.T) {
	a, _ := filter.KeyedRange(filter.Range(10, 0), filter.Secret{1})
	b, _ := filter.KeyedRange(filter.Range(10, 0), filter.Secret{2})
	w := a.NewWriter()
	w.Add([]byte("p"), 7)
	block, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(block); err == nil {
		t.Error("a filter was opened with another secret")
	}
	if _, err := filter.Range(10, 0).Open(block); err == nil {
		t.Error("a keyed filter was opened without a secret")
	}
}

// TestRangeBits checks that RangeBits returns the fewest bits that reach a rate, at and just below
// the rates of certain numbers of bits.
func TestRangeBits(t *testing.T) {
	for _, c := range []struct {
		fpr    float64
		length uint64
		bits   int
		ok     bool
	}{
		{1, 1, 4, true},
		{0.25, 1, 4, true},
		{0.2499, 1, 5, true},
		{0.25, 2, 5, true},
		{1.0 / (1 << 30), 1, 32, true},
		{0.9 / (1 << 30), 1, 0, false},
	} {
		if bits, ok := filter.RangeBits(c.fpr, c.length); bits != c.bits || ok != c.ok {
			t.Errorf("RangeBits(%v, %d) = %d, %v, want %d, %v", c.fpr, c.length, bits, ok, c.bits, c.ok)
		}
	}
}

// rangeNumbers returns n sorted numbers.
func rangeNumbers(n int, next func(i uint64) uint64) []uint64 {
	xs := make([]uint64, n)
	for i := range xs {
		xs[i] = next(uint64(i))
	}
	slices.Sort(xs)
	return xs
}

// TestRangeRate checks that the false positive rate stays within the bound L/2^(bits-2) and the
// size within the bits per key, and logs both.
func TestRangeRate(t *testing.T) {
	const n = 50_000
	rng := rand.New(rand.NewPCG(1, 2))
	uniform := rangeNumbers(n, func(uint64) uint64 { return rng.Uint64() })
	sets := []struct {
		name       string
		keys       []uint64
		correlated bool
	}{
		{"uniform", uniform, false},
		{"correlated", uniform, true},
		{"clustered", rangeNumbers(n, func(i uint64) uint64 { return i/100*0x9e3779b97f4a7c15&^0xfffff + rng.Uint64N(1<<20) }), true},
	}
	for _, set := range sets {
		for _, bits := range []int{10, 12, 16, 20} {
			w := filter.Range(bits, 0).NewWriter()
			for _, x := range set.keys {
				w.Add(nil, x)
			}
			block, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			r, err := filter.Range(bits, 0).Open(block)
			if err != nil {
				t.Fatal(err)
			}
			size := 8 * float64(r.SizeBytes()) / n
			if size > 1.02*float64(bits) {
				t.Errorf("%s: %.2f bits per key, want %d", set.name, size, bits)
			}
			line := fmt.Sprintf("%-10s %2d bits per key, %5.2f in memory:", set.name, bits, size)
			for _, length := range []uint64{1, 10, 100, 1000} {
				probed, wrong := 0, 0
				for probed < 20_000 {
					lo := rng.Uint64()
					if set.correlated {
						lo = set.keys[rng.IntN(n)] + 1 + rng.Uint64N(32)
					}
					hi := lo + length - 1
					if i, _ := slices.BinarySearch(set.keys, lo); hi < lo || i < n && set.keys[i] <= hi {
						continue
					}
					if probed++; r.MayContainRange(nil, lo, hi) {
						wrong++
					}
				}
				got, bound := float64(wrong)/float64(probed), filter.RangeFPR(bits, length)
				line += fmt.Sprintf("  L=%d %.5f (bound %.5f)", length, got, bound)
				if got > 1.3*bound+0.0005 {
					t.Errorf("%s, %d bits, ranges of %d: FPR %.5f, bound %.5f", set.name, bits, length, got, bound)
				}
			}
			t.Log(line)
		}
	}
}
