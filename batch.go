package sift

import (
	"encoding/binary"
	"fmt"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// maxBatchBytes is the maximum size of a batch in the log. A batch of small operations reaches
// memtable.MaxCapacity first, the maximum size in a memtable.
const maxBatchBytes = 1 << 30

// maxOpOverhead is the maximum number of bytes that an operation adds besides its key and its
// value: the batch's header, a kind and two lengths.
const maxOpOverhead = wal.BatchHeaderLen + 1 + 2*binary.MaxVarintLen32

// Batch is a list of writes that DB.Write applies atomically: after a crash either all or none of
// them are there. A later operation on a key overrides an earlier one. A Batch cannot be read like
// a database; use a Tx to read what is not committed yet. The zero Batch is empty and ready for
// use. A Batch is not safe for concurrent use, except that several goroutines may Write it, which
// only reads it. A copy shares the memory of the original: use only one of them.
//
// The maximum Size of a batch is some 20 bytes less than 1 GiB; keys and values have no other
// limit. A batch must also fit into a memtable of at most 3.8e9 bytes, or 1.9e9 on 32-bit systems,
// where each operation takes its key, its value and 31 bytes. A Batch ignores an operation that
// exceeds a limit, and all later ones, and Write then rejects the batch with ErrBatchTooLarge.
type Batch struct {
	data  []byte // header and operations; empty until the first operation
	count uint32
	err   error // why an operation was rejected
	room  int   // sum of memtable.EntrySize over the operations, at most memtable.MaxCapacity
}

// Put sets key to value. It copies both.
func (b *Batch) Put(key, value []byte) { b.add(base.KindSet, key, value) }

// Delete removes key. It is not an error if there is no such key. Delete copies the key.
func (b *Batch) Delete(key []byte) { b.add(base.KindDelete, key, nil) }

// Len returns the number of operations.
func (b *Batch) Len() int { return int(b.count) }

// Size returns the number of bytes that the batch takes in the log: 12 for the header, and for
// each operation a byte, the key, the value and their lengths. An empty batch takes 0 or 12 bytes.
func (b *Batch) Size() int { return len(b.data) }

// Err returns an error that matches ErrBatchTooLarge if the batch has rejected an operation, else
// nil. Write then returns the same error; Len, Ops and Dump cover only the operations before it.
func (b *Batch) Err() error { return b.err }

// Reset empties the batch, clears Err, and keeps the memory for reuse, however much it is.
func (b *Batch) Reset() { *b = Batch{data: b.data[:0]} }

func (b *Batch) add(kind base.Kind, key, value []byte) {
	room := memtable.EntrySize(len(key), len(value))
	switch {
	case b.err != nil:
		return
	case len(b.data)+maxOpOverhead+len(key)+len(value) > maxBatchBytes:
		b.err = fmt.Errorf("%w: more than %d bytes", ErrBatchTooLarge, maxBatchBytes)
		return
	case room > memtable.MaxCapacity-b.room:
		b.err = fmt.Errorf("%w: more than %d bytes in memory", ErrBatchTooLarge, memtable.MaxCapacity)
		return
	}
	if len(b.data) == 0 {
		b.data = append(b.data, make([]byte, wal.BatchHeaderLen)...)
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

// addBatch adds the operations of a log record to memtables. For each operation it calls room,
// which reserves n bytes, counted by memtable.EntrySize, in a memtable and returns it. So a batch
// may be split over several memtables, which must become visible together.
func addBatch(data []byte, secret *filter.Secret, room func(n int) (*memtable.Memtable, error)) error {
	_, _, err := wal.DecodeBatch(data, func(seq uint64, kind base.Kind, key, value []byte) error {
		mem, err := room(memtable.EntrySize(len(key), len(value)))
		if err != nil {
			return err
		}
		return mem.Add(lookupKey(secret, key).Hash, seq, kind, key, value)
	})
	return err
}

// fits returns an error if n bytes, counted by memtable.EntrySize, exceed the maximum capacity of a
// memtable.
func (d *DB) fits(n int) error {
	if limit := d.opts.arenaBytes; n > limit {
		return fmt.Errorf("%w: %d bytes in memory exceed the %d bytes of a memtable", ErrBatchTooLarge, n, limit)
	}
	return nil
}

// newMemtable returns an empty memtable with n bytes reserved. Its capacity is
// Options.MemtableBytes, or n if that is more.
func (d *DB) newMemtable(n int) (*memtable.Memtable, error) {
	if err := d.fits(n); err != nil {
		return nil, err
	}
	mem := memtable.New(max(n, d.opts.MemtableBytes))
	mem.Reserve(n)
	return mem, nil
}
