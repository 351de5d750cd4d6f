package filter

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// fuzzOpen opens bytes as one unit, probes the reader and the block, and limits what opening may
// allocate.
func fuzzOpen(t *testing.T, p Policy, unit []byte) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := p.Open([][]byte{unit})
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 4*uint64(len(unit))+64<<10 {
		t.Fatalf("%d bytes allocated for a unit of %d", got, len(unit))
	}
	keys := make([]Key, 70)
	for i := range keys {
		keys[i] = NewKey([]byte{byte(i)})
	}
	if err == nil {
		positive := make([]bool, len(keys))
		r.MayContainMany(keys, positive)
		for i, k := range keys {
			if r.MayContain(k) != positive[i] {
				t.Fatalf("MayContain and MayContainMany differ for key %d", i)
			}
		}
		if fpr := r.FPR(); !(fpr >= 0 && fpr <= 1) {
			t.Fatalf("FPR %v", fpr)
		}
		for steps := 1; steps < StepsPerUnit(p.Family()); steps++ {
			short, err := Trim(nil, p.Family(), [][]byte{unit}, steps)
			if err != nil {
				t.Fatalf("Trim to %d steps of a unit that opens: %v", steps, err)
			}
			less, err := p.Open([][]byte{short})
			if err != nil {
				t.Fatalf("Open of a unit trimmed to %d steps: %v", steps, err)
			}
			for _, k := range keys {
				if r.MayContain(k) && !less.MayContain(k) {
					t.Fatalf("a unit trimmed to %d steps excludes a key that the whole unit does not", steps)
				}
			}
		}
	}
	if bp, ok := p.(BlockPolicy); ok {
		for _, k := range keys {
			positive := bp.MayContainBlock(unit, k)
			if err == nil && bp.BlockFamily() == bp.Family() && positive != r.MayContain(k) {
				t.Fatal("MayContainBlock and MayContain differ")
			}
		}
	}
}

// seeds adds blocks of a few sizes, intact, cut and extended.
func seeds(f *testing.F, policies ...Policy) {
	for _, p := range policies {
		for _, n := range []int{0, 1, 3, 100} {
			w := p.NewWriter()
			for i := range n {
				w.Add(NewKey([]byte{byte(i)}))
			}
			units, err := w.Finish()
			if err != nil {
				f.Fatal(err)
			}
			for _, u := range units {
				f.Add(u)
				f.Add(u[:len(u)/2])
				f.Add(u[len(u)/2:])
				f.Add(append(bytes.Clone(u), 0))
			}
		}
	}
}

// reseal replaces the last 8 bytes by a valid checksum, so that the fuzzer gets
// past it.
func reseal(b []byte) []byte {
	if len(b) < checksumSize {
		return b
	}
	b = bytes.Clone(b)
	end := len(b) - checksumSize
	binary.LittleEndian.PutUint64(b[end:], xxhash.Sum64(b[:end]))
	return b
}

func FuzzBloom(f *testing.F) {
	seeds(f, Bloom(10), Bloom(30))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzOpen(t, Bloom(10), b)
		fuzzOpen(t, Bloom(10), reseal(b))
	})
}

func FuzzFuse(f *testing.F) {
	seeds(f, Fuse(4), Fuse(8), Fuse(15))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzOpen(t, Fuse(8), b)
		fuzzOpen(t, Fuse(8), reseal(b))
	})
}

func FuzzRocksDBBloom(f *testing.F) {
	seeds(f, RocksDBBloom(10), RocksDBBloom(40))
	f.Fuzz(func(t *testing.T, b []byte) { fuzzOpen(t, RocksDBBloom(10), b) })
}

func FuzzSplitUnits(f *testing.F) {
	for _, units := range [][][]byte{{nil}, {[]byte("ab"), []byte("c")}, {nil, nil, make([]byte, 100)}} {
		b, err := JoinUnits(units)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		units, err := SplitUnits(b)
		if err != nil {
			return
		}
		again, err := JoinUnits(units)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("joining the %d units again gives other bytes: %v", len(units), err)
		}
	})
}

// FuzzKeys checks that filters over keys cut out of the input exclude none of them.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("some keys, some keys, and more of them"), byte(4))
	f.Add(make([]byte, 500), byte(0))
	f.Fuzz(func(t *testing.T, b []byte, size byte) {
		var keys []Key
		for step := int(size%31) + 1; len(b) >= step; b = b[step:] {
			keys = append(keys, NewKey(b[:step]))
		}
		for _, p := range []Policy{Bloom(1), Bloom(11), Fuse(4), Fuse(9), RocksDBBloom(7)} {
			w := p.NewWriter()
			for _, k := range keys {
				w.Add(k)
			}
			units, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Open(units)
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(r, keys); err != nil {
				t.Fatalf("%s: %v", p.Name(), err)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range parseSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(p.Name())
		if err != nil || again != p {
			t.Fatalf("Parse(%q) = %q, which parses as %v, %v", s, p.Name(), again, err)
		}
		if p.Family() == "" {
			t.Fatalf("Parse(%q) returns a policy without a family", s)
		}
	})
}
