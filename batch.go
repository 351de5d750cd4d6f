package sift

import (
	"encoding/binary"
	"fmt"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/memtable"
)

// A batch is stored as one log record, in LevelDB's write batch format:
//
//	offset  size  field
//	0       8     sequence number of the first operation, little-endian
//	8       4     number of operations, little-endian
//	12      ...   operations
//
// An operation is a kind (1 set, 0 delete), the key's length as a varint and
// the key; a set goes on with the value's length and the value. Operations take
// consecutive sequence numbers. A reader refuses an unknown kind, bytes that
// end early, and a count that is not the number of operations.
//
// Example: set "a" to "xy" and delete "b", from sequence 7 on, is
// 07 00 00 00 00 00 00 00 02 00 00 00 01 01 61 02 78 79 00 01 62.
//
// On disk; do not change.
const (
	batchHeaderLen = 12
	batchCountOff  = 8
	// maxBatchBytes bounds what a batch takes in the log. A batch of small operations
	// is bounded by what it takes in a memtable, memtable.MaxCapacity, before that.
	maxBatchBytes = 1 << 30
)

// Batch is a list of writes that DB.Write applies atomically: after a crash either all of
// them are there or none. A later operation on a key overrides an earlier one. A Batch cannot
// be read like a database; use a Tx to read what is not committed yet. The zero Batch is empty
// and ready for use. A Batch must not be used by several goroutines at once.
//
// A batch holds up to 1 GiB, as counted by Size; keys and values have no other bound. It must
// also fit into a memtable, where each operation takes its key, its value and 31 bytes: 3.8e9
// bytes in all, 1.9e9 on 32-bit systems. An operation that exceeds a bound is not added, nor
// are later ones, and Write rejects the batch with ErrBatchTooLarge.
type Batch struct {
	data  []byte // header and operations; empty until the first operation
	count uint32
	err   error // the first operation that was refused
	room  int   // upper bound of what the operations take in a memtable; at most memtable.MaxCapacity
}

// Put sets key to value. Both are copied.
func (b *Batch) Put(key, value []byte) { b.add(base.KindSet, key, value) }

// Delete removes key. It is not an error if there is no such key. The key is copied.
func (b *Batch) Delete(key []byte) { b.add(base.KindDelete, key, nil) }

// Len returns the number of operations.
func (b *Batch) Len() int { return int(b.count) }

// Size returns the number of bytes that the batch takes in the log.
func (b *Batch) Size() int { return len(b.data) }

// Reset empties the batch and keeps its memory for reuse.
func (b *Batch) Reset() { *b = Batch{data: b.data[:0]} }

func (b *Batch) add(kind base.Kind, key, value []byte) {
	room := memtable.EntrySize(len(key), len(value))
	switch {
	case b.err != nil:
		return
	case len(b.data)+len(key)+len(value) > maxBatchBytes:
		b.err = fmt.Errorf("%w: more than %d bytes", ErrBatchTooLarge, maxBatchBytes)
		return
	case room > memtable.MaxCapacity-b.room:
		b.err = fmt.Errorf("%w: more than %d bytes in memory", ErrBatchTooLarge, memtable.MaxCapacity)
		return
	}
	if len(b.data) == 0 {
		b.data = append(b.data, make([]byte, batchHeaderLen)...)
	}
	b.count++
	b.data = append(b.data, byte(kind))
	b.data = binary.AppendUvarint(b.data, uint64(len(key)))
	b.data = append(b.data, key...)
	if kind == base.KindSet {
		b.data = binary.AppendUvarint(b.data, uint64(len(value)))
		b.data = append(b.data, value...)
	}
	b.room += room
}

// appendBatchHeader appends the header of a batch.
func appendBatchHeader(dst []byte, seq uint64, count uint32) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	return binary.LittleEndian.AppendUint32(dst, count)
}

// addBatch adds the operations of a log record to memtables. room reserves n bytes, as
// counted by memtable.EntrySize, and returns the memtable to use. So a batch may be split
// over several memtables, which must then become visible together.
func addBatch(data []byte, secret *filter.Secret, room func(n int) (*memtable.Memtable, error)) error {
	_, _, err := decodeBatch(data, func(seq uint64, kind base.Kind, key, value []byte) error {
		mem, err := room(memtable.EntrySize(len(key), len(value)))
		if err != nil {
			return err
		}
		return mem.Add(lookupKey(secret, key).Hash, seq, kind, key, value)
	})
	return err
}

// fits returns an error if n bytes, as counted by memtable.EntrySize, exceed the capacity of
// any memtable.
func (d *DB) fits(n int) error {
	if limit := d.opts.arenaBytes; n > limit {
		return fmt.Errorf("%w: %d bytes in memory exceed the %d bytes of a memtable", ErrBatchTooLarge, n, limit)
	}
	return nil
}

// newMemtable returns an empty memtable with n bytes reserved, larger than
// Options.MemtableBytes
// if necessary.
func (d *DB) newMemtable(n int) (*memtable.Memtable, error) {
	if err := d.fits(n); err != nil {
		return nil, err
	}
	mem := memtable.New(max(n, d.opts.MemtableBytes))
	mem.Reserve(n)
	return mem, nil
}

// decodeBatch calls op for each operation of a log record, in order. It returns the sequence
// number of the first operation and the number of operations. Keys and values point into
// data. After an error, whatever op received must be discarded.
func decodeBatch(data []byte, op func(seq uint64, kind base.Kind, key, value []byte) error) (first uint64, count uint32, err error) {
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
			return first, count, fmt.Errorf("batch of %d operations has bytes left over", count)
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
