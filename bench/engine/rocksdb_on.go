//go:build cgo && rocksdb

package engine

import (
	"fmt"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine/rocksdb"
)

func init() {
	e := Engine{
		Name:          "rocksdb",
		Version:       rocksdb.Version(),
		Modes:         []Mode{{"", "Get into a PinnableSlice"}},
		Terms:         "The measuring loops run in C++. Block checksums are verified on every read. Filters and indexes are in memory; max_background_jobs 2 and max_write_buffer_number 3; level_compaction_dynamic_level_bytes and bytes_per_sync 1 MiB, as its tuning guide advises; otherwise the defaults of its version.",
		DeletesRanges: true,
		RangeWays:     []string{newIter},
		Filters:       "bloom(BITS), ribbon(BITS) with the false positive rate of a Bloom filter of BITS bits per key, none",
		CheckFilter:   checkRocksFilter,
		Open:          func(c Config) (DB, error) { return openRocks(c, false) },
	}
	register(&e)
	mapped := e
	mapped.Name, mapped.Version, mapped.Variant = "rocksdb-mmap", "", true
	mapped.Terms = "rocksdb with allow_mmap_reads: tables are memory-mapped."
	mapped.Open = func(c Config) (DB, error) { return openRocks(c, true) }
	register(&mapped)
}

func checkRocksFilter(filter string) error {
	if _, ok := bitsOf(filter, "ribbon"); ok {
		return nil
	}
	if checkBloom(filter) != nil {
		return fmt.Errorf("filter %q is not bloom(BITS), ribbon(BITS) or none", filter)
	}
	return nil
}

type rocksDB struct{ db *rocksdb.DB }

func openRocks(c Config, mmap bool) (DB, error) {
	o := rocksdb.Options{
		BloomBits: c.bloomBits(), CacheBytes: c.share(c.CacheBytes, 3, 8<<20, 1<<40), WriteBufferBytes: c.share(int64(c.WriteBufferBytes), 32, 1<<20, 64<<20),
		BlockBytes: int64(c.BlockBytes), PrefixBytes: c.PrefixBytes, NoCompression: c.NoCompression, Sync: c.Sync,
		// As "Memory usage in RocksDB" advises, indexes and filters are in the cache, so that one
		// limit bounds all of them; "Setup Options and Basic Tuning" gives the cache a third of the
		// memory.
		AllInCache:  c.Memory > 0 && !c.FiltersInMemory,
		Partitioned: c.PartitionFilters,
		MmapReads:   mmap,
	}
	if bits, ok := bitsOf(c.Filter, "ribbon"); ok {
		o.BloomBits, o.Ribbon = bits, true
	}
	db, err := rocksdb.Open(c.Dir, o)
	if err != nil {
		return nil, err
	}
	return rocksDB{db}, nil
}

func (d rocksDB) NewReader(string) (Reader, error) { return rocksReader(d), nil }

func (d rocksDB) NewWriter() (Writer, error) { return rocksWriter(d), nil }

func (d rocksDB) NewIter() (Iter, error) { return d.db.NewIter(), nil }

func (d rocksDB) Quiesce() error {
	if err := d.db.Flush(); err != nil {
		return err
	}
	return waitQuiesced(func() (int64, bool) { return 0, d.db.Busy() })
}

func (d rocksDB) Flush() error { return d.db.Flush() }

func (d rocksDB) Compact() error { return d.db.Compact() }

func (d rocksDB) DeleteRange(from, to []byte) error { return d.db.DeleteRange(from, to) }

func (d rocksDB) CountRanges(_ string, from, to *data.Keys) (int, error) {
	return d.db.CountRanges(from, to)
}

func (d rocksDB) Counters() Counters {
	c := Unknown
	var no, positive int64
	c.BlockReads, c.ReadBytes, no, positive = d.db.Count()
	c.FilterProbes, c.FilterUseful = no+positive, no
	return c
}

func (d rocksDB) FilterBytes() int64 { return d.db.FilterBytes() }

func (d rocksDB) Close() error {
	d.db.Close()
	return nil
}

type rocksReader struct{ db *rocksdb.DB }

func (r rocksReader) Get(key []byte) (int, bool, error) {
	v, found, err := r.db.Get(nil, key)
	return len(v), found, err
}

func (r rocksReader) Value(dst, key []byte) ([]byte, bool, error) { return r.db.Get(dst, key) }

func (r rocksReader) GetEach(keys *data.Keys, from, to, every int, lat []int64) (int, []int64, error) {
	return r.db.GetEach(keys, from, to, every, lat)
}

func (r rocksReader) GetMany(keys [][]byte) (int, error) {
	list := data.NewKeys(len(keys), 32)
	for _, k := range keys {
		list.Add(k)
	}
	return r.db.GetMany(list)
}

func (r rocksReader) Close() error { return nil }

type rocksWriter struct{ db *rocksdb.DB }

func (w rocksWriter) Put(key, value []byte) error { return w.db.Put(key, value) }

func (w rocksWriter) Delete(key []byte) error { return w.db.Delete(key) }

func (w rocksWriter) PutEach(keys, values *data.Keys, from, to, every int, lat []int64) ([]int64, error) {
	return w.db.PutEach(keys, values, from, to, every, lat)
}

func (w rocksWriter) Close() error { return nil }
