package live

import (
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/siftdb/sift/filter/live/internal/blocks"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// Scheme says which bits belong to an element.
type Scheme uint8

// On disk; do not change.
const (
	// Scattered is the textbook's filter: the bits of an element lie anywhere.
	// The least memory, and up to as many cache misses as hashes.
	Scattered Scheme = 0
	// Blocked keeps the bits of an element in one 64-byte cache line: one cache
	// miss an operation. For the same FPR it takes some 4 % more memory at 1 %
	// and 9 % more at 0.1 %. For filters larger than the cache.
	Blocked Scheme = 1
	// Guava is BloomFilterStrategies.MURMUR128_MITZ_64, the default of Google
	// Guava's BloomFilter since version 14.
	Guava Scheme = 2
	// GuavaMitz32 is BloomFilterStrategies.MURMUR128_MITZ_32, what older Guava
	// wrote. It reaches no more than 2³¹ bits.
	GuavaMitz32 Scheme = 3
)

// String returns the name of the constant.
func (s Scheme) String() string {
	switch s {
	case Scattered:
		return "Scattered"
	case Blocked:
		return "Blocked"
	case Guava:
		return "Guava"
	case GuavaMitz32:
		return "GuavaMitz32"
	}
	return "unknown scheme"
}

func (s Scheme) guava() bool { return s == Guava || s == GuavaMitz32 }

const (
	wordBits   = 64
	blockWords = 8
	blockBits  = blockWords * wordBits
)

// digest is what a table knows of an element: a 64-bit hash, or for Guava's
// schemes the two halves of a 128-bit one.
type digest struct{ a, b uint64 }

// table is the bits of a Bloom filter. All its methods may run at the same time:
// bits are read and set with atomic operations on whole words.
//
// The positions of an element with hash h, h mixed with the seed first if there
// is one (seedHash):
//
//	Scattered  bit i is hi64(h_i × bits), h_0 = h, h_i+1 = h_i × chain mod 2⁶⁴
//	Blocked    block is hi64(h × bits/512); bit i in it is the top 9 bits of
//	           h_i+1, the same chain
//	Guava      c = a; k times: (c mod 2⁶³) mod bits; c += b
//	           where a, b are the halves of MurmurHash3 x64 128
//	GuavaMitz32  i = 1..k: c = low32(a) + i × high32(a) as int32; ^c if c < 0; mod bits
//
// A chain of products gives every bit a hash of its own. The usual double
// hashing, h1 + i × h2 mod bits, has only bits² different patterns, and so an FPR
// that stays above 1/bits or so however many bits an element gets.
//
// Saved filters depend on all of this; do not change.
type table struct {
	words  []uint64 // aligned to a cache line
	bits   uint64   // 64 × len(words)
	recip  uint64   // ⌊(2⁶⁴-1) / bits⌋, for Guava's schemes
	seed   uint64
	hashes int
	scheme Scheme
}

const chain = 0x9e3779b97f4a7c15 // 2⁶⁴ divided by the golden ratio, odd

// newTable makes an empty table. numWords > 0, a multiple of blockWords for Blocked.
func newTable(scheme Scheme, numWords uint64, hashes int, seed uint64) table {
	return tableOf(scheme, alignedWords(numWords), hashes, seed)
}

func tableOf(scheme Scheme, words []uint64, hashes int, seed uint64) table {
	n := uint64(len(words)) * wordBits
	return table{words: words, bits: n, recip: math.MaxUint64 / n, seed: seed, hashes: hashes, scheme: scheme}
}

// alignedWords returns n zero words that begin at a cache line.
func alignedWords(n uint64) []uint64 {
	w := make([]uint64, n+blockWords-1)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(w))) % (blockWords * 8) / 8
	return w[skip : uint64(skip)+n : uint64(skip)+n]
}

func mix(h uint64) uint64 { return funnel.Mix(h) }

// seedHash makes the positions of filters with different seeds independent.
func seedHash(h, seed uint64) uint64 {
	if seed == 0 {
		return h
	}
	return mix(h ^ seed)
}

func scale(h, n uint64) uint64 {
	hi, _ := bits.Mul64(h, n)
	return hi
}

// mod returns c mod t.bits without a division.
func (t *table) mod(c uint64) uint64 {
	r := c - scale(c, t.recip)*t.bits
	for r >= t.bits { // at most twice
		r -= t.bits
	}
	return r
}

func (t *table) test(pos uint64) bool {
	return atomic.LoadUint64(&t.words[pos/wordBits])>>(pos%wordBits)&1 != 0
}

// set sets a bit and reports whether it was clear.
func (t *table) set(pos uint64) bool {
	w, mask := &t.words[pos/wordBits], uint64(1)<<(pos%wordBits)
	if atomic.LoadUint64(w)&mask != 0 {
		return false
	}
	return atomic.OrUint64(w, mask)&mask == 0
}

// has reports whether all bits of an element are set.
func (t *table) has(d digest) bool {
	switch t.scheme {
	case Scattered:
		h := seedHash(d.a, t.seed)
		for range t.hashes {
			if !t.test(scale(h, t.bits)) {
				return false
			}
			h *= chain
		}
	case Blocked:
		h := seedHash(d.a, t.seed)
		block := t.block(h)
		for range t.hashes {
			h *= chain
			if atomic.LoadUint64(&block[h>>61])>>(h>>55%wordBits)&1 == 0 {
				return false
			}
		}
	case Guava:
		c := d.a
		for range t.hashes {
			if !t.test(t.mod(c & math.MaxInt64)) {
				return false
			}
			c += d.b
		}
	case GuavaMitz32:
		c := int32(d.a)
		for range t.hashes {
			c += int32(d.a >> 32)
			if !t.test(t.mod(uint64(c ^ c>>31))) {
				return false
			}
		}
	}
	return true
}

// add sets all bits of an element and reports whether one of them was clear.
func (t *table) add(d digest) bool {
	changed := false
	switch t.scheme {
	case Scattered:
		h := seedHash(d.a, t.seed)
		for range t.hashes {
			if t.set(scale(h, t.bits)) {
				changed = true
			}
			h *= chain
		}
	case Blocked:
		h := seedHash(d.a, t.seed)
		block := t.block(h)
		var masks [blockWords]uint64
		for range t.hashes {
			h *= chain
			masks[h>>61] |= 1 << (h >> 55 % wordBits)
		}
		for i, mask := range masks {
			if atomic.LoadUint64(&block[i])&mask != mask && atomic.OrUint64(&block[i], mask)&mask != mask {
				changed = true
			}
		}
	case Guava:
		c := d.a
		for range t.hashes {
			if t.set(t.mod(c & math.MaxInt64)) {
				changed = true
			}
			c += d.b
		}
	case GuavaMitz32:
		c := int32(d.a)
		for range t.hashes {
			c += int32(d.a >> 32)
			if t.set(t.mod(uint64(c ^ c>>31))) {
				changed = true
			}
		}
	}
	return changed
}

func (t *table) block(h uint64) *[blockWords]uint64 {
	at := scale(h, t.bits/blockBits) * blockWords
	return (*[blockWords]uint64)(t.words[at:])
}

// touch reads the first word that an element needs, so that the cache misses of
// several elements overlap.
func (t *table) touch(d digest) uint64 {
	switch t.scheme {
	case Scattered:
		return atomic.LoadUint64(&t.words[scale(seedHash(d.a, t.seed), t.bits)/wordBits])
	case Blocked:
		return atomic.LoadUint64(&t.block(seedHash(d.a, t.seed))[0])
	case Guava:
		return atomic.LoadUint64(&t.words[t.mod(d.a&math.MaxInt64)/wordBits])
	}
	return 0
}

// ones counts the bits that are set.
func (t *table) ones() uint64 {
	n := 0
	for i := range t.words {
		n += bits.OnesCount64(atomic.LoadUint64(&t.words[i]))
	}
	return uint64(n)
}

// blockOnes calls f with the number of bits set in each block.
func (t *table) blockOnes(f func(ones int)) {
	for at := 0; at < len(t.words); at += blockWords {
		n := 0
		for i := range blockWords {
			n += bits.OnesCount64(atomic.LoadUint64(&t.words[at+i]))
		}
		f(n)
	}
}

// fpr returns the share of absent elements that find all their bits set now.
func (t *table) fpr() float64 {
	k := float64(t.hashes)
	if t.scheme != Blocked {
		return math.Pow(float64(t.ones())/float64(t.bits), k)
	}
	var byOnes [blockBits + 1]uint64
	t.blockOnes(func(ones int) { byOnes[ones]++ })
	sum := 0.0
	for ones, blocks := range byOnes {
		if blocks > 0 {
			sum += float64(blocks) * math.Pow(float64(ones)/blockBits, k)
		}
	}
	return sum / float64(t.bits/blockBits)
}

// expectedFPR is the FPR with items elements.
func (t *table) expectedFPR(items uint64) float64 {
	if t.scheme == Blocked {
		return blocks.FPR(blockBits, t.hashes, float64(items)/float64(t.bits/blockBits))
	}
	return ExpectedFPR(t.bits, t.hashes, items)
}

// approxCount estimates how many elements set these bits; MaxUint64 if so many
// that none are clear.
func (t *table) approxCount() uint64 {
	k := float64(t.hashes)
	if t.scheme != Blocked {
		x, m := float64(t.ones()), float64(t.bits)
		return roundCount(-math.Log1p(-x/m) * m / k)
	}
	sum := 0.0
	full, blocks := 0, 0
	t.blockOnes(func(ones int) {
		blocks++
		if ones == blockBits {
			full++
			ones-- // the most that can be told
		}
		// log((1-1/m)^k): a block is small enough that 1/m and -log(1-1/m) differ.
		sum += math.Log1p(-float64(ones)/blockBits) / math.Log1p(-1.0/blockBits) / k
	})
	if full == blocks {
		return math.MaxUint64
	}
	return roundCount(sum)
}

func roundCount(x float64) uint64 {
	if !(x < math.MaxInt64) {
		return math.MaxUint64
	}
	return uint64(math.Floor(x + 0.5))
}

func (t *table) reset() {
	for i := range t.words {
		atomic.StoreUint64(&t.words[i], 0)
	}
}

// empty returns a table of the same parameters with no elements.
func (t *table) empty() table { return newTable(t.scheme, uint64(len(t.words)), t.hashes, t.seed) }

func (t *table) clone() table {
	c := *t
	c.words = copyWords(t.words)
	return c
}

// merge sets the bits that are set in o, a table of the same parameters.
func (t *table) merge(o *table) {
	for i := range t.words {
		if w := atomic.LoadUint64(&o.words[i]); w&^atomic.LoadUint64(&t.words[i]) != 0 {
			atomic.OrUint64(&t.words[i], w)
		}
	}
}

// compatible returns an error that names the parameter in which the tables differ.
func (t *table) compatible(o *table) error {
	switch {
	case t.scheme != o.scheme:
		return incompatible("schemes", t.scheme, o.scheme)
	case t.bits != o.bits:
		return incompatible("bits", t.bits, o.bits)
	case t.hashes != o.hashes:
		return incompatible("hashes", t.hashes, o.hashes)
	case t.seed != o.seed:
		return incompatible("seeds", t.seed, o.seed)
	}
	return nil
}
