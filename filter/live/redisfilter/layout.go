package redisfilter

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/siftdb/sift/filter/live"
	"github.com/siftdb/sift/filter/live/internal/blocks"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// Layout determines which bits an element sets.
type Layout uint8

const (
	// Blocked keeps the bits of an element in one block of 64 bytes, which a lookup reads as one
	// string. That is 40% of the server's work for a lookup with Scattered. It takes 5% more
	// memory than Scattered at an FPR of 1%, and 10% more at 0.1%.
	Blocked Layout = 0
	// Scattered is the textbook Bloom filter: an element's bits can be anywhere in its
	// shard. A lookup is a BITFIELD_RO with as many bits as there are hashes.
	Scattered Layout = 1
)

// String returns the name that is stored in Redis.
func (l Layout) String() string {
	switch l {
	case Blocked:
		return "blocked"
	case Scattered:
		return "scattered"
	}
	return "unknown layout"
}

// A filter NAME has the keys
//
//	{NAME}:filter   a hash, its configuration (see config)
//	{NAME:i}:GEN    a string, shard i of generation GEN, i from 0 to shards-1
//
// GEN is 16 hexadecimal digits that are unique to the generation, so the name of a key
// determines its parameters. A shard is big-endian; bit 0 is the highest of byte 0, as in
// Redis:
//
//	offset  size  field
//	     0     1  a5
//	     1     1  version, 1
//	     2     1  layout
//	     3     1  0
//	     4     4  epoch of the configuration, see Bloom.Rebuild
//	     8     8  GEN, as a number
//	    16     4  number of additions with Options.Replicas, wraps
//	    20    44  0
//	    64   n/8  Scattered: n bits, a multiple of 8
//	    64  64×n  Blocked: n blocks, each a byte 01 and then 504 bits
//
// A missing key, or one that an operation has created, has no a5, and its blocks no 01. So
// each operation notices that its shard is missing, instead of reading zeros as a negative
// answer.
//
// Let h be the XXH64, seed 0, of the element's bytes, mixed with the seed if there is one
// (mix(h ^ seed)), hi64(a × b) the upper half of a product, c = 9e3779b97f4a7c15, h_0 = h
// and h_i+1 = h_i × c mod 2⁶⁴. Then
//
//	shard      hi64(mix(h) × shards)
//	Scattered  bit i, i from 0 to k-1, is hi64(h_i × n)
//	Blocked    block hi64(h × n); bit i in it is hi64(h_i+1 × 504)
//
// In a filter with one shard of one block and two hashes, "a", whose hash is
// d24ec4f1a98c6e5b, sets bits 502 and 1 after the block's 01, which are in bytes 127 and 65
// of the string (TestLayoutExample).
//
// In Redis; do not change.
const (
	shardMagic   = 0xa5
	shardVersion = 1
	headerBytes  = 64
	blockBytes   = 64
	blockMark    = 0x01
	blockBits    = blockBytes*8 - 8

	chain = 0x9e3779b97f4a7c15
)

// maxShardBytes is the maximum size of a string in Redis.
const maxShardBytes = 512 << 20

// generation is the parameters of one set of shards.
type generation struct {
	id     uint64
	items  uint64
	fpr    float64
	layout Layout
	shards int
	size   uint64 // of a shard: bits, or blocks
	hashes int
	seed   uint64
	keys   string // the filter's name in the shards' keys
}

const (
	minShards     = 64
	maxShards     = 1 << 14
	shardBytesFor = 8 << 20 // maximum size of a shard if their number is not given
)

// newGeneration sizes a filter.
func newGeneration(id uint64, o *sizing) (generation, error) {
	g := generation{id: id, items: o.Items, fpr: o.FPR, layout: o.Layout, shards: o.Shards, seed: o.Seed}
	switch {
	case !(o.FPR > 0 && o.FPR < 1):
		return g, optionError("FPR", "%v is not between 0 and 1", o.FPR)
	case o.Items < 1 || float64(o.Items)*-math.Log2(o.FPR) > 1<<43:
		return g, optionError("Items", "%d is zero, or too large at an FPR of %v", o.Items, o.FPR)
	case o.Layout > Scattered:
		return g, optionError("Layout", "%d is unknown", o.Layout)
	case o.Shards < 0 || o.Shards > maxShards:
		return g, optionError("Shards", "%d is not in 1..%d", o.Shards, maxShards)
	}
	if g.shards == 0 {
		g.shards = minShards
		for bytes := live.OptimalBits(o.Items, o.FPR) / 8; bytes/uint64(g.shards) > shardBytesFor && g.shards < maxShards; {
			g.shards *= 2
		}
	}
	load := float64(o.Items) / float64(g.shards)
	if o.Layout == Blocked {
		n, hashes := blocks.Optimal(o.Items, o.FPR, blockBits)
		g.size, g.hashes = (n+uint64(g.shards)-1)/uint64(g.shards), hashes
	} else {
		m := live.OptimalBits(o.Items, o.FPR)
		g.hashes = min(255, live.OptimalHashes(m, o.Items))
		// Shards have different numbers of elements.
		per := float64(m) / float64(g.shards)
		for blocks.FPR(math.Ceil(per), g.hashes, load) > o.FPR {
			per = per*1.002 + 1
		}
		g.size = (uint64(math.Ceil(per)) + 7) &^ 7
	}
	if g.bytes() > maxShardBytes {
		return g, optionError("Shards", "%d make shards of %d bytes, more than 512 MiB", g.shards, g.bytes())
	}
	return g, nil
}

// bytes is the size of a shard.
func (g *generation) bytes() uint64 {
	if g.layout == Blocked {
		return headerBytes + g.size*blockBytes
	}
	return headerBytes + g.size/8
}

func scale(h, n uint64) uint64 {
	hi, _ := bits.Mul64(h, n)
	return hi
}

// place returns the shard of an element with hash h, and h mixed with the seed.
func (g *generation) place(h uint64) (shard int, mixed uint64) {
	if g.seed != 0 {
		h = funnel.Mix(h ^ g.seed)
	}
	return int(scale(funnel.Mix(h), uint64(g.shards))), h
}

// appendBits appends the bits of an element, counted from the start of the string.
func (g *generation) appendBits(dst []uint64, h uint64) []uint64 {
	if g.layout == Blocked {
		from := g.blockAt(h)*8 + 8
		for range g.hashes {
			h *= chain
			dst = append(dst, from+scale(h, blockBits))
		}
		return dst
	}
	for range g.hashes {
		dst = append(dst, headerBytes*8+scale(h, g.size))
		h *= chain
	}
	return dst
}

// blockAt returns the offset of the block of an element.
func (g *generation) blockAt(h uint64) uint64 { return headerBytes + scale(h, g.size)*blockBytes }

// blockHas reports whether a block has the bits of an element.
func (g *generation) blockHas(block string, h uint64) bool {
	for range g.hashes {
		h *= chain
		bit := scale(h, blockBits)
		if block[1+bit/8]&(0x80>>(bit%8)) == 0 {
			return false
		}
	}
	return true
}

// header returns the first 64 bytes of a shard.
func (g *generation) header(epoch uint32) []byte {
	b := make([]byte, headerBytes)
	b[0], b[1], b[2] = shardMagic, shardVersion, byte(g.layout)
	binary.BigEndian.PutUint32(b[4:], epoch)
	binary.BigEndian.PutUint64(b[8:], g.id)
	return b
}

// epochOf decodes the epoch from the first 8 bytes of a shard. ok is false if the shard is
// missing.
func epochOf(first uint64) (epoch uint32, ok bool) {
	return uint32(first), first>>56 == shardMagic
}

// expectedFPR is the FPR with items elements.
func (g *generation) expectedFPR(items uint64) float64 {
	load := float64(items) / float64(g.shards)
	if g.layout == Blocked {
		return blocks.FPR(blockBits, g.hashes, load/float64(g.size))
	}
	return blocks.FPR(float64(g.size), g.hashes, load)
}

// countOf estimates the number of elements of one shard from its bits that are set.
func (g *generation) countOf(ones uint64) float64 {
	if g.layout == Blocked {
		m := float64(g.size * blockBits)
		ones -= min(ones, g.size)
		return -math.Log1p(-min(float64(ones)/m, 1-1/m)) * m / float64(g.hashes)
	}
	m := float64(g.size)
	return -math.Log1p(-min(float64(ones)/m, 1-1/m)) * m / float64(g.hashes)
}
