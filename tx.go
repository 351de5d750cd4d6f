package sift

import (
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/internal/base"
)

// Transactions are optimistic, after Kung and Robinson, On Optimistic Methods for
// Concurrency Control (TODS 1981), with backward validation: a Tx reads a snapshot,
// buffers its writes, and records the keys and ranges that it reads. Commit searches these
// for entries that are newer than the snapshot (txcheck.go), and the leader of the commit
// group does so for entries written since that search (txrecent.go). If there are none, the
// result is as if the transaction had run at the moment of its commit. So transactions are
// serializable, in the order of their sequence numbers.
//
// The snapshot also preserves what the check needs: of the entries of a key that are newer
// than the snapshot, compactions keep at least the newest, tombstones included.

// Tx is a transaction. It reads the database as it was when the transaction began, with
// its own writes on top, and Commit applies the writes atomically. Transactions are
// serializable: those that commit behave as if they had run one after another. Begin and
// Transact create them.
//
// Commit fails with ErrConflict if another write has changed what the transaction has
// read: keys, present or absent, and ranges that its iterators have passed over, including
// keys inserted into them. Rarely, it fails without such a write; it never succeeds with
// one. Keys that the transaction only wrote do not conflict, and a transaction that writes
// nothing never does.
//
// A transaction that takes more memory than Options.TxBytes, or lives longer than
// Options.TxLifetime, fails with ErrTxLimit, and cannot be continued. Only a transaction that
// has written nothing can continue to read beyond TxBytes; it can no longer write. After Commit
// or Discard all other methods, and its iterators, return ErrClosed.
//
// A Tx, together with its iterators, is not safe for concurrent use. End it with Commit or
// Discard: until then compactions keep the entries that it sees.
type Tx struct {
	db        *DB
	seq       uint64 // the sequence number at which it reads
	firstFile uint64 // tables with entries after seq have at least this number
	begun     time.Time
	readOnly  bool
	noSync    bool
	closed    bool
	joint     bool        // member of a joint transaction: Commit fails, and Discard does not call finish
	expired   atomic.Bool // compactions no longer keep the entries that it reads
	err       error       // matches ErrTxLimit: the transaction cannot be continued; else nil

	batch   Batch     // the writes
	written ownWrites // index over batch
	reads   readSet
	charged int // its part of MemoryMetrics.Transactions, in bytes

	older, newer *Tx // neighbors in snapshotList
}

// TxOptions configure a transaction. A nil *TxOptions and zero fields mean the
// defaults.
type TxOptions struct {
	// ReadOnly makes writes fail with ErrReadOnly. The transaction does not record what it
	// reads, so it costs no more than a Snapshot.
	ReadOnly bool
	// NoSync is WriteOptions.NoSync for the commit.
	NoSync bool
	// Tries is the maximum number of attempts of TransactWith. An attempt runs the function
	// once, rarely twice. Zero or negative: 100.
	Tries int
}

const (
	defaultTxBytes    = 64 << 20
	defaultTxLifetime = time.Minute
)

// begin implements Begin.
func (d *DB) begin(o *TxOptions) (*Tx, error) {
	if d.closed.Load() {
		return nil, ErrClosed
	}
	t := &Tx{db: d, begun: time.Now()}
	if o != nil {
		t.readOnly, t.noSync = o.ReadOnly, o.NoSync
	}
	t.readOnly = t.readOnly || d.opts.ReadOnly
	t.reads.off = t.readOnly
	t.firstFile = d.nextFile.Load() // before the sequence number
	if !t.readOnly {
		d.commit.watchers.Add(1)
	}
	d.snapshots.begin(t, &d.visible)
	if t.seq >= ownSeq {
		t.finish()
		return nil, fmt.Errorf("%w: out of sequence numbers", ErrReadOnly)
	}
	return t, nil
}

// usable returns the error with which methods fail now, or nil.
func (t *Tx) usable() error {
	switch {
	case t.closed:
		return ErrClosed
	case t.err != nil:
		return t.err
	case t.expired.Load():
		return t.expiredErr()
	}
	return nil
}

func (t *Tx) expiredErr() error {
	return fmt.Errorf("%w: open for longer than Options.TxLifetime (%v)", ErrTxLimit, t.db.opts.TxLifetime)
}

// read is called after a read of the database with the read's error. It returns an error if the
// transaction has expired meanwhile: compactions may have dropped entries that it sees.
func (t *Tx) read(err error) error {
	if t.expired.Load() {
		return t.expiredErr()
	}
	return err
}

// Get returns the value of key, or ErrNotFound. The value is a copy that the caller owns.
// Other errors are those of DB.Get, ErrTxLimit, and ErrClosed after Commit or Discard.
func (t *Tx) Get(key []byte) (value []byte, err error) {
	err = t.View(key, func(v []byte) error { value = copyOf(v); return nil })
	return value, err
}

// View is DB.View on the transaction, with the errors of Tx.Get. fn may call methods of the Tx.
func (t *Tx) View(key []byte, fn func(value []byte) error) error {
	if err := t.usable(); err != nil {
		return err
	}
	if v, kind, ok := t.written.get(t, key); ok {
		if kind == base.KindDelete {
			return ErrNotFound
		}
		return fn(v)
	}
	if err := t.noteKey(key); err != nil {
		return err
	}
	value, buf, found, err := t.db.find(key, t.seq)
	return view(value, buf, found, t.read(err), fn)
}

// Has reports whether there is a value for key. Errors are those of Get, without
// ErrNotFound.
func (t *Tx) Has(key []byte) (bool, error) {
	err := t.View(key, func([]byte) error { return nil })
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// GetMany is DB.GetMany on the transaction. Errors are those of Get, without ErrNotFound.
func (t *Tx) GetMany(keys [][]byte) ([][]byte, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	values := make([][]byte, len(keys))
	var rest [][]byte // the keys that the transaction has not written
	var at []int
	for i, key := range keys {
		if v, kind, ok := t.written.get(t, key); !ok {
			rest, at = append(rest, key), append(at, i)
		} else if kind == base.KindSet {
			values[i] = copyOf(v)
		}
	}
	for _, key := range rest {
		if err := t.noteKey(key); err != nil {
			return nil, err
		}
	}
	found, err := t.db.getMany(rest, t.seq)
	if err = t.read(err); err != nil {
		return nil, err
	}
	for i, v := range found {
		values[at[i]] = v
	}
	return values, nil
}

// NewIter is DB.NewIter on the transaction. The iterator sees the transaction's snapshot and
// the writes of the transaction before NewIter or Reset. It does not see later writes, so a
// loop can write to the range over which it iterates. Close the iterator before Commit and
// Discard; after them it fails with ErrClosed. The errors of NewIter and Iter.Err are those of
// Get, without ErrNotFound.
func (t *Tx) NewIter(o *IterOptions) (*Iter, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	it, err := t.db.openIter(o, t.seq, t)
	if err = t.read(err); err != nil && it != nil {
		it.Close()
		it = nil
	}
	return it, err
}

// Scan is DB.Scan on the transaction, with an iterator from NewIter.
func (t *Tx) Scan(o *IterOptions) iter.Seq2[Entry, error] {
	return scan(func() (*Iter, error) { return t.NewIter(o) })
}

// Put sets key to value when the transaction commits. It copies both. It returns ErrReadOnly,
// ErrTxLimit, or ErrClosed after Commit or Discard.
func (t *Tx) Put(key, value []byte) error { return t.write(base.KindSet, key, value) }

// Delete removes key when the transaction commits. It is not an error if there is no such
// key. Errors are those of Put.
func (t *Tx) Delete(key []byte) error { return t.write(base.KindDelete, key, nil) }

func (t *Tx) write(kind base.Kind, key, value []byte) error {
	if err := t.usable(); err != nil {
		return err
	}
	if t.readOnly {
		return ErrReadOnly
	}
	if t.reads.lost {
		return t.tooLarge()
	}
	t.batch.add(kind, key, value)
	if t.batch.err != nil {
		t.err = fmt.Errorf("%w: %w", ErrTxLimit, t.batch.err)
		return t.err
	}
	return t.charge()
}

// noteKey adds a key to the read set.
func (t *Tx) noteKey(key []byte) error {
	if t.reads.off {
		return nil
	}
	t.reads.addKey(lookupKey(t.db.secret, key).Hash, key)
	return t.charge()
}

// charge updates charged. If the transaction takes too much memory, charge makes it fail. A
// transaction that has written nothing only loses its read set: it can still read, but no longer
// write.
func (t *Tx) charge() error {
	used := t.reads.bytes + cap(t.batch.data) + t.written.bytes
	if used > t.db.opts.TxBytes && t.batch.count == 0 {
		t.reads.forget()
		used = t.written.bytes
	}
	if used > t.db.opts.TxBytes {
		t.err = t.tooLarge()
		return t.err
	}
	if used > t.charged {
		grown := used&^(chargeUnit-1) + chargeUnit - t.charged
		t.charged += grown
		t.db.stats.txBytes.Add(int64(grown))
	}
	return nil
}

// chargeUnit is the unit in bytes of Tx.charged, a power of two: small reads then seldom write to
// the shared counter.
const chargeUnit = 4 << 10

func (t *Tx) tooLarge() error {
	return fmt.Errorf("%w: more than Options.TxBytes (%d)", ErrTxLimit, t.db.opts.TxBytes)
}

// Commit applies the transaction's writes atomically. It ends the transaction, even if it fails. It
// returns ErrConflict, with nothing written, if other writes have changed what the transaction has
// read. Unless TxOptions.NoSync is set, the writes are durable when it returns nil; without writes
// it syncs nothing. Other errors are ErrTxLimit, ErrClosed if the transaction has ended or the
// database is closed, those of Get while it checks for conflicts, and those of Write; after
// ErrReopen, the next Open decides whether the writes are applied.
func (t *Tx) Commit() error {
	if t.closed {
		return ErrClosed
	}
	if t.joint {
		t.Discard()
		return ErrClosed
	}
	defer t.finish()
	switch {
	case t.err != nil:
		return t.err
	case t.db.closed.Load():
		return ErrClosed
	case t.batch.count == 0:
		return nil
	case t.tooOld(time.Now()):
		return t.expiredErr()
	}
	t.reads.finish()
	err := t.commit()
	switch {
	case err == nil:
		t.db.stats.txCommits.Add(1)
	case errors.Is(err, ErrConflict):
		t.db.stats.txConflicts.Add(1)
	}
	return err
}

// Discard ends the transaction without writing anything. After Commit or Discard it does
// nothing, so it can be deferred.
func (t *Tx) Discard() {
	switch {
	case t.closed:
	case t.joint: // what it has read is checked with the joint transaction, which then finishes it
		t.reads.finish()
		t.reads.close()
		t.closed = true
	default:
		t.finish()
	}
}

// tooOld reports whether the transaction has outlived Options.TxLifetime.
func (t *Tx) tooOld(now time.Time) bool {
	most := t.db.opts.TxLifetime
	return most > 0 && now.Sub(t.begun) > most
}

func (t *Tx) finish() {
	t.closed = true
	t.reads.close()
	if t.db.snapshots.end(t) {
		t.db.wakeDeletions()
	}
	if !t.readOnly {
		t.db.commit.watchers.Add(-1)
	}
	t.db.stats.txBytes.Add(-int64(t.charged))
	t.charged, t.batch, t.written, t.reads = 0, Batch{}, ownWrites{}, readSet{}
}
