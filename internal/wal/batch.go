package wal

import (
	"encoding/binary"
	"fmt"

	"github.com/siftdb/sift/internal/base"
)

// A batch is stored as one log record, in LevelDB's write batch format:
//
//	offset  size  field
//	0       8     sequence number of the first operation, little-endian
//	8       4     number of operations, little-endian
//	12      ...   operations
//
// An operation consists of a kind (1 set, 0 delete), the key's length as a varint
// and the key; a set also has the value's length and the value. Operations have
// consecutive sequence numbers. A reader rejects an unknown kind, a batch that
// ends early, and a count that is not the number of operations.
//
// Example: set "a" to "xy" and delete "b", from sequence 7 on, is
// 07 00 00 00 00 00 00 00 02 00 00 00 01 01 61 02 78 79 00 01 62.
//
// On disk; do not change.
const (
	// BatchHeaderLen is the number of bytes before the first operation.
	BatchHeaderLen = 12
	// BatchCountOffset is the offset of the number of operations.
	BatchCountOffset = 8
)

// AppendBatchHeader appends the header of a batch of count operations, the first of which has
// sequence number seq.
func AppendBatchHeader(dst []byte, seq uint64, count uint32) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	return binary.LittleEndian.AppendUint32(dst, count)
}

// DecodeBatch calls op, which may be nil, for each operation of a log record, in order. It returns
// the sequence number of the first operation and the number of operations. Keys and values alias
// data. It detects damage as it goes: after an error, the caller must discard what op has received.
func DecodeBatch(data []byte, op func(seq uint64, kind base.Kind, key, value []byte) error) (first uint64, count uint32, err error) {
	c := base.NewCursor(data)
	first, count = c.Uint64(), c.Uint32()
	if c.Err() != nil {
		return 0, 0, fmt.Errorf("batch header %w", c.Err())
	}
	if first > base.MaxSequence+1 || first+uint64(count) > base.MaxSequence+1 {
		return 0, 0, fmt.Errorf("batch sequence number %d is too large", first)
	}
	n := uint32(0)
	for c.Len() > 0 {
		if n == count {
			return first, count, fmt.Errorf("batch of %d operations is followed by %d bytes", count, c.Len())
		}
		kind := base.Kind(c.Uint8())
		key := c.LengthPrefixed()
		var value []byte
		switch kind {
		case base.KindSet:
			value = c.LengthPrefixed()
		case base.KindDelete:
		default:
			return first, count, fmt.Errorf("batch operation of unknown kind %d", kind)
		}
		if c.Err() != nil {
			return first, count, fmt.Errorf("batch operation %d %w", n, c.Err())
		}
		if op != nil {
			if err := op(first+uint64(n), kind, key, value); err != nil {
				return first, count, err
			}
		}
		n++
	}
	if n != count {
		return first, count, fmt.Errorf("batch of %d operations holds %d", count, n)
	}
	return first, count, nil
}

// isMarker reports whether a log record is an empty batch: a durability marker or a header.
func isMarker(payload []byte) bool {
	_, count, err := DecodeBatch(payload, nil)
	return err == nil && count == 0
}
