package filter

import (
	"fmt"
	"math"

	"github.com/siftdb/sift/filter/internal/bloom"
	"github.com/siftdb/sift/filter/internal/fuse"
)

// Parameters have their textbook names: n is the number of keys, m of bits, k of
// probes, and p is the false positive rate. They are real numbers. Unless stated
// otherwise, functions return NaN for negative numbers and NaN, and the mathematical
// limit, if there is one, for 0 and infinity.

// LimitBits is the information-theoretic limit: the minimum number of bits per key
// of a filter with false positive rate p, log2(1/p). It is 0 for p >= 1 and
// infinite for 0.
func LimitBits(p float64) float64 {
	if p >= 1 {
		return 0
	}
	return -math.Log2(p) // NaN for a negative number and for NaN
}

// ClassicBits is the number of bits per key that a classic Bloom filter, which has
// one bit array for all probes, needs for the false positive rate p with the best
// number of probes: log2(1/p) / ln 2, which is 1.44 times the limit.
func ClassicBits(p float64) float64 { return LimitBits(p) / math.Ln2 }

// ClassicNumBits is the size m of a classic Bloom filter of n keys, rounded up
// to whole bits.
func ClassicNumBits(n, p float64) float64 {
	switch {
	case n < 0 || math.IsNaN(n) || math.IsNaN(p):
		return math.NaN()
	case n == 0 || p >= 1:
		return 0
	}
	return math.Ceil(n * ClassicBits(p))
}

// ClassicProbes is the number k of probes, at least one, that gives a classic Bloom
// filter of bitsPerKey bits per key its lowest false positive rate. It is one of the
// two whole numbers next to bitsPerKey × ln 2, and not always the nearer one. It is 0
// for negative numbers, for NaN, and where k would exceed 2^31.
func ClassicProbes(bitsPerKey float64) int {
	best := bitsPerKey * math.Ln2
	if math.IsNaN(best) || best < 0 || best > math.MaxInt32 {
		return 0
	}
	k := max(1, math.Floor(best))
	if ClassicFPRLimit(bitsPerKey, k+1) < ClassicFPRLimit(bitsPerKey, k) {
		k++
	}
	return int(k)
}

// ClassicFPR is the false positive rate of a classic Bloom filter with n keys in
// m bits: (1 − (1 − 1/m)^kn)^k. (Bose et al., "On the false-positive rate of
// Bloom filters", 2008: the true rate is higher, by a share that vanishes as m
// grows; below a thousandth from m = 10,000 on.)
func ClassicFPR(n, m, k float64) float64 {
	if p, ok := classicEdge(n, m, k); ok {
		return p
	}
	if m == 1 {
		return 1
	}
	return math.Pow(-math.Expm1(k*n*math.Log1p(-1/m)), k)
}

// ClassicFPRLimit is ClassicFPR for many keys: (1 − e^(−k/bitsPerKey))^k.
func ClassicFPRLimit(bitsPerKey, k float64) float64 {
	if p, ok := classicEdge(1, bitsPerKey, k); ok {
		return p
	}
	return math.Pow(-math.Expm1(-k/bitsPerKey), k)
}

// classicEdge returns the false positive rate for arguments that the formulas do not cover.
func classicEdge(n, m, k float64) (p float64, ok bool) {
	switch {
	case math.IsNaN(n + m + k), n < 0, m < 0, k < 0:
		return math.NaN(), true
	case k == 0:
		return 1, true // nothing is probed
	case n == 0:
		return 0, true
	case math.IsInf(n, 1) && math.IsInf(m, 1), math.IsInf(k, 1):
		return math.NaN(), true
	case m == 0 || math.IsInf(n, 1):
		return 1, true
	case math.IsInf(m, 1):
		return 0, true
	}
	return 0, false
}

// Size is the size and the false positive rate of a filter.
type Size struct {
	Name       string  // the policy's name, "limit" or "classic bloom"
	BitsPerKey float64 // including headers and padding
	Bytes      float64
	FPR        float64
	OverLimit  float64 // BitsPerKey ÷ LimitBits(FPR): 1 is optimal; infinite if FPR is 1
	Reached    bool    // whether FPR is at most 1.005 times the requested one; Expect always sets it
}

// sizer is a policy that knows its sizes.
type sizer interface {
	// expect returns the bytes and the FPR for n keys, n >= 1.
	expect(n float64) (bytes, fpr float64)
}

// Expect returns the expected size and false positive rate of a filter of p over
// n keys, 1 to 2^48. ok is false for other n, for None, keyed policies and those
// of other packages.
func Expect(p Policy, n float64) (s Size, ok bool) {
	z, ok := p.(sizer)
	if !ok || !(n >= 1 && n <= maxSizeKeys) {
		return Size{}, false
	}
	n = math.Floor(n)
	bytes, fpr := z.expect(n)
	return size(p.Name(), n, bytes, fpr, 1), true
}

const maxSizeKeys = 1 << 48

// size returns the Size of a filter over n keys; requested is the FPR for Size.Reached.
func size(name string, n, bytes, fpr, requested float64) Size {
	return Size{
		Name:       name,
		BitsPerKey: bytes * 8 / n,
		Bytes:      bytes,
		FPR:        fpr,
		OverLimit:  bytes * 8 / n / LimitBits(fpr),
		// Rounding to whole probes, keys or lines may miss the rate slightly.
		Reached: fpr <= requested*1.005,
	}
}

// CompareSizes returns the sizes of filters over n keys, 1 to 2^48, with a false
// positive rate of p, in (0, 1): first the information-theoretic limit, then a classic
// Bloom filter, then each family of this package. A family is represented by its
// smallest policy that reaches p, or by one near its lowest rate, with Reached false.
// Other arguments are an error.
func CompareSizes(n, p float64) ([]Size, error) {
	if !(n >= 1 && n <= maxSizeKeys) {
		return nil, fmt.Errorf("filter: number of keys %v is outside [1, 2^48]", n)
	}
	if !(p > 0 && p < 1) {
		return nil, fmt.Errorf("filter: false positive rate %v is outside (0, 1)", p)
	}
	n = math.Floor(n)
	m := ClassicNumBits(n, p)
	k := ClassicProbes(m / n)
	sizes := []Size{
		size("limit", n, n*LimitBits(p)/8, p, p),
		size("classic bloom", n, m/8, ClassicFPR(n, m, float64(k)), p),
	}
	for _, choose := range choosers {
		policy := choose(n, p)
		bytes, fpr := policy.(sizer).expect(n)
		sizes = append(sizes, size(policy.Name(), n, bytes, fpr, p))
	}
	return sizes, nil
}

// choosers holds, for each family, a function that returns the family's smallest policy
// with an FPR of at most p for n keys, or one near its lowest rate if there is none.
var choosers = [...]func(n, p float64) Policy{
	chooseBloom,
	chooseFuse,
	chooseRibbon,
	chooseRocksDB,
}

// expect uses the model of internal/bloom for the number of lines that a writer makes.
func (p bloomPolicy) expect(n float64) (bytes, fpr float64) {
	lines := float64(bloom.NumLines(n, p.bitsPerKey))
	return lines*bloom.LineSize + bloomTrailerSize, bloom.LinesFPR(n, lines, bloom.Probes(p.bitsPerKey))
}

// chooseBloom searches for the bits per key in steps of 0.01.
func chooseBloom(n, p float64) Policy {
	const step = 100
	lo, hi := minBloomBits*step, maxBloomBits*step // the result is hi if none reaches p
	for lo < hi {
		mid := (lo + hi) / 2
		if _, fpr := (bloomPolicy{float64(mid) / step}).expect(n); fpr <= p {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return Bloom(float64(lo) / step)
}

// expect assumes that construction succeeds with the first seed, as it does except for a few
// small sets of keys.
func (p fusePolicy) expect(n float64) (bytes, fpr float64) {
	shape := fuse.ShapeFor(uint64(n), p.width, 0)
	return float64(shape.Bytes()) + fuseTrailerSize, fuseFPR(shape)
}

func chooseFuse(_, p float64) Policy {
	return Fuse(int(min(math.Ceil(LimitBits(p)), fuse.MaxWidth)))
}

// rocksdbFPR is the false positive rate in percent of RocksDBBloom for few
// keys, by bits per key, as printed by internal/bloom/simulate -legacy.
var rocksdbFPR = [...]struct{ bits, fpr float64 }{
	{1, 62.91}, {2, 39.33}, {3, 23.68}, {4, 15.49}, {5, 9.342}, {6, 5.863}, {7, 3.823}, {8, 2.494},
	{9, 1.692}, {10, 1.158}, {11, 0.8712}, {12, 0.6685}, {13, 0.5013}, {14, 0.4286}, {15, 0.3841}, {16, 0.3552},
	{17, 0.305}, {18, 0.2914}, {20, 0.2588}, {22, 0.2746}, {24, 0.2565}, {27, 0.245}, {30, 0.2427}, {35, 0.2424}, {40, 0.2428},
	{44, 0.2976}, {50, 0.2281}, {60, 0.1783}, {70, 0.1469}, {80, 0.1269}, {90, 0.1066}, {100, 0.09305},
}

// expect interpolates in rocksdbFPR, and adds the probability that the 32-bit hashes
// of two keys collide: 0.23% at 10 million keys.
func (p rocksdbPolicy) expect(n float64) (bytes, fpr float64) {
	bits := float64(p.bitsPerKey)
	lines := math.Ceil(n * bits / bloom.LineBits)
	if math.Mod(lines, 2) == 0 {
		lines++
	}
	i := 1
	for i < len(rocksdbFPR)-1 && rocksdbFPR[i].bits < bits {
		i++
	}
	a, b := rocksdbFPR[i-1], rocksdbFPR[i]
	share := (bits - a.bits) / (b.bits - a.bits)
	few := math.Exp(math.Log(a.fpr)*(1-share)+math.Log(b.fpr)*share) / 100
	same := -math.Expm1(-n / (1 << 32))
	return lines*bloom.LineSize + rocksdbTrailerSize, few + same - few*same
}

// chooseRocksDB returns, if p is out of reach, the fewest bits per key whose FPR is
// at most 1.1 times the lowest: more bits would be wasted.
func chooseRocksDB(n, p float64) Policy {
	var fprs [maxRocksDBBits + 1]float64
	lowest := 1.0
	for b := minRocksDBBits; b <= maxRocksDBBits; b++ {
		_, fprs[b] = (rocksdbPolicy{b}).expect(n)
		lowest = min(lowest, fprs[b])
	}
	if lowest > p {
		p = 1.1 * lowest
	}
	b := minRocksDBBits
	for fprs[b] > p {
		b++
	}
	return RocksDBBloom(b)
}
