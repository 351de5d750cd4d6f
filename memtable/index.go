package memtable

import (
	"math/bits"
	"sync/atomic"
)

// index is a hash table over all nodes, in the list or pending. It has one 64-bit word per bucket:
//
//	bits 0..31   the newest node of the bucket, 0 if there is none
//	bits 32..63  a Bloom filter with three bits per key, over the keys in the bucket
//
// Each node refers to the next older one in its bucket. So an insert is one compare-and-swap,
// and a lookup one load, plus one for each node that it passes. Among 200,000 entries a lookup
// takes 100 ns, and 20 ns for an absent key, where a search of the list takes 1,400 ns
// (BenchmarkGet). The index never grows. With many small entries, or many versions of one key,
// buckets get longer; after maxChain nodes a lookup searches the list.
type index struct {
	words []atomic.Uint64
}

const (
	// bucketShare is the capacity in bytes per bucket: the index takes another sixteenth of the
	// capacity.
	bucketShare = 128
	// maxChain is how many nodes of a bucket a lookup looks at before it searches the list.
	maxChain = 8
	// maxUnsortedChain is maxChain while entries may have to be sorted first.
	maxUnsortedChain = 128
)

func newIndex(capacity uint64) index {
	return index{words: make([]atomic.Uint64, max(8, capacity/bucketShare))}
}

// bucket returns a hash's word, chosen by its upper half, and its bits in the word's
// filter, from the lower half.
func (x *index) bucket(hash uint64) (word *atomic.Uint64, mask uint64) {
	i, _ := bits.Mul64(hash&^(1<<32-1), uint64(len(x.words)))
	mask = (1<<(hash&31) | 1<<(hash>>5&31) | 1<<(hash>>10&31)) << 32
	return &x.words[i], mask
}

// mayContain reports false only if no key was added with the hash.
func (x *index) mayContain(hash uint64) bool {
	word, mask := x.bucket(hash)
	return word.Load()&mask == mask
}

// first returns the newest node in the hash's bucket, 0 if no key was added with the hash.
func (x *index) first(hash uint64) uint32 {
	word, mask := x.bucket(hash)
	w := word.Load()
	if w&mask != mask {
		return 0
	}
	return uint32(w)
}

// add makes node n the newest of the hash's bucket. older is the node's field for the one
// before it, which nobody reads before n is in the index.
func (x *index) add(hash uint64, n uint32, older *uint32) {
	word, mask := x.bucket(hash)
	for {
		w := word.Load()
		*older = uint32(w)
		if word.CompareAndSwap(w, w>>32<<32|mask|uint64(n)) {
			return
		}
	}
}
