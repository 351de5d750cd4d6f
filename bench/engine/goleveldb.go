package engine

import (
	"fmt"
	"sync/atomic"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/measure"
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/errors"
	lfilter "github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

func init() {
	e := Engine{
		Name:        "goleveldb",
		Version:     measure.ModuleVersion("github.com/syndtr/goleveldb"),
		Modes:       []Mode{{"", "Get"}},
		Terms:       "Get copies the value; there is no other way. A filter for each 2 KiB of data; filters and indexes are in the block cache. Block reads include those of filters and indexes.",
		Filters:     "bloom(BITS), none",
		CheckFilter: checkBloom,
		Open:        openGoLevelDB,
		RangeWays:   []string{newIter},
	}
	register(&e)
	large := e
	large.Name, large.Version, large.Variant = "goleveldb-large", "", true
	large.Terms = "goleveldb with equal memory instead of an equal cache: its cache is larger by the size of its filters and indexes, which sift keeps outside its cache."
	large.Open = func(c Config) (DB, error) {
		if c.Memory == 0 {
			c.CacheBytes += c.filtersAndIndexes()
		}
		return openGoLevelDB(c)
	}
	register(&large)
}

// filtersAndIndexes returns about how many bytes the filters and indexes take: an index of
// LevelDB's form has an entry of about 32 bytes per block.
func (c *Config) filtersAndIndexes() int64 {
	entry := int64(16 + 100)
	return int64(c.Keys)*int64(c.bloomBits())/8 + 32*int64(c.Keys)*entry/int64(max(c.BlockBytes, 1))
}

// checkBloom accepts bloom(BITS) and none.
func checkBloom(filter string) error {
	if _, ok := bitsOf(filter, "bloom"); ok || filter == "none" {
		return nil
	}
	return fmt.Errorf("filter %q is neither bloom(BITS) nor none", filter)
}

// bloomBits returns the bits per key of the configured Bloom filter; 0 for no
// filter.
func (c Config) bloomBits() int {
	if c.Filter == "none" {
		return 0
	}
	if bits, ok := bitsOf(c.Filter, "bloom"); ok {
		return bits
	}
	return c.BloomBits
}

// readCount counts reads of tables.
type readCount struct{ calls, bytes atomic.Int64 }

func (c *readCount) note(n int) {
	c.calls.Add(1)
	c.bytes.Add(int64(n))
}

func (c *readCount) counters() Counters {
	r := Unknown
	r.BlockReads, r.ReadBytes = c.calls.Load(), c.bytes.Load()
	return r
}

// countingStorage counts the reads of tables.
type countingStorage struct {
	storage.Storage
	count *readCount
}

func (s countingStorage) Open(fd storage.FileDesc) (storage.Reader, error) {
	r, err := s.Storage.Open(fd)
	if err != nil || fd.Type != storage.TypeTable {
		return r, err
	}
	return countingTable{r, s.count}, nil
}

type countingTable struct {
	storage.Reader
	count *readCount
}

func (t countingTable) ReadAt(p []byte, off int64) (int, error) {
	n, err := t.Reader.ReadAt(p, off)
	t.count.note(n)
	return n, err
}

type goLevelDB struct {
	dir   string
	db    *leveldb.DB
	store storage.Storage
	count readCount
	write opt.WriteOptions
}

func (d *goLevelDB) CountRanges(_ string, from, to *data.Keys) (int, error) {
	return countRanges(from, to, func(from, to []byte) (bool, error) {
		it := d.db.NewIterator(&util.Range{Start: from, Limit: to}, nil)
		has := it.First()
		it.Release()
		return has, it.Error()
	})
}

func openGoLevelDB(c Config) (DB, error) {
	inner, err := storage.OpenFile(c.Dir, false)
	if err != nil {
		return nil, err
	}
	d := &goLevelDB{dir: c.Dir, store: inner, write: opt.WriteOptions{Sync: c.Sync}}
	o := &opt.Options{
		BlockCacheCapacity: int(c.share(c.CacheBytes, 4, 8<<20, 1<<40)),
		WriteBuffer:        int(c.share(int64(c.WriteBufferBytes), 32, 1<<20, 64<<20)),
		BlockSize:          c.BlockBytes,
		Compression:        opt.SnappyCompression,
	}
	if c.NoCompression {
		o.Compression = opt.NoCompression
	}
	if bits := c.bloomBits(); bits > 0 {
		o.Filter = lfilter.NewBloomFilter(bits)
	}
	if d.db, err = leveldb.Open(countingStorage{inner, &d.count}, o); err != nil {
		inner.Close()
		return nil, err
	}
	return d, nil
}

func (d *goLevelDB) NewReader(string) (Reader, error) { return goLevelDBReader{d.db}, nil }

func (d *goLevelDB) NewWriter() (Writer, error) { return goLevelDBWriter{d}, nil }

func (d *goLevelDB) NewIter() (Iter, error) {
	return goLevelDBIter{d.db.NewIterator(nil, nil)}, nil
}

func (d *goLevelDB) Quiesce() error {
	return waitQuiesced(func() (int64, bool) {
		var s leveldb.DBStats
		if d.db.Stats(&s) != nil {
			return -1, true
		}
		return int64(s.IOWrite), false
	})
}

func (d *goLevelDB) Flush() error { return ErrUnsupported }

func (d *goLevelDB) Compact() error { return d.db.CompactRange(util.Range{}) }

func (d *goLevelDB) Counters() Counters { return d.count.counters() }

func (d *goLevelDB) FilterBytes() int64 { return tableFilterBytes(d.dir) }

func (d *goLevelDB) Close() error {
	err := d.db.Close()
	if cerr := d.store.Close(); err == nil {
		err = cerr
	}
	return err
}

type goLevelDBReader struct{ db *leveldb.DB }

func (r goLevelDBReader) Get(key []byte) (int, bool, error) {
	v, err := r.db.Get(key, nil)
	if err == errors.ErrNotFound {
		return 0, false, nil
	}
	return len(v), err == nil, err
}

func (r goLevelDBReader) Value(dst, key []byte) ([]byte, bool, error) {
	v, err := r.db.Get(key, nil)
	if err == errors.ErrNotFound {
		return dst, false, nil
	}
	return append(dst, v...), err == nil, err
}

func (r goLevelDBReader) Close() error { return nil }

type goLevelDBWriter struct{ d *goLevelDB }

func (w goLevelDBWriter) Put(key, value []byte) error { return w.d.db.Put(key, value, &w.d.write) }

func (w goLevelDBWriter) Delete(key []byte) error { return w.d.db.Delete(key, &w.d.write) }

func (w goLevelDBWriter) Close() error { return nil }

type goLevelDBIter struct{ iterator.Iterator }

func (i goLevelDBIter) SeekGE(key []byte) bool { return i.Seek(key) }

func (i goLevelDBIter) Close() error {
	i.Release()
	return i.Error()
}
