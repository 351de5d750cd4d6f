package sift

import (
	"encoding/binary"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// ownSeq is the sequence number of a transaction's first own write, as its iterators see
// it. It is greater than that of any entry in the database.
const ownSeq = 1 << 55

// ownWrites is an index over a transaction's batch, built when the transaction first reads
// after a write. It is a list of memtables whose values are positions of values in the
// batch.
type ownWrites struct {
	mems    []*memtable.Memtable // newest first
	indexed int                  // bytes of the batch that are indexed
	ops     uint64               // operations that are indexed
	bytes   int                  // capacity of the memtables
}

const (
	minOwnBytes = 1 << 10
	maxOwnBytes = 1 << 20
	ownValueLen = 8 // offset and length of the value, little-endian
)

// update indexes the operations added to the batch since the last update.
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
	// It fits: its size has been reserved.
	_ = w.mems[0].Add(hash, ownSeq+w.ops, kind, key, at)
	w.ops++
}

// get returns the transaction's last write to key. The value is valid until the
// transaction ends.
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

// valueAt returns the value at a position that the index holds.
func (b *Batch) valueAt(at []byte) []byte {
	from, n := binary.LittleEndian.Uint32(at), binary.LittleEndian.Uint32(at[4:])
	return b.data[from : from+n : from+n]
}

// iterators returns iterators over the transaction's writes, followed by children, and the
// sequence number to read at.
func (w *ownWrites) iterators(t *Tx, children []base.Iterator) ([]base.Iterator, uint64) {
	w.update(t)
	if w.ops == 0 {
		return children, t.seq
	}
	all := make([]base.Iterator, 0, len(w.mems)+len(children))
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
