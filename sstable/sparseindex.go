package sstable

import (
	"bytes"
	"math/bits"
	"sort"
	"unsafe"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fence"
)

// sparseIndex is what is kept of an index that does not fit into memory: 7 bytes per data block
// instead of 14 to 34. It says which block may hold a key, and rarely that it may also be in the
// next one or two. Lookups use it; iterators read the index itself.
//
// As in index, a separator counts as the number in the eight bytes after the prefix that all
// separators share. Of the distance to the group's base, which is the number of the separator
// before the group, the block has the upper 32 bits: its step. Keys below and above a step are
// before and after the separator; a key of the same step may be either.
type sparseIndex struct {
	shared  []byte // the prefix of all separators but the last
	groups  []sparseGroup
	lengths []uint16 // of the blocks, as in their handles
	steps   []uint32 // of their separators; the last one's is unused
}

// sparseGroup describes consecutive data blocks without gaps between them.
type sparseGroup struct {
	offset uint64 // of the first block
	base   uint64 // the number of the separator before the first block, in the first group of its own
	shift  uint8  // how many lower bits steps lack
}

const (
	sparseGroupLen = 32
	// maxSameStep bounds the blocks that may have the same step: a lookup may have to read all of
	// them. A table in which there are more has no sparse index.
	maxSameStep = 4
)

// sparse returns the index's sparse form; nil if it has none.
func (x *index) sparse() *sparseIndex {
	if x.groups == nil || x.n < 2*sparseGroupLen {
		return nil
	}
	s := &sparseIndex{
		shared:  bytes.Clone(x.fence.Shared()),
		groups:  make([]sparseGroup, (x.n+sparseGroupLen-1)/sparseGroupLen),
		lengths: make([]uint16, x.n),
		steps:   make([]uint32, x.n),
	}
	for i := range s.groups {
		s.fill(x, i)
	}
	if s.longestRun() > maxSameStep {
		return nil
	}
	return s
}

// fill sets a group and its blocks.
func (s *sparseIndex) fill(x *index, i int) {
	g, first := &s.groups[i], i*sparseGroupLen
	end := min(first+sparseGroupLen, x.n)
	g.offset = x.handle(first).Offset
	g.base = x.fence.Number(max(first-1, 0))
	if last := min(end, x.n-1) - 1; last >= first {
		g.shift = uint8(max(0, bits.Len64(x.fence.Number(last)-g.base)-32))
	}
	for at := first; at < end; at++ {
		s.lengths[at] = uint16(x.handle(at).Length)
		if at < x.n-1 {
			s.steps[at] = uint32((x.fence.Number(at) - g.base) >> g.shift)
		}
	}
}

// longestRun returns the largest number of consecutive separators that the same key may be
// unable to tell apart.
func (s *sparseIndex) longestRun() int {
	longest, run := 0, 0
	for i, step := range s.steps[:len(s.steps)-1] {
		before := uint32(0) // of the separator before the group, its base
		if i%sparseGroupLen != 0 {
			before = s.steps[i-1]
		}
		if step != before {
			run = 0
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

func (s *sparseIndex) bytesHeld() int64 {
	if s == nil {
		return 0
	}
	return int64(unsafe.Sizeof(*s)) + int64(cap(s.shared)) +
		int64(unsafe.Sizeof(sparseGroup{}))*int64(cap(s.groups)) + 2*int64(cap(s.lengths)) + 4*int64(cap(s.steps))
}

// handle returns the location of data block i.
func (s *sparseIndex) handle(i int) Handle {
	first := i - i%sparseGroupLen
	h := Handle{s.groups[i/sparseGroupLen].offset, uint64(s.lengths[i])}
	for _, n := range s.lengths[first:i] {
		h.Offset += uint64(n) + blockTrailerLen
	}
	return h
}

// sparseKey is a user key as a sparseIndex sees it.
type sparseKey struct {
	side   int // -1, +1: before or after all keys with the shared prefix
	number uint64
}

func (s *sparseIndex) key(userKey []byte) sparseKey {
	if bytes.HasPrefix(userKey, s.shared) {
		return sparseKey{number: fence.Number(userKey, len(s.shared))}
	}
	return sparseKey{side: bytes.Compare(userKey, s.shared)}
}

// compare compares a key with the separator of block i, which is not the last: 0 if it cannot
// tell.
func (s *sparseIndex) compare(k sparseKey, i int) int {
	g := &s.groups[i/sparseGroupLen]
	switch {
	case k.side != 0:
		return k.side
	case k.number < g.base:
		return -1
	}
	step, own := (k.number-g.base)>>g.shift, uint64(s.steps[i])
	switch {
	case step < own:
		return -1
	case step > own:
		return +1
	}
	return 0
}

// find returns the first block that may hold the key; the blocks before it hold smaller keys.
func (s *sparseIndex) find(k sparseKey) int {
	last := len(s.steps) - 1
	switch {
	case k.side < 0:
		return 0
	case k.side > 0:
		return last
	}
	// The base of the next group is the number of the separator at the end of this one.
	g := sort.Search(len(s.groups)-1, func(g int) bool { return s.groups[g+1].base >= k.number })
	i := g * sparseGroupLen
	for i < last && s.compare(k, i) > 0 {
		i++
	}
	return i
}

// endsBefore reports whether all keys of the blocks after block i are known to be after the key.
func (s *sparseIndex) endsBefore(i int, k sparseKey) bool {
	return i == len(s.steps)-1 || s.compare(k, i) < 0
}

// checkFirstKey is index.checkFirstKey as far as the separators are known.
func (s *sparseIndex) checkFirstKey(b *block, i int) error {
	first, err := b.firstKey()
	if err != nil {
		return err
	}
	k := s.key(base.UserKey(first))
	if i < len(s.steps)-1 && s.compare(k, i) > 0 || i > 0 && s.compare(k, i-1) < 0 {
		return errBlockMissing
	}
	return nil
}

// sparseIndex returns the sparse index if the lookup should use it: it should not once there is
// room for the index, or the table has been searched so often that reading the index costs
// little beside that.
func (r *Reader) sparseIndex() *sparseIndex {
	s := r.sparse.Load()
	if s == nil || r.indexes.hasRoom(r.indexBytes) {
		return nil
	}
	if r.sparseUses.Add(1) > uint32(r.numBlocks)/4 {
		r.sparseUses.Store(0)
		return nil
	}
	return s
}

// getSparse is GetIn with a sparse index.
func (r *Reader) getSparse(s *sparseIndex, buf *Buffer, userKey []byte, trailer uint64) (value []byte, kind Kind, entrySeq uint64, found bool, err error) {
	k := s.key(userKey)
	for i := s.find(k); ; i++ {
		b := buf.holds(r, i)
		if b != nil {
			r.io.hit()
		} else if b, err = r.readSparseBlock(s, i, buf); err != nil {
			return nil, 0, 0, false, err
		}
		f, ranOff, err := b.lookup(userKey, trailer)
		if err != nil {
			return nil, 0, 0, false, r.corrupt(s.handle(i), "data block", err)
		}
		if f.ok {
			return b.data[f.value:f.end:f.end], Kind(f.trailer), f.trailer >> 8, true, nil
		}
		if !ranOff || s.endsBefore(i, k) {
			return nil, 0, 0, false, nil
		}
	}
}

// readSparseBlock reads data block i into buf.
func (r *Reader) readSparseBlock(s *sparseIndex, i int, buf *Buffer) (*block, error) {
	h := s.handle(i)
	m, err := r.fetchDataBlock(h, buf)
	if err != nil {
		return nil, err
	}
	if err = m.blk.init(m.data); err == nil {
		err = s.checkFirstKey(&m.blk, i)
	}
	if err != nil {
		return nil, r.corrupt(h, "data block", err)
	}
	m.r, m.i = r, i
	return &m.blk, nil
}
