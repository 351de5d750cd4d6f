// Package blocks computes the FPR and the size of Bloom filters that keep the bits of an
// element within one block.
package blocks

import "math"

// FPR returns the FPR of a filter whose blocks have the given number of bits and hold load elements
// on average. The number of elements in a block, j, has a Poisson distribution. For each j the fill
// is random too; the second factor corrects for its variance.
func FPR(bits float64, hashes int, load float64) float64 {
	k := float64(hashes)
	if k*load > 64*bits { // all bits are set, and the sum below would take very long
		return 1
	}
	sum, p := 0.0, math.Exp(-load)
	spread := 12 * math.Sqrt(load+1)
	from, to := int(max(0, load-spread)), int(load+spread)+1
	if from > 0 || p == 0 {
		lg, _ := math.Lgamma(float64(from) + 1)
		p = math.Exp(float64(from)*math.Log(load) - load - lg)
	}
	for j := from; j <= to; j++ {
		empty := math.Pow(1-1/bits, k*float64(j))
		if fill := 1 - empty; fill > 0 {
			both := math.Pow(1-2/bits, k*float64(j)) // two given bits are both empty
			variance := max(0, empty/bits+both*(1-1/bits)-empty*empty)
			sum += p * min(1, math.Pow(fill, k)*(1+k*(k-1)/2*variance/(fill*fill)))
		}
		p *= load / float64(j+1)
	}
	return min(sum, 1)
}

// Optimal returns the smallest number of blocks of blockBits bits that hold items elements
// with an FPR of at most fpr, and the number of hashes. It returns at most 2⁵² blocks: since
// there are at most 32 hashes, an FPR far below 10⁻³⁰ needs more than fit in any memory.
func Optimal(items uint64, fpr float64, blockBits float64) (blocks uint64, hashes int) {
	n := max(1, float64(items))
	best := math.Inf(1)
	for k := 1; k <= 32; k++ {
		// The FPR falls with the number of blocks.
		lo, hi := 0.0, n*-math.Log(fpr)/blockBits+1
		for FPR(blockBits, k, n/hi) > fpr {
			lo, hi = hi, hi*2
			if hi > best*2 {
				break
			}
		}
		for i := 0; i < 50 && hi-lo > max(0.5, lo/1e5); i++ {
			if mid := (lo + hi) / 2; FPR(blockBits, k, n/mid) > fpr {
				lo = mid
			} else {
				hi = mid
			}
		}
		if hi < best && FPR(blockBits, k, n/hi) <= fpr {
			best, hashes = hi, k
		}
	}
	return uint64(min(math.Ceil(best), 1<<52)), hashes
}
