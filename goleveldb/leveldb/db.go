// Package leveldb is goleveldb's API on top of sift: with replace directives in go.mod,
// programs written for goleveldb run on sift. The directory remains a LevelDB database,
// which goleveldb can open.
//
// docs/goleveldb.md of the module github.com/siftdb/sift lists the differences.
package leveldb

import (
	"context"
	stderrors "errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Reader is implemented by DB and Snapshot.
type Reader interface {
	Get(key []byte, ro *opt.ReadOptions) (value []byte, err error)
	NewIterator(slice *util.Range, ro *opt.ReadOptions) iterator.Iterator
}

// DB is an open database. It is safe for concurrent use. After Close, methods that can fail return
// ErrClosed. Nil options mean the defaults.
//
// As in goleveldb, a write is durable when it returns only if WriteOptions.Sync is set. Otherwise a
// crash of the machine, but not one of the program, may lose the last writes; see also
// Options.NoSync. On a read-only database writes return ErrReadOnly.
type DB struct {
	s      *sift.DB
	stor   storage.Storage
	locker storage.Locker // of a storage in a directory
	closer io.Closer      // the storage, if Close closes it too
	blocks *sharedCache
	levels levelStats

	closed   atomic.Bool
	readOnly atomic.Bool // Options.ReadOnly, or SetReadOnly
	syncs    bool        // whether WriteOptions.Sync has an effect

	writeBuffer int // Options.WriteBuffer: a transaction spills above it

	// writers is locked shared by each write, and exclusively by a transaction.
	writers sync.RWMutex
	tr      atomic.Pointer[Transaction] // the open one, or nil
	temps   atomic.Int64                // the number of the last temporary file

	aliveSnaps, aliveIters atomic.Int32
}

// dirStorage is a Storage in a directory of the host, which it has locked.
type dirStorage interface {
	storage.Storage
	SiftDir() (string, *sift.DirLock)
}

// Open opens the database in a storage, and creates it if it is missing. Closing the DB
// does not close the storage.
//
// Damage is an error for which errors.IsCorrupted is true; Recover may help then.
func Open(stor storage.Storage, o *opt.Options) (db *DB, err error) {
	if stor == nil {
		return nil, os.ErrInvalid
	}
	if err := checkComparer(o); err != nil {
		return nil, err
	}
	return open(stor, o, func(path string, so *sift.Options) (*sift.DB, error) {
		s, err := sift.Open(path, so)
		if err == nil && so.ReadOnly && o.GetErrorIfExist() { // the store does not allow both
			return nil, stderrors.Join(sift.ErrExists, s.Close())
		}
		return s, err
	})
}

// open opens a database with how, whose path is the storage's directory, or just a name.
func open(stor storage.Storage, o *opt.Options, how func(string, *sift.Options) (*sift.DB, error)) (*DB, error) {
	so, blocks := storeOptions(o, stor)
	db := &DB{stor: stor, blocks: blocks, syncs: !o.GetNoSync(), writeBuffer: o.GetWriteBuffer()}
	db.readOnly.Store(o.GetReadOnly())
	so.Events = db.levels.events()
	path := "db"
	if dir, ok := stor.(dirStorage); ok {
		locker, err := stor.Lock()
		if err != nil {
			blocks.release()
			return nil, err
		}
		db.locker = locker
		path, so.Lock = dir.SiftDir()
	} else {
		so.FS = newStorageFS(stor)
	}
	s, err := how(path, so)
	if err != nil {
		db.unlock()
		return nil, convertOpen(err)
	}
	db.s = s
	if !so.ReadOnly {
		if err := removeTemps(stor); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}

// unlock releases what open has acquired besides the store.
func (db *DB) unlock() {
	if db.locker != nil {
		db.locker.Unlock()
	}
	db.blocks.release()
}

// OpenFile opens the database in a directory, and creates it if it is missing. See Open.
func OpenFile(path string, o *opt.Options) (db *DB, err error) {
	return openFile(path, o, o.GetReadOnly(), Open)
}

func openFile(path string, o *opt.Options, readOnly bool, how func(storage.Storage, *opt.Options) (*DB, error)) (*DB, error) {
	if err := checkComparer(o); err != nil {
		return nil, err
	}
	stor, err := storage.OpenFile(path, readOnly)
	if err != nil {
		return nil, err
	}
	db, err := how(stor, o)
	if err != nil {
		stor.Close()
		return nil, err
	}
	db.closer = stor
	return db, nil
}

// Recover rebuilds a database from its tables and logs, as far as they can be read, and
// opens it. An intact MANIFEST is used. In a directory, the old files are moved to its
// subdirectory "lost"; other storages do not keep them. ErrorIfExist and ErrorIfMissing are
// ignored: if there is no database, Recover creates an empty one. With ReadOnly, it returns
// ErrReadOnly.
func Recover(stor storage.Storage, o *opt.Options) (db *DB, err error) {
	if stor == nil {
		return nil, os.ErrInvalid
	}
	if err := checkComparer(o); err != nil {
		return nil, err
	}
	return open(stor, o, func(path string, so *sift.Options) (*sift.DB, error) {
		so.ErrorIfExists, so.ErrorIfMissing = false, false
		if so.ReadOnly {
			return nil, ErrReadOnly
		}
		if _, err := sift.Repair(path, so); err != nil && !stderrors.Is(err, sift.ErrNotExist) {
			return nil, err
		}
		return sift.Open(path, so)
	})
}

// RecoverFile is Recover for a directory.
func RecoverFile(path string, o *opt.Options) (db *DB, err error) {
	return openFile(path, o, false, Recover)
}

func (db *DB) ok() error {
	if db.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Close closes the database. An open transaction is discarded. Release iterators first: after
// Close, moves that need a file fail with ErrClosed. A second Close returns ErrClosed.
func (db *DB) Close() error {
	if !db.closed.CompareAndSwap(false, true) {
		return ErrClosed
	}
	if tr := db.tr.Load(); tr != nil {
		tr.Discard()
	}
	err := convert(db.s.Close())
	db.unlock()
	if db.closer != nil {
		if cerr := db.closer.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// Get returns the value of key, or ErrNotFound. The value belongs to the caller.
func (db *DB) Get(key []byte, ro *opt.ReadOptions) (value []byte, err error) {
	value, found, err := db.s.Lookup(key)
	switch {
	case found:
		return value, nil
	case err == nil:
		return nil, ErrNotFound
	}
	return nil, convert(err)
}

// Has reports whether there is a value for key.
func (db *DB) Has(key []byte, ro *opt.ReadOptions) (ret bool, err error) {
	ret, err = db.s.Has(key)
	if err != nil {
		return false, convert(err)
	}
	return ret, nil
}

// NewIterator returns an iterator over the current contents of a range; nil means all
// keys. It must be released.
func (db *DB) NewIterator(slice *util.Range, ro *opt.ReadOptions) iterator.Iterator {
	if err := db.ok(); err != nil {
		return iterator.NewEmptyIterator(err)
	}
	in, err := db.s.NewIter(iterOptions(slice, ro))
	return newDBIter(in, convert(err), &db.aliveIters)
}

// beginWrite waits while a transaction is open. If it returns nil, the caller must
// release writers.
func (db *DB) beginWrite() error {
	db.writers.RLock()
	err := db.writable()
	if err != nil {
		db.writers.RUnlock()
	}
	return err
}

// writable returns why the database cannot be written to, nil if it can.
func (db *DB) writable() error {
	if err := db.ok(); err != nil {
		return err
	}
	if db.readOnly.Load() {
		return ErrReadOnly
	}
	return nil
}

func (db *DB) writeOptions(wo *opt.WriteOptions) *sift.WriteOptions {
	if db.syncs && wo.GetSync() {
		return sift.Sync
	}
	return sift.NoSync
}

// Put sets key to value.
func (db *DB) Put(key, value []byte, wo *opt.WriteOptions) error {
	if err := db.beginWrite(); err != nil {
		return err
	}
	defer db.writers.RUnlock()
	return convert(db.s.Put(key, value, db.writeOptions(wo)))
}

// Delete removes key. It is not an error if the key does not exist.
func (db *DB) Delete(key []byte, wo *opt.WriteOptions) error {
	if err := db.beginWrite(); err != nil {
		return err
	}
	defer db.writers.RUnlock()
	return convert(db.s.Delete(key, db.writeOptions(wo)))
}

// Write applies a batch atomically. The batch is not changed. A nil or empty batch does nothing.
func (db *DB) Write(batch *Batch, wo *opt.WriteOptions) error {
	if err := db.ok(); err != nil || batch == nil {
		return err
	}
	if err := batch.b.Err(); err != nil || batch.Len() == 0 {
		return err
	}
	if err := db.beginWrite(); err != nil {
		return err
	}
	defer db.writers.RUnlock()
	return convert(db.s.Write(&batch.b, db.writeOptions(wo)))
}

// CompactRange compacts the tables that overlap a range, which drops deleted and overwritten
// entries. As in goleveldb, Limit itself counts as part of the range. A nil Start or Limit means no
// bound. CompactRange waits for an open transaction.
func (db *DB) CompactRange(r util.Range) error {
	if err := db.beginWrite(); err != nil {
		return err
	}
	db.writers.RUnlock()
	return convert(db.s.Compact(context.Background(), r.Start, r.Limit))
}

// SetReadOnly makes writes fail with ErrReadOnly until the database is reopened. It
// waits for an open transaction.
func (db *DB) SetReadOnly() error {
	db.writers.Lock()
	defer db.writers.Unlock()
	if err := db.writable(); err != nil {
		return err
	}
	db.readOnly.Store(true)
	return nil
}

// SizeOf returns the approximate size of each range on disk in bytes, 0 for a range
// without Limit. Memtables are not included.
func (db *DB) SizeOf(ranges []util.Range) (Sizes, error) {
	if err := db.ok(); err != nil {
		return nil, err
	}
	sizes := make(Sizes, 0, len(ranges))
	for _, r := range ranges {
		var size uint64
		if r.Limit != nil {
			var err error
			if size, err = db.s.ApproximateSize(r.Start, r.Limit); err != nil {
				return nil, convert(err)
			}
		}
		sizes = append(sizes, int64(size))
	}
	return sizes, nil
}

// Sizes are sizes in bytes.
type Sizes []int64

// Sum returns the sum.
func (sizes Sizes) Sum() (sum int64) {
	for _, n := range sizes {
		sum += n
	}
	return sum
}
