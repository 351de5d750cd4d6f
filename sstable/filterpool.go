package sstable

import (
	"runtime"
	"sync"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/offheap"
)

// FilterPool allocates the filters of many readers. Beyond 4 MiB it allocates them from
// large slabs and asks the kernel to back these with huge pages: a probe that misses the
// cache then does not also miss the TLB, and takes a quarter less time. On Linux, slabs lie
// outside Go's heap if possible, since the heap would take twice their size. The zero FilterPool
// is ready for use and safe for concurrent use; it must not be copied.
//
// A slab is garbage when no filter is left in it, and is freed when the garbage collector has
// found that no lookup uses it any more. Readers whose filters keep sparsely used slabs alive can
// move them: see Sparse and Reader.MoveFilter. Readers must be released, or their filters count
// forever.
type FilterPool struct {
	mu      sync.Mutex
	limit   int64 // of held; 0: none
	claimed int64 // bytes that are about to be allocated
	refused bool  // a filter was not loaded because of the limit; see Refused
	cur     *filterSlab
	held    int64 // bytes allocated and not freed
	slab    int64 // bytes ever allocated from the slabs that are not garbage
	live    int64 // of those, not freed

	inUse      int64     // the size of the slabs outside the heap that are not garbage
	offLive    int64     // of those, allocated and not freed
	retired    int64     // the size of those that have ever become garbage
	off        *offSlabs // nil: there has been none yet
	collecting bool      // collectGarbage runs
	denied     bool      // the system has refused memory outside the heap
}

// offSlabs counts the slabs outside the heap. It is not part of the FilterPool, since the function
// that frees a slab would keep that reachable, and with it the current slab.
type offSlabs struct {
	mu       sync.Mutex
	bytes    int64 // the size of those that are not freed
	survived int64 // of those, garbage that the last collections did not free, at most
}

func (o *offSlabs) allocated(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes += n
}

func (o *offSlabs) freed(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= n
	o.survived = max(o.survived-n, 0)
}

// collected notes that the collections left all slabs but those of the given size.
func (o *offSlabs) collected(others int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.survived = max(o.bytes-others, 0)
}

func (o *offSlabs) load() (bytes, survived int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes, o.survived
}

// The pool's sizes in bytes.
const (
	filterLine   = 64       // alignment of an allocation: a cache line
	smallPool    = 4 << 20  // up to this size normal pages suffice: the TLB covers them
	smallSlab    = 4 << 20  // a slab while the pool is smaller than largeSlab
	largeSlab    = 16 << 20 // a slab from then on, if it is a small part of the limit
	largeShare   = 8
	maxSlabAlloc = smallSlab / 2 // larger allocations have a slab for themselves

	// deadShare bounds the garbage slabs outside the heap: beyond 1/deadShare of the limit, or
	// without one of the other slabs, and beyond two small slabs, the garbage collector is called.
	deadShare = 8
)

// filterSlab is a slab. Its fields are guarded by the pool's mu, except off, which never changes.
// Memory outside the heap is freed when the filterSlab is unreachable: see heldFilter.
type filterSlab struct {
	rest []byte // not yet allocated
	used int64  // bytes ever allocated
	live int64  // of those, not freed
	off  int64  // its size, if it lies outside the heap
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

// get allocates n bytes, aligned to a cache line.
func (p *FilterPool) get(n int) filterMem {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += int64(n)
	if p.held <= smallPool {
		return filterMem{bytes: filter.AlignedBytes(n), size: n}
	}
	room := (n + filterLine - 1) / filterLine * filterLine
	s := p.cur
	switch {
	case n > maxSlabAlloc:
		s = p.newSlab(n)
		room = n
	case s == nil || len(s.rest) < room:
		size := smallSlab
		if p.held >= largeSlab && (p.limit == 0 || p.limit >= largeShare*largeSlab) {
			size = largeSlab
		}
		p.cur = p.newSlab(size)
		p.retire(s)
		s = p.cur
	}
	b := s.rest[:n:n]
	s.rest = s.rest[room:]
	s.used += int64(n)
	p.slab += int64(n)
	p.count(s, int64(n))
	return filterMem{bytes: b, size: n, slab: s}
}

// newSlab allocates a slab, outside the heap if that is possible.
func (p *FilterPool) newSlab(size int) *filterSlab {
	b := offheap.Alloc(size)
	if p.denied = b == nil; p.denied {
		return &filterSlab{rest: filter.AlignedBytes(size)}
	}
	if p.off == nil {
		p.off = new(offSlabs)
	}
	s := &filterSlab{rest: b, off: int64(size)}
	p.inUse += s.off
	p.off.allocated(s.off)
	off := p.off
	runtime.AddCleanup(s, func(b []byte) {
		off.freed(int64(len(b)))
		offheap.Free(b)
	}, b)
	return s
}

// put frees an allocation. Concurrent readers may still read it.
func (p *FilterPool) put(m filterMem) {
	n := int64(m.size)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held -= n
	if s := m.slab; s != nil {
		p.count(s, -n)
		if s != p.cur {
			p.retire(s)
		}
	}
}

// count adds to the live bytes of a slab.
func (p *FilterPool) count(s *filterSlab, n int64) {
	s.live += n
	p.live += n
	if s.off != 0 {
		p.offLive += n
	}
}

// retire removes a slab from the counts when it is garbage and nothing more will be
// allocated from it.
func (p *FilterPool) retire(s *filterSlab) {
	if s == nil || s.live != 0 {
		return
	}
	p.slab -= s.used
	p.inUse -= s.off
	p.retired += s.off
	p.collectMuch()
}

// muchGarbage reports whether slabs outside the heap should be freed. Those that the last
// collections found in use do not count. REQUIRES: mu.
func (p *FilterPool) muchGarbage() bool {
	if p.off == nil {
		return false
	}
	limit := p.limit
	if limit <= 0 {
		limit = p.inUse
	}
	bytes, survived := p.off.load()
	return bytes-p.inUse-survived > max(2*smallSlab, limit/deadShare)
}

// collectGarbage calls the garbage collector, which does not count memory outside the heap, and
// seldom runs if the heap is small. It calls it up to three times within about a second, since
// those that have freed a slab's filters, or still probe them, may refer to the slab for a while.
// What is left then is still in use, by an iterator for example; muchGarbage does not count it.
func (p *FilterPool) collectGarbage() {
	var retired int64 // when the last collection began
	for wait := 10 * time.Millisecond; wait <= time.Second; wait *= 10 {
		time.Sleep(wait)
		p.mu.Lock()
		p.collecting = p.muchGarbage()
		on := p.collecting
		retired = p.retired
		p.mu.Unlock()
		if !on {
			return
		}
		runtime.GC()
	}
	p.collected(retired)
}

// collected notes the garbage that the collections did not free, the last of which began when that
// much had ever become garbage. What became garbage later has not been collected.
func (p *FilterPool) collected(retired int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off.collected(p.inUse + p.retired - retired)
	p.collecting = false
	p.collectMuch()
}

// collectMuch starts collectGarbage if it is needed and does not run. REQUIRES: mu.
func (p *FilterPool) collectMuch() {
	if p.muchGarbage() && !p.collecting {
		p.collecting = true
		go p.collectGarbage()
	}
}

// OffHeap returns how many bytes the pool has outside Go's heap, not counting those from which it
// has yet to allocate, and how many of them no filter uses.
func (p *FilterPool) OffHeap() (bytes, unused int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offHeap()
}

// offHeap is OffHeap. REQUIRES: mu.
func (p *FilterPool) offHeap() (bytes, unused int64) {
	if p.off == nil {
		return 0, 0
	}
	bytes, _ = p.off.load()
	if p.cur != nil && p.cur.off != 0 {
		bytes -= int64(len(p.cur.rest)) // the kernel gives no memory for it yet
	}
	return bytes, bytes - p.offLive
}

// Capacity returns how many bytes of filters take up the given memory of the process, if Go's heap
// takes gcFactor times what is live in it.
func (p *FilterPool) Capacity(memory, gcFactor int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if memory < gcFactor*smallPool || !offheap.Available || p.denied {
		return memory / gcFactor
	}
	_, unused := p.offHeap()
	return max(memory-(gcFactor-1)*smallPool-unused, memory/gcFactor)
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
