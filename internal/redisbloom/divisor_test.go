package redisbloom

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestDivisor(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	check := func(d, x uint64) {
		v := newDivisor(d)
		if got := v.mod(x); got != x%d {
			t.Fatalf("%d mod %d = %d", x, d, got)
		}
	}
	edges := []uint64{1, 2, 3, 63, 64, 65, 1<<32 - 1, 1 << 32, 1<<32 + 1, 1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64 - 1, math.MaxUint64}
	for _, d := range edges {
		for _, x := range append(edges, 0) {
			check(d, x)
		}
	}
	for range 1_000_000 {
		d := rng.Uint64()>>rng.IntN(64) | 1<<rng.IntN(2)
		x := rng.Uint64() >> rng.IntN(64)
		check(d, x)
		check(d, x/d*d)
		check(d, x/d*d-1)
	}
}
