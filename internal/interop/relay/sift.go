package relay

import (
	"context"
	"errors"

	"github.com/siftdb/sift"
)

// OpenSift opens a directory with the version of sift that it is built with, with small memtables
// and tables.
func OpenSift(dir string) (Store, error) {
	db, err := sift.Open(dir, &sift.Options{MemtableBytes: 32 << 10, TableBytes: 16 << 10, LevelBaseBytes: 64 << 10, LevelMultiplier: 4})
	return siftStore{db}, err
}

type siftStore struct{ db *sift.DB }

func (s siftStore) Write(batch []Op, sync bool) error {
	var b sift.Batch
	for _, op := range batch {
		if op.Delete {
			b.Delete(op.Key)
		} else {
			b.Put(op.Key, op.Value)
		}
	}
	o := sift.NoSync
	if sync {
		o = sift.Sync
	}
	return s.db.Write(&b, o)
}

func (s siftStore) Get(key []byte) (value []byte, found bool, err error) {
	value, err = s.db.Get(key)
	if errors.Is(err, sift.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

func (s siftStore) Scan(fn func(key, value []byte)) error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	err = Walk(it, fn)
	return errors.Join(err, it.Close())
}

func (s siftStore) Compact() error { return s.db.Compact(context.Background(), nil, nil) }
func (s siftStore) Close() error   { return s.db.Close() }
