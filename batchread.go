package sift

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// Op is an operation of a Batch or of DB.Ingest.
type Op struct {
	Delete     bool // delete Key and ignore Value; otherwise set Key to Value
	Key, Value []byte
}

// Ops returns the operations in order. Their slices alias the batch: they must not be
// modified, and are valid until the batch is modified.
func (b *Batch) Ops() iter.Seq[Op] {
	return func(yield func(Op) bool) {
		if b.count == 0 {
			return
		}
		c := base.NewCursor(b.data[wal.BatchHeaderLen:])
		for c.Len() > 0 {
			op := Op{Delete: base.Kind(c.Uint8()) == base.KindDelete, Key: c.LengthPrefixed()}
			if !op.Delete {
				op.Value = c.LengthPrefixed()
			}
			if !yield(op) {
				return
			}
		}
	}
}

// Append appends copies of the operations of o. If o has an Err, b gets it, too.
func (b *Batch) Append(o *Batch) {
	for op := range o.Ops() {
		if op.Delete {
			b.Delete(op.Key)
		} else {
			b.Put(op.Key, op.Value)
		}
	}
	if b.err == nil {
		b.err = o.err
	}
}

// Dump returns the batch in LevelDB's write batch format: a sequence number of 0 in 8
// bytes, the number of operations in 4 bytes, little-endian, and the operations. Load and
// LevelDB's WriteBatchInternal::SetContents read this format. The bytes alias the batch: they
// must not be modified, and are valid until the batch is modified.
func (b *Batch) Dump() []byte {
	if len(b.data) == 0 {
		b.data = append(b.data, make([]byte, wal.BatchHeaderLen)...)
	}
	binary.LittleEndian.PutUint32(b.data[wal.BatchCountOffset:], b.count)
	return b.data[:len(b.data):len(b.data)]
}

// Load replaces the contents of the batch with those of data, in the format of Dump. It ignores
// the sequence number, and copies data. The error matches ErrCorruption if data is damaged, and
// ErrBatchTooLarge if data exceeds the limits of a Batch. After an error the batch is empty.
func (b *Batch) Load(data []byte) error {
	b.Reset()
	if len(data) > maxBatchBytes {
		return fmt.Errorf("%w: more than %d bytes", ErrBatchTooLarge, maxBatchBytes)
	}
	room := 0
	b.data = append(b.data, data...)
	clear(b.data[:min(len(data), wal.BatchCountOffset)])
	_, count, err := wal.DecodeBatch(b.data, func(_ uint64, _ base.Kind, key, value []byte) error {
		n := memtable.EntrySize(len(key), len(value))
		if n > memtable.MaxCapacity-room {
			return fmt.Errorf("%w: more than %d bytes in memory", ErrBatchTooLarge, memtable.MaxCapacity)
		}
		room += n
		return nil
	})
	if err != nil {
		b.Reset()
	}
	if errors.Is(err, ErrBatchTooLarge) {
		return err
	} else if err != nil {
		return fmt.Errorf("sift: %w: %w", ErrCorruption, err)
	}
	b.count, b.room = count, room
	return nil
}
