package bloom

import "math"

// maxBits determines the number of probes: k for up to maxBits[k-1] bits per key, MaxProbes above
// the last entry. It is the output of internal/bloom/simulate: the smallest number of probes whose
// FPR is within 1% of the best, since each probe costs time in every lookup. Blocks store their
// number of probes, so the table may change.
var maxBits = [MaxProbes - 1]float64{2, 3.5, 5, 6.75, 8.5, 10.25, 12, 14.25, 16.5, 19, 21.75, 24.75, 28.25}

// Probes returns the number of probes for a number of bits per key, in [1, MaxProbes].
func Probes(bitsPerKey float64) int {
	for i, b := range maxBits {
		if bitsPerKey <= b {
			return i + 1
		}
	}
	return MaxProbes
}

// NumLines returns the number of lines for numKeys keys: the number that bitsPerKey gives, plus a
// fifth of its square root, and at least one. Keys are spread unevenly over lines, so without the
// additional lines half of the filters would exceed the expected FPR, at 100,000 keys by 1.4%.
func NumLines(numKeys, bitsPerKey float64) uint64 {
	lines := numKeys * bitsPerKey / LineBits
	spare := math.Sqrt(lines) / 5
	return max(1, uint64(math.Ceil(lines+spare)))
}

// ModelFPR returns the theoretical FPR for a large number of keys: the number of keys in a line has
// a Poisson distribution, each key sets random bits of its line, and a lookup probes random bits.
// REQUIRES: bitsPerKey > 0.5, 1 <= probes <= MaxProbes.
func ModelFPR(bitsPerKey float64, probes int) float64 {
	return loadFPR(LineBits/bitsPerKey, math.Inf(1), probes)
}

// LinesFPR is ModelFPR for any number of keys in any number of lines. REQUIRES: both are at least
// 1, with at least half a bit per key.
func LinesFPR(numKeys, numLines float64, probes int) float64 {
	if numLines > 10_000 { // here the binomial and Poisson distributions agree within 0.01%
		return loadFPR(numKeys/numLines, math.Inf(1), probes)
	}
	return loadFPR(numKeys/numLines, numKeys, probes)
}

// loadFPR returns the FPR of a line with mean keys on average, out of numKeys, which may be
// infinite.
func loadFPR(mean, numKeys float64, probes int) float64 {
	maxKeys := int(min(mean+12*math.Sqrt(mean)+40, numKeys))
	var hit [LineBits + 1]float64 // the FPR of a line, by the number of set bits
	for ones := range hit {
		hit[ones] = math.Pow(float64(ones)/LineBits, float64(probes))
	}
	var dist [LineBits + 1]float64 // the distribution of the number of set bits, so far
	dist[0] = 1
	sum := 0.0
	for keys := 1; keys <= maxKeys; keys++ {
		top := min(keys*probes, LineBits)
		for range probes {
			for ones := top; ones > 0; ones-- {
				dist[ones] = dist[ones]*float64(ones)/LineBits + dist[ones-1]*float64(LineBits-ones+1)/LineBits
			}
			dist[0] = 0
		}
		p := 0.0
		for ones := 1; ones <= top; ones++ {
			p += dist[ones] * hit[ones]
		}
		sum += p * loadWeight(float64(keys), mean, numKeys)
	}
	return sum
}

// loadWeight returns the probability that a line has the given number of keys.
func loadWeight(keys, mean, numKeys float64) float64 {
	switch {
	case math.IsInf(numKeys, 1):
		return math.Exp(keys*math.Log(mean) - mean - logFactorial(keys))
	case mean == numKeys: // a single line
		if keys == numKeys {
			return 1
		}
		return 0
	}
	share := mean / numKeys
	return math.Exp(logFactorial(numKeys) - logFactorial(keys) - logFactorial(numKeys-keys) +
		keys*math.Log(share) + (numKeys-keys)*math.Log1p(-share))
}

func logFactorial(x float64) float64 {
	l, _ := math.Lgamma(x + 1)
	return l
}
