//go:build cgo && leveldb

package engine

import (
	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine/leveldb"
)

func init() {
	register(&Engine{
		Name:        "leveldb",
		Version:     leveldb.Version(),
		Modes:       []Mode{{"", "Get into a std::string"}},
		Terms:       "The measuring loops run in C++. Get copies the value; there is no other way. Block checksums are not verified on reads (its default). A filter for each 2 KiB of data, in memory once a table is open. Tables are memory-mapped; block reads are counted in an Env.",
		Filters:     "bloom(BITS), none",
		CheckFilter: checkBloom,
		Open:        openLevelDB,
	})
}

type levelDB struct {
	db  *leveldb.DB
	dir string
}

func openLevelDB(c Config) (DB, error) {
	// Its documentation gives no shares of the memory. Indexes and filters are outside the cache.
	db, err := leveldb.Open(c.Dir, leveldb.Options{
		BloomBits: c.bloomBits(), CacheBytes: c.share(c.CacheBytes, 4, 8<<20, 1<<40), WriteBufferBytes: c.share(int64(c.WriteBufferBytes), 32, 1<<20, 64<<20),
		BlockBytes: int64(c.BlockBytes), NoCompression: c.NoCompression, Sync: c.Sync,
	})
	if err != nil {
		return nil, err
	}
	return levelDB{db, c.Dir}, nil
}

func (d levelDB) NewReader(string) (Reader, error) { return levelReader{d.db}, nil }

func (d levelDB) NewWriter() (Writer, error) { return levelWriter{d.db}, nil }

func (d levelDB) NewIter() (Iter, error) { return d.db.NewIter(), nil }

func (d levelDB) Quiesce() error {
	d.db.Flush()
	return waitQuiesced(func() (int64, bool) {
		_, _, written := d.db.Count()
		return written, false
	})
}

func (d levelDB) Flush() error {
	d.db.Flush()
	return nil
}

func (d levelDB) Compact() error {
	d.db.Compact()
	return nil
}

func (d levelDB) Counters() Counters {
	c := Unknown
	c.BlockReads, c.ReadBytes, _ = d.db.Count()
	return c
}

func (d levelDB) FilterBytes() int64 { return tableFilterBytes(d.dir) }

func (d levelDB) Close() error {
	d.db.Close()
	return nil
}

type levelReader struct{ db *leveldb.DB }

func (r levelReader) Get(key []byte) (int, bool, error) {
	v, found, err := r.db.Get(nil, key)
	return len(v), found, err
}

func (r levelReader) Value(dst, key []byte) ([]byte, bool, error) { return r.db.Get(dst, key) }

func (r levelReader) GetEach(keys *data.Keys, from, to, every int, lat []int64) (int, []int64, error) {
	return r.db.GetEach(keys, from, to, every, lat)
}

func (r levelReader) Close() error { return nil }

type levelWriter struct{ db *leveldb.DB }

func (w levelWriter) Put(key, value []byte) error { return w.db.Put(key, value) }

func (w levelWriter) Delete(key []byte) error { return w.db.Delete(key) }

func (w levelWriter) PutEach(keys, values *data.Keys, from, to, every int, lat []int64) ([]int64, error) {
	return w.db.PutEach(keys, values, from, to, every, lat)
}

func (w levelWriter) Close() error { return nil }
