package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fence"
)

// rawBlock is a data block of a rawIndex.
type rawBlock struct {
	Handle
	sepEnd uint32 // end of its separator, where the next one begins
}

var (
	errHandleOrder = errors.New("block handles overlap or do not ascend")
	errSeparator   = errors.New("separator longer than its block allows")
	errIndexKey    = errors.New("separator shorter than a trailer")
	errIndexKeys   = errors.New("separators do not ascend")
	errIndexTooBig = fmt.Errorf("%w: index of 4 GiB or more", base.ErrUnsupported)
)

// rawIndex is a decoded index block with whole separators, one after another.
type rawIndex struct {
	blocks     []rawBlock
	separators []byte
	columns    []byte // scratch for packedIndex.columns
}

var rawIndexPool = sync.Pool{New: func() any { return new(rawIndex) }}

// maxPooledIndex is the maximum size in bytes of a rawIndex that returns to the pool.
const maxPooledIndex = 1 << 20

// decodeIndex decodes an index block whose data blocks must end at or before limit. The
// result does not refer to data.
func decodeIndex(data []byte, limit uint64) (*packedIndex, error) {
	raw := rawIndexPool.Get().(*rawIndex)
	defer func() {
		if cap(raw.separators)+cap(raw.columns)+int(unsafe.Sizeof(rawBlock{}))*cap(raw.blocks) <= maxPooledIndex {
			rawIndexPool.Put(raw)
		}
	}()
	if err := raw.decode(data, limit); err != nil {
		return nil, err
	}
	return raw.pack()
}

func (r *rawIndex) decode(data []byte, limit uint64) error {
	var b block
	if err := b.init(data); err != nil {
		return err
	}
	// Not the fields: each store to them would need a write barrier, a fifth of the time during a
	// garbage collection.
	blocks, separators := r.blocks[:0], r.separators[:0]
	var last []byte
	var lastEnd uint64
	err := b.each(func(key, value []byte) error {
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
		// A separator is no longer than the longest key of its block. Without this bound a
		// crafted small index could take quadratic memory.
		if uint64(len(key)) > maxDecodedLen(h.Length)+base.TrailerLen {
			return errSeparator
		}
		if len(blocks) > 0 && base.CompareInternal(last, key) >= 0 {
			return errIndexKeys
		}
		if uint64(len(separators)+len(key)) > math.MaxUint32 {
			return errIndexTooBig
		}
		at := len(separators)
		separators = append(separators, key...)
		last, lastEnd = separators[at:], h.end()
		blocks = append(blocks, rawBlock{h, uint32(len(separators))})
		return nil
	})
	r.blocks, r.separators = blocks, separators
	return err
}

// separator returns separator i.
func (r *rawIndex) separator(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = r.blocks[i-1].sepEnd
	}
	end := r.blocks[i].sepEnd
	return r.separators[start:end:end]
}

// pack returns the packed index.
func (r *rawIndex) pack() (*packedIndex, error) {
	x := &packedIndex{n: len(r.blocks)}
	if x.n == 0 {
		return x, nil
	}
	x.last = bytes.Clone(r.separator(x.n - 1))
	if x.n > 1 {
		// Separators ascend, so all have the common prefix of the first and the last.
		first := base.UserKey(r.separator(0))
		x.shared = bytes.Clone(first[:base.CommonPrefix(first, base.UserKey(r.separator(x.n-2)))])
	}
	x.groups = make([]indexGroup, (x.n+indexGroupLen-1)/indexGroupLen)
	r.columns = r.columns[:0]
	for i := range x.groups {
		r.packGroup(x, i)
		if uint64(len(r.columns)) > math.MaxUint32 {
			return nil, errIndexTooBig
		}
	}
	x.columns = append(make([]byte, 0, len(r.columns)+columnPad), r.columns...)[:len(r.columns)+columnPad]
	x.bases = fence.NewNumbers(len(x.groups), func(i int) uint64 { return r.number(x, i*indexGroupLen) })
	return x, nil
}

// number returns the number of separator i. For the last one, which is never compared, it returns
// the largest number.
func (r *rawIndex) number(x *packedIndex, i int) uint64 {
	if i == x.n-1 {
		return math.MaxUint64
	}
	return fence.Number(base.UserKey(r.separator(i)), len(x.shared))
}

// rawGroup is a group's separators, taken apart.
type rawGroup struct {
	n        int                   // number of separators, not counting the index's last one
	keys     [indexGroupLen][]byte // user keys after the shared prefix
	numbers  [indexGroupLen]uint64 // their first eight bytes, see packedIndex
	trailers [indexGroupLen]uint64
}

// group sets g to the separators of n data blocks from first on.
func (r *rawIndex) group(g *rawGroup, x *packedIndex, first, n int) {
	g.n = min(n, x.n-1-first)
	start := 0
	if first > 0 {
		start = int(r.blocks[first-1].sepEnd)
	}
	for at := range g.n {
		end := int(r.blocks[first+at].sepEnd)
		separator := r.separators[start:end:end]
		key := base.UserKey(separator)
		g.keys[at], g.numbers[at], g.trailers[at] = key[len(x.shared):], fence.Number(key, len(x.shared)), base.KeyTrailer(separator)
		start = end
	}
}

// packGroup sets group i and appends its columns.
func (r *rawIndex) packGroup(x *packedIndex, i int) {
	first := i * indexGroupLen
	blocks := r.blocks[first:min(first+indexGroupLen, x.n)]
	var raw rawGroup
	r.group(&raw, x, first, len(blocks))
	var v [numColumns][indexGroupLen]uint64
	var rests uint64
	g := &x.groups[i]
	g.offset, g.steps, g.length, g.key = blocks[0].Offset, uint32(len(r.columns)), math.MaxUint32, numberBytes
	for at, b := range blocks {
		g.length = min(g.length, uint32(b.Length))
		v[columnLength][at] = b.Length
		if at+1 < len(blocks) {
			v[columnGap][at] = blocks[at+1].Offset - b.end()
		}
		v[columnKey][at], v[columnRest][at] = numberBytes, rests
		if at < raw.n {
			n := len(raw.keys[at])
			v[columnKey][at] = uint64(min(n, numberBytes))
			rests += uint64(max(n-numberBytes, 0))
			v[columnRest][at] = rests
		}
		g.key = min(g.key, uint8(v[columnKey][at]))
	}
	for at := range blocks {
		v[columnLength][at] -= uint64(g.length)
		v[columnKey][at] -= uint64(g.key)
	}
	subtracted := packTrailers(v[columnTrailer][:raw.n], raw.trailers[:raw.n])
	r.packSteps(g, raw.numbers[:raw.n])
	for c := range v {
		g.widths[c] = r.appendColumn(v[c][:len(blocks)])
	}
	if g.widths[columnTrailer] > 0 {
		r.columns = binary.LittleEndian.AppendUint64(r.columns, subtracted)
	}
	if rests > 0 {
		for _, key := range raw.keys[:raw.n] {
			r.columns = append(r.columns, key[min(len(key), numberBytes):]...)
		}
	}
}

// packSteps appends the steps of a group whose separators have these numbers.
func (r *rawIndex) packSteps(g *indexGroup, numbers []uint64) {
	var steps [indexGroupLen]uint64
	var last, all uint64
	for at := range steps {
		if at < len(numbers) {
			last = numbers[at] - numbers[0]
		}
		steps[at] = last
		all |= last
	}
	if all != 0 {
		g.shift = uint8(bits.TrailingZeros64(all))
	}
	g.wide = all>>g.shift > math.MaxUint32
	for _, n := range steps {
		if n >>= g.shift; g.wide {
			r.columns = binary.LittleEndian.AppendUint64(r.columns, n)
		} else {
			r.columns = binary.LittleEndian.AppendUint32(r.columns, uint32(n))
		}
	}
}

// packTrailers sets v to the values of columnTrailer for these trailers, and returns the number
// that it subtracts from them.
func packTrailers(v, trailers []uint64) (subtracted uint64) {
	subtracted = math.MaxUint64
	for _, trailer := range trailers {
		subtracted = min(subtracted, trailer)
	}
	// 0 stands for firstTrailer, so subtracted must not be a trailer of the group. There is such a
	// number, since subtraction wraps around.
	for subtracted--; slices.Contains(trailers, subtracted); {
		subtracted--
	}
	for at, trailer := range trailers {
		if trailer != firstTrailer {
			v[at] = trailer - subtracted
		}
	}
	return subtracted
}

// appendColumn appends a column and returns its width.
func (r *rawIndex) appendColumn(v []uint64) (width uint8) {
	all := uint64(0)
	for _, n := range v {
		all |= n
	}
	width = uint8(bits.Len64(all)+7) / 8
	switch width {
	case 0:
	case 1:
		for _, n := range v {
			r.columns = append(r.columns, byte(n))
		}
	default:
		for _, n := range v {
			for range width {
				r.columns = append(r.columns, byte(n))
				n >>= 8
			}
		}
	}
	return width
}
