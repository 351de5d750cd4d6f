package sift

import (
	"encoding/binary"
	"fmt"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// maxBatchBytes bounds what a batch takes in the log. A batch of small operations first reaches
// memtable.MaxCapacity, the bound on what it takes in a memtable.
const maxBatchBytes = 1 << 30

// Batch is a list of writes that DB.Write applies atomically: after a crash either all of
// them are there or none. A later operation on a key overrides an earlier one. A Batch cannot
// be read like a database; use a Tx to read what is not committed yet. The zero Batch is empty
// and ready for use. A Batch must not be used by several goroutines at once. A copy shares its
// memory: only one of the two may be used.
//
// A batch holds up to 1 GiB, as counted by Size; keys and values have no other bound. It must
// also fit into a memtable, where each operation takes its key, its value and 31 bytes: 3.8e9
// bytes in all, 1.9e9 on 32-bit systems. An operation that exceeds a bound is not added, nor
// are later ones, and Write rejects the batch with ErrBatchTooLarge.
type Batch struct {
	data  []byte // header and operations; empty until the first operation
	count uint32
	err   error // why an operation was rejected
	room  int   // upper bound of what the operations take in a memtable; at most memtable.MaxCapacity
}

// Put sets key to value. Both are copied.
func (b *Batch) Put(key, value []byte) { b.add(base.KindSet, key, value) }

// Delete removes key. It is not an error if there is no such key. The key is copied.
func (b *Batch) Delete(key []byte) { b.add(base.KindDelete, key, nil) }

// Len returns the number of operations.
func (b *Batch) Len() int { return int(b.count) }

// Size returns the number of bytes that the batch takes in the log: its header of 12 bytes, and
// for each operation a byte, the key, the value and their lengths.
func (b *Batch) Size() int { return len(b.data) }

// Err returns an error that matches ErrBatchTooLarge if an operation was not added, and otherwise nil.
// Write returns it, too; Len and Ops know only of the operations before it.
func (b *Batch) Err() error { return b.err }

// Reset empties the batch, forgets that an operation was rejected, and keeps the memory for
// reuse.
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

// addBatch adds the operations of a log record to memtables. room reserves n bytes, as counted
// by memtable.EntrySize, and returns the memtable to use. A batch may thus be split over
// several memtables, which must then become visible together.
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

// fits returns an error if n bytes, as counted by memtable.EntrySize, exceed the capacity of
// any memtable.
func (d *DB) fits(n int) error {
	if limit := d.opts.arenaBytes; n > limit {
		return fmt.Errorf("%w: %d bytes in memory exceed the %d bytes of a memtable", ErrBatchTooLarge, n, limit)
	}
	return nil
}

// newMemtable returns an empty memtable with n bytes reserved, larger than
// Options.MemtableBytes if necessary.
func (d *DB) newMemtable(n int) (*memtable.Memtable, error) {
	if err := d.fits(n); err != nil {
		return nil, err
	}
	mem := memtable.New(max(n, d.opts.MemtableBytes))
	mem.Reserve(n)
	return mem, nil
}
