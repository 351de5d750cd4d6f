package fuse

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func build(t *testing.T, hashes []uint64, width int) (Filter, Shape, uint8) {
	t.Helper()
	data, shape, seed, ok := Build(slices.Clone(hashes), width, func(n uint64) []byte { return make([]byte, n) })
	if !ok {
		t.Fatalf("no seed works for %d hashes", len(hashes))
	}
	if uint64(len(data)) != shape.Bytes()+Pad {
		t.Fatalf("%d bytes for shape %+v", len(data), shape)
	}
	return Over(data, shape, seed), shape, seed
}

func random(seed uint64, n int) []uint64 {
	rng := rand.New(rand.NewPCG(seed, 0))
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = rng.Uint64()
	}
	return hashes
}

// TestSmall builds filters of all small sizes, which need the most seeds.
func TestSmall(t *testing.T) {
	most := 0
	for n := range 2000 {
		for round := range 3 {
			hashes := random(uint64(n*3+round), n)
			f, shape, seed := build(t, hashes, 8)
			most = max(most, int(seed))
			for _, h := range hashes {
				if !f.MayContain(h) {
					t.Fatalf("%d hashes, shape %+v, seed %d: false negative", n, shape, seed)
				}
			}
		}
	}
	if most > MaxSeeds/4 {
		t.Errorf("a filter needed seed %d of %d", most, MaxSeeds)
	}
	t.Logf("highest seed: %d", most)
}

// TestShape checks the slots per key, and compares the shape with the paper's formulas in floating
// point.
func TestShape(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		most float64
	}{{10_000, 1.285}, {100_000, 1.19}, {1e6, 1.135}, {1e7, 1.13}, {1e9, 1.126}} {
		if got := float64(ShapeFor(c.n, 8, 0).Slots()) / float64(c.n); got < 1.12 || got > c.most {
			t.Errorf("%v keys: %.4f slots per key", c.n, got)
		}
	}
	for n := uint64(2); n < 1<<33; n += n/97 + 1 {
		log := math.Log(float64(n))
		segmentLog := min(int(log/math.Log(3.33)+2.25), MaxSegmentLog)
		slots := max(1.125, 0.875+0.25*math.Log(1e6)/log) * float64(n)
		segments := max(math.Ceil(slots/float64(int(1)<<segmentLog))-2, 1)
		got := ShapeFor(n, 8, 0)
		// Rounding may differ where a formula is close to an integer.
		if d := float64(got.Segments) - segments; int(got.SegmentLog) != segmentLog || math.Abs(d) > 1 {
			t.Errorf("%d keys: %+v, want %v segments of 2^%d", n, got, segments, segmentLog)
		}
	}
	if ShapeFor(0, 8, 0).Slots() != 0 || ShapeFor(math.MaxUint64, 8, 0).Slots() < 1<<40 {
		t.Error("wrong shape for no keys, or for the most")
	}
	if a, b := ShapeFor(1e6, 8, 0).Slots(), ShapeFor(1e6, 8, 10).Slots(); float64(b)/float64(a) < 1.09 {
		t.Errorf("%d slots, %d with 10 %% more", a, b)
	}
}

// TestDuplicates builds filters from hashes with duplicates, for which no seed works.
func TestDuplicates(t *testing.T) {
	for _, n := range []int{1, 2, 10, 1000, 50_000} {
		hashes := random(9, n)
		_, want, _ := build(t, hashes, 8)
		again := slices.Concat(hashes, hashes[:n/2+1], hashes)
		f, shape, _ := build(t, again, 8)
		if shape != want {
			t.Errorf("%d hashes: shape %+v, with duplicates %+v", n, want, shape)
		}
		for _, h := range hashes {
			if !f.MayContain(h) {
				t.Fatalf("%d hashes with duplicates: false negative", n)
			}
		}
	}
	same := make([]uint64, 5000)
	if f, _, _ := build(t, same, 8); !f.MayContain(0) {
		t.Error("5000 zeros: false negative")
	}
}

// TestWidths checks filters of each width for false negatives and for their FPR.
func TestWidths(t *testing.T) {
	const n, probed = 20_000, 1 << 20
	hashes := random(1, n)
	for width := MinWidth; width <= MaxWidth; width++ {
		f, _, _ := build(t, hashes, width)
		for _, h := range hashes {
			if !f.MayContain(h) {
				t.Fatalf("width %d: false negative", width)
			}
		}
		found := 0.0
		for _, h := range random(2, probed) {
			if f.MayContain(h) {
				found++
			}
		}
		want := float64(int(probed) >> width)
		if d := found - want; d*d > 36*want {
			t.Errorf("width %d: %v false positives for %d hashes, want about %v", width, found, probed, want)
		}
	}
}
