package fuse

import (
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
		t.Fatalf("%d bytes for the shape %+v", len(data), shape)
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

// TestSmall builds filters of all small sizes: those are the unlucky ones.
func TestSmall(t *testing.T) {
	most := 0
	for n := range 2000 {
		for round := range 3 {
			hashes := random(uint64(n*3+round), n)
			f, shape, seed := build(t, hashes, 8)
			most = max(most, int(seed))
			for _, h := range hashes {
				if !f.MayContain(h) {
					t.Fatalf("%d hashes, shape %+v, seed %d: one is denied", n, shape, seed)
				}
			}
		}
	}
	if most > MaxSeeds/4 {
		t.Errorf("seed %d of %d was needed", most, MaxSeeds)
	}
	t.Logf("seeds up to %d", most)
}

// TestSize checks the slots per key against the paper.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		n    float64
		most float64
	}{{10_000, 1.285}, {100_000, 1.19}, {1e6, 1.135}, {1e7, 1.13}, {1e9, 1.126}} {
		if got := float64(ShapeFor(c.n, 8, 1).Slots()) / c.n; got < 1.12 || got > c.most {
			t.Errorf("%v keys: %.4f slots a key", c.n, got)
		}
	}
	if ShapeFor(0, 8, 1).Slots() != 0 || ShapeFor(1e300, 8, 1).Slots() < 1<<40 {
		t.Error("sizes at the edges")
	}
}

// TestEqual has equal hashes, which no seed brings apart.
func TestEqual(t *testing.T) {
	for _, n := range []int{1, 2, 10, 1000, 50_000} {
		hashes := random(9, n)
		_, want, _ := build(t, hashes, 8)
		again := slices.Concat(hashes, hashes[:n/2+1], hashes)
		f, shape, _ := build(t, again, 8)
		if shape != want {
			t.Errorf("%d hashes: shape %+v, %+v with equal ones", n, want, shape)
		}
		for _, h := range hashes {
			if !f.MayContain(h) {
				t.Fatalf("%d hashes, some equal: one is denied", n)
			}
		}
	}
	same := make([]uint64, 5000)
	if f, _, _ := build(t, same, 8); !f.MayContain(0) {
		t.Error("5000 zeros: 0 is denied")
	}
}

// TestWidths checks answers and FPR of each width.
func TestWidths(t *testing.T) {
	const n, asked = 20_000, 1 << 20
	hashes := random(1, n)
	for width := MinWidth; width <= MaxWidth; width++ {
		f, _, _ := build(t, hashes, width)
		for _, h := range hashes {
			if !f.MayContain(h) {
				t.Fatalf("width %d: a hash is denied", width)
			}
		}
		found := 0.0
		for _, h := range random(2, asked) {
			if f.MayContain(h) {
				found++
			}
		}
		want := float64(int(asked) >> width)
		if d := found - want; d*d > 36*want {
			t.Errorf("width %d: %v of %d absent hashes pass, want about %v", width, found, asked, want)
		}
	}
}
