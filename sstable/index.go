package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fence"
)

// index is a decoded and validated index block, laid out for searching. A search compares
// whole separators only where the fence cannot decide.
//
// The last separator is not in the fence: it is short, far behind the others, and shares no
// prefix with them.
type index struct {
	fence      fence.Index // the user keys of all separators but the last
	blocks     []indexEntry
	separators []byte // encoded internal keys, one after another
}

// indexEntry describes a data block.
type indexEntry struct {
	offset uint64
	length uint32
	sepEnd uint32 // end of its separator, which begins where the previous one ends
}

var (
	errHandleOrder = errors.New("block handles overlap or do not ascend")
	errSeparator   = errors.New("separator longer than any key that fits its block")
	errIndexKey    = errors.New("separator shorter than a trailer")
	errIndexKeys   = errors.New("separators do not ascend")
	errIndexTooBig = fmt.Errorf("%w: separators of 4 GiB or more", base.ErrUnsupported)
)

// decodeIndex decodes an index block whose data blocks must end at or before limit. The
// result does not refer to data.
func decodeIndex(data []byte, limit uint64) (*index, error) {
	var b block
	if err := b.init(data); err != nil {
		return nil, err
	}
	count, size := 0, 0
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
		// No key of a block is longer than the block. Without this bound, prefix
		// compression would let a small index take quadratic memory.
		if uint64(len(key)) > maxDecodedLen(h.Length)+base.TrailerLen {
			return errSeparator
		}
		if count > 0 && base.CompareInternal(last, key) >= 0 {
			return errIndexKeys
		}
		count++
		size += len(key)
		if uint64(size) > math.MaxUint32 {
			return errIndexTooBig
		}
		last, lastEnd = append(last[:0], key...), h.end()
		return nil
	})
	if err != nil {
		return nil, err
	}
	x := &index{
		blocks:     make([]indexEntry, 0, count),
		separators: make([]byte, 0, size),
	}
	err = b.each(func(key, value []byte) error {
		c := base.NewCursor(value)
		h, err := readHandle(&c, limit)
		x.separators = append(x.separators, key...)
		x.blocks = append(x.blocks, indexEntry{h.Offset, uint32(h.Length), uint32(len(x.separators))})
		return err
	})
	if err != nil {
		return nil, err
	}
	x.fence = fence.New(max(count-1, 0), func(i int) []byte { return base.UserKey(x.separator(i)) })
	return x, nil
}

// numBlocks returns the number of data blocks.
func (x *index) numBlocks() int { return len(x.blocks) }

// handle returns the location of data block i.
func (x *index) handle(i int) Handle {
	return Handle{x.blocks[i].offset, uint64(x.blocks[i].length)}
}

// separator returns an encoded internal key that is not before any key of block i, and
// before every key of the blocks after it.
func (x *index) separator(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = x.blocks[i-1].sepEnd
	}
	end := x.blocks[i].sepEnd
	return x.separators[start:end:end]
}

// find returns the first block whose separator is at or after the internal key (userKey,
// trailer), or numBlocks if there is none: all blocks before it hold only smaller keys. It
// does not allocate.
func (x *index) find(userKey []byte, trailer uint64) int {
	i, ties := x.fence.Find(userKey)
	for hi := i + ties; i < hi; {
		mid := int(uint(i+hi) / 2)
		if compareTo(x.separator(mid), userKey, trailer) < 0 {
			i = mid + 1
		} else {
			hi = mid
		}
	}
	if i == x.fence.Len() {
		return x.findLast(userKey, trailer)
	}
	return i
}

// findLast is find for an internal key after all separators but the last one.
func (x *index) findLast(userKey []byte, trailer uint64) int {
	if last := len(x.blocks) - 1; last >= 0 && compareTo(x.separator(last), userKey, trailer) >= 0 {
		return last
	}
	return len(x.blocks)
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

// bytesHeld returns the index's size in memory.
func (x *index) bytesHeld() int64 {
	return int64(unsafe.Sizeof(*x)) + x.fence.Bytes() +
		int64(unsafe.Sizeof(indexEntry{}))*int64(cap(x.blocks)) + int64(cap(x.separators))
}
