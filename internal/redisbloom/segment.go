package redisbloom

import (
	"math"
	"math/bits"
)

// PageBytes is the size of the pages in which a filter is stored.
const PageBytes = 4096

// segment is the memory of one link of a filter, and which of its pages have changed
// since the last checkpoint.
type segment struct {
	data  []byte
	dirty []uint64 // one bit per page
}

// maxSegment is the maximum size of a segment: what a slice can hold.
const maxSegment = math.MaxInt - PageBytes

// newSegment allocates a segment. REQUIRES: bytes <= maxSegment.
func newSegment(bytes uint64) segment {
	pages := (bytes + PageBytes - 1) / PageBytes
	return segment{make([]byte, bytes), make([]uint64, (pages+63)/64)}
}

// touch marks the page of the byte at off dirty.
func (s *segment) touch(off uint64) {
	page := off / PageBytes
	s.dirty[page/64] |= 1 << (page % 64)
}

// touchIf is touch if changed is 1, and does nothing if it is 0.
func (s *segment) touchIf(off uint64, changed byte) {
	page := off / PageBytes
	s.dirty[page/64] |= uint64(changed) << (page % 64)
}

// touchRange marks the pages of n > 0 bytes from off on dirty.
func (s *segment) touchRange(off, n uint64) {
	for page := off / PageBytes; page <= (off+n-1)/PageBytes; page++ {
		s.dirty[page/64] |= 1 << (page % 64)
	}
}

// page returns page i, nil past the end.
func (s *segment) page(i int) []byte {
	start := i * PageBytes
	if i < 0 || start >= len(s.data) {
		return nil
	}
	return s.data[start:min(start+PageBytes, len(s.data))]
}

// takeDirty calls fn with each dirty page from page from on, in order, and marks it clean.
// It stops when fn returns false; that page is clean then, too.
func (s *segment) takeDirty(from int, fn func(page int, data []byte) bool) bool {
	for w := from / 64; w < len(s.dirty); w++ {
		word := s.dirty[w]
		if w == from/64 {
			word &= ^uint64(0) << (from % 64)
		}
		for ; word != 0; word &= word - 1 {
			bit := bits.TrailingZeros64(word)
			s.dirty[w] &^= 1 << bit
			if !fn(w*64+bit, s.page(w*64+bit)) {
				return false
			}
		}
	}
	return true
}
