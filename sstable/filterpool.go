package sstable

import (
	"sync"

	"github.com/siftdb/sift/filter"
)

// FilterPool is memory for the filters of many readers. Once they take more than
// some MiB it hands them out of large slabs, which the kernel is asked to back with
// huge pages: a probe that misses the cache then misses no page table too, and takes
// a quarter less time. The zero FilterPool is ready for use, by any number of
// goroutines; it must not be copied.
//
// A slab is garbage when no filter is left in it. Readers that keep a slab with
// little else in it can move their filters: see Sparse and Reader.MoveFilter.
type FilterPool struct {
	mu   sync.Mutex
	cur  *filterSlab
	held int64 // bytes handed out and not given back
	slab int64 // bytes handed out of slabs, whether given back or not, as far as they are not garbage
	live int64 // of those, not given back
}

// The pool's sizes in bytes.
const (
	filterLine     = 64       // alignment of what is handed out: that of a cache line
	smallPool      = 4 << 20  // up to here pages of any size do: processors know that many
	smallSlab      = 4 << 20  // a slab while the pool is below largeSlab
	largeSlab      = 16 << 20 // from then on
	maxFilterPiece = smallSlab / 2
)

// filterSlab is a slab. Its fields are guarded by the pool's mu.
type filterSlab struct {
	rest []byte // not handed out
	used int64  // bytes handed out
	live int64  // of them not given back
}

// filterPiece is memory of a pool.
type filterPiece struct {
	bytes []byte
	size  int         // that were asked for, which bytes may be a part of
	slab  *filterSlab // nil: memory of its own
}

// get returns n bytes that begin on a cache line.
func (p *FilterPool) get(n int) filterPiece {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += int64(n)
	if p.held <= smallPool || n > maxFilterPiece {
		return filterPiece{bytes: filter.AlignedBytes(n), size: n}
	}
	room := (n + filterLine - 1) / filterLine * filterLine
	if p.cur == nil || len(p.cur.rest) < room {
		size := smallSlab
		if p.held >= largeSlab {
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
	return filterPiece{bytes: b, size: n, slab: s}
}

// put gives a piece back. Whoever still reads it may go on.
func (p *FilterPool) put(piece filterPiece) {
	n := int64(piece.size)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held -= n
	if s := piece.slab; s != nil {
		s.live -= n
		p.live -= n
		if s != p.cur {
			p.retire(s)
		}
	}
}

// retire takes a slab that nothing is handed out of any more from the count once
// it is garbage.
func (p *FilterPool) retire(s *filterSlab) {
	if s != nil && s.live == 0 {
		p.slab -= s.used
	}
}

// HeldBytes returns the bytes of the filters that are held.
func (p *FilterPool) HeldBytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// Sparse reports whether more than a fifth of the slabs' memory is kept by nothing
// but what else lies in them. Reader.MoveFilter of all readers frees it.
func (p *FilterPool) Sparse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slab-p.live > smallSlab && 5*p.live < 4*p.slab
}

// sparse reports whether a piece lies in a slab that should be left.
func (p *FilterPool) sparse(piece filterPiece) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := piece.slab
	return s != nil && s != p.cur && 5*s.live < 4*s.used
}
