package bloom

import (
	"math/rand/v2"
	"testing"
)

// TestProbes checks maxBits against the model: one probe fewer has an FPR at least 0.8% higher,
// one more improves it by at most 1.2%.
func TestProbes(t *testing.T) {
	for bits := 1.0; bits <= 30; bits++ {
		k := Probes(bits)
		p := ModelFPR(bits, k)
		if k < MaxProbes {
			if more := ModelFPR(bits, k+1); p > 1.012*more {
				t.Errorf("%v bits per key: %d probes give %.4e, %d give %.4e", bits, k, p, k+1, more)
			}
		}
		if k > 1 {
			if less := ModelFPR(bits, k-1); less < 1.008*p {
				t.Errorf("%v bits per key: %d probes give %.4e, %d give %.4e", bits, k, p, k-1, less)
			}
		}
	}
}

// TestFPR compares the model, which assumes that lines and positions are independent, with filters:
// with their set bits, and with lookups of absent hashes.
func TestFPR(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	hashes := make([]uint64, 1_000_000)
	for i := range hashes {
		hashes[i] = rng.Uint64()
	}
	for _, bits := range []float64{2, 4.5, 8, 10, 14} {
		k := Probes(bits)
		numLines := NumLines(float64(len(hashes)), bits)
		data := make([]byte, numLines*LineSize)
		Build(data, hashes, k)
		f := Over(data, k)
		model, byBits := LinesFPR(float64(len(hashes)), float64(numLines), k), f.FPR()
		if r := byBits / model; r < 0.97 || r > 1.03 {
			t.Errorf("%v bits per key: FPR %.4e by set bits, %.4e by the model (seed %d)", bits, byBits, model, seed)
		}
		const probed = 2_000_000
		found := 0
		for range probed {
			if f.MayContain(rng.Uint64()) {
				found++
			}
		}
		if r := float64(found) / probed / byBits; r < 0.95 || r > 1.05 {
			t.Errorf("%v bits per key: FPR %.4e measured, %.4e by set bits (seed %d)", bits, float64(found)/probed, byBits, seed)
		}
	}
}
