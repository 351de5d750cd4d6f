package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fence"
)

// index is a table's index block, checked and laid out for searching: 14 bytes per data
// block for random binary keys, 22 for decimal text. A search compares whole separators
// only where the fence cannot tell them from the key.
//
// The fence holds the prefix that all separators' user keys share, and the 8 bytes after
// it. Most separators are no longer than that and have the first trailer of their user key,
// so only their length is kept in addition. What the others have beyond that is in rests,
// one after another.
//
// The last separator is not in the fence: it is short, far behind the others, and shares no
// prefix with them.
type index struct {
	fence  fence.Index // the user keys of all separators but the last
	n      int         // data blocks
	used   atomic.Bool // since the pool's hand last passed
	groups []indexGroup
	rests  []byte // the separators' remainders, one after another
	last   []byte // the last separator
	wide   []wideEntry

	slots     []atomic.Pointer[block] // the cached data blocks; nil without a cache
	missed    []atomic.Uint32         // number of the last miss of each block; see BlockCache.admit
	cacheSeed uint                    // spreads the tables' blocks over the shards
	released  atomic.Bool             // no more blocks may be cached

	held indexNode
}

// indexGroup describes consecutive data blocks without gaps between them.
type indexGroup struct {
	offset  uint64                // of the first block
	rest    uint32                // where its separator's remainder begins in rests
	lengths [indexGroupLen]uint16 // of the blocks, as in their handles
	keys    [indexGroupLen]uint8  // lengths of the separators' user keys after the shared prefix; see ownTrailer
}

const (
	indexGroupLen = 8
	fenceBytes    = 8 // bytes of a key in the fence

	// ownTrailer is set if the remainder ends with the separator's trailer; otherwise the
	// trailer is firstTrailer.
	ownTrailer  = 0x80
	maxGroupKey = 0x7f
)

// firstTrailer comes before all other trailers.
var firstTrailer = base.Trailer(base.MaxSequence, base.KindSeek)

// wideEntry is a data block of an index that groups cannot represent, because of gaps
// between the blocks, large blocks or long keys.
type wideEntry struct {
	Handle
	sepEnd uint32 // where its separator ends in rests; it begins where the one before ends
}

var (
	errHandleOrder = errors.New("block handles overlap or do not ascend")
	errSeparator   = errors.New("separator longer than any key of its block can be")
	errIndexKey    = errors.New("separator shorter than a trailer")
	errIndexKeys   = errors.New("separators do not ascend")
	errIndexTooBig = fmt.Errorf("%w: separators of 4 GiB or more", base.ErrUnsupported)
)

// rawIndex is a decoded index block with whole separators, one after another.
type rawIndex struct {
	blocks     []wideEntry
	separators []byte
}

var rawIndexPool = sync.Pool{New: func() any { return new(rawIndex) }}

// maxPooledIndex bounds the memory that is kept for the next index.
const maxPooledIndex = 1 << 20

// decodeIndex decodes an index block whose data blocks must end at or before limit. The
// result does not refer to data.
func decodeIndex(data []byte, limit uint64) (*index, error) {
	raw := rawIndexPool.Get().(*rawIndex)
	defer func() {
		if cap(raw.separators)+int(unsafe.Sizeof(wideEntry{}))*cap(raw.blocks) <= maxPooledIndex {
			rawIndexPool.Put(raw)
		}
	}()
	if err := raw.decode(data, limit); err != nil {
		return nil, err
	}
	return raw.index(), nil
}

func (r *rawIndex) decode(data []byte, limit uint64) error {
	r.blocks, r.separators = r.blocks[:0], r.separators[:0]
	var b block
	if err := b.init(data); err != nil {
		return err
	}
	var last []byte
	var lastEnd uint64
	return b.each(func(key, value []byte) error {
		if len(key) < base.TrailerLen {
			return errIndexKey
		}
		c := base.NewCursor(value)
		h, err := readHandle(&c, limit)
		if err != nil {
			return err
		}
		if h.Offset < lastEnd {
			return errHandleOrder
		}
		// No key of a block is longer than the block. Without this bound a small
		// index could be made that takes the square of its size in memory.
		if uint64(len(key)) > maxDecodedLen(h.Length)+base.TrailerLen {
			return errSeparator
		}
		if len(r.blocks) > 0 && base.CompareInternal(last, key) >= 0 {
			return errIndexKeys
		}
		if uint64(len(r.separators)+len(key)) > math.MaxUint32 {
			return errIndexTooBig
		}
		at := len(r.separators)
		r.separators = append(r.separators, key...)
		last, lastEnd = r.separators[at:], h.end()
		r.blocks = append(r.blocks, wideEntry{h, uint32(len(r.separators))})
		return nil
	})
}

func (r *rawIndex) separator(i int) []byte { return cutSeparator(r.separators, r.blocks, i) }

// cutSeparator returns separator i of concatenated ones.
func cutSeparator(separators []byte, blocks []wideEntry, i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = blocks[i-1].sepEnd
	}
	end := blocks[i].sepEnd
	return separators[start:end:end]
}

// index lays out what was decoded.
func (r *rawIndex) index() *index {
	x := &index{n: len(r.blocks)}
	if x.n == 0 {
		return x
	}
	x.last = bytes.Clone(r.separator(x.n - 1))
	x.fence = fence.New(x.n-1, func(i int) []byte { return base.UserKey(r.separator(i)) })
	if !r.fits(len(x.fence.Shared())) {
		x.wide = append([]wideEntry(nil), r.blocks...)
		x.rests = bytes.Clone(r.separators)
		return x
	}
	shared := len(x.fence.Shared())
	x.groups = make([]indexGroup, (x.n+indexGroupLen-1)/indexGroupLen)
	size := 0
	for i := range x.n - 1 {
		size += len(r.restOf(i, shared))
	}
	x.rests = make([]byte, 0, size)
	for i := range r.blocks {
		g, at := &x.groups[i/indexGroupLen], i%indexGroupLen
		if at == 0 {
			g.offset, g.rest = r.blocks[i].Offset, uint32(len(x.rests))
		}
		g.lengths[at] = uint16(r.blocks[i].Length)
		if i == x.n-1 {
			break // its separator is kept whole
		}
		separator := r.separator(i)
		g.keys[at] = uint8(len(base.UserKey(separator)) - shared)
		if base.KeyTrailer(separator) != firstTrailer {
			g.keys[at] |= ownTrailer
		}
		x.rests = append(x.rests, r.restOf(i, shared)...)
	}
	return x
}

// restOf returns what the fence lacks of separator i.
func (r *rawIndex) restOf(i, shared int) []byte {
	separator := r.separator(i)
	from := min(shared+fenceBytes, len(separator)-base.TrailerLen)
	if base.KeyTrailer(separator) == firstTrailer {
		separator = base.UserKey(separator)
	}
	return separator[from:]
}

// fits reports whether groups can represent the index.
func (r *rawIndex) fits(shared int) bool {
	for i := range r.blocks {
		b := &r.blocks[i]
		if b.Length > math.MaxUint16 || i > 0 && b.Offset != r.blocks[i-1].end() ||
			i < len(r.blocks)-1 && len(base.UserKey(r.separator(i)))-shared > maxGroupKey {
			return false
		}
	}
	return true
}

// numBlocks returns the number of data blocks.
func (x *index) numBlocks() int { return x.n }

// handle returns the location of data block i.
func (x *index) handle(i int) Handle {
	if x.wide != nil {
		return x.wide[i].Handle
	}
	g := &x.groups[i/indexGroupLen]
	h := Handle{g.offset, uint64(g.lengths[i%indexGroupLen])}
	for _, n := range g.lengths[:i%indexGroupLen] {
		h.Offset += uint64(n) + blockTrailerLen
	}
	return h
}

// separatorBuf is room on the stack for a separator of the usual length.
type separatorBuf [64]byte

// separator returns an encoded internal key that is not before any key of block i, and
// before every key of the blocks after it. It is in buf, or must not be modified.
func (x *index) separator(buf *separatorBuf, i int) []byte {
	switch {
	case i == x.n-1:
		return x.last
	case x.wide != nil:
		return cutSeparator(x.rests, x.wide, i)
	}
	g, at := &x.groups[i/indexGroupLen], i%indexGroupLen
	rest := g.rest
	for _, k := range g.keys[:at] {
		rest += restLen(k)
	}
	k := g.keys[at]
	key := append(buf[:0], x.fence.Shared()...)
	var eight [fenceBytes]byte
	binary.BigEndian.PutUint64(eight[:], x.fence.Number(i))
	key = append(key, eight[:min(k&^ownTrailer, fenceBytes)]...)
	key = append(key, x.rests[rest:rest+restLen(k)]...)
	if k&ownTrailer == 0 {
		key = binary.LittleEndian.AppendUint64(key, firstTrailer)
	}
	return key
}

// restLen is the length of a separator's remainder.
func restLen(k uint8) uint32 {
	n := uint32(0)
	if own := k &^ ownTrailer; own > fenceBytes {
		n = uint32(own) - fenceBytes
	}
	if k&ownTrailer != 0 {
		n += base.TrailerLen
	}
	return n
}

// endsAt reports whether the separator of block i has the user key. It allocates only if the
// separator is longer than a separatorBuf and has the length that the key needs.
func (x *index) endsAt(i int, userKey []byte) bool {
	if x.separatorLen(i) != len(userKey)+base.TrailerLen {
		return false
	}
	var buf separatorBuf
	return bytes.Equal(base.UserKey(x.separator(&buf, i)), userKey)
}

// separatorLen returns the length of the separator of block i.
func (x *index) separatorLen(i int) int {
	switch {
	case i == x.n-1:
		return len(x.last)
	case x.wide != nil:
		return len(cutSeparator(x.rests, x.wide, i))
	}
	k := x.groups[i/indexGroupLen].keys[i%indexGroupLen]
	return len(x.fence.Shared()) + int(k&^ownTrailer) + base.TrailerLen
}

// find returns the first block whose separator is at or after the internal key (userKey,
// trailer), or numBlocks if there is none: all blocks before it hold only smaller keys. It
// allocates only for separators longer than a separatorBuf.
func (x *index) find(userKey []byte, trailer uint64) int {
	i, ties := x.fence.Find(userKey)
	if ties > 0 {
		i = x.findAmong(i, ties, userKey, trailer)
	}
	if i == x.fence.Len() {
		return x.findLast(userKey, trailer)
	}
	return i
}

// findAmong is find among the n separators from i on, which the fence cannot tell from the
// key.
func (x *index) findAmong(i, n int, userKey []byte, trailer uint64) int {
	var buf separatorBuf
	for hi := i + n; i < hi; {
		mid := int(uint(i+hi) / 2)
		if compareTo(x.separator(&buf, mid), userKey, trailer) < 0 {
			i = mid + 1
		} else {
			hi = mid
		}
	}
	return i
}

// findLast is find for an internal key after all separators but the last one.
func (x *index) findLast(userKey []byte, trailer uint64) int {
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

// bytesHeld returns the index's size in memory, with the cache's slots.
func (x *index) bytesHeld() int64 {
	return int64(unsafe.Sizeof(*x)) + (8+4)*int64(len(x.slots)) + x.fence.Bytes() + int64(len(x.fence.Shared())) +
		int64(unsafe.Sizeof(indexGroup{}))*int64(cap(x.groups)) +
		int64(unsafe.Sizeof(wideEntry{}))*int64(cap(x.wide)) +
		int64(cap(x.rests)+cap(x.last))
}
