package live

import (
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/live/internal/blocks"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// Scheme determines which bits an element sets.
type Scheme uint8

// On disk; do not change.
const (
	// Scattered is the textbook Bloom filter: an element's bits can be anywhere. It
	// takes the least memory, and an operation has up to as many cache misses as hashes.
	Scattered Scheme = 0
	// Blocked keeps the bits of an element in one 64-byte cache line, so an operation
	// has one cache miss. For the same FPR it takes about 4% more memory at 1% and 9%
	// more at 0.1%. It is for filters larger than the CPU cache.
	Blocked Scheme = 1
	// Guava is BloomFilterStrategies.MURMUR128_MITZ_64, the default of Google
	// Guava's BloomFilter since version 14.
	Guava Scheme = 2
	// GuavaMitz32 is BloomFilterStrategies.MURMUR128_MITZ_32, the default of older
	// versions. It uses no more than 2³¹ bits.
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

// digest is the hash of an element: 64 bits in a, or for Guava's schemes the two
// halves of a 128-bit hash.
type digest struct{ a, b uint64 }

// table is the bits of a Bloom filter. Unless it is unshared, its methods are safe for
// concurrent use: bits are read and set with atomic operations on whole words.
//
// The positions of an element with hash h, which is first mixed with the seed if there
// is one (seedHash):
//
//	Scattered  bit i is hi64(h_i × bits), h_0 = h, h_i+1 = h_i × chain mod 2⁶⁴
//	Blocked    block is hi64(h × bits/512); bit i in it is the top 9 bits of
//	           h_i+1, the same chain
//	Guava      c = a; k times: (c mod 2⁶³) mod bits; c += b
//	           where a, b are the halves of MurmurHash3 x64 128
//	GuavaMitz32  i = 1..k: c = low32(a) + i × high32(a) as int32; ^c if c < 0; mod bits
//
// A chain of products gives every bit its own hash. The usual double hashing,
// h1 + i × h2 mod bits, has only bits² different patterns, and so an FPR of at least about
// 1/bits, however many bits an element sets.
//
// Saved filters depend on all of this; do not change.
type table struct {
	words    []uint64             // aligned to a cache line
	blocks   [][blockWords]uint64 // the same words, of a Blocked
	bits     uint64               // 64 × len(words)
	recip    uint64               // ⌊(2⁶⁴-1) / bits⌋, for Guava's schemes
	seed     uint64
	hashes   int
	scheme   Scheme
	unshared bool // additions use plain stores
}

const chain = 0x9e3779b97f4a7c15 // 2⁶⁴ divided by the golden ratio, odd

// newTable makes an empty table. numWords > 0, a multiple of blockWords for Blocked.
func newTable(scheme Scheme, numWords uint64, hashes int, seed uint64) table {
	return tableOf(scheme, alignedWords(numWords), hashes, seed)
}

func tableOf(scheme Scheme, words []uint64, hashes int, seed uint64) table {
	n := uint64(len(words)) * wordBits
	var blocks [][blockWords]uint64
	if scheme == Blocked {
		blocks = unsafe.Slice((*[blockWords]uint64)(unsafe.Pointer(unsafe.SliceData(words))), len(words)/blockWords)
	}
	return table{words: words, blocks: blocks, bits: n, recip: math.MaxUint64 / n, seed: seed, hashes: hashes, scheme: scheme}
}

// alignedWords returns n zero words that begin at a cache line, in huge pages if the kernel
// provides them.
func alignedWords(n uint64) []uint64 {
	b := filter.AlignedBytes(int(n * 8))
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), n)
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

// mod returns c mod t.bits, for c < 2⁶³, without a division or a branch: the quotient by
// recip is too small by at most one.
func (t *table) mod(c uint64) uint64 {
	r := c - scale(c, t.recip)*t.bits
	less, below := bits.Sub64(r, t.bits, 0)
	return less + t.bits&-below
}

// The powers of chain, so that the hashes of four bits can be computed in parallel.
const (
	chain2 = chain * chain % (1 << 64)
	chain3 = chain2 * chain % (1 << 64)
	chain4 = chain3 * chain % (1 << 64)
)

// has reports whether all bits of an element are set. It examines several bits before it
// branches: whether one bit is set is unpredictable, and a mispredicted branch costs more
// than examining a few more. Where each bit may be a cache miss, it begins with two.
func (t *table) has(d digest) bool {
	switch t.scheme {
	case Scattered:
		return t.hasScattered(seedHash(d.a, t.seed))
	case Blocked:
		return t.hasBlocked(seedHash(d.a, t.seed))
	case Guava:
		return t.hasGuava(d)
	}
	seq := t.guavaBits(d)
	for range t.hashes {
		if t.at(t.next(&seq))&1 == 0 {
			return false
		}
	}
	return true
}

func (t *table) hasScattered(h uint64) bool {
	n := t.hashes
	if n > 2 {
		if t.at(scale(h, t.bits))&t.at(scale(h*chain, t.bits))&1 == 0 {
			return false
		}
		h *= chain2
		n -= 2
	}
	for ; n >= 4; n -= 4 {
		if t.at(scale(h, t.bits))&t.at(scale(h*chain, t.bits))&t.at(scale(h*chain2, t.bits))&t.at(scale(h*chain3, t.bits))&1 == 0 {
			return false
		}
		h *= chain4
	}
	all := uint64(1)
	for ; n > 0; n-- {
		all &= t.at(scale(h, t.bits))
		h *= chain
	}
	return all != 0
}

func (t *table) hasBlocked(h uint64) bool {
	block := t.block(h)
	n := t.hashes
	for ; n >= 3; n -= 3 {
		if bitOf(block, h*chain)&bitOf(block, h*chain2)&bitOf(block, h*chain3)&1 == 0 {
			return false
		}
		h *= chain3
	}
	switch n {
	case 1:
		return bitOf(block, h*chain)&1 != 0
	case 2:
		return bitOf(block, h*chain)&bitOf(block, h*chain2)&1 != 0
	}
	return true
}

func (t *table) hasGuava(d digest) bool {
	c, n := d.a, t.hashes
	if n > 2 {
		if t.at(t.mod(c&math.MaxInt64))&t.at(t.mod((c+d.b)&math.MaxInt64))&1 == 0 {
			return false
		}
		c += 2 * d.b
		n -= 2
	}
	for ; n >= 4; n -= 4 {
		c1, c2, c3 := c+d.b, c+2*d.b, c+3*d.b
		if t.at(t.mod(c&math.MaxInt64))&t.at(t.mod(c1&math.MaxInt64))&t.at(t.mod(c2&math.MaxInt64))&t.at(t.mod(c3&math.MaxInt64))&1 == 0 {
			return false
		}
		c = c3 + d.b
	}
	all := uint64(1)
	for ; n > 0; n-- {
		all &= t.at(t.mod(c & math.MaxInt64))
		c += d.b
	}
	return all != 0
}

// at returns a word shifted so that its lowest bit is the one at pos.
func (t *table) at(pos uint64) uint64 {
	return atomic.LoadUint64(&t.words[pos/wordBits]) >> (pos % wordBits)
}

// bitOf is at for the bit of a block that a hash selects.
func bitOf(block *[blockWords]uint64, h uint64) uint64 {
	return atomic.LoadUint64(&block[h>>61]) >> (h >> 55 % wordBits)
}

// add sets all bits of an element and reports whether it found one of them clear. So of
// several concurrent calls with the same new element, at least one returns true.
func (t *table) add(d digest) bool {
	switch {
	case t.unshared:
		return t.addPlain(d)
	case t.scheme == Blocked:
		return t.addBlocked(seedHash(d.a, t.seed))
	case t.scheme == Scattered:
		return t.addScattered(seedHash(d.a, t.seed))
	}
	return t.addGuava(d)
}

// addScattered reads all its words before it sets a bit: an atomic operation waits for
// everything before it, so cache misses overlap only among the reads. If all bits are set, as
// for an element that was added before, it sets none. It does not test single bits: whether one
// is set is unpredictable, and a mispredicted branch costs more than setting it. The other
// schemes do the same with a few bits at a time.
func (t *table) addScattered(h uint64) bool {
	all, at := uint64(1), h
	n := t.hashes
	for ; n >= 3; n -= 3 {
		all &= t.at(scale(at, t.bits)) & t.at(scale(at*chain, t.bits)) & t.at(scale(at*chain2, t.bits))
		at *= chain3
	}
	for ; n > 0; n-- {
		all &= t.at(scale(at, t.bits))
		at *= chain
	}
	if all != 0 {
		return false
	}
	for range t.hashes {
		t.set(scale(h, t.bits))
		h *= chain
	}
	return true
}

func (t *table) addGuava(d digest) bool {
	const batch = 8
	isNew := false
	seq := t.guavaBits(d)
	for n := t.hashes; n > 0; n -= batch {
		var pos [batch]uint64
		all := uint64(1)
		for i := range min(n, batch) {
			pos[i] = t.next(&seq)
			all &= t.at(pos[i])
		}
		if all == 0 {
			for i := range min(n, batch) {
				t.set(pos[i])
			}
			isNew = true
		}
	}
	return isNew
}

// set sets a bit.
func (t *table) set(pos uint64) { atomic.OrUint64(&t.words[pos/wordBits], 1<<(pos%wordBits)) }

func (t *table) addBlocked(h uint64) bool {
	block := t.block(h)
	isNew := false
	n := t.hashes
	for ; n >= 3; n -= 3 {
		h1, h2, h3 := h*chain, h*chain2, h*chain3
		if bitOf(block, h1)&bitOf(block, h2)&bitOf(block, h3)&1 == 0 {
			setBitOf(block, h1)
			setBitOf(block, h2)
			setBitOf(block, h3)
			isNew = true
		}
		h = h3
	}
	for ; n > 0; n-- {
		h *= chain
		if bitOf(block, h)&1 == 0 {
			setBitOf(block, h)
			isNew = true
		}
	}
	return isNew
}

// setBitOf sets the bit of a block that a hash selects.
func setBitOf(block *[blockWords]uint64, h uint64) {
	atomic.OrUint64(&block[h>>61], 1<<(h>>55%wordBits))
}

// addPlain is add without atomic operations.
func (t *table) addPlain(d digest) bool {
	switch t.scheme {
	case Blocked:
		return t.addBlockedPlain(seedHash(d.a, t.seed))
	case Scattered:
		return t.addScatteredPlain(seedHash(d.a, t.seed))
	}
	changed := uint64(0)
	seq := t.guavaBits(d)
	for range t.hashes {
		changed |= t.setPlain(t.next(&seq))
	}
	return changed != 0
}

func (t *table) addScatteredPlain(h uint64) bool {
	changed := uint64(0)
	n := t.hashes
	for ; n >= 3; n -= 3 {
		changed |= t.setPlain(scale(h, t.bits))
		changed |= t.setPlain(scale(h*chain, t.bits))
		changed |= t.setPlain(scale(h*chain2, t.bits))
		h *= chain3
	}
	for ; n > 0; n-- {
		changed |= t.setPlain(scale(h, t.bits))
		h *= chain
	}
	return changed != 0
}

func (t *table) addBlockedPlain(h uint64) bool {
	block := t.block(h)
	changed := uint64(0)
	n := t.hashes
	for ; n >= 3; n -= 3 {
		changed |= setPlainOf(block, h*chain)
		changed |= setPlainOf(block, h*chain2)
		h *= chain3
		changed |= setPlainOf(block, h)
	}
	for ; n > 0; n-- {
		h *= chain
		changed |= setPlainOf(block, h)
	}
	return changed != 0
}

// setPlainOf is setPlain for the bit of a block that a hash selects.
func setPlainOf(block *[blockWords]uint64, h uint64) uint64 {
	before := block[h>>61]
	after := before | 1<<(h>>55%wordBits)
	block[h>>61] = after
	return before ^ after
}

// setPlain sets a bit, and returns a word that is not 0 if it was clear.
func (t *table) setPlain(pos uint64) uint64 {
	w := &t.words[pos/wordBits]
	before := *w
	after := before | 1<<(pos%wordBits)
	*w = after
	return before ^ after
}

// guavaSeq is the sequence of an element's positions in Guava's schemes.
type guavaSeq struct{ c, step uint64 }

func (t *table) guavaBits(d digest) guavaSeq {
	if t.scheme == GuavaMitz32 { // only the low halves are used
		return guavaSeq{d.a + d.a>>32, d.a >> 32}
	}
	return guavaSeq{d.a, d.b}
}

// next returns the next position.
func (t *table) next(s *guavaSeq) uint64 {
	c := s.c
	s.c += s.step
	if t.scheme == GuavaMitz32 {
		return t.mod(uint64(int32(c) ^ int32(c)>>31))
	}
	return t.mod(c & math.MaxInt64)
}

func (t *table) block(h uint64) *[blockWords]uint64 {
	return &t.blocks[scale(h, uint64(len(t.blocks)))]
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

// approxCount estimates how many elements have set these bits; MaxUint64 if all are set.
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
			ones-- // the maximum for which there is an estimate
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
	return tableOf(t.scheme, copyWords(t.words), t.hashes, t.seed)
}

// merge sets the bits that are set in o, a table of the same parameters.
func (t *table) merge(o *table) {
	for i := range t.words {
		if w := atomic.LoadUint64(&o.words[i]); w&^atomic.LoadUint64(&t.words[i]) != 0 {
			atomic.OrUint64(&t.words[i], w)
		}
	}
}

// compatible returns an error that names a parameter in which the tables differ, or nil.
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
