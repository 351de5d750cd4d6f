package record

import (
	"hash/crc32"
	"sync"

	"github.com/siftdb/sift/internal/base"
)

// crcIndex computes the checksum of any part of a block in constant time. A search over every
// byte position is then linear in the length of the log, even if every position looks like
// the header of a long chunk, as repeated bytes do.
//
// A CRC register is a polynomial over GF(2). Appending n zero bytes multiplies it by x^8n
// modulo the CRC's polynomial. If before[i] is the register after the first i bytes of the
// block, starting from 0, then the register after the bytes from a to b, starting from s, is
//
//	(s ^ before[a]) * x^8(b-a)  ^  before[b]
type crcIndex struct {
	before []uint32 // empty until first needed for a block
}

// shortChunk is the length in bytes up to which a checksum is computed directly.
const shortChunk = 256

// reset discards the block.
func (x *crcIndex) reset() { x.before = x.before[:0] }

// match reports whether sum is the checksum of block[from:to].
func (x *crcIndex) match(block []byte, from, to int, sum uint32) bool {
	if to-from > shortChunk {
		if len(x.before) == 0 {
			x.build(block)
		}
		const begin = ^uint32(0)
		crc := ^(multiply(begin^x.before[from], powers()[to-from]) ^ x.before[to])
		if crc != unmask(sum) {
			return false
		}
	}
	return base.Checksum(block[from:to]) == sum
}

// unmask undoes the mask of base.Checksum.
func unmask(sum uint32) uint32 {
	c := sum - 0xa282ead8
	return c<<15 | c>>17
}

func (x *crcIndex) build(block []byte) {
	if cap(x.before) <= len(block) {
		x.before = make([]uint32, 0, len(block)+1)
	}
	c := uint32(0)
	x.before = append(x.before[:0], c)
	for _, b := range block {
		c = step(c, b)
		x.before = append(x.before, c)
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// step feeds one byte to a CRC register.
func step(c uint32, b byte) uint32 { return castagnoli[byte(c)^b] ^ c>>8 }

// powers returns x^8n for all n below BlockSize. The highest bit is x^0.
var powers = sync.OnceValue(func() []uint32 {
	p := make([]uint32, BlockSize)
	p[0] = 1 << 31
	for i := 1; i < len(p); i++ {
		p[i] = step(p[i-1], 0)
	}
	return p
})

// multiply multiplies two polynomials modulo the CRC's.
func multiply(a, b uint32) uint32 {
	var product uint32
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}
