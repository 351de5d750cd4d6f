package live

import (
	"bytes"
	"compress/flate"
	"fmt"
	"math"
	"testing"
)

// Claims about Bloom filters in tutorials, each with what is true, as docs/applications.md lists
// them.
func TestClaims(t *testing.T) {
	const million, billion = 1_000_000, 1_000_000_000
	mb := func(n uint64, p float64) float64 { return float64(OptimalBits(n, p)) / 8e6 }
	best := func(bits, items uint64) (k int) {
		for i := 1; i <= 64; i++ {
			if k == 0 || ExpectedFPR(bits, i, items) < ExpectedFPR(bits, k, items) {
				k = i
			}
		}
		return k
	}
	for _, tc := range []struct {
		name  string // the claim
		right float64
		got   float64
		slack float64 // as a share
	}{
		{"ten bits and seven hashes give 0.1%: 0.82%", 0.0082, ExpectedFPR(10*million, 7, million), 0.01},
		{"0.1% takes ten bits: 14.38", 14.38, float64(OptimalBits(million, 0.001)) / million, 0.001},
		{"0.1% takes seven hashes: 10", 10, float64(OptimalHashes(OptimalBits(million, 0.001), million)), 0},
		{"a million at 0.1% in 1.2 MB: 1.80 MB", 1.80, mb(million, 0.001), 0.01},
		{"a million at 1% in 1.2 MB: true", 1.20, mb(million, 0.01), 0.01},
		{"100 million at 0.01% in 12 MB: 240 MB", 240, mb(100*million, 0.0001), 0.01},
		{"100 million in 12 MB, with the best hashes: 65%", 0.65, ExpectedFPR(96*million, best(96*million, 100*million), 100*million), 0.01},
		{"a billion at 0.001% in 120 MB: 3.0 GB", 3.0, mb(billion, 0.00001) / 1000, 0.01},
		{"a billion log lines in 1.2 GB without loss: 0.17% are dropped while it fills", 0.0017, FillLoss(OptimalBits(billion, 0.01), 7, billion), 0.03},
		{"more hashes are better: three at ten bits 1.74%", 0.0174, ExpectedFPR(10*million, 3, million), 0.01},
		{"more hashes are better: ten at ten bits 1.02%", 0.0102, ExpectedFPR(10*million, 10, million), 0.01},
		{"6,000 elements at 10^-9 need 31 hashes: 30", 30, float64(best(258797, 6000)), 0},
		{"0.001% is out of reach: 24 bits and 17 hashes", 24, float64(OptimalBits(million, 0.00001)) / million, 0.01},
		{"a filter takes 3% of a set of 40-byte keys, at 0.1%: 4.5%", 0.045, 14.38 / 8 / 40, 0.01},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if math.Abs(tc.got-tc.right) > tc.slack*tc.right {
				t.Errorf("%v, want %v", tc.got, tc.right)
			}
		})
	}
	if OptimalBits(6000, 1e-9) != 258797 {
		t.Errorf("6,000 elements at 10^-9: %d bits", OptimalBits(6000, 1e-9))
	}
	for hashes, want := range map[int]float64{30: 1.0000e-9, 31: 1.0084e-9} {
		if got := ExpectedFPR(258797, hashes, 6000); math.Abs(got-want) > 0.00006e-9 {
			t.Errorf("%d hashes: %v", hashes, got)
		}
	}
	t.Run("counters cost 20 to 30% more: 300%", func(t *testing.T) {
		b := must(NewBloom(BloomOptions[string]{Items: million, FPR: 0.01}))
		c := must(NewCounting(CountingOptions[string]{Items: million, FPR: 0.01}))
		if r := float64(c.MemoryBytes()) / float64(b.MemoryBytes()); math.Abs(r-4) > 0.01 {
			t.Errorf("%v times a Bloom filter", r)
		}
	})
	t.Run("a full filter compresses well: not at all", func(t *testing.T) {
		b := must(NewBloom(BloomOptions[string]{Items: 100_000, FPR: 0.01}))
		for i := range 100_000 {
			b.Add(member(i))
		}
		var raw, packed bytes.Buffer
		b.WriteTo(&raw)
		w := must(flate.NewWriter(&packed, flate.BestCompression))
		w.Write(raw.Bytes())
		w.Close()
		if packed.Len() < raw.Len()*99/100 {
			t.Errorf("%d bytes of %d", packed.Len(), raw.Len())
		}
	})
	t.Run("a cuckoo filter errs half as often: it depends on the size", func(t *testing.T) {
		for fpr, want := range map[float64]float64{0.03: 1.7, 0.0025: 1.45, 0.00012: 0.38} {
			c := must(NewCuckoo(CuckooOptions[string]{Items: million, FPR: fpr}))
			bits := float64(c.MemoryBytes()*8) / million
			ratio := c.fpr(million/float64(c.Capacity())) / math.Pow(0.6185, bits)
			if math.Abs(ratio-want) > 0.1*want {
				t.Errorf("%d-bit fingerprints, %.2f bits per element: %.2f times the FPR of a Bloom filter of that size, want %.2f", c.FingerprintBits(), bits, ratio, want)
			}
		}
	})
}

// The memory of each filter for a million elements, in bits per element, is what
// docs/applications.md says.
func TestPageMemory(t *testing.T) {
	t.Parallel()
	const n = 1_000_000
	if testing.Short() {
		t.Skip("a million elements in short mode")
	}
	bits := func(bytes int) float64 { return float64(bytes) * 8 / n }
	for _, fpr := range []float64{0.01, 0.001} {
		scalable := must(NewScalable(ScalableOptions[int]{Items: n, FPR: fpr}))
		grown := must(NewScalable(ScalableOptions[int]{Items: 100, FPR: fpr}))
		for i := range n {
			scalable.Add(i)
			grown.Add(i)
		}
		got := []string{}
		for _, v := range []float64{
			bits(must(NewBloom(BloomOptions[int]{Items: n, FPR: fpr})).MemoryBytes()),
			bits(must(NewBloom(BloomOptions[int]{Items: n, FPR: fpr, Scheme: Blocked})).MemoryBytes()),
			bits(must(NewCounting(CountingOptions[int]{Items: n, FPR: fpr})).MemoryBytes()),
			bits(must(NewCuckoo(CuckooOptions[int]{Items: n, FPR: fpr})).MemoryBytes()),
			bits(scalable.MemoryBytes()),
			bits(grown.MemoryBytes()),
			bits(must(NewGenerations(GenerationsOptions[int]{Items: n, FPR: fpr})).MemoryBytes()),
		} {
			got = append(got, fmt.Sprintf("%.1f", v))
		}
		want := map[float64]string{
			0.01:  "[9.6 9.9 38.3 13.3 11.1 33.8 16.6]",
			0.001: "[14.4 15.5 57.5 16.8 16.0 41.7 23.0]",
		}[fpr]
		if fmt.Sprint(got) != want {
			t.Errorf("%v: %v, the page has %v", fpr, got, want)
		}
	}
}
