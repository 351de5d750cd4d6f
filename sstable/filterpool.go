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
// A slab without filters is garbage. It is freed once the garbage collector finds that no lookup
// uses it any more. Filters can be moved out of sparsely used slabs: see Sparse and
// Reader.MoveFilter. Readers must be released, or the pool counts their filters forever.
type FilterPool struct {
	mu      sync.Mutex
	limit   int64 // of held; 0: none
	claimed int64 // bytes that are about to be allocated
	refused bool  // see Refused
	cur     *filterSlab
	held    int64 // bytes allocated and not freed
	slab    int64 // bytes ever allocated from the slabs that are not garbage
	live    int64 // of these bytes, those not freed

	inUse      int64     // size of the slabs outside the heap that are not garbage
	offLive    int64     // bytes in these slabs that are allocated and not freed
	retired    int64     // size of all slabs outside the heap that have become garbage, freed ones included
	off        *offSlabs // nil: there has been no slab outside the heap yet
	collecting bool      // collectGarbage runs
	denied     bool      // the system has refused memory outside the heap
}

// offSlabs counts the slabs outside the heap. It is not part of the FilterPool, since the cleanup
// functions of slabs refer to it: they would keep the pool reachable, and with it the current slab.
type offSlabs struct {
	mu       sync.Mutex
	bytes    int64 // size of the slabs that are not freed
	survived int64 // upper bound on the garbage that the last collections did not free
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

// collected sets survived after collections: the size of all slabs but others, the size of those
// that are in use or became garbage later.
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
	filterLine   = 64            // alignment of an allocation: a cache line
	smallPool    = 4 << 20       // maximum size of a pool without slabs: the TLB covers normal pages
	smallSlab    = 4 << 20       // size of a slab while the pool is smaller than largeSlab
	largeSlab    = 16 << 20      // size of a slab from then on, if the limit is large enough
	largeShare   = 8             // minimum limit for large slabs, in large slabs
	maxSlabAlloc = smallSlab / 2 // a larger allocation gets a slab for itself

	// deadShare bounds the garbage slabs outside the heap. The pool calls the garbage collector
	// if they exceed both two small slabs and 1/deadShare of the limit, or, without a limit, of
	// the slabs in use.
	deadShare = 8

	// Loading and dropping filters leaves memory unused for a while. If that reduced the capacity,
	// more filters would be dropped, which leaves more memory unused, and they would be loaded
	// again later, in an endless cycle. So 1/unusedShare of the memory beyond unreserved is
	// reserved for unused memory.
	unusedShare = 4
	unreserved  = 16 << 20
)

// filterSlab is a slab. Its fields are guarded by the pool's mu, except off, which never changes.
// Memory outside the heap is freed when the filterSlab is unreachable: see heldFilter.
type filterSlab struct {
	rest []byte // not allocated yet
	used int64  // bytes ever allocated
	live int64  // of these, bytes not freed
	off  int64  // the slab's size if it lies outside the heap, else 0
}

// filterMem is an allocation from a pool.
type filterMem struct {
	bytes []byte
	size  int         // as requested; bytes may be a part of it
	slab  *filterSlab // nil: from the heap
}

// SetLimit limits the bytes that filters may take, not counting unused space in slabs. Filters that
// exceed the limit are not loaded; SetLimit drops no filter. 0: no limit; negative: no filter fits.
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

// Refused reports whether, since the last call, a filter was not loaded because of the limit or an
// I/O error.
func (p *FilterPool) Refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.refused
	p.refused = false
	return r
}

// Exceeded reports whether filters take more than the limit, which has fallen since they were
// loaded.
func (p *FilterPool) Exceeded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit != 0 && p.held > max(p.limit, 0)
}

// failed records that a filter was not loaded because of an I/O error. A nil receiver is allowed.
func (p *FilterPool) failed() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = true
}

// claim reserves n bytes, or reports false if they exceed the limit. The caller returns the claim
// with unclaim when it has allocated the bytes. A nil receiver is allowed.
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

// get allocates n bytes, aligned to a cache line. It does not check the limit: see claim.
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

// put frees an allocation. Lookups that are running may still read it: see heldFilter.
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

// count adds n, which may be negative, to the live bytes of a slab. REQUIRES: mu.
func (p *FilterPool) count(s *filterSlab, n int64) {
	s.live += n
	p.live += n
	if s.off != 0 {
		p.offLive += n
	}
}

// retire counts a slab as garbage if it has no live bytes. REQUIRES: mu; the pool allocates no more
// from s, which may be nil.
func (p *FilterPool) retire(s *filterSlab) {
	if s == nil || s.live != 0 {
		return
	}
	p.slab -= s.used
	p.inUse -= s.off
	p.retired += s.off
	p.collectMuch()
}

// muchGarbage reports whether garbage slabs outside the heap should be freed; see deadShare. It
// ignores those that the last collections did not free. REQUIRES: mu.
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

// collectGarbage calls the garbage collector, which by itself seldom runs if the heap is small,
// since it ignores memory outside the heap. It calls it up to three times within about a second:
// goroutines that freed a slab's filters, or still probe them, may refer to the slab for a while.
// Slabs that remain are still used, by an iterator for example, and muchGarbage ignores them.
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

// collected records the garbage that the collections did not free. retired is the pool's retired
// when the last collection began: that collection could not free slabs that became garbage later.
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

// OffHeap returns the number of bytes in the pool's slabs outside Go's heap, except those not
// allocated yet in the current slab, and how many of them no filter uses.
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

// Capacity returns how many bytes of filters fit in the given memory of the process, on the
// assumption that Go's heap takes gcFactor times its live bytes.
func (p *FilterPool) Capacity(memory, gcFactor int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if memory < gcFactor*smallPool || !offheap.Available || p.denied {
		return memory / gcFactor
	}
	_, unused := p.offHeap()
	reserve := max(unused, (memory-unreserved)/unusedShare)
	return max(memory-(gcFactor-1)*smallPool-reserve, memory/gcFactor)
}

// HeldBytes returns the size of the allocated filters in bytes.
func (p *FilterPool) HeldBytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// Sparse reports whether more than a fifth of the slabs' memory, and more than 4 MiB, is wasted:
// freed, but kept alive by other filters in the same slab. To release it, call MoveFilter of all
// readers.
func (p *FilterPool) Sparse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slab-p.live > smallSlab && 5*p.live < 4*p.slab
}

// sparse reports whether an allocation should be moved because its slab is sparsely used.
func (p *FilterPool) sparse(m filterMem) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := m.slab
	return s != nil && s != p.cur && 5*s.live < 4*s.used
}
