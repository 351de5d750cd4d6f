package bloom

import (
	"math/rand/v2"
	"testing"
)

// TestProbesAgree compares all implementations of a lookup with MayContain, for each number of
// probes.
func TestProbesAgree(t *testing.T) {
	if !canProbe {
		t.Log("no AVX2: only the portable implementation is tested")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for probes := 1; probes <= MaxProbes; probes++ {
		for _, n := range []int{1, 2, 63, 1000} {
			data := make([]byte, n*LineSize)
			keys := make([]uint64, n*40)
			for i := range keys {
				keys[i] = rng.Uint64()
			}
			Build(data, keys, probes)
			probed := keys[: n*20 : n*20]
			for range 20 * n {
				probed = append(probed, rng.Uint64())
			}
			f := Over(data, probes)
			positive := make([]bool, len(probed))
			f.MayContainMany(probed, positive)
			positives := 0
			for i, h := range probed {
				want := f.MayContain(h)
				if i < n*20 && !want {
					t.Fatalf("%d probes, %d lines: false negative", probes, n)
				}
				if want {
					positives++
				}
				if positive[i] != want {
					t.Fatalf("%d probes, %d lines, hash %x: MayContainMany returns %v", probes, n, h, positive[i])
				}
				if got := MayContainIn(data, probes, h); got != want {
					t.Fatalf("%d probes, %d lines, hash %x: MayContainIn returns %v", probes, n, h, got)
				}
				if f.HasProbe() {
					if got := f.Probe(h); got != want {
						t.Fatalf("%d probes, %d lines, hash %x: Probe returns %v", probes, n, h, got)
					}
				}
			}
			if positives == len(probed) && n > 2 {
				t.Errorf("%d probes, %d lines: no hash is excluded", probes, n)
			}
		}
	}
}
