//go:build linux

package block

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/dgraph-io/badger/v4"
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
	"go.etcd.io/bbolt"

	"github.com/siftdb/sift/internal/torture"
)

// others are the engines besides sift, with default settings except for sizes. bbolt and badger
// sync each write here: without that, they guarantee no order.
var others = []engine{
	plain,
	{"pebble", openPebble, true},
	{"goleveldb", openGoLevelDB, true},
	{"bbolt", openBolt, false},
	{"badger", openBadger, false},
}

type pebbleStore struct{ db *pebble.DB }

// quiet is pebble's logger. It panics where pebble would end the process.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func openPebble(dir string) (store, error) {
	o := &pebble.Options{Logger: quiet{}, MemTableSize: 16 << 10, L0CompactionThreshold: 2, LBaseMaxBytes: 32 << 10,
		FormatMajorVersion: pebble.FormatNewest}
	o.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 512
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	for i := range o.TargetFileSizes {
		o.TargetFileSizes[i] = 8 << 10
	}
	db, err := pebble.Open(dir, o)
	return &pebbleStore{db}, err
}

func (s *pebbleStore) Write(edits []torture.Edit, sync bool) error {
	b := s.db.NewBatch()
	defer b.Close()
	for _, e := range edits {
		var err error
		if e.Delete {
			err = b.Delete([]byte(e.Key), nil)
		} else {
			err = b.Set([]byte(e.Key), []byte(e.Value), nil)
		}
		if err != nil {
			return err
		}
	}
	return b.Commit(&pebble.WriteOptions{Sync: sync})
}

func (s *pebbleStore) Contents(keys []string) (map[string]string, error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	m, err := walk(it)
	if err != nil {
		return nil, err
	}
	return m, agree(m, keys, func(k []byte) ([]byte, bool, error) {
		v, closer, err := s.db.Get(k)
		if err != nil {
			return nil, false, ignore(err, pebble.ErrNotFound)
		}
		return v, true, closer.Close()
	})
}

func (s *pebbleStore) Tidy(n int) (durable bool, err error) {
	if n%2 == 0 {
		return true, s.db.Flush()
	}
	return false, s.db.Compact(context.Background(), []byte("key"), []byte("l"), false)
}

func (s *pebbleStore) Close() error { return s.db.Close() }

type goLevelDBStore struct{ db *leveldb.DB }

func openGoLevelDB(dir string) (store, error) {
	db, err := leveldb.OpenFile(dir, &opt.Options{Filter: filter.NewBloomFilter(10), BlockSize: 512, WriteBuffer: 8 << 10,
		CompactionTableSize: 4 << 10, CompactionTotalSize: 16 << 10, CompactionL0Trigger: 2})
	return &goLevelDBStore{db}, err
}

func (s *goLevelDBStore) Write(edits []torture.Edit, sync bool) error {
	var b leveldb.Batch
	for _, e := range edits {
		if e.Delete {
			b.Delete([]byte(e.Key))
		} else {
			b.Put([]byte(e.Key), []byte(e.Value))
		}
	}
	return s.db.Write(&b, &opt.WriteOptions{Sync: sync})
}

func (s *goLevelDBStore) Contents(keys []string) (map[string]string, error) {
	m := map[string]string{}
	it := s.db.NewIterator(nil, nil)
	for it.Next() {
		m[string(it.Key())] = string(it.Value())
	}
	it.Release()
	if err := it.Error(); err != nil {
		return nil, err
	}
	return m, agree(m, keys, func(k []byte) ([]byte, bool, error) {
		v, err := s.db.Get(k, nil)
		return v, err == nil, ignore(err, leveldb.ErrNotFound)
	})
}

func (s *goLevelDBStore) Tidy(int) (durable bool, err error) {
	return false, s.db.CompactRange(util.Range{})
}

func (s *goLevelDBStore) Close() error { return s.db.Close() }

var bucket = []byte("bucket")

type boltStore struct{ db *bbolt.DB }

func openBolt(dir string) (store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(filepath.Join(dir, "bolt.db"), 0o600, nil)
	return &boltStore{db}, err
}

func (s *boltStore) Write(edits []torture.Edit, _ bool) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		for _, e := range edits {
			if err != nil {
				break
			}
			if e.Delete {
				err = b.Delete([]byte(e.Key))
			} else {
				err = b.Put([]byte(e.Key), []byte(e.Value))
			}
		}
		return err
	})
}

func (s *boltStore) Contents(keys []string) (m map[string]string, err error) {
	m = map[string]string{}
	return m, s.db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		b := tx.Bucket(bucket)
		if b == nil {
			return nil
		}
		if err := b.ForEach(func(k, v []byte) error { m[string(k)] = string(v); return nil }); err != nil {
			return err
		}
		return agree(m, keys, func(k []byte) ([]byte, bool, error) {
			v := b.Get(k)
			return v, v != nil, nil
		})
	})
}

func (s *boltStore) Tidy(int) (durable bool, err error) { return false, nil }

func (s *boltStore) Close() error { return s.db.Close() }

type badgerStore struct{ db *badger.DB }

func openBadger(dir string) (store, error) {
	db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(true).WithMemTableSize(1 << 20).
		WithBaseTableSize(64 << 10).WithBlockSize(512).WithValueLogFileSize(1 << 20).WithValueThreshold(1 << 10).WithNumMemtables(2).
		WithBlockCacheSize(1 << 20).WithMetricsEnabled(false))
	return &badgerStore{db}, err
}

func (s *badgerStore) Write(edits []torture.Edit, _ bool) error {
	return s.db.Update(func(tx *badger.Txn) error {
		for _, e := range edits {
			var err error
			if e.Delete {
				err = tx.Delete([]byte(e.Key))
			} else {
				err = tx.Set([]byte(e.Key), []byte(e.Value))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *badgerStore) Contents(keys []string) (m map[string]string, err error) {
	m = map[string]string{}
	return m, s.db.View(func(tx *badger.Txn) error {
		it := tx.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			v, err := it.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			m[string(it.Item().KeyCopy(nil))] = string(v)
		}
		return agree(m, keys, func(k []byte) ([]byte, bool, error) {
			item, err := tx.Get(k)
			if err != nil {
				return nil, false, ignore(err, badger.ErrKeyNotFound)
			}
			v, err := item.ValueCopy(nil)
			return v, true, err
		})
	})
}

func (s *badgerStore) Tidy(int) (durable bool, err error) { return false, s.db.Flatten(1) }

func (s *badgerStore) Close() error { return s.db.Close() }

// walk returns the entries of an iterator, and closes it.
func walk(it interface {
	First() bool
	Next() bool
	Key() []byte
	Value() []byte
	Close() error
}) (map[string]string, error) {
	m := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		m[string(it.Key())] = string(it.Value())
	}
	return m, it.Close()
}

// ignore returns err, or nil if it is the error for an absent key.
func ignore(err, notFound error) error {
	if errors.Is(err, notFound) {
		return nil
	}
	return err
}

// agree compares lookups with a scan.
func agree(scan map[string]string, keys []string, get func(key []byte) (value []byte, found bool, err error)) error {
	for _, k := range keys {
		v, found, err := get([]byte(k))
		if err != nil {
			return fmt.Errorf("getting %q: %w", k, err)
		}
		if w, there := scan[k]; there != found || w != string(v) {
			return fmt.Errorf("a scan finds %.20q at %q (present: %v), but Get returns %.20q", w, k, there, v)
		}
	}
	return nil
}
