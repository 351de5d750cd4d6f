package sift

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Snapshot is a read-only view of the database at the moment of its creation. Creating one copies
// nothing. While it is open, compactions keep the entries that it sees; unlike an Iter, it keeps no
// old tables on disk. It is not stored on disk. After Close of the Snapshot or the DB its reads
// return ErrClosed. It is safe for concurrent use, even during Close. Close it when it is no longer
// needed.
type Snapshot struct {
	db     *DB
	seq    uint64
	closed atomic.Bool
}

// Sequence returns the number of the last write that the snapshot sees; see
// Metrics.LastSequence.
func (s *Snapshot) Sequence() uint64 { return s.seq }

// read is called after a read of the database with the read's error. It returns ErrClosed if the
// snapshot has been closed meanwhile: compactions may have dropped entries that it sees.
func (s *Snapshot) read(err error) error {
	if s.closed.Load() {
		return ErrClosed
	}
	return err
}

// Get is DB.Get on the snapshot.
func (s *Snapshot) Get(key []byte) ([]byte, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	value, err := s.db.getCopy(key, s.seq)
	if err = s.read(err); err != nil {
		return nil, err
	}
	return value, nil
}

// View is DB.View on the snapshot.
func (s *Snapshot) View(key []byte, fn func(value []byte) error) error {
	if s.closed.Load() {
		return ErrClosed
	}
	value, buf, found, err := s.db.find(key, s.seq)
	return view(value, buf, found, s.read(err), fn)
}

// Has is DB.Has on the snapshot.
func (s *Snapshot) Has(key []byte) (bool, error) {
	if s.closed.Load() {
		return false, ErrClosed
	}
	found, err := s.db.has(key, s.seq)
	err = s.read(err)
	return found && err == nil, err
}

// GetMany is DB.GetMany on the snapshot.
func (s *Snapshot) GetMany(keys [][]byte) ([][]byte, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	values, err := s.db.getMany(keys, s.seq)
	if err = s.read(err); err != nil {
		return nil, err
	}
	return values, nil
}

// NewIter is DB.NewIter on the snapshot. The iterator remains usable after the snapshot is
// closed, but can no longer be Reset.
func (s *Snapshot) NewIter(o *IterOptions) (*Iter, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	it, err := s.db.openIter(o, s.seq, nil)
	if err = s.read(err); err != nil {
		if it != nil {
			it.Close()
		}
		return nil, err
	}
	if it == nil {
		it = s.db.noIter()
	}
	it.snapshot = s
	return it, nil
}

// Close lets compactions drop the entries that only this snapshot sees. It returns nil. Closing it
// again does nothing.
func (s *Snapshot) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		if s.db.snapshots.remove(s.seq) {
			s.db.wakeDeletions()
		}
	}
	return nil
}

// snapshotList is the list of the sequence numbers of the open snapshots and transactions.
type snapshotList struct {
	mu             sync.Mutex // also held while DeleteRange drops tables
	seqs           []uint64   // ascending; one element per snapshot or transaction
	oldest, newest *Tx        // list of the open transactions that have not expired
	txs            int        // their number
	tableUsers     int        // calls that need all tables: while there are any, DeleteRange drops none
}

// keepTables adds n to the number of tableUsers. It waits while DeleteRange drops tables.
func (l *snapshotList) keepTables(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tableUsers += n
}

// add adds the sequence number that is visible now, and returns it.
func (l *snapshotList) add(visible *atomic.Uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.append(visible)
}

// append is add. REQUIRES: mu.
func (l *snapshotList) append(visible *atomic.Uint64) uint64 {
	seq := visible.Load()
	l.seqs = append(l.seqs, seq) // in order, since visible never decreases
	return seq
}

// remove removes a sequence number, and reports whether the oldest one has changed.
func (l *snapshotList) remove(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drop(seq)
}

// drop is remove. REQUIRES: mu.
func (l *snapshotList) drop(seq uint64) bool {
	i, ok := slices.BinarySearch(l.seqs, seq)
	if ok {
		l.seqs = slices.Delete(l.seqs, i, i+1)
	}
	return ok && i == 0 && (len(l.seqs) == 0 || l.seqs[0] != seq)
}

// begin adds a transaction, which reads at the sequence number that is visible now.
func (l *snapshotList) begin(t *Tx, visible *atomic.Uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.seq = l.append(visible)
	t.older, l.newest = l.newest, t
	if t.older == nil {
		l.oldest = t
	} else {
		t.older.newer = t
	}
	l.txs++
}

// fork adds t, a copy of the transaction of, which is in the list or has expired. Both read at the
// same sequence number.
func (l *snapshotList) fork(t, of *Tx) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.expired.Load() {
		t.expired.Store(true)
		return
	}
	i, _ := slices.BinarySearch(l.seqs, t.seq)
	l.seqs = slices.Insert(l.seqs, i, t.seq)
	t.older, t.newer, of.newer = of, of.newer, t
	if t.newer == nil {
		l.newest = t
	} else {
		t.newer.older = t
	}
	l.txs++
}

// end removes a transaction, unless it has expired and was removed then. It reports whether the
// oldest sequence number has changed.
func (l *snapshotList) end(t *Tx) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !t.expired.Load() && l.unlink(t)
}

// unlink removes a transaction, and reports whether the oldest sequence number has changed.
// REQUIRES: mu.
func (l *snapshotList) unlink(t *Tx) bool {
	if t.older == nil {
		l.oldest = t.newer
	} else {
		t.older.newer = t.newer
	}
	if t.newer == nil {
		l.newest = t.older
	} else {
		t.newer.older = t.older
	}
	t.older, t.newer = nil, nil
	l.txs--
	return l.drop(t.seq)
}

// expire removes the transactions that have outlived Options.TxLifetime. Later boundaries do not
// protect the entries that they read; a transaction checks after each read whether it has expired.
// REQUIRES: mu.
func (l *snapshotList) expire(now time.Time) {
	for t := l.oldest; t != nil && t.tooOld(now); t = l.oldest {
		t.expired.Store(true)
		l.unlink(t)
	}
}

// boundaries returns the sequence numbers at which readers may read, strictly ascending: those of
// the snapshots, and the one that is visible now. Later readers read at that one or a higher one.
func (l *snapshotList) boundaries(visible *atomic.Uint64) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(time.Now())
	return slices.Compact(append(slices.Clone(l.seqs), visible.Load()))
}

// len returns the number of open snapshots, and of open transactions that have not expired.
func (l *snapshotList) len() (snapshots, txs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seqs) - l.txs, l.txs
}
