package txn

import (
	"context"
	"errors"
	"path/filepath"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/siftdb/sift"
	bolt "go.etcd.io/bbolt"
)

type siftStore struct {
	db *sift.DB
	o  sift.TxOptions
}

func openSift(dir string, sync bool) (Store, error) {
	db, err := sift.Open(dir, &sift.Options{MemtableBytes: memtableBytes})
	return &siftStore{db, sift.TxOptions{NoSync: !sync, Tries: 1 << 30}}, err
}

func (s *siftStore) Transact(fn func(Txn) error) (conflicts int, err error) {
	err = s.db.TransactWith(context.Background(), &s.o, func(tx *sift.Tx) error {
		conflicts++
		return fn(tx)
	})
	return conflicts - 1, err
}

func (s *siftStore) Close() error { return s.db.Close() }

type badgerStore struct{ db *badger.DB }

func openBadger(dir string, sync bool) (Store, error) {
	db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(sync).WithMemTableSize(memtableBytes).WithValueThreshold(1 << 19).WithNumCompactors(2))
	return badgerStore{db}, err
}

func (s badgerStore) Transact(fn func(Txn) error) (conflicts int, err error) {
	for {
		err = s.db.Update(func(txn *badger.Txn) error { return fn(badgerTxn{txn}) })
		if !errors.Is(err, badger.ErrConflict) {
			return conflicts, err
		}
		conflicts++
	}
}

func (s badgerStore) Close() error { return s.db.Close() }

type badgerTxn struct{ txn *badger.Txn }

func (t badgerTxn) Get(key []byte) (value []byte, err error) {
	item, err := t.txn.Get(key)
	if err != nil {
		return nil, err
	}
	err = item.Value(func(v []byte) error { value = v; return nil })
	return value, err
}

// Put copies its arguments, because badger references them until the commit.
func (t badgerTxn) Put(key, value []byte) error { return t.txn.Set(clone(key), clone(value)) }

func clone(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

var bucket = []byte("b")

type boltStore struct {
	db     *bolt.DB
	update func(func(*bolt.Tx) error) error
}

// openBolt opens a store whose transactions run one after another. With batch,
// several are committed together, as bbolt advises for several goroutines.
func openBolt(batch bool) func(dir string, sync bool) (Store, error) {
	return func(dir string, sync bool) (Store, error) {
		db, err := bolt.Open(filepath.Join(dir, "bolt.db"), 0o644, &bolt.Options{NoSync: !sync, NoFreelistSync: !sync, FreelistType: bolt.FreelistMapType})
		if err != nil {
			return nil, err
		}
		s := boltStore{db, db.Update}
		if batch {
			s.update = db.Batch
		}
		return s, db.Update(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists(bucket)
			return err
		})
	}
}

func (s boltStore) Transact(fn func(Txn) error) (int, error) {
	return 0, s.update(func(tx *bolt.Tx) error { return fn(boltTxn{tx.Bucket(bucket)}) })
}

func (s boltStore) Close() error { return s.db.Close() }

type boltTxn struct{ b *bolt.Bucket }

func (t boltTxn) Get(key []byte) ([]byte, error) {
	v := t.b.Get(key)
	if v == nil {
		return nil, errors.New("bbolt: not found")
	}
	return v, nil
}

// Put copies the value, because bbolt references it until the commit.
func (t boltTxn) Put(key, value []byte) error { return t.b.Put(key, clone(value)) }
