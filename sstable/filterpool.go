package sstable

import (
	"sync"

	"github.com/siftdb/sift/filter"
)

// FilterPool allocates the filters of many readers. Beyond 4 MiB it allocates them from
// large slabs and asks the kernel to back these with huge pages: a probe that misses the
// cache then does not also miss the TLB, and takes a quarter less time. The zero FilterPool
// is ready for use and safe for concurrent use; it must not be copied.
//
// A slab is garbage when no filter is left in it. Readers whose filters keep sparsely used
// slabs alive can move them: see Sparse and Reader.MoveFilter.
type FilterPool struct {
	mu      sync.Mutex
	limit   int64 // of held; 0: none
	claimed int64 // bytes that are about to be allocated
	refused bool  // a filter was not loaded because of the limit; see Refused
	cur     *filterSlab
	held    int64 // bytes allocated and not freed
	slab    int64 // bytes ever allocated from the slabs that are not garbage
	live    int64 // of those, not freed
}

// The pool's sizes in bytes.
const (
	filterLine   = 64       // alignment of an allocation: a cache line
	smallPool    = 4 << 20  // up to this size normal pages suffice: the TLB covers them
	smallSlab    = 4 << 20  // a slab while the pool is smaller than largeSlab
	largeSlab    = 16 << 20 // a slab from then on, if it is a small part of the limit
	largeShare   = 8
	maxSlabAlloc = smallSlab / 2
)

// filterSlab is a slab. Its fields are guarded by the pool's mu.
type filterSlab struct {
	rest []byte // not yet allocated
	used int64  // bytes ever allocated
	live int64  // of those, not freed
}

// filterMem is an allocation from a pool.
type filterMem struct {
	bytes []byte
	size  int         // requested; a unit may use only a part of it
	slab  *filterSlab // nil: from the heap
}

// SetLimit bounds the bytes that filters may take, not counting what slabs waste. A filter that
// does not fit is not loaded; none is dropped. 0: no limit; negative: no filter fits.
func (p *FilterPool) SetLimit(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = bytes
}

// Limit returns the limit in bytes.
func (p *FilterPool) Limit() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// Refused reports whether, since the last call, a filter was not loaded because of the limit.
func (p *FilterPool) Refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.refused
	p.refused = false
	return r
}

// claim reports whether n more bytes are within the limit, and reserves them until unclaim,
// which is called when they have been allocated. A nil receiver is allowed.
func (p *FilterPool) claim(n int64) bool {
	if p == nil || n <= 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit != 0 && p.held+p.claimed+n > p.limit {
		p.refused = true
		return false
	}
	p.claimed += n
	return true
}

func (p *FilterPool) unclaim(n int64) {
	if p == nil || n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claimed -= n
}

// add counts a filter of n bytes that was allocated elsewhere.
func (p *FilterPool) add(n int) filterMem {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += int64(n)
	return filterMem{size: n}
}

// get allocates n bytes, aligned to a cache line.
func (p *FilterPool) get(n int) filterMem {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += int64(n)
	if p.held <= smallPool || n > maxSlabAlloc {
		return filterMem{bytes: filter.AlignedBytes(n), size: n}
	}
	room := (n + filterLine - 1) / filterLine * filterLine
	if p.cur == nil || len(p.cur.rest) < room {
		size := smallSlab
		if p.held >= largeSlab && (p.limit == 0 || p.limit >= largeShare*largeSlab) {
			size = largeSlab
		}
		p.retire(p.cur)
		p.cur = &filterSlab{rest: filter.AlignedBytes(size)}
	}
	s := p.cur
	b := s.rest[:n:n]
	s.rest = s.rest[room:]
	s.used += int64(n)
	s.live += int64(n)
	p.slab += int64(n)
	p.live += int64(n)
	return filterMem{bytes: b, size: n, slab: s}
}

// put frees an allocation. Concurrent readers may still read it.
func (p *FilterPool) put(m filterMem) {
	n := int64(m.size)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held -= n
	if s := m.slab; s != nil {
		s.live -= n
		p.live -= n
		if s != p.cur {
			p.retire(s)
		}
	}
}

// retire removes a slab from the counts when it is garbage and nothing more will be
// allocated from it.
func (p *FilterPool) retire(s *filterSlab) {
	if s != nil && s.live == 0 {
		p.slab -= s.used
	}
}

// HeldBytes returns the size of the allocated filters in bytes.
func (p *FilterPool) HeldBytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// Sparse reports whether more than a fifth of the slabs' memory is wasted: freed, but kept
// alive by other filters in the same slab. Reader.MoveFilter of all readers releases it.
func (p *FilterPool) Sparse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slab-p.live > smallSlab && 5*p.live < 4*p.slab
}

// sparse reports whether an allocation should move because its slab is sparse.
func (p *FilterPool) sparse(m filterMem) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := m.slab
	return s != nil && s != p.cur && 5*s.live < 4*s.used
}
