package leveldb

import (
	"bytes"
	"context"
	"sync"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Transaction collects writes, which Commit applies atomically. Its reads see them. While it is
// open, other writes wait. It is safe for concurrent use. After Commit or Discard its other methods
// return an error. The options of its reads and writes are ignored, except DontFillCache of an
// iterator.
//
// Writes are kept in memory up to the size of the write buffer, and beyond that in temporary files
// of the storage, which Commit merges into tables. They are durable when Commit returns, unless
// Options.NoSync is set and they fit into the write buffer and into 256 MiB.
type Transaction struct {
	db     *DB
	base   *sift.Snapshot
	writes *txWrites

	mu     sync.RWMutex
	closed bool
}

// OpenTransaction begins a transaction, which must be committed or discarded. If another one is
// open, OpenTransaction waits until it ends.
func (db *DB) OpenTransaction() (*Transaction, error) {
	if err := db.writable(); err != nil {
		return nil, err
	}
	db.writers.Lock()
	if err := db.writable(); err != nil {
		db.writers.Unlock()
		return nil, err
	}
	tr := &Transaction{db: db, base: db.s.Snapshot(), writes: newTxWrites(db)}
	db.tr.Store(tr)
	if db.closed.Load() { // Close may not have seen tr
		tr.Discard()
		return nil, ErrClosed
	}
	return tr, nil
}

// end closes the transaction. REQUIRES: mu.
func (tr *Transaction) end() {
	tr.closed = true
	tr.db.tr.Store(nil)
	tr.base.Close()
	tr.writes.unref()
	tr.db.writers.Unlock()
}

// Get returns the value of key, including the transaction's writes, or ErrNotFound. The value
// belongs to the caller.
func (tr *Transaction) Get(key []byte, ro *opt.ReadOptions) ([]byte, error) {
	tr.mu.RLock()
	defer tr.mu.RUnlock()
	if tr.closed {
		return nil, errTransactionDone
	}
	w, ok, err := tr.writes.get(key)
	switch {
	case err != nil:
		return nil, err
	case ok && w.deleted:
		return nil, ErrNotFound
	case ok:
		return append([]byte{}, w.value...), nil
	}
	value, err := tr.base.Get(key)
	return value, convert(err)
}

// Has reports whether there is a value for key.
func (tr *Transaction) Has(key []byte, ro *opt.ReadOptions) (bool, error) {
	tr.mu.RLock()
	defer tr.mu.RUnlock()
	if tr.closed {
		return false, errTransactionDone
	}
	w, ok, err := tr.writes.get(key)
	if ok || err != nil {
		return ok && !w.deleted, err
	}
	ok, err = tr.base.Has(key)
	return ok, convert(err)
}

// NewIterator returns an iterator over the keys of a range; nil means all keys. It sees the
// transaction's earlier writes. It may outlive the transaction, and must be released.
func (tr *Transaction) NewIterator(slice *util.Range, ro *opt.ReadOptions) iterator.Iterator {
	tr.mu.RLock()
	defer tr.mu.RUnlock()
	if tr.closed {
		return iterator.NewEmptyIterator(errTransactionDone)
	}
	in, err := tr.base.NewIter(iterOptions(slice, ro))
	if err != nil {
		return iterator.NewEmptyIterator(convert(err))
	}
	c := newOverlay(in, tr.writes)
	if slice != nil {
		c.lower, c.upper = bytes.Clone(slice.Start), bytes.Clone(slice.Limit)
	}
	return &txIter{txCursor{c}, newIter(c, &tr.db.aliveIters)}
}

// Put sets key to value.
func (tr *Transaction) Put(key, value []byte, wo *opt.WriteOptions) error {
	return tr.write(func() error { return tr.writes.add(key, write{value: value}) })
}

// Delete removes key. It is not an error if the key does not exist.
func (tr *Transaction) Delete(key []byte, wo *opt.WriteOptions) error {
	return tr.write(func() error { return tr.writes.add(key, write{deleted: true}) })
}

// Write applies the operations of a batch, one by one: after an error the transaction may have some
// of them.
func (tr *Transaction) Write(b *Batch, wo *opt.WriteOptions) error {
	if b == nil {
		return nil
	}
	if err := b.b.Err(); err != nil || b.Len() == 0 {
		return err
	}
	return tr.write(func() error {
		for op := range b.b.Ops() {
			if err := tr.writes.add(op.Key, write{deleted: op.Delete, value: op.Value}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (tr *Transaction) write(f func() error) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.closed {
		return errTransactionDone
	}
	return f()
}

// Commit applies the writes and ends the transaction. After an error the transaction is still
// open, and can be committed again or discarded.
func (tr *Transaction) Commit() error {
	if err := tr.db.ok(); err != nil {
		return err
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.closed {
		return errTransactionDone
	}
	if err := tr.apply(); err != nil {
		return convert(err)
	}
	tr.end()
	return nil
}

// Discard ends the transaction and drops its writes. It does nothing if the transaction has
// ended.
func (tr *Transaction) Discard() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !tr.closed {
		tr.end()
	}
}

// maxCommitBatch is the size in bytes above which writes in memory are not committed as a batch:
// the write buffer may be larger than the 1 GiB that a batch holds.
var maxCommitBatch = 256 << 20

// apply applies the writes.
func (tr *Transaction) apply() error {
	if len(tr.writes.runs) > 0 || tr.writes.mem.Size() > maxCommitBatch {
		return tr.db.s.Ingest(context.Background(), tr.writes.ops())
	}
	b := new(sift.Batch)
	for op, err := range tr.writes.ops() {
		switch {
		case err != nil:
			return err
		case op.Delete:
			b.Delete(op.Key)
		default:
			b.Put(op.Key, op.Value)
		}
	}
	o := sift.Sync
	if !tr.db.syncs {
		o = sift.NoSync
	}
	return tr.db.s.Write(b, o)
}
