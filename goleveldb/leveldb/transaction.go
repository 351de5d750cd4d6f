package leveldb

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/memdb"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Transaction is a list of writes that it can read, and that are applied as one by
// Commit. While it is open other writes wait. It is safe for concurrent use.
//
// What is written is held in memory until Commit, which is durable when it returns
// unless Options.NoSync is set.
type Transaction struct {
	db   *DB
	base *sift.Snapshot
	own  *ownWrites

	mu     sync.RWMutex
	closed bool
}

// OpenTransaction opens a transaction. It waits for the one that is open to end. The
// transaction must be committed or discarded.
func (db *DB) OpenTransaction() (*Transaction, error) {
	if err := db.writable(); err != nil {
		return nil, err
	}
	db.writers.Lock()
	if err := db.writable(); err != nil {
		db.writers.Unlock()
		return nil, err
	}
	tr := &Transaction{db: db, base: db.s.Snapshot(), own: newOwnWrites()}
	db.setTransaction(tr)
	if db.closed.Load() { // Close may not have seen it
		tr.Discard()
		return nil, ErrClosed
	}
	return tr, nil
}

func (db *DB) setTransaction(tr *Transaction) {
	db.trMu.Lock()
	defer db.trMu.Unlock()
	db.tr = tr
}

// end closes the transaction. REQUIRES: mu.
func (tr *Transaction) end() {
	tr.closed = true
	tr.db.setTransaction(nil)
	tr.base.Close()
	tr.db.writers.Unlock()
}

// Get returns the value of key as the transaction has left it, or ErrNotFound. The
// value is the caller's.
func (tr *Transaction) Get(key []byte, ro *opt.ReadOptions) ([]byte, error) {
	tr.mu.RLock()
	defer tr.mu.RUnlock()
	if tr.closed {
		return nil, errTransactionDone
	}
	if w, ok := tr.own.get(key); ok {
		if w.deleted {
			return nil, ErrNotFound
		}
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
	if w, ok := tr.own.get(key); ok {
		return !w.deleted, nil
	}
	ok, err := tr.base.Has(key)
	return ok, convert(err)
}

// NewIterator returns an iterator over the keys of a range as the transaction has left
// them now; nil for all keys. It may outlive the transaction, and must be released.
func (tr *Transaction) NewIterator(slice *util.Range, ro *opt.ReadOptions) iterator.Iterator {
	tr.mu.RLock()
	defer tr.mu.RUnlock()
	if tr.closed {
		return iterator.NewEmptyIterator(errTransactionDone)
	}
	in, err := tr.base.NewIter(iterOptions(slice, ro))
	if err != nil {
		return newIterator(nil, err, nil)
	}
	c := &overlay{base: in, own: tr.own, seq: tr.own.seq, key: []byte{}, value: []byte{}}
	if slice != nil {
		c.lower, c.upper = bytes.Clone(slice.Start), bytes.Clone(slice.Limit)
	}
	return newIterator(c, nil, &tr.db.aliveIters)
}

// Put sets key to value.
func (tr *Transaction) Put(key, value []byte, wo *opt.WriteOptions) error {
	return tr.write(func() error { return tr.own.add(key, write{value: value}) })
}

// Delete removes key; it is no error if there is none.
func (tr *Transaction) Delete(key []byte, wo *opt.WriteOptions) error {
	return tr.write(func() error { return tr.own.add(key, write{deleted: true}) })
}

// Write applies the operations of a batch.
func (tr *Transaction) Write(b *Batch, wo *opt.WriteOptions) error {
	if b == nil || b.Len() == 0 {
		return nil
	}
	return tr.write(func() error {
		for op := range b.b.Ops() {
			if err := tr.own.add(op.Key, write{deleted: op.Delete, value: op.Value}); err != nil {
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

// Commit applies the writes and ends the transaction. After an error the transaction is
// still open: it can be committed again, or discarded.
func (tr *Transaction) Commit() error {
	if err := tr.db.ok(); err != nil {
		return err
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.closed {
		return errTransactionDone
	}
	o := sift.Sync
	if !tr.db.syncs {
		o = sift.NoSync
	}
	if err := tr.db.s.Write(tr.own.batch(), o); err != nil {
		return convert(err)
	}
	tr.end()
	return nil
}

// Discard ends the transaction and drops its writes, unless it has ended.
func (tr *Transaction) Discard() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !tr.closed {
		tr.end()
	}
}

// write is an operation of a transaction.
type write struct {
	deleted bool
	value   []byte
}

// ownWrites are the writes of a transaction, in order of their keys, and of one key the
// newest first. The entry of a write is the key and its number, inverted, in 8 bytes,
// big-endian; its value begins with 1 for a deletion, otherwise 0.
type ownWrites struct {
	mem *memdb.DB
	seq uint64 // the number of the last one; guarded by Transaction.mu
}

const numberLen = 8

// ownOrder is the order of the entries.
type ownOrder struct{}

// Compare implements comparer.BasicComparer.
func (ownOrder) Compare(a, b []byte) int {
	if c := bytes.Compare(userKey(a), userKey(b)); c != 0 {
		return c
	}
	return bytes.Compare(a[len(a)-numberLen:], b[len(b)-numberLen:])
}

func newOwnWrites() *ownWrites { return &ownWrites{mem: memdb.New(ownOrder{}, 0)} }

func userKey(entry []byte) []byte { return entry[:len(entry)-numberLen] }

func number(entry []byte) uint64 { return ^binary.BigEndian.Uint64(entry[len(entry)-numberLen:]) }

func appendEntry(dst, key []byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, key...), ^seq)
}

func decodeWrite(value []byte) write { return write{deleted: value[0] == 1, value: value[1:]} }

func (o *ownWrites) add(key []byte, w write) error {
	o.seq++
	value := make([]byte, 1, 1+len(w.value))
	if w.deleted {
		value[0] = 1
	}
	return o.mem.Put(appendEntry(nil, key, o.seq), append(value, w.value...))
}

// get returns the newest write of a key.
func (o *ownWrites) get(key []byte) (write, bool) {
	entry, value, err := o.mem.Find(appendEntry(nil, key, o.seq))
	if err != nil || !bytes.Equal(userKey(entry), key) {
		return write{}, false
	}
	return decodeWrite(value), true
}

// first returns the first key that is not less than key, and the newest of its writes
// up to number seq.
func (o *ownWrites) first(key []byte, seq uint64) (found []byte, w write, ok bool) {
	for {
		entry, value, err := o.mem.Find(appendEntry(nil, key, seq))
		if err != nil {
			return nil, write{}, false
		}
		if number(entry) <= seq {
			return userKey(entry), decodeWrite(value), true
		}
		key = userKey(entry) // it is another key, with a newer write
	}
}

// last returns the last key that is less than key, or the last of all if key is nil, and
// the newest of its writes up to number seq.
func (o *ownWrites) last(key []byte, seq uint64) (found []byte, w write, ok bool) {
	it := o.mem.NewIterator(nil)
	defer it.Release()
	for {
		if key == nil {
			ok = it.Last()
		} else if it.Seek(appendEntry(nil, key, ^uint64(0))) {
			ok = it.Prev()
		} else {
			ok = it.Last()
		}
		if !ok {
			return nil, write{}, false
		}
		key = append([]byte{}, userKey(it.Key())...)
		if found, w, ok := o.first(key, seq); ok && bytes.Equal(found, key) {
			return found, w, true
		}
	}
}

// batch returns the newest write of each key.
func (o *ownWrites) batch() *sift.Batch {
	b := new(sift.Batch)
	for key, w, ok := o.first(nil, o.seq); ok; key, w, ok = o.first(append(bytes.Clone(key), 0), o.seq) {
		if w.deleted {
			b.Delete(key)
		} else {
			b.Put(key, w.value)
		}
	}
	return b
}

// overlay is a cursor over a database with the writes of a transaction over it. Each
// move begins at the current key, in both.
type overlay struct {
	base         *sift.Iter
	own          *ownWrites
	seq          uint64 // writes with higher numbers do not count
	lower, upper []byte
	key, value   []byte
	buf          []byte
}

// set makes a pair the current one.
func (c *overlay) set(key, value []byte) bool {
	c.key, c.value = append(c.key[:0], key...), append(c.value[:0], value...)
	return true
}

// SeekGE moves to the first key that is not less than key.
func (c *overlay) SeekGE(key []byte) bool {
	if c.lower != nil && bytes.Compare(key, c.lower) < 0 {
		key = c.lower
	}
	for {
		inBase := c.base.SeekGE(key)
		if c.base.Err() != nil {
			return false
		}
		own, w, inOwn := c.own.first(key, c.seq)
		if inOwn && c.upper != nil && bytes.Compare(own, c.upper) >= 0 {
			inOwn = false
		}
		switch {
		case !inOwn && !inBase:
			return false
		case !inOwn || inBase && bytes.Compare(c.base.Key(), own) < 0:
			return c.set(c.base.Key(), c.base.Value())
		case !w.deleted:
			return c.set(own, w.value)
		}
		key = append(append(c.buf[:0], own...), 0)
		c.buf = key
	}
}

// seekLT moves to the last key that is less than key, the last of all if key is nil.
func (c *overlay) seekLT(key []byte) bool {
	if c.upper != nil && (key == nil || bytes.Compare(key, c.upper) > 0) {
		key = c.upper
	}
	for {
		var inBase bool
		if key == nil {
			inBase = c.base.Last()
		} else {
			inBase = c.base.SeekLT(key)
		}
		if c.base.Err() != nil {
			return false
		}
		own, w, inOwn := c.own.last(key, c.seq)
		if inOwn && c.lower != nil && bytes.Compare(own, c.lower) < 0 {
			inOwn = false
		}
		switch {
		case !inOwn && !inBase:
			return false
		case !inOwn || inBase && bytes.Compare(c.base.Key(), own) > 0:
			return c.set(c.base.Key(), c.base.Value())
		case !w.deleted:
			return c.set(own, w.value)
		}
		key = own
	}
}

func (c *overlay) First() bool { return c.SeekGE([]byte{}) }
func (c *overlay) Last() bool  { return c.seekLT(nil) }

func (c *overlay) Next() bool {
	c.buf = append(append(c.buf[:0], c.key...), 0)
	return c.SeekGE(c.buf)
}

func (c *overlay) Prev() bool {
	if len(c.key) == 0 {
		return false // no key is less
	}
	c.buf = append(c.buf[:0], c.key...)
	return c.seekLT(c.buf)
}

func (c *overlay) Key() []byte   { return c.key }
func (c *overlay) Value() []byte { return c.value }
func (c *overlay) Err() error    { return c.base.Err() }
func (c *overlay) Close() error  { return c.base.Close() }
