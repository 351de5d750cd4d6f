package live

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestMod compares mod with a division, for the largest numbers and near multiples of the
// size, where the quotient is off by one.
func TestMod(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		n := 1 + rng.Uint64()>>(1+rng.IntN(62))
		table := table{bits: n, recip: math.MaxUint64 / n}
		multiple := math.MaxInt64 / n * n
		for _, c := range []uint64{0, n - 1, n, n + 1, multiple - 1, multiple, multiple + 1, math.MaxInt64 - 1, math.MaxInt64, rng.Uint64() >> 1} {
			if c &= math.MaxInt64; table.mod(c) != c%n {
				t.Fatalf("%d mod %d is %d, want %d", c, n, table.mod(c), c%n)
			}
		}
	}
}
