// Package filter defines goleveldb's filter interfaces and LevelDB's Bloom filter.
//
// A database of this module uses sift's filters: it only takes the bits per key of a Filter that
// NewBloomFilter returned. Any other Filter is used by package table only.
package filter

import "github.com/syndtr/goleveldb/leveldb/util"

// Buffer is what a FilterGenerator writes to.
type Buffer interface {
	// Alloc appends n bytes with arbitrary contents and returns them, to be filled in before the
	// next call.
	Alloc(n int) []byte
	// Write appends p.
	Write(p []byte) (n int, err error)
	// WriteByte appends c.
	WriteByte(c byte) error
}

// Filter builds and probes filters.
type Filter interface {
	// Name identifies the format of the filters.
	Name() string
	// NewGenerator returns a generator of filters.
	NewGenerator() FilterGenerator
	// Contains reports whether the filter may hold the key. It must return true if the key was
	// added.
	Contains(filter, key []byte) bool
}

// FilterGenerator builds filters.
type FilterGenerator interface {
	// Add adds a key, which it must not retain.
	Add(key []byte)
	// Generate appends the filter of the keys that were added since the last one.
	Generate(b Buffer)
}

// bloom is LevelDB's Bloom filter with a number of bits per key.
type bloom int

// NewBloomFilter returns LevelDB's Bloom filter with about bitsPerKey bits per key. With it, a
// database writes sift's filters with as many bits per key, at most 20.
func NewBloomFilter(bitsPerKey int) Filter { return bloom(bitsPerKey) }

// BitsPerKey returns the bits per key of a Filter that NewBloomFilter returned; ok is false for
// others.
func BitsPerKey(f Filter) (bits int, ok bool) {
	b, ok := f.(bloom)
	return int(b), ok
}

// bloomSeed is the seed of LevelDB's filter hash. On disk; do not change.
const bloomSeed = 0xbc9f1d34

// Name implements Filter. On disk; do not change.
func (bloom) Name() string { return "leveldb.BuiltinBloomFilter" }

// Contains implements Filter. The last byte of a filter is the number of probes. Values above 30
// are reserved for other encodings: Contains then returns true.
func (bloom) Contains(filter, key []byte) bool {
	n := len(filter) - 1
	if n < 1 {
		return false
	}
	probes := filter[n]
	if probes > 30 {
		return true
	}
	h := util.Hash(key, bloomSeed)
	delta := h>>17 | h<<15
	for range probes {
		bit := h % uint32(8*n)
		if filter[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
		h += delta
	}
	return true
}

// NewGenerator implements Filter.
func (b bloom) NewGenerator() FilterGenerator {
	// The optimal number of probes is ln 2 times the bits per key.
	return &bloomGenerator{bits: int(b), probes: min(max(int(b)*69/100, 1), 30)}
}

type bloomGenerator struct {
	bits, probes int
	hashes       []uint32
}

// Add implements FilterGenerator.
func (g *bloomGenerator) Add(key []byte) { g.hashes = append(g.hashes, util.Hash(key, bloomSeed)) }

// Generate implements FilterGenerator.
func (g *bloomGenerator) Generate(b Buffer) {
	n := (max(len(g.hashes)*g.bits, 64) + 7) / 8
	block := b.Alloc(n + 1)
	clear(block)
	block[n] = byte(g.probes)
	for _, h := range g.hashes {
		delta := h>>17 | h<<15
		for range g.probes {
			bit := h % uint32(8*n)
			block[bit/8] |= 1 << (bit % 8)
			h += delta
		}
	}
	g.hashes = g.hashes[:0]
}
