package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"testing"

	"github.com/siftdb/sift"
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// store is what the benchmark needs of an engine.
type store interface {
	put(key, value []byte) error
	has(key []byte) (bool, error)
	compact() error
	close() error
}

type siftStore struct{ db *sift.DB }

func (s siftStore) put(k, v []byte) error { return s.db.Put(k, v, sift.NoSync) }
func (s siftStore) has(k []byte) (bool, error) {
	_, err := s.db.Get(k)
	if errors.Is(err, sift.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
func (s siftStore) compact() error { return s.db.Compact(context.Background(), nil, nil) }
func (s siftStore) close() error   { return s.db.Close() }

type goStore struct{ db *leveldb.DB }

func (s goStore) put(k, v []byte) error { return s.db.Put(k, v, nil) }
func (s goStore) has(k []byte) (bool, error) {
	_, err := s.db.Get(k, nil)
	if errors.Is(err, leveldb.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
func (s goStore) compact() error { return s.db.CompactRange(util.Range{}) }
func (s goStore) close() error   { return s.db.Close() }

func openStores(b *testing.B) map[string]store {
	b.Helper()
	tmp := b.TempDir()
	s, err := sift.Open(tmp+"/sift", &sift.Options{CacheBytes: 8 << 20, MemtableBytes: 4 << 20})
	if err != nil {
		b.Fatal(err)
	}
	g, err := leveldb.OpenFile(tmp+"/goleveldb", &opt.Options{Filter: filter.NewBloomFilter(10), BlockCacheCapacity: 8 << 20, WriteBuffer: 4 << 20})
	if err != nil {
		b.Fatal(err)
	}
	return map[string]store{"sift": siftStore{s}, "goleveldb": goStore{g}}
}

// BenchmarkBeside runs the same work on sift and goleveldb in turn: the same
// keys of 16 bytes and values of 100, the same cache, memtable and filter bits.
func BenchmarkBeside(b *testing.B) {
	const keys = 500_000
	value := make([]byte, 100)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := 0; i < 50; i += 8 {
		binary.LittleEndian.PutUint64(value[i:], rng.Uint64())
	}
	key := func(random bool, i uint64) []byte {
		x := i
		if random {
			x *= 0x9e3779b97f4a7c15
		}
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(make([]byte, 0, 16), x), i)
	}
	for _, random := range []bool{false, true} {
		stores := openStores(b)
		kind := map[bool]string{false: "seq", true: "random"}[random]
		for _, name := range []string{"sift", "goleveldb"} {
			b.Run("fill"+kind+"/"+name, func(b *testing.B) {
				for i := range b.N {
					if err := stores[name].put(key(random, uint64(2*i)), value); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		for _, name := range []string{"sift", "goleveldb"} {
			for i := range keys {
				if err := stores[name].put(key(random, uint64(2*i)), value); err != nil {
					b.Fatal(err)
				}
			}
			if err := stores[name].compact(); err != nil {
				b.Fatal(err)
			}
		}
		for odd, what := range []string{"present", "absent"} {
			for _, name := range []string{"sift", "goleveldb"} {
				b.Run("read-"+kind+"-"+what+"/"+name, func(b *testing.B) {
					b.ReportAllocs()
					for range b.N {
						ok, err := stores[name].has(key(random, uint64(2*rng.IntN(keys)+odd)))
						if err != nil || ok != (odd == 0) {
							b.Fatal(ok, err)
						}
					}
				})
			}
		}
		for _, s := range stores {
			if err := s.close(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
