package memtable

import (
	"math/bits"
	"sync/atomic"
)

// index is a hash table of all nodes, in the list or pending. It has one 64-bit word per bucket:
//
//	bits 0..31   the newest node of the bucket, 0 if there is none
//	bits 32..63  a Bloom filter with three bits per key, over the keys in the bucket
//
// Each node refers to the next older one in its bucket. So an insert takes one compare-and-swap,
// and a lookup one load, plus one for each node that it visits. Among 200,000 entries a lookup
// takes 100 ns, and 20 ns if the key is absent, where a search of the list takes 1,400 ns
// (BenchmarkGet). The index never grows. Many small entries, or many versions of one key, make
// long buckets: after maxChain nodes a lookup searches the list.
type index struct {
	words []atomic.Uint64
}

const (
	// bucketShare is the number of bytes of capacity per bucket: the index takes a sixteenth of
	// the memtable's capacity, in addition to it.
	bucketShare = 128
	// maxChain is the number of nodes of a bucket that a lookup visits before it searches the
	// list.
	maxChain = 8
	// maxUnsortedChain replaces maxChain until the list has all entries: a search of the list
	// would first have to sort and insert the pending ones.
	maxUnsortedChain = 128
)

func newIndex(capacity uint64) index {
	return index{words: make([]atomic.Uint64, max(8, capacity/bucketShare))}
}

// bucket returns the word of a hash's bucket, selected by the upper half of the hash, and the
// bits of the hash in the word's Bloom filter, selected by the lower half.
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

// first returns the newest node in the hash's bucket, or 0 if the bucket's filter excludes the
// hash.
func (x *index) first(hash uint64) uint32 {
	word, mask := x.bucket(hash)
	w := word.Load()
	if w&mask != mask {
		return 0
	}
	return uint32(w)
}

// add makes node n the newest of the hash's bucket. It sets older, the node's field for the next
// older node, which nobody reads before n is in the index.
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
