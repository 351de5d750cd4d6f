package engine

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/measure"
	siftfilter "github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/filter/pebblefilter"
)

// pebblePrefix is the mode that looks up through an iterator, which also probes the
// filters of the last level.
const pebblePrefix = "prefix"

func init() {
	e := Engine{
		Name:    "pebble",
		Version: measure.ModuleVersion("github.com/cockroachdb/pebble/v2"),
		Modes: []Mode{
			{"", "Get, which probes no filter in the last level"},
			{pebblePrefix, "SeekPrefixGE with UseL6Filters on one iterator for all lookups"},
		},
		Terms:       "Filters and indexes are in the block cache, and its memtables count against it. Block reads include those of filters and indexes. FormatNewest; as many concurrent compactions as processors.",
		Filters:     "bloom(BITS), none, or sift- followed by a filter policy of sift, as in sift-ribbon(7)",
		CheckFilter: func(f string) error { _, err := pebblePolicy(f, 10); return err },
		Open:        openPebble,

		DeletesRanges: true,
		RangeWays:     []string{newIter},
	}
	register(&e)
	large := e
	large.Name, large.Version, large.Variant = "pebble-large", "", true
	large.Terms = "pebble with equal memory instead of an equal cache: its cache is larger by the size of its filters, its indexes and three memtables, which sift keeps outside its cache."
	large.Open = func(c Config) (DB, error) {
		if c.Memory == 0 {
			c.CacheBytes += c.filtersAndIndexes() + 3*int64(c.WriteBufferBytes)
		}
		return openPebble(c)
	}
	register(&large)
}

// pebblePolicy returns the filter policy of a spec; nil for none.
func pebblePolicy(filter string, bits int) (pebble.FilterPolicy, error) {
	if filter == "" {
		return bloom.FilterPolicy(bits), nil
	}
	if bits, ok := bitsOf(filter, "bloom"); ok {
		return bloom.FilterPolicy(bits), nil
	}
	if filter == "none" {
		return nil, nil
	}
	if name, ok := strings.CutPrefix(filter, "sift-"); ok {
		p, err := siftfilter.Parse(name)
		if err != nil {
			return nil, err
		}
		return pebblefilter.New(p), nil
	}
	return nil, fmt.Errorf("filter %q is not bloom(BITS), none or sift-POLICY", filter)
}

// countingFS counts the reads of tables.
type countingFS struct {
	vfs.FS
	count *readCount
}

func (f countingFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	return countingFile{file, f.count}, nil
}

func (f countingFS) Unwrap() vfs.FS { return f.FS }

type countingFile struct {
	vfs.File
	count *readCount
}

func (f countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.count.note(n)
	return n, err
}

// quiet drops pebble's log.
type quiet struct{}

func (quiet) Infof(string, ...any)           {}
func (quiet) Errorf(string, ...any)          {}
func (quiet) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

type pebbleDB struct {
	db    *pebble.DB
	count readCount
	write *pebble.WriteOptions
}

func openPebble(c Config) (DB, error) {
	policy, err := pebblePolicy(c.Filter, c.BloomBits)
	if err != nil {
		return nil, err
	}
	d := &pebbleDB{write: pebble.NoSync}
	if c.Sync {
		d.write = pebble.Sync
	}
	// CockroachDB gives the cache a quarter as well.
	cache := pebble.NewCache(c.share(c.CacheBytes, 4, 8<<20, 1<<40))
	defer cache.Unref()
	o := &pebble.Options{
		Cache:              cache,
		FS:                 countingFS{vfs.Default, &d.count},
		FormatMajorVersion: pebble.FormatNewest,
		// Its default is one compaction at a time; its comments advise more where there are
		// processors for it.
		CompactionConcurrencyRange:  func() (lower, upper int) { return 1, runtime.GOMAXPROCS(0) },
		MemTableStopWritesThreshold: 3, // as many memtables as sift; its default is 2
		MemTableSize:                uint64(c.share(int64(c.WriteBufferBytes), 32, 1<<20, 64<<20)),
		Logger:                      quiet{},
	}
	for i := range o.Levels {
		l := &o.Levels[i]
		l.BlockSize = c.BlockBytes
		l.Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
		if c.NoCompression {
			l.Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
		}
		if policy != nil {
			l.FilterPolicy = policy
			l.FilterType = pebble.TableFilter
		}
	}
	if policy != nil {
		o.Filters = pebblefilter.Filters(policy)
	}
	if d.db, err = pebble.Open(c.Dir, o); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *pebbleDB) NewReader(mode string) (Reader, error) {
	if mode != pebblePrefix {
		return pebbleReader{d.db}, nil
	}
	it, err := d.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	return pebblePrefixReader{it}, err
}

func (d *pebbleDB) NewWriter() (Writer, error) { return pebbleWriter{d}, nil }

func (d *pebbleDB) NewIter() (Iter, error) {
	it, err := d.db.NewIter(nil)
	return pebbleIter{it}, err
}

func (d *pebbleDB) Quiesce() error {
	if err := d.db.Flush(); err != nil {
		return err
	}
	return waitQuiesced(func() (int64, bool) {
		m := d.db.Metrics()
		return m.Compact.Count + m.Flush.Count, m.Compact.NumInProgress+m.Flush.NumInProgress > 0
	})
}

func (d *pebbleDB) Flush() error { return d.db.Flush() }

func (d *pebbleDB) Compact() error {
	return d.db.Compact(background, []byte{0}, bytes.Repeat([]byte{0xff}, 256), false)
}

func (d *pebbleDB) DeleteRange(from, to []byte) error { return d.db.DeleteRange(from, to, d.write) }

func (d *pebbleDB) CountRanges(_ string, from, to *data.Keys) (int, error) {
	return countRanges(from, to, func(from, to []byte) (bool, error) {
		it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
		if err != nil {
			return false, err
		}
		has := it.First()
		return has, it.Close()
	})
}

func (d *pebbleDB) Counters() Counters {
	c := d.count.counters()
	m := d.db.Metrics()
	c.FilterUseful = m.Filter.Hits
	c.FilterProbes = m.Filter.Hits + m.Filter.Misses
	return c
}

func (d *pebbleDB) FilterBytes() int64 {
	levels, err := d.db.SSTables(pebble.WithProperties())
	if err != nil {
		return -1
	}
	var sum uint64
	for _, tables := range levels {
		for _, t := range tables {
			if t.Properties == nil {
				return -1
			}
			sum += t.Properties.FilterSize
		}
	}
	return int64(sum)
}

func (d *pebbleDB) Close() error { return d.db.Close() }

type pebbleReader struct{ db *pebble.DB }

func (r pebbleReader) Get(key []byte) (int, bool, error) {
	v, closer, err := r.db.Get(key)
	if err == pebble.ErrNotFound {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return len(v), true, closer.Close()
}

func (r pebbleReader) Value(dst, key []byte) ([]byte, bool, error) {
	v, closer, err := r.db.Get(key)
	if err == pebble.ErrNotFound {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, err
	}
	return append(dst, v...), true, closer.Close()
}

func (r pebbleReader) Close() error { return nil }

// pebblePrefixReader reads the state of the database when it was created.
type pebblePrefixReader struct{ it *pebble.Iterator }

func (r pebblePrefixReader) Get(key []byte) (int, bool, error) {
	if r.it.SeekPrefixGE(key) && bytes.Equal(r.it.Key(), key) {
		return len(r.it.Value()), true, nil
	}
	return 0, false, r.it.Error()
}

func (r pebblePrefixReader) Value(dst, key []byte) ([]byte, bool, error) {
	if r.it.SeekPrefixGE(key) && bytes.Equal(r.it.Key(), key) {
		return append(dst, r.it.Value()...), true, nil
	}
	return dst, false, r.it.Error()
}

func (r pebblePrefixReader) Close() error { return r.it.Close() }

type pebbleWriter struct{ d *pebbleDB }

func (w pebbleWriter) Put(key, value []byte) error { return w.d.db.Set(key, value, w.d.write) }

func (w pebbleWriter) Delete(key []byte) error { return w.d.db.Delete(key, w.d.write) }

func (w pebbleWriter) Close() error { return nil }

type pebbleIter struct{ *pebble.Iterator }
