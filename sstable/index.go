package sstable

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fence"
)

// index is a table's index in memory, with the slots of its blocks in the cache.
type index struct {
	packedIndex
	used atomic.Bool // used since the pool's hand last passed

	cached   []atomic.Pointer[slots] // the slots of each group of blocks, see BlockCache; nil without a cache
	id       uint64                  // unique in the process
	released atomic.Bool             // no more blocks may be cached

	held indexNode
}

// lastIndexID is the most recent id of an index.
var lastIndexID atomic.Uint64

// packedIndex is a table's index block, verified and laid out for searching: about 7 bytes per data
// block for random binary keys, 10 for decimal text. It is immutable.
//
// A separator's number is the eight bytes after the prefix that all separators share, big-endian.
// Data blocks are divided into groups of 32. A search tree has the number of each group's first
// separator. Each block has a step: the difference between the number of its separator and that of
// the group's first one. A search finds the group in the tree and counts the smaller steps in it.
// It compares whole separators only if their numbers equal the key's.
//
// Everything else about the blocks of a group is in columns of integers, as narrow as the group
// allows. Most separators consist of the shared prefix, at most eight bytes, and the first trailer
// of a user key, so several columns take no bytes.
//
// The last separator is stored separately: it is short, far beyond the others, and shares no prefix
// with them.
type packedIndex struct {
	n       int           // number of data blocks
	shared  []byte        // the prefix that all separators but the last share
	bases   fence.Numbers // the numbers of the groups' first separators
	groups  []indexGroup
	columns []byte // of all groups, one after another, and columnPad bytes
	last    []byte // the last separator
}

// indexGroup describes consecutive data blocks. Its part of packedIndex.columns begins with 32
// steps of four or eight bytes; if the group has fewer separators, the last step is repeated. Then
// come the columns, the number subtracted from trailers (unless columnTrailer is empty), and the
// remainders of the separators.
type indexGroup struct {
	offset uint64            // of the first block
	steps  uint32            // where the group's part of columns begins
	length uint32            // of the shortest block, as in its handle
	wide   bool              // the steps have eight bytes
	shift  uint8             // number of low bits, all zero, that steps omit
	key    uint8             // the minimum that is subtracted in columnKey
	widths [numColumns]uint8 // bytes per value of each column
}

// The columns. A separator's remainder is what follows the first eight bytes after the shared
// prefix in its user key.
const (
	columnLength  = iota // length of the block, minus that of the shortest
	columnKey            // length of the separator's user key after the shared prefix, at most eight
	columnRest           // end of the separator's remainder among those of the group
	columnTrailer        // the separator's trailer, minus the number after the columns; 0: firstTrailer
	columnGap            // bytes between the block and the next one
	numColumns
)

const (
	indexGroupLen = 32
	numberBytes   = 8 // bytes of a key in its number
	columnPad     = 8 // padding: eight bytes are read for every value
)

// column is a column of a group.
type column struct {
	data  []byte // from its first value on
	width int    // bytes per value
	mask  uint64
}

func (c column) at(i int) uint64 { return binary.LittleEndian.Uint64(c.data[i*c.width:]) & c.mask }

// firstTrailer orders before all other trailers.
var firstTrailer = base.Trailer(base.MaxSequence, base.KindSeek)

// numBlocks returns the number of data blocks.
func (x *packedIndex) numBlocks() int { return x.n }

// groupOf returns the group of data block i, the number of its blocks, and the position of block i
// in the group.
func (x *packedIndex) groupOf(i int) (g *indexGroup, blocks, at int) {
	at = i % indexGroupLen
	return &x.groups[i/indexGroupLen], min(indexGroupLen, x.n-(i-at)), at
}

// column returns column c of a group, which has the given number of blocks.
func (x *packedIndex) column(g *indexGroup, c, blocks int) column {
	w := int(g.widths[c])
	return column{x.from(g, c, blocks), w, 1<<(8*w) - 1}
}

// from returns column c of a group and everything after it.
func (x *packedIndex) from(g *indexGroup, c, blocks int) []byte {
	start := int(g.steps) + indexGroupLen*g.stepBytes()
	for _, w := range g.widths[:c] {
		start += int(w) * blocks
	}
	return x.columns[start:]
}

// handle returns the location of data block i.
func (x *packedIndex) handle(i int) Handle {
	g, blocks, at := x.groupOf(i)
	lengths := x.column(g, columnLength, blocks)
	h := Handle{g.offset, uint64(g.length) + lengths.at(at)}
	for before := range at {
		h.Offset += lengths.at(before)
	}
	h.Offset += uint64(at) * (uint64(g.length) + blockTrailerLen)
	if g.widths[columnGap] != 0 {
		gaps := x.column(g, columnGap, blocks)
		for before := range at {
			h.Offset += gaps.at(before)
		}
	}
	return h
}

// separatorBuf is a buffer on the stack for separators of the usual length.
type separatorBuf [64]byte

// separator returns an encoded internal key that is at or after every key of block i, and before
// every key of the blocks after it. The result aliases buf or the index and must not be modified.
func (x *packedIndex) separator(buf *separatorBuf, i int) []byte {
	if i == x.n-1 {
		return x.last
	}
	g, blocks, at := x.groupOf(i)
	key := append(buf[:0], x.shared...)
	var number [numberBytes]byte
	binary.BigEndian.PutUint64(number[:], x.number(i))
	key = append(key, number[:x.keyLen(g, blocks, at)]...)
	if g.widths[columnRest] != 0 {
		start, end := x.rest(g, blocks, at)
		key = append(key, x.rests(g, blocks)[start:end]...)
	}
	return binary.LittleEndian.AppendUint64(key, x.trailer(g, blocks, at))
}

// number returns the number of separator i, which is not the last.
func (x *packedIndex) number(i int) uint64 {
	g := &x.groups[i/indexGroupLen]
	steps, step := x.columns[g.steps:], uint64(0)
	if at := i % indexGroupLen; g.wide {
		step = binary.LittleEndian.Uint64(steps[8*at:])
	} else {
		step = uint64(binary.LittleEndian.Uint32(steps[4*at:]))
	}
	return x.bases.At(i/indexGroupLen) + step<<g.shift
}

func (g *indexGroup) stepBytes() int {
	if g.wide {
		return 8
	}
	return 4
}

// keyLen returns the length of a separator's user key after the shared prefix, at most eight.
func (x *packedIndex) keyLen(g *indexGroup, blocks, at int) int {
	return int(g.key) + int(x.column(g, columnKey, blocks).at(at))
}

// rest returns the bounds of a separator's remainder in rests.
func (x *packedIndex) rest(g *indexGroup, blocks, at int) (start, end uint64) {
	ends := x.column(g, columnRest, blocks)
	if at > 0 {
		start = ends.at(at - 1)
	}
	return start, ends.at(at)
}

// trailer returns a separator's trailer.
func (x *packedIndex) trailer(g *indexGroup, blocks, at int) uint64 {
	t := x.column(g, columnTrailer, blocks).at(at)
	if t == 0 {
		return firstTrailer
	}
	return t + binary.LittleEndian.Uint64(x.from(g, numColumns, blocks))
}

// rests returns the remainders of a group's separators and everything after them.
func (x *packedIndex) rests(g *indexGroup, blocks int) []byte {
	after := x.from(g, numColumns, blocks)
	if g.widths[columnTrailer] != 0 {
		after = after[base.TrailerLen:]
	}
	return after
}

// endsAt reports whether the separator of block i has the given user key. It allocates only if the
// separator is longer than a separatorBuf and has the length of the key.
func (x *packedIndex) endsAt(i int, userKey []byte) bool {
	if i < x.n-1 && (!x.shares(userKey) || fence.Number(userKey, len(x.shared)) != x.number(i)) {
		return false // the common case
	}
	if x.separatorLen(i) != len(userKey)+base.TrailerLen {
		return false
	}
	var buf separatorBuf
	return bytes.Equal(base.UserKey(x.separator(&buf, i)), userKey)
}

// separatorLen returns the length of the separator of block i.
func (x *packedIndex) separatorLen(i int) int {
	if i == x.n-1 {
		return len(x.last)
	}
	g, blocks, at := x.groupOf(i)
	start, end := x.rest(g, blocks, at)
	return len(x.shared) + x.keyLen(g, blocks, at) + int(end-start) + base.TrailerLen
}

// find returns the first block whose separator is at or after the internal key (userKey,
// trailer), or numBlocks if there is none. All blocks before it have only smaller keys. It
// allocates only for separators longer than a separatorBuf.
func (x *packedIndex) find(userKey []byte, trailer uint64) int {
	if !x.shares(userKey) {
		if bytes.Compare(userKey, x.shared) < 0 {
			return 0
		}
		return x.findLast(userKey, trailer)
	}
	p := fence.Number(userKey, len(x.shared))
	i, tie := x.rank(p)
	if tie {
		i = x.findAmong(i, x.ties(i, p), userKey, trailer)
	}
	if i >= x.n-1 {
		return x.findLast(userKey, trailer)
	}
	return i
}

// shares reports whether the key has the prefix that all separators share.
func (x *packedIndex) shares(userKey []byte) bool {
	n := len(x.shared)
	return len(userKey) >= n && string(userKey[:n]) == string(x.shared)
}

// within reports whether the key's number proves that the key is after separator i-1 and before
// separator i. It may also return false for such a key.
func (x *packedIndex) within(userKey []byte, i int) bool {
	if i == x.n-1 || !x.shares(userKey) {
		return false
	}
	p := fence.Number(userKey, len(x.shared))
	return p < x.number(i) && (i == 0 || p > x.number(i-1))
}

// rank returns how many separators, not counting the last, have a number below p. tie reports that
// the next separator has the number p and is not the last.
func (x *packedIndex) rank(p uint64) (i int, tie bool) {
	group := x.bases.Rank(p) - 1
	if group < 0 {
		return 0, x.n > 1 && x.bases.At(0) == p
	}
	g, base := &x.groups[group], x.bases.At(group)
	// Exactly the steps up to this one belong to numbers below p.
	step := (p - 1 - base) >> g.shift
	next := uint64(0)
	if steps := x.columns[g.steps:]; g.wide {
		if i = countWide((*[8 * indexGroupLen]byte)(steps), step); i < indexGroupLen {
			next = binary.LittleEndian.Uint64(steps[8*i:])
		}
	} else {
		if i = count((*[4 * indexGroupLen]byte)(steps), uint32(min(step, math.MaxUint32))); i < indexGroupLen {
			next = uint64(binary.LittleEndian.Uint32(steps[4*i:]))
		}
	}
	if i == indexGroupLen {
		i += group * indexGroupLen
		return min(i, x.n-1), i < x.n-1 && x.bases.At(group+1) == p
	}
	// Step i belongs to a separator: a repeated step equals that of the last separator.
	return i + group*indexGroupLen, base+next<<g.shift == p
}

// count returns how many of the ascending steps are at most step. It has no data-dependent
// branches, which would often be mispredicted.
func count(steps *[4 * indexGroupLen]byte, step uint32) int {
	upTo := func(s *[32]byte, i int) uint64 {
		_, above := bits.Sub64(uint64(step), uint64(binary.LittleEndian.Uint32(s[4*i:])), 0)
		return 1 - above
	}
	eights := upTo((*[32]byte)(steps[0:]), 7) + upTo((*[32]byte)(steps[32:]), 7) + upTo((*[32]byte)(steps[64:]), 7)
	s := (*[32]byte)(steps[32*eights:])
	return int(8*eights + upTo(s, 0) + upTo(s, 1) + upTo(s, 2) + upTo(s, 3) + upTo(s, 4) + upTo(s, 5) + upTo(s, 6) + upTo(s, 7))
}

// countWide is count for steps of eight bytes.
func countWide(steps *[8 * indexGroupLen]byte, step uint64) int {
	upTo := func(s *[64]byte, i int) uint64 {
		_, above := bits.Sub64(step, binary.LittleEndian.Uint64(s[8*i:]), 0)
		return 1 - above
	}
	eights := upTo((*[64]byte)(steps[0:]), 7) + upTo((*[64]byte)(steps[64:]), 7) + upTo((*[64]byte)(steps[128:]), 7)
	s := (*[64]byte)(steps[64*eights:])
	return int(8*eights + upTo(s, 0) + upTo(s, 1) + upTo(s, 2) + upTo(s, 3) + upTo(s, 4) + upTo(s, 5) + upTo(s, 6) + upTo(s, 7))
}

// ties returns how many separators from i on, not counting the last, have the number p. REQUIRES:
// separator i has it and is not the last.
func (x *packedIndex) ties(i int, p uint64) int {
	switch {
	case i+1 == x.n-1 || x.number(i+1) != p:
		return 1
	case p == math.MaxUint64:
		return x.n - 1 - i
	}
	end, _ := x.rank(p + 1)
	return end - i
}

// findAmong is find among the n separators from i on, whose numbers equal the key's. It does a
// binary search of the first separators of groups, and then of one group.
func (x *packedIndex) findAmong(i, n int, userKey []byte, trailer uint64) int {
	var t tiedGroup
	end := i + n
	for lo, hi := i/indexGroupLen+1, (end+indexGroupLen-1)/indexGroupLen; lo < hi; {
		mid := int(uint(lo+hi) / 2)
		t.set(x, mid)
		if t.compare(0, userKey, trailer) < 0 {
			lo = mid + 1
			i = mid*indexGroupLen + 1
		} else {
			hi = mid
			end = mid * indexGroupLen
		}
	}
	if i == end {
		return i
	}
	group := i / indexGroupLen
	t.set(x, group)
	for first := group * indexGroupLen; i < end; {
		mid := int(uint(i+end) / 2)
		if t.compare(mid-first, userKey, trailer) < 0 {
			i = mid + 1
		} else {
			end = mid
		}
	}
	return i
}

// tiedGroup compares a group's separators with keys that have the same number.
type tiedGroup struct {
	x          *packedIndex
	g          *indexGroup
	group      int
	blocks     int
	keys, ends int // offsets of columnKey and columnRest in packedIndex.columns
	rests      int // offset of the separators' remainders
}

func (t *tiedGroup) set(x *packedIndex, group int) {
	g, blocks, _ := x.groupOf(group * indexGroupLen)
	w := &g.widths
	t.x, t.g, t.group, t.blocks = x, g, group, blocks
	t.keys = int(g.steps) + indexGroupLen*g.stepBytes() + int(w[columnLength])*blocks
	t.ends = t.keys + int(w[columnKey])*blocks
	t.rests = t.ends + (int(w[columnRest])+int(w[columnTrailer])+int(w[columnGap]))*blocks
	if w[columnTrailer] != 0 {
		t.rests += base.TrailerLen
	}
}

// at returns value i of a column, given its offset and width.
func (t *tiedGroup) at(column int, width uint8, i int) int {
	n := binary.LittleEndian.Uint64(t.x.columns[column+i*int(width):])
	return int(n & (1<<(8*width) - 1))
}

// compare compares separator i of the group with an internal key that has the same number.
func (t *tiedGroup) compare(i int, userKey []byte, trailer uint64) int {
	key, g := userKey[len(t.x.shared):], t.g
	if len(key) < numberBytes || int(g.key)+t.at(t.keys, g.widths[columnKey], i) < numberBytes {
		// Numbers do not distinguish a key from one with zeros appended.
		var buf separatorBuf
		return compareTo(t.x.separator(&buf, t.group*indexGroupLen+i), userKey, trailer)
	}
	start := 0
	if i > 0 {
		start = t.at(t.ends, g.widths[columnRest], i-1)
	}
	rest := t.x.columns[t.rests+start : t.rests+t.at(t.ends, g.widths[columnRest], i)]
	if c := bytes.Compare(rest, key[numberBytes:]); c != 0 {
		return c
	}
	return cmp.Compare(trailer, t.x.trailer(g, t.blocks, i)) // the larger trailer comes first
}

// findLast is find for an internal key after all separators but the last one.
func (x *packedIndex) findLast(userKey []byte, trailer uint64) int {
	if x.n > 0 && compareTo(x.last, userKey, trailer) >= 0 {
		return x.n - 1
	}
	return x.n
}

// compareTo compares the encoded internal key ikey with (userKey, trailer).
func compareTo(ikey, userKey []byte, trailer uint64) int {
	if c := bytes.Compare(base.UserKey(ikey), userKey); c != 0 {
		return c
	}
	switch t := base.KeyTrailer(ikey); {
	case t > trailer:
		return -1
	case t < trailer:
		return +1
	}
	return 0
}

// bytesHeld returns the index's size in memory in bytes.
func (x *packedIndex) bytesHeld() int64 {
	return int64(unsafe.Sizeof(*x)) + x.bases.Bytes() + int64(unsafe.Sizeof(indexGroup{}))*int64(cap(x.groups)) +
		int64(cap(x.shared)+cap(x.columns)+cap(x.last))
}

// bytesHeld returns the index's size in memory in bytes, without slots, which the cache counts.
func (x *index) bytesHeld() int64 {
	return int64(unsafe.Sizeof(*x)-unsafe.Sizeof(x.packedIndex)) + 8*int64(cap(x.cached)) + x.packedIndex.bytesHeld()
}
