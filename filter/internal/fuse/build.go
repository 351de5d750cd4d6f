package fuse

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
)

// scratch is the working memory of Build: about 30 bytes per key.
type scratch struct {
	order  []uint64 // the mixed hashes, by their first segment
	starts []uint32 // where each segment's hashes begin in order
	count  []uint8  // hashes of a slot × 4, xor the positions (0 to 2) that it has in them
	xor    []uint64 // of the mixed hashes of a slot
	queue  []uint32 // slots with one hash
	stack  []uint64 // mixed hashes in the order in which they were peeled off
	own    []uint8  // the position of each one's own slot
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Build returns the array for the hashes, which it may reorder, with Pad more bytes, its
// shape and its seed. alloc allocates zeroed bytes. The result is deterministic. ok is
// false if there are too many hashes, or if no seed works, of which no example is known.
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
		// Equal hashes cannot be separated by any seed.
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
			growPercent += 2 // small sets may be unlucky for long
		}
	}
	return nil, shape, 0, false
}

// resize returns a slice of length n, in b's memory if it fits.
func resize[T any](b []T, n int) []T {
	if n <= cap(b) {
		return b[:n]
	}
	return make([]T, n)
}

// peel removes hashes that are alone in one of their slots until none is left, and
// reports whether it succeeded.
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
		// A count reaches 32 only with equal hashes; it must not wrap.
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

// sort mixes the hashes and puts them in the order of their first segments, so
// that counting them walks through memory.
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

// assign gives each peeled hash its fingerprint, last one first: its own slot is
// in no hash that comes after it here.
func (s *scratch) assign(data []byte, shape Shape, seed uint8) {
	first, mask, log := uint64(shape.Segments)<<shape.SegmentLog, uint64(1)<<shape.SegmentLog-1, shape.SegmentLog
	width := uint64(shape.Width)
	for i := len(s.stack) - 1; i >= 0; i-- {
		h := s.stack[i]
		a, b, c := slots(h, first, mask, log)
		// The own slot is still 0, so it may be in the sum.
		v := at(data, a, width) ^ at(data, b, width) ^ at(data, c, width) ^ fingerprint(h, width)
		v &= 1<<width - 1
		own := [4]uint64{a, b, c}[s.own[i]&3]
		p := data[own*width>>3:]
		binary.LittleEndian.PutUint32(p, binary.LittleEndian.Uint32(p)|v<<(own*width&7))
	}
}
