// Simulate builds blocked Bloom filters over random hashes, with each number of probes, and prints
// the table maxBits of internal/bloom: the bits per key up to which each number of probes is the
// smallest whose FPR is within 1% of the best.
//
//	go run ./filter/internal/bloom/simulate -keys 4000000
//
// With -legacy it prints the FPR of RocksDB's legacy filter instead, without collisions of its
// 32-bit hash, which add n/2^32 for n keys.
package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/siftdb/sift/filter/internal/bloom"
)

func main() {
	numKeys := flag.Int("keys", 4_000_000, "keys in each filter")
	step := flag.Float64("step", 0.25, "increment of bits per key")
	within := flag.Float64("within", 0.01, "fraction by which the FPR may exceed the best for fewer probes")
	seed := flag.Uint64("seed", 1, "seed of the hashes")
	old := flag.Bool("legacy", false, "simulate the legacy filter")
	flag.Parse()
	if *old {
		legacy(*seed)
		return
	}

	rng := rand.New(rand.NewPCG(*seed, 0))
	hashes := make([]uint64, *numKeys)
	for i := range hashes {
		hashes[i] = rng.Uint64()
	}
	fmt.Println("bits/key  probes  FPR simulated  model      best probes  FPR simulated")
	chosen := make(map[int]float64)
	for bits := 1.0; bits <= 30; bits += *step {
		var fprs [bloom.MaxProbes + 1]float64
		best := 1
		for k := 1; k <= bloom.MaxProbes; k++ {
			fprs[k] = simulate(hashes, bits, k)
			if fprs[k] < fprs[best] {
				best = k
			}
		}
		k := 1
		for fprs[k] > fprs[best]*(1+*within) {
			k++
		}
		chosen[k] = bits
		fmt.Printf("%8.2f  %6d  %.6e   %.3e  %11d  %.6e\n", bits, k, fprs[k], bloom.ModelFPR(bits, k), best, fprs[best])
	}
	fmt.Print("\nvar maxBits = [MaxProbes - 1]float64{")
	for k := 1; k < bloom.MaxProbes; k++ {
		if k > 1 {
			fmt.Print(", ")
		}
		fmt.Print(chosen[k])
	}
	fmt.Println("}")
}

// simulate builds one filter and returns its FPR.
func simulate(hashes []uint64, bitsPerKey float64, probes int) float64 {
	numLines := int(math.Ceil(float64(len(hashes)) * bitsPerKey / bloom.LineBits))
	data := make([]byte, numLines*bloom.LineSize)
	bloom.Build(data, hashes, probes)
	f := bloom.Over(data, probes)
	return f.FPR()
}

// legacy prints the FPR in percent of legacy filters with up to 100 bits per key, minus the
// probability that an absent key has the 32-bit hash of a key in the filter.
func legacy(seed uint64) {
	const (
		numKeys = 100_000
		rounds  = 40
		probed  = 1_000_000
	)
	rng := rand.New(rand.NewPCG(seed, 0))
	hashes := make([]uint64, numKeys)
	for _, bits := range []int{
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 22, 24, 27, 30, 35, 40, 44, 50, 60, 70, 80, 90, 100,
	} {
		probes := bloom.LegacyProbes(bits)
		found := 0
		for range rounds {
			for i := range hashes {
				hashes[i] = uint64(rng.Uint32())
			}
			data := make([]byte, bloom.LegacyNumLines(numKeys, bits)*bloom.LineSize)
			bloom.LegacyBuild(data, hashes, probes)
			f := bloom.LegacyOver(data, probes)
			for range probed {
				if f.MayContain(rng.Uint32()) {
					found++
				}
			}
		}
		fpr := float64(found)/(rounds*probed) - float64(numKeys)/(1<<32)
		fmt.Printf("{%d, %.4g},\n", bits, 100*fpr)
	}
}
