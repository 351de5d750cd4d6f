package leveldb

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Snapshot is the state of a DB at the time of GetSnapshot. It is safe for concurrent use. After
// Release its reads return ErrSnapshotReleased, after DB.Close ErrClosed.
type Snapshot struct {
	db *DB
	s  *sift.Snapshot

	mu       sync.RWMutex
	released bool
}

// GetSnapshot returns a snapshot of the current state. It must be released.
func (db *DB) GetSnapshot() (*Snapshot, error) {
	if err := db.ok(); err != nil {
		return nil, err
	}
	s := &Snapshot{db: db, s: db.s.Snapshot()}
	db.aliveSnaps.Add(1)
	runtime.SetFinalizer(s, (*Snapshot).Release)
	return s, nil
}

// use returns why the snapshot cannot be used. If it returns nil, the caller holds mu for
// reading, and the snapshot stays usable until it releases mu.
func (snap *Snapshot) use() error {
	snap.mu.RLock()
	err := snap.db.ok()
	if err == nil && snap.released {
		err = ErrSnapshotReleased
	}
	if err != nil {
		snap.mu.RUnlock()
	}
	return err
}

// String returns a name with the snapshot's sequence number.
func (snap *Snapshot) String() string { return fmt.Sprintf("leveldb.Snapshot{%d}", snap.s.Sequence()) }

// Get is DB.Get on the snapshot.
func (snap *Snapshot) Get(key []byte, ro *opt.ReadOptions) (value []byte, err error) {
	if err := snap.use(); err != nil {
		return nil, err
	}
	defer snap.mu.RUnlock()
	value, err = snap.s.Get(key)
	return value, convert(err)
}

// Has is DB.Has on the snapshot.
func (snap *Snapshot) Has(key []byte, ro *opt.ReadOptions) (ret bool, err error) {
	if err := snap.use(); err != nil {
		return false, err
	}
	defer snap.mu.RUnlock()
	ret, err = snap.s.Has(key)
	return ret, convert(err)
}

// NewIterator is DB.NewIterator on the snapshot. The iterator stays valid when the
// snapshot is released.
func (snap *Snapshot) NewIterator(slice *util.Range, ro *opt.ReadOptions) iterator.Iterator {
	if err := snap.use(); err != nil {
		return iterator.NewEmptyIterator(err)
	}
	defer snap.mu.RUnlock()
	in, err := snap.s.NewIter(iterOptions(slice, ro))
	return newDBIter(in, err, &snap.db.aliveIters)
}

// Release releases the snapshot. Calling it again does nothing.
func (snap *Snapshot) Release() {
	snap.mu.Lock()
	defer snap.mu.Unlock()
	if snap.released {
		return
	}
	snap.released = true
	runtime.SetFinalizer(snap, nil)
	snap.s.Close()
	snap.db.aliveSnaps.Add(-1)
}
