package alone

import (
	"math"
	"testing"
	"unsafe"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/result"
)

// TestFiltersAgree builds every filter, probes it for all keys that it holds,
// and compares its size and false positive rate with known values.
func TestFiltersAgree(t *testing.T) {
	want := map[string][2]float64{ // bits per key, false positive rate
		"sift bloom(10)":            {10.05, 0.0097},
		"sift rocksdb-bloom(10)":    {10.05, 0.0114},
		"pebble bloom(10)":          {10.05, 0.0114},
		"pebble bloom(20)":          {20.1, 0.0026},
		"sift ribbon(7)":            {7, 1.0 / 128},
		"sift ribbon(10)":           {10, 1.0 / 1024},
		"sift fuse(8)":              {9.5, 1.0 / 256},
		"xorfilter fuse(8)":         {9.5, 1.0 / 256},
		"bits-and-blooms bloom(10)": {10, 0.0082},
		"holiman bloom(10)":         {10, 0.0082},
		"goleveldb bloom(10)":       {10, 0.0140},
		"seiflotfy cuckoo":          {10.5, 0.024},
	}
	const n = 100_000
	for _, kind := range []string{data.Random, data.Text} {
		set, err := data.MadeUp(kind, n, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		keys := data.Collect(n, set.Key)
		list, _ := List()
		for _, f := range list {
			b, err := f.build(keys)
			if err != nil {
				t.Fatal(err)
			}
			c, err := b.clone()
			if err != nil {
				t.Fatal(err)
			}
			if f.Name == FloorName {
				continue
			}
			for i := range n {
				if !b.mayContain(keys.At(i)) || !c.mayContain(keys.At(i)) {
					t.Fatalf("%s excludes key %q", f.Name, keys.At(i))
				}
			}
			rate := falsePositives(b, set, n)
			if again := falsePositives(c, set, n); again != rate {
				t.Errorf("%s: false positive rate %v, of its clone %v", f.Name, rate, again)
			}
			if w, ok := want[f.Name]; ok {
				// Four standard deviations of the count, and a tenth more, because some libraries'
				// hashes have random seeds or are not quite uniform.
				slack := 4*math.Sqrt(w[1]/n) + w[1]/10
				if math.Abs(rate-w[1]) > slack {
					t.Errorf("%s over %s keys: false positive rate %.4f, want %.4f ± %.4f", f.Name, kind, rate, w[1], slack)
				}
				if bits := float64(b.bits()) / n; math.Abs(bits-w[0]) > 0.2 {
					t.Errorf("%s: %.2f bits per key, want %.2f", f.Name, bits, w[0])
				}
			} else {
				t.Logf("%s over %s keys: %.2f bits/key, %.5f", f.Name, kind, float64(b.bits())/n, rate)
			}
		}
	}
}

// TestRun runs all measurements on a small scale.
func TestRun(t *testing.T) {
	list, missing := List()
	t.Log("missing:", missing)
	o := &Options{
		Filters: list, Sizes: []int{1000, 5000}, HotSize: 1000, BigSize: 5000, KeyKinds: []string{data.Random},
		Absent: 20_000, ColdBytes: 1 << 20, Probes: 5000, Rounds: 2,
		Curve: Curve()[:6], CurveSize: 1000, CurveAbsent: 20_000,
	}
	f := result.New(result.Meta{})
	if err := Run(o, f); err != nil {
		t.Fatal(err)
	}
	for _, filter := range list {
		r := f.Row(result.Key{Section: Section, Store: filter.Name, Benchmark: "filter", State: data.Random, Num: 1000})
		for _, unit := range []string{result.HotAbsent, result.HotPresent, result.ColdAbsent, result.ColdIsolated} {
			if s := r.Of(unit); s.N != 2 || s.Max <= 0 {
				t.Errorf("%s: %d values of %s, largest %v", filter.Name, s.N, unit, s.Max)
			}
		}
	}
	if got := len(f.Select(func(r *result.Row) bool { return r.Section == CurveSection })); got != 6 {
		t.Errorf("%d rows of the curve, want 6", got)
	}
}

// TestClonesAreInSlabs checks that the clones of all filters whose bits are a slice are in the same
// kind of memory.
func TestClonesAreInSlabs(t *testing.T) {
	set, err := data.MadeUp(data.Random, 10_000, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	keys := data.Collect(10_000, set.Key)
	address := func(b built) *byte {
		switch f := b.(type) {
		case *pebbleFilter:
			return &f.block[0]
		case *goLevelFilter:
			return &f.block[0]
		case *fuse8Filter:
			return &f.f.Fingerprints[0]
		case *bitsAndBloomsFilter:
			return (*byte)(unsafe.Pointer(&f.f.BitSet().Words()[0]))
		case *floorFilter:
			return &f.lines[0]
		}
		return nil
	}
	list, _ := List()
	checked := 0
	for _, f := range list {
		b, err := f.build(keys)
		if err != nil {
			t.Fatal(err)
		}
		if address(b) == nil {
			continue
		}
		checked++
		next := unsafe.SliceData(slab)
		c, err := b.clone()
		if err != nil {
			t.Fatal(err)
		}
		if len(slab) > 0 && next != nil && address(c) != next && unsafe.SliceData(slab) == next {
			t.Errorf("%s: its clone is not in a slab", f.Name)
		}
		for i := range keys.Len() {
			if _, floor := c.(*floorFilter); !floor && !c.mayContain(keys.At(i)) {
				t.Fatalf("%s: the clone excludes a key", f.Name)
			}
		}
	}
	if checked != 6 {
		t.Errorf("%d filters were checked", checked)
	}
}
