package memtable

import (
	"math/bits"
	"sync/atomic"
)

// filter is a Bloom filter with one 64-bit word per key: an insert is one atomic or, a probe
// one load. It never grows; with more keys than expected its false positive rate rises.
//
// It saves an absent key a search of some 1,400 ns among 200,000 entries for a probe of 25 ns,
// hashing included, and adds 45 ns to an insert, which takes 200 ns in ascending and 1,400 ns
// in random order (BenchmarkGet, BenchmarkAdd).
type filter struct {
	words []atomic.Uint64
}

// filterShare is the size of the filter relative to the capacity: 1/32, which for entries of
// 50, 100 and 200 bytes is 12, 25 and 50 bits per key.
const filterShare = 32

func newFilter(capacity uint64) filter {
	return filter{words: make([]atomic.Uint64, max(8, capacity/filterShare/8))}
}

// place returns a word and the bits that a hash sets in it: the word from the
// upper half of the hash, four bits from the lower.
func (f *filter) place(hash uint64) (word *atomic.Uint64, mask uint64) {
	i, _ := bits.Mul64(hash&^(1<<32-1), uint64(len(f.words)))
	mask = 1<<(hash&63) | 1<<(hash>>6&63) | 1<<(hash>>12&63) | 1<<(hash>>18&63)
	return &f.words[i], mask
}

func (f *filter) add(hash uint64) {
	word, mask := f.place(hash)
	if word.Load()&mask != mask {
		word.Or(mask)
	}
}

func (f *filter) mayContain(hash uint64) bool {
	word, mask := f.place(hash)
	return word.Load()&mask == mask
}
