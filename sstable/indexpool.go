package sstable

import (
	"sync"
	"sync/atomic"
)

// IndexPool limits the memory of the indexes of many readers. Beyond the limit it evicts indexes by
// the clock algorithm, together with their tables' blocks in the cache. A lookup that needs an
// evicted index reads it again. Small indexes, which save the most reads per byte, have a higher
// limit than others. The pool never evicts the indexes that LevelDB filters need. The zero
// IndexPool has no limit and is ready for use. It is safe for concurrent use and must not be
// copied.
type IndexPool struct {
	limit atomic.Int64 // bytes; 0: none
	held  atomic.Int64 // bytes; written under mu
	loads atomic.Uint64

	mu    sync.Mutex
	ring  []*index
	large int // number of indexes in the ring that are not small
	hand  int
}

// indexNode is the pool's bookkeeping for an index.
type indexNode struct {
	reader *Reader // nil: not in the pool; guarded by the pool's mu
	at     int     // position in the ring; -1: pinned; guarded by the pool's mu
	bytes  int64
}

// maxSmall is the number of bytes per data block, beyond 1 KiB, up to which an index is small.
const maxSmall = 16

// small reports whether the index takes little memory in relation to its table.
func (x *index) small() bool { return x.bytesHeld() <= maxSmall*int64(x.n)+1<<10 }

// countLarge returns 0 for a small index, and 1 for others.
func (x *index) countLarge() int {
	if x.small() {
		return 0
	}
	return 1
}

// limitOf returns the pool's memory beyond which small indexes, or the others, are evicted; 0: no
// limit.
func (p *IndexPool) limitOf(small bool) int64 {
	limit := p.limit.Load()
	if small {
		limit += limit / 4 * 3
	}
	return limit
}

// touch marks the index as used.
func (x *index) touch() {
	if !x.used.Load() {
		x.used.Store(true)
	}
}

// SetLimit limits the bytes that all indexes together may take. Small indexes, of at most 1 KiB and
// another 16 bytes per data block, may exceed the limit by three quarters. A single index may
// exceed both limits, and so may those that LevelDB filters need. 0: no limit.
func (p *IndexPool) SetLimit(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit.Store(bytes)
	p.shrink(nil)
}

// HeldBytes returns the memory of the indexes in bytes.
func (p *IndexPool) HeldBytes() int64 { return p.held.Load() }

// Loads returns how often an index was needed and had to be read because it was not in memory.
func (p *IndexPool) Loads() uint64 { return p.loads.Load() }

// offer adds an index to the pool if it is pinned or fits within its limit, and reports whether it
// did. It evicts nothing. REQUIRES: the reader is not shared yet.
func (p *IndexPool) offer(r *Reader, x *index) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if limit := p.limitOf(x.small()); !r.pinned && limit > 0 && p.held.Load()+x.bytesHeld() > limit {
		return false
	}
	p.link(r, x)
	return true
}

// hold makes x the index of the reader, and evicts others if necessary. If the reader has been
// released, it only keeps x's blocks out of the cache. REQUIRES: the reader's indexMu is held.
func (p *IndexPool) hold(r *Reader, x *index) {
	p.loads.Add(1)
	if r.released.Load() {
		x.released.Store(true)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link(r, x)
	r.index.Store(x)
	p.shrink(x)
}

// drop removes an index from the pool, if it is in it. A nil receiver is allowed.
func (p *IndexPool) drop(x *index) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.held.reader != nil {
		p.unlink(x)
	}
}

func (p *IndexPool) link(r *Reader, x *index) {
	n := &x.held
	n.reader, n.at, n.bytes = r, -1, x.bytesHeld()
	if !r.pinned {
		n.at = len(p.ring)
		p.ring = append(p.ring, x)
		p.large += x.countLarge()
	}
	x.touch()
	p.held.Add(n.bytes)
}

func (p *IndexPool) unlink(x *index) {
	n := &x.held
	if n.at >= 0 {
		last := p.ring[len(p.ring)-1]
		p.ring[n.at], last.held.at = last, n.at
		p.ring[len(p.ring)-1] = nil
		p.ring = p.ring[:len(p.ring)-1]
		p.large -= x.countLarge()
	}
	p.held.Add(-n.bytes)
	n.reader = nil
}

// over reports whether there may be an index other than keep that is beyond its limit. REQUIRES:
// mu.
func (p *IndexPool) over(keep *index) bool {
	large := p.large
	if keep != nil && keep.held.at >= 0 {
		large -= keep.countLarge()
	}
	limit := p.limitOf(large == 0) // without large ones, there is no use in a search beyond the lower limit
	return limit > 0 && p.held.Load() > limit
}

// shrink evicts indexes other than keep until the others are within their limits. It gives up after
// two rounds, as lookups may mark indexes faster than the hand clears the marks. REQUIRES: mu.
func (p *IndexPool) shrink(keep *index) {
	for tries := 2 * len(p.ring); tries > 0 && len(p.ring) > 0 && p.over(keep); tries-- {
		if p.hand >= len(p.ring) {
			p.hand = 0
		}
		x := p.ring[p.hand]
		if x == keep || p.held.Load() <= p.limitOf(x.small()) || x.used.Swap(false) {
			p.hand++
			continue
		}
		r := x.held.reader
		p.unlink(x) // moves the last index of the ring to this position
		r.index.Store(nil)
		r.releaseBlocks(x)
	}
}
