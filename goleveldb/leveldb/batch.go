package leveldb

import (
	"encoding/binary"
	"fmt"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/errors"
)

// BatchReplay receives the operations of a batch.
type BatchReplay interface {
	Put(key, value []byte)
	Delete(key []byte)
}

// Batch is a list of writes that are applied atomically. Its zero value is an empty
// batch. It must not be used concurrently.
//
// A batch holds up to 1 GiB. An operation that would exceed that is not added, nor are later ones.
// The batch can then no longer be written or replayed; the error matches sift.ErrBatchTooLarge.
type Batch struct {
	b sift.Batch
}

// BatchConfig is for MakeBatchWithConfig.
type BatchConfig struct {
	// InitialCapacity is the expected number of bytes. It is not used.
	InitialCapacity int
	// GrowLimit bounds by how many operations the batch grows at a time. It is not
	// used.
	GrowLimit int
}

// MakeBatch returns an empty batch. n is the expected number of bytes. It is not used.
func MakeBatch(n int) *Batch { return new(Batch) }

// MakeBatchWithConfig returns an empty batch. config is not used.
func MakeBatchWithConfig(config *BatchConfig) *Batch { return new(Batch) }

// Put sets key to value. Both are copied.
func (b *Batch) Put(key, value []byte) { b.b.Put(key, value) }

// Delete removes key, which is copied.
func (b *Batch) Delete(key []byte) { b.b.Delete(key) }

// Len returns the number of operations.
func (b *Batch) Len() int { return b.b.Len() }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.b.Reset() }

// headerLen is the length of the header of LevelDB's write batch.
const headerLen = 12

// Dump returns the operations in LevelDB's write batch format, without the header. The
// bytes must not be changed. They are valid until the batch changes.
func (b *Batch) Dump() []byte { return b.b.Dump()[headerLen:] }

// Load replaces the contents of the batch with a copy of what Dump returned. If data
// is damaged, the error is an ErrBatchCorrupted in an errors.ErrCorrupted, and the
// batch is empty.
func (b *Batch) Load(data []byte) error {
	b.Reset()
	for len(data) > 0 {
		kind := data[0]
		if kind > 1 {
			return b.damaged(fmt.Sprintf("bad record: invalid type %#x", kind))
		}
		data = data[1:]
		key, rest, ok := cutPrefixed(data)
		if !ok {
			return b.damaged("bad record: invalid key length")
		}
		data = rest
		if kind == 0 {
			b.Delete(key)
			continue
		}
		value, rest, ok := cutPrefixed(data)
		if !ok {
			return b.damaged("bad record: invalid value length")
		}
		data = rest
		b.Put(key, value)
	}
	return b.b.Err()
}

func (b *Batch) damaged(reason string) error {
	b.Reset()
	return errors.NewErrCorrupted(fdNone, &ErrBatchCorrupted{reason})
}

// cutPrefixed cuts a length-prefixed field from the front of data.
func cutPrefixed(data []byte) (field, rest []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return nil, nil, false
	}
	data = data[size:]
	return data[:n:n], data[n:], true
}

// Replay calls r for each operation, in order. The slices that r receives are valid until the batch
// changes, and must not be changed.
func (b *Batch) Replay(r BatchReplay) error {
	if err := b.b.Err(); err != nil {
		return err
	}
	for op := range b.b.Ops() {
		switch {
		case op.Delete:
			r.Delete(op.Key)
		case len(op.Value) == 0:
			r.Put(op.Key, nil) // as goleveldb does
		default:
			r.Put(op.Key, op.Value)
		}
	}
	return nil
}
