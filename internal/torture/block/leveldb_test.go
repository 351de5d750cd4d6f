//go:build leveldb

package block

import (
	"github.com/siftdb/sift/internal/interop/cleveldb"
	"github.com/siftdb/sift/internal/interop/relay"
	"github.com/siftdb/sift/internal/torture"
)

func init() { others = append(others, engine{"leveldb", openLevelDB, true}) }

type levelDBStore struct{ db *cleveldb.Store }

func openLevelDB(dir string) (store, error) {
	db, err := cleveldb.Open(dir)
	return &levelDBStore{db}, err
}

func (s *levelDBStore) Write(edits []torture.Edit, sync bool) error {
	ops := make([]relay.Op, len(edits))
	for i, e := range edits {
		ops[i] = relay.Op{Key: []byte(e.Key), Value: []byte(e.Value), Delete: e.Delete}
	}
	return s.db.Write(ops, sync)
}

func (s *levelDBStore) Contents(keys []string) (map[string]string, error) {
	m := map[string]string{}
	if err := s.db.Scan(func(k, v []byte) { m[string(k)] = string(v) }); err != nil {
		return nil, err
	}
	return m, agree(m, keys, s.db.Get)
}

func (s *levelDBStore) Tidy(int) (durable bool, err error) { return false, s.db.Compact() }

func (s *levelDBStore) Close() error { return s.db.Close() }
