package data

import (
	"math"
	"math/rand/v2"
)

// Mix is the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a pseudo-random permutation
// of the 64-bit numbers.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Rand returns a generator that yields the same numbers for the same seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, Mix(seed))) }

// Permutation returns the numbers 0 to n-1 in random order.
func Permutation(r *rand.Rand, n int) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = uint32(i)
	}
	r.Shuffle(n, func(i, j int) { p[i], p[j] = p[j], p[i] })
	return p
}

// Zipf draws numbers from 0 to n-1 with probability proportional to 1/(i+1)^s, for 0 < s < 1;
// math/rand's Zipf needs s > 1. The method is that of Gray et al., "Quickly Generating
// Billion-Record Synthetic Databases", SIGMOD 1994. YCSB uses it with s = 0.99.
type Zipf struct {
	r                    *rand.Rand
	n                    int
	s, alpha, zetan, eta float64
	half                 float64
}

// NewZipf returns a generator over 0 to n-1.
func NewZipf(r *rand.Rand, n int, s float64) *Zipf {
	z := &Zipf{r: r, n: n, s: s, alpha: 1 / (1 - s), half: 1 + math.Pow(0.5, s)}
	for i := 1; i <= n; i++ {
		z.zetan += math.Pow(float64(i), -s)
	}
	z.eta = (1 - math.Pow(2/float64(n), 1-s)) / (1 - z.half/z.zetan)
	return z
}

// Rank draws a number; 0 is the most frequent.
func (z *Zipf) Rank() int {
	u := z.r.Float64()
	switch uz := u * z.zetan; {
	case uz < 1 || z.n == 1:
		return 0
	case uz < z.half:
		return 1
	}
	return min(z.n-1, int(float64(z.n)*math.Pow(z.eta*u-z.eta+1, z.alpha)))
}

// Next draws a number whose frequent values are spread over the whole range.
func (z *Zipf) Next() int { return int(Mix(uint64(z.Rank())) % uint64(z.n)) }
