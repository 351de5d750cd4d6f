package sstable

import "github.com/siftdb/sift/internal/base"

// prefetcher is a file with asynchronous reads: Prefetch starts reading n bytes, unless they are in
// memory, and does not wait for them. It returns false if it cannot.
type prefetcher interface {
	Prefetch(off, n int64) bool
}

// Prefetch starts reading the block that Get would read for the key, unless it is in the cache, and
// does not wait for it. It returns false if it cannot: the file must have a method
// Prefetch(off, n int64) bool, and the index must be in memory.
func (r *Reader) Prefetch(userKey []byte, seq uint64) bool {
	if r.ahead == nil {
		return false
	}
	x := r.index.Load()
	if x == nil {
		return false
	}
	i := x.find(userKey, targetTrailer(seq))
	return i == x.numBlocks() || x.isCached(i) || r.prefetch(x.handle(i))
}

// prefetch starts reading a block. REQUIRES: r.ahead is not nil.
func (r *Reader) prefetch(h Handle) bool {
	return r.ahead.Prefetch(int64(h.Offset), int64(h.Length)+blockTrailerLen)
}

// isCached reports whether data block i is in the cache.
func (x *index) isCached(i int) bool { return x.cached != nil && x.inCache(i) != nil }

// PrefetchGE starts reading the block that SeekGE(ikey) reads first, and does not wait for it. It
// does wait for the index, if that is not in memory. The next move must be that SeekGE.
func (it *Iter) PrefetchGE(ikey []byte) {
	if it.r.ahead == nil || !it.begin() {
		return
	}
	i := it.x.find(base.UserKey(ikey), base.KeyTrailer(ikey))
	it.sought = i + 1
	it.prefetch(i)
}

// PrefetchFirst starts reading the first block, and does not wait for it. It does wait for the
// index, if that is not in memory. The next move must be First.
func (it *Iter) PrefetchFirst() {
	if it.r.ahead != nil && it.begin() {
		it.prefetch(0)
	}
}

func (it *Iter) prefetch(i int) {
	if i < it.x.numBlocks() && (it.blk == nil || it.i != i) && !it.x.isCached(i) {
		it.r.prefetch(it.x.handle(i))
	}
}
