package ribbon

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
)

const seed = 1

func hashes(n int) []uint64 {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	h := make([]uint64, n)
	for i := range h {
		h[i] = rng.Uint64()
	}
	return h
}

func build(h []uint64, columns ...Columns) Filter {
	var b Builder
	for _, h := range h {
		b.Add(h)
	}
	return b.Build(columns, 0)
}

// table returns a table over the first n planes.
func (f Filter) table(t testing.TB, n int) Table {
	t.Helper()
	var planes []Plane
	for i := range n {
		planes = append(planes, Plane{f.Columns[i], f.Planes[i]})
	}
	tab, err := NewTable(f.Layers, f.Thresholds, planes, f.Layers.BumpsBucket(f.Thresholds))
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// bits returns the bits per key, for n keys.
func (f Filter) bits(n int) float64 {
	size := len(f.Thresholds) + len(f.Layers)
	for _, p := range f.Planes {
		size += len(p)
	}
	return float64(size*8) / float64(n)
}

// checkLookups checks that there are no false negatives, and that single lookups, batches and the
// definition agree. It returns the FPR, measured with the given number of absent hashes.
func checkLookups(t *testing.T, tab *Table, h []uint64, absent int) float64 {
	t.Helper()
	positive := make([]bool, Batch)
	for i := 0; i < len(h); i += Batch {
		part := h[i:min(i+Batch, len(h))]
		tab.ContainsMany(part, positive)
		for k, x := range part {
			if !positive[k] || !tab.contains(x) {
				t.Fatalf("hash %d of %d: false negative, %v in a batch (seed %d)", i+k, len(h), positive[k], seed)
			}
		}
	}
	rng := rand.New(rand.NewPCG(seed+1, uint64(len(h))))
	part := make([]uint64, Batch)
	n := 0
	for range absent / Batch {
		for i := range part {
			part[i] = rng.Uint64()
		}
		tab.ContainsMany(part, positive)
		for i, x := range part {
			one := tab.contains(x)
			if one {
				n++
			}
			if one != positive[i] {
				t.Fatalf("hash %016x: %v, in a batch %v", x, one, positive[i])
			}
			if len(tab.layers) == 0 {
				continue
			}
			if w, ok := tab.layers.find(tab.thresholds, x, 0); ok {
				all := true
				for _, p := range tab.planes {
					all = all && p.slowMatch(w)
				}
				if all != one {
					t.Fatalf("hash %016x: %v, by the definition %v", x, one, all)
				}
			}
		}
	}
	return float64(n) / float64(absent/Batch*Batch)
}

func (l Layers) hasRows() bool { starts, _ := l.last(); return starts > 0 }

// slowMatch does what Match does, bit by bit.
func (p *Plane) slowMatch(w Window) bool {
	for j := range p.Columns.at(w.segment) {
		sum := w.print >> (p.First + j) & 1
		for i := range uint64(2 * width) {
			segment, coeff := w.segment, w.lo
			if i >= width {
				segment, coeff = segment+1, w.hi
			}
			if coeff>>(i%width)&1 == 0 {
				continue
			}
			at, _ := p.position(segment)
			word := p.Data[(at+uint64(j))*8:][:8]
			sum ^= uint32(word[i%width/8]>>(i%8)) & 1
		}
		if sum != 0 {
			return false
		}
	}
	return true
}

func (c Columns) at(segment uint64) int { _, n := c.position(segment); return int(n) }

// TestBuild builds filters of all shapes over few and many keys. Each prefix of the planes must
// have no false negatives and the expected FPR.
func TestBuild(t *testing.T) {
	sizes := []int{0, 1, 2, 63, 64, 65, 127, 128, 129, 1000, 2048, 2049, 5000, 40_000, 100_000}
	if !testing.Short() {
		sizes = append(sizes, 300_000)
	}
	for _, n := range sizes {
		h := hashes(n)
		segments, _, _ := Estimate(n).Sizes()
		for _, columns := range [][]Columns{
			{{0, 1, 0}},
			{{0, 3, int(segments / 3)}},
			{{0, 4, 0}},
			{{0, 4, 0}, {4, 1, int(segments / 2)}},
			{{0, 4, 0}, {4, 4, 0}, {8, 5, int(segments)}},
			{{0, MaxColumns, 0}},
		} {
			name := fmt.Sprintf("%d keys, columns %v", n, columns)
			f := build(h, columns...)
			for p := range columns {
				tab := f.table(t, p+1)
				absent := 1 << 16
				fpr, want := checkLookups(t, &tab, h, absent), tab.FPR()
				if n == 0 {
					want = 0
				}
				if dev := math.Abs(fpr-want) / (math.Sqrt(want*(1-want)/float64(absent)) + 1e-9); dev > 6 && fpr != want {
					t.Errorf("%s, %d planes: FPR %.5f, want %.5f: %.1f deviations (seed %d)", name, p+1, fpr, want, dev, seed)
				}
			}
		}
	}
}

// TestSize bounds the space overhead: all that exceeds columns × keys bits.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		keys int
		over float64
	}{
		{64, 1.07}, {500, 1.035}, {2000, 1.03}, {10_000, 1.008}, {50_000, 1.005}, {100_000, 1.004}, {1_000_000, 1.003},
	} {
		if c.keys > 100_000 && testing.Short() {
			continue
		}
		f := build(hashes(c.keys), Columns{0, 10, 0})
		over := f.bits(c.keys) / 10
		t.Logf("%d keys: %.4f of 10 bits per key, layers %v", c.keys, over, f.Layers)
		if over > c.over {
			t.Errorf("%d keys take %.4f of 10 bits per key, want at most %.4f", c.keys, over, c.over)
		}
	}
}

// TestDeterministic checks that the bytes do not depend on the order of the keys, the number of
// processors, or what earlier builds have left in the pools.
func TestDeterministic(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	columns := []Columns{{0, 4, 0}, {4, 3, 100}}
	h := hashes(250_000)
	var want Filter
	for i := range 4 {
		runtime.GOMAXPROCS(1 + i%3)
		f := build(h, columns...)
		if i == 0 {
			want = f
		}
		if !bytes.Equal(f.Layers, want.Layers) || !bytes.Equal(f.Thresholds, want.Thresholds) ||
			!slices.EqualFunc(f.Planes, want.Planes, bytes.Equal) {
			t.Fatalf("build %d differs", i)
		}
		build(hashes(1000), columns...)
		rand.New(rand.NewPCG(seed, 2)).Shuffle(len(h), func(i, k int) { h[i], h[k] = h[k], h[i] })
	}
}

// TestBadHashes builds filters from duplicates, and from hashes that are not uniformly distributed.
func TestBadHashes(t *testing.T) {
	columns := []Columns{{0, 4, 0}, {4, 3, 0}}
	for _, c := range []struct {
		desc string
		n    int
		hash func(i int) uint64
	}{
		{"one hash", 100_000, func(int) uint64 { return 7 }},
		{"hash 0", 3, func(int) uint64 { return 0 }},
		{"each hash 5 times", 20_000, func(i int) uint64 { return uint64(i%4000+1) * mulSeed }},
		{"few hashes, often", 70_000, func(i int) uint64 { return uint64(i%3) * mulNext }},
		{"counting", 70_000, func(i int) uint64 { return uint64(i) }},
		{"counting in the high bits", 70_000, func(i int) uint64 { return uint64(i) << 40 }},
		{"one start", 5000, func(i int) uint64 { return uint64(i) * inverse(mulStart) }},
	} {
		h := make([]uint64, c.n)
		for i := range h {
			h[i] = c.hash(i)
		}
		f := build(h, columns...)
		tab := f.table(t, 2)
		checkLookups(t, &tab, h, 1000)
		if len(f.Layers) < LayerSize || !f.Layers.hasRows() {
			t.Errorf("%s: layers %v", c.desc, f.Layers)
		}
	}
}

// inverse returns the inverse of an odd number modulo 2^64.
func inverse(a uint64) uint64 {
	x := a
	for range 6 {
		x *= 2 - a*x
	}
	return x
}

// TestNoSeed builds a last layer for which no seed works. That layer must exclude no hash.
func TestNoSeed(t *testing.T) {
	columns := []Columns{{0, 4, 0}}
	for _, n := range []int{10, 5000} {
		h := hashes(n)
		var keys list
		for _, h := range h {
			keys.add(h)
		}
		f := Filter{Columns: columns, Planes: make([][]byte, 1)}
		j := job{filter: &f, columns: columns}
		if n > maxLast {
			keys = j.bump(keys, bumpingSegments(n))
		}
		j.finish(keys, 0)
		tab := f.table(t, 1)
		fpr := checkLookups(t, &tab, h, 1<<16)
		if n <= maxLast && fpr != 1 {
			t.Errorf("FPR %v, want 1", fpr)
		} else if n > maxLast && (fpr < 0.1 || fpr > 0.13) {
			t.Errorf("FPR %v, want 1/16 and the bumped fraction", fpr)
		}
	}
}

// TestLastSeeds checks that for most last layers a seed works at the initial size.
func TestLastSeeds(t *testing.T) {
	grown := 0
	for n := 1; n <= maxLast; n += 13 {
		f := build(hashes(n), Columns{0, 1, 0})
		if e := f.Layers.entry(0); e&lastSegmentMask > lastSegments(n) {
			grown++
		}
	}
	if grown > maxLast/13/10 {
		t.Errorf("%d of %d last layers grew", grown, maxLast/13)
	}
}

// TestMemory bounds what Build and Add allocate besides the filter: 8 bytes per key, and 32 per
// start of each chunk that is being built.
func TestMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	const n = 700_000
	h := hashes(n)
	runtime.GC() // twice: a sync.Pool is emptied by the second collection
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := build(h, Columns{0, 4, 0}, Columns{4, 4, 0})
	runtime.ReadMemStats(&after)
	got := int(after.TotalAlloc - before.TotalAlloc)
	filter := len(f.Thresholds)
	for _, p := range f.Planes {
		filter += cap(p)
	}
	// The last term is for blocks that are not full: one for each of the 6 chunks and one for the
	// keys that it bumps, with room to spare.
	limit := 8*n + 2*32*chunkStarts + filter + 3*12*8*blockLen
	t.Logf("%d bytes for %d keys, %.2f a key without the filter", got, n, float64(got-filter)/n)
	if got > limit {
		t.Errorf("%d bytes allocated, want at most %d", got, limit)
	}
}
