package fuse

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
)

// scratch is the working memory of Build: about 30 bytes per key.
type scratch struct {
	order  []uint64 // the mixed hashes, sorted by first segment
	starts []uint32 // where the hashes of each segment begin in order; sort advances it
	count  []uint8  // per slot: number of hashes × 4 + xor of its positions (0 to 2) in them
	xor    []uint64 // per slot: xor of its mixed hashes
	queue  []uint32 // slots with one hash
	stack  []uint64 // mixed hashes in the order in which they were peeled
	own    []uint8  // for each of stack: the position of the slot that it was alone in
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Build returns the array of fingerprints for a set of hashes, with Pad bytes appended, its shape
// and its seed. alloc must return at least n zeroed bytes. Build may overwrite hashes, which may
// contain duplicates. The result depends only on width and the set of hashes. ok is false if there
// are too many hashes, or if none of MaxSeeds seeds works; no such set is known. REQUIRES: MinWidth
// <= width <= MaxWidth.
func Build(hashes []uint64, width int, alloc func(n uint64) []byte) (data []byte, shape Shape, seed uint8, ok bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	sorted := false
	growPercent := uint64(0)
	for try := 0; try < MaxSeeds; try++ {
		shape = ShapeFor(uint64(len(hashes)), width, growPercent)
		if shape.Slots() > min(math.MaxUint32, math.MaxInt/16) {
			return nil, shape, 0, false
		}
		if s.peel(hashes, shape, uint8(try)) {
			data = alloc(shape.Bytes() + Pad)
			s.assign(data, shape, uint8(try))
			return data, shape, uint8(try), true
		}
		// With duplicates no seed works: remove them and start over.
		if !sorted {
			sorted = true
			n := len(hashes)
			slices.Sort(hashes)
			hashes = slices.Compact(hashes)
			if len(hashes) < n {
				try = -1
				continue
			}
		}
		if try%8 == 7 {
			growPercent += 2 // small sets may need many seeds otherwise
		}
	}
	return nil, shape, 0, false
}

// resize returns a slice of length n with undefined contents, in the memory of b if it fits.
func resize[T any](b []T, n int) []T {
	if n <= cap(b) {
		return b[:n]
	}
	return make([]T, n)
}

// peel removes hashes that are alone in one of their slots until none is left, and records their
// order in stack and own. It reports whether it has removed all of them.
func (s *scratch) peel(hashes []uint64, shape Shape, seed uint8) bool {
	n := len(hashes)
	numSlots := int(shape.Slots())
	first, mask, log := uint64(shape.Segments)<<shape.SegmentLog, uint64(1)<<shape.SegmentLog-1, shape.SegmentLog
	s.count, s.xor = resize(s.count, numSlots), resize(s.xor, numSlots)
	clear(s.count)
	clear(s.xor)
	s.stack, s.own = resize(s.stack, n), resize(s.own, n)
	s.sort(hashes, shape, seed)

	for _, h := range s.order {
		a, b, c := slots(h, first, mask, log)
		s.count[a] += 4
		s.xor[a] ^= h
		s.count[b] = s.count[b] + 4 ^ 1
		s.xor[b] ^= h
		s.count[c] = s.count[c] + 4 ^ 2
		s.xor[c] ^= h
		// Only with duplicates does a slot have 32 hashes. The count must not overflow.
		full := (s.count[a] | s.count[b] | s.count[c]) & 0x80
		if full != 0 {
			return false
		}
	}

	s.queue = resize(s.queue, numSlots)
	queue := s.queue[:0]
	for i, c := range s.count {
		if c>>2 == 1 {
			queue = append(queue, uint32(i))
		}
	}
	peeled := 0
	for len(queue) > 0 {
		i := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if s.count[i]>>2 != 1 {
			continue
		}
		h, own := s.xor[i], s.count[i]&3
		s.stack[peeled], s.own[peeled] = h, own
		peeled++
		a, b, c := slots(h, first, mask, log)
		at := [5]uint32{uint32(a), uint32(b), uint32(c), uint32(a), uint32(b)}
		for k := uint8(1); k < 3; k++ {
			o := at[(own+k)%5]
			pos := (own + k) % 3
			s.xor[o] ^= h
			s.count[o] = (s.count[o] - 4) ^ pos
			if s.count[o]>>2 == 1 {
				queue = append(queue, o)
			}
		}
		s.count[i] = 0
	}
	return peeled == n
}

// sort mixes the hashes and sorts them by first segment, so that peel counts them with sequential
// memory accesses.
func (s *scratch) sort(hashes []uint64, shape Shape, seed uint8) {
	s.order = resize(s.order, len(hashes))
	step := uint64(seed) * seedStep
	if shape.Segments == 1 {
		for i, h := range hashes {
			s.order[i] = mix(h, step)
		}
		return
	}
	first, log := uint64(shape.Segments)<<shape.SegmentLog, shape.SegmentLog
	s.starts = resize(s.starts, int(shape.Segments)+1)
	clear(s.starts)
	for _, h := range hashes {
		a, _, _ := slots(mix(h, step), first, 0, 0)
		s.starts[a>>log+1]++
	}
	for i := 1; i < len(s.starts); i++ {
		s.starts[i] += s.starts[i-1]
	}
	for _, h := range hashes {
		m := mix(h, step)
		a, _, _ := slots(m, first, 0, 0)
		s.order[s.starts[a>>log]] = m
		s.starts[a>>log]++
	}
}

// assign sets the slot that each hash was alone in so that its three slots xor to its fingerprint.
// It goes backwards through the peeling order: that slot belongs to no hash that was peeled later,
// so it changes no equation that already holds.
func (s *scratch) assign(data []byte, shape Shape, seed uint8) {
	first, mask, log := uint64(shape.Segments)<<shape.SegmentLog, uint64(1)<<shape.SegmentLog-1, shape.SegmentLog
	width := uint64(shape.Width)
	for i := len(s.stack) - 1; i >= 0; i-- {
		h := s.stack[i]
		a, b, c := slots(h, first, mask, log)
		// The slot to set is still 0, so it does not change the sum.
		v := at(data, a, width) ^ at(data, b, width) ^ at(data, c, width) ^ fingerprint(h, width)
		v &= 1<<width - 1
		own := [4]uint64{a, b, c}[s.own[i]&3]
		p := data[own*width>>3:]
		binary.LittleEndian.PutUint32(p, binary.LittleEndian.Uint32(p)|v<<(own*width&7))
	}
}
