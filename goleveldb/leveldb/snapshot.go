package leveldb

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Snapshot is the state of a DB at the time of GetSnapshot. It is safe for concurrent use. After
// DB.Close its reads return ErrClosed, otherwise after Release ErrSnapshotReleased.
type Snapshot struct {
	db       *DB
	s        *sift.Snapshot
	released atomic.Bool
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

// convert converts an error of the snapshot's reads.
func (snap *Snapshot) convert(err error) error {
	if err == sift.ErrClosed && snap.released.Load() && snap.db.ok() == nil {
		return ErrSnapshotReleased
	}
	return convert(err)
}

// String returns a name with the snapshot's sequence number.
func (snap *Snapshot) String() string { return fmt.Sprintf("leveldb.Snapshot{%d}", snap.s.Sequence()) }

// Get is DB.Get on the snapshot.
func (snap *Snapshot) Get(key []byte, ro *opt.ReadOptions) (value []byte, err error) {
	value, err = snap.s.Get(key)
	return value, snap.convert(err)
}

// Has is DB.Has on the snapshot.
func (snap *Snapshot) Has(key []byte, ro *opt.ReadOptions) (ret bool, err error) {
	ret, err = snap.s.Has(key)
	return ret, snap.convert(err)
}

// NewIterator is DB.NewIterator on the snapshot. The iterator stays valid when the
// snapshot is released.
func (snap *Snapshot) NewIterator(slice *util.Range, ro *opt.ReadOptions) iterator.Iterator {
	in, err := snap.s.NewIter(iterOptions(slice, ro))
	return newDBIter(in, snap.convert(err), &snap.db.aliveIters)
}

// Release releases the snapshot. Calling it again does nothing.
func (snap *Snapshot) Release() {
	if !snap.released.CompareAndSwap(false, true) {
		return
	}
	runtime.SetFinalizer(snap, nil)
	snap.s.Close()
	snap.db.aliveSnaps.Add(-1)
}
