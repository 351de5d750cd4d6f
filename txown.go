package sift

import (
	"encoding/binary"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// ownSeq is the sequence number of a transaction's first write for the transaction itself. It is
// greater than that of any entry that a transaction can read from the database.
const ownSeq = 1 << 55

// ownWrites is an index over a transaction's batch, for the transaction's reads. It consists of
// memtables whose values are the positions of the values in the batch.
type ownWrites struct {
	mems    []*memtable.Memtable // newest first
	indexed int                  // number of bytes of the batch that are indexed
	ops     uint64               // number of operations that are indexed
	bytes   int                  // total capacity of the memtables
}

const (
	minOwnBytes = 1 << 10 // minimum capacity of a memtable
	maxOwnBytes = 1 << 20 // maximum capacity, except for a single larger entry
	ownValueLen = 8       // offset and length of the value, little-endian
)

// update indexes the operations that were added to the batch since the last update.
func (w *ownWrites) update(t *Tx) {
	data := t.batch.data
	if len(data) == 0 || w.indexed == len(data) {
		return
	}
	c := base.NewCursor(data[max(w.indexed, wal.BatchHeaderLen):])
	start := len(data) - c.Len()
	for c.Len() > 0 {
		kind := base.Kind(c.Uint8())
		key := c.LengthPrefixed()
		var at [ownValueLen]byte
		if kind == base.KindSet {
			value := c.LengthPrefixed()
			binary.LittleEndian.PutUint32(at[:], uint32(start+c.Offset()-len(value)))
			binary.LittleEndian.PutUint32(at[4:], uint32(len(value)))
		}
		w.add(lookupKey(t.db.secret, key).Hash, kind, key, at[:])
	}
	w.indexed = len(data)
}

func (w *ownWrites) add(hash uint64, kind base.Kind, key, at []byte) {
	size := memtable.EntrySize(len(key), len(at))
	if len(w.mems) == 0 || !w.mems[0].Reserve(size) {
		m := memtable.New(max(min(max(2*w.bytes, minOwnBytes), maxOwnBytes), size))
		m.Reserve(size)
		w.mems = append([]*memtable.Memtable{m}, w.mems...)
		w.bytes += m.Capacity()
	}
	// Add cannot fail, since the entry's size has been reserved.
	_ = w.mems[0].Add(hash, ownSeq+w.ops, kind, key, at)
	w.ops++
}

// get returns the transaction's last write to key. The value remains valid.
func (w *ownWrites) get(t *Tx, key []byte) (value []byte, kind base.Kind, ok bool) {
	w.update(t)
	if len(w.mems) == 0 {
		return nil, 0, false
	}
	hash := lookupKey(t.db.secret, key).Hash
	for _, m := range w.mems {
		if !m.MayContain(hash) {
			continue
		}
		if at, kind, _, ok := m.Find(hash, key, base.MaxSequence); ok {
			return t.batch.valueAt(at), kind, true
		}
	}
	return nil, 0, false
}

// valueAt returns the value at a position from the index.
func (b *Batch) valueAt(at []byte) []byte {
	from, n := binary.LittleEndian.Uint32(at), binary.LittleEndian.Uint32(at[4:])
	return b.data[from : from+n : from+n]
}

// iterators returns iterators over the transaction's writes so far, followed by children. lastOwn
// is the sequence number of the last of these writes, or t.seq if there are none.
func (w *ownWrites) iterators(t *Tx, children []base.Iterator) (all []base.Iterator, lastOwn uint64) {
	w.update(t)
	if w.ops == 0 {
		return children, t.seq
	}
	all = make([]base.Iterator, 0, len(w.mems)+len(children))
	for _, m := range w.mems {
		all = append(all, &ownIter{m.NewIter(), &t.batch})
	}
	return append(all, children...), ownSeq + w.ops - 1
}

// ownIter is a base.Iterator over a memtable of ownWrites.
type ownIter struct {
	*memtable.Iter
	batch *Batch
}

// Value returns the value in the batch.
func (it *ownIter) Value() []byte { return it.batch.valueAt(it.Iter.Value()) }
