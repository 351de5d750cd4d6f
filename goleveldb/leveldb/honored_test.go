package leveldb

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// The tests of this file check that options do what their comments say.

const (
	scatteredKeys  = 20000
	scatteredBytes = scatteredKeys * (9 + 100)
)

// scattered opens a new database and writes keys in random order, with incompressible values.
func scattered(t *testing.T, stor storage.Storage, o *opt.Options) *DB {
	t.Helper()
	db, err := Open(stor, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	r := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 100)
	for _, i := range r.Perm(scatteredKeys) {
		for j := range value {
			value[j] = byte(r.Uint32())
		}
		if err := db.Put(fmt.Appendf(nil, "key%06d", i), value, nil); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func stats(t *testing.T, db *DB) (s DBStats) {
	t.Helper()
	if err := db.Stats(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func compactAll(t *testing.T, db *DB) {
	t.Helper()
	if err := db.CompactRange(util.Range{}); err != nil {
		t.Fatal(err)
	}
}

// eventually waits up to a minute until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not within a minute: %s", what)
			return
		}
	}
}

func TestCompactionTableSize(t *testing.T) {
	for _, tc := range []struct {
		o    opt.Options
		size int
	}{
		{opt.Options{CompactionTableSize: 64 << 10}, 64 << 10},
		{opt.Options{CompactionTableSize: 256 << 10}, 256 << 10},
		{opt.Options{CompactionTableSize: 64 << 10, CompactionTableSizeMultiplier: 2}, 128 << 10},
		{opt.Options{CompactionTableSize: 64 << 10, CompactionTableSizeMultiplierPerLevel: []float64{0, 3}}, 192 << 10},
	} {
		db := scattered(t, storage.NewMemStorage(), &tc.o)
		compactAll(t, db)
		largest := 0
		for _, table := range db.s.Tables() {
			largest = max(largest, int(table.Size))
		}
		if largest < tc.size || largest > tc.size*5/4 {
			t.Errorf("%+v: the largest table has %d bytes, want about %d", tc.o, largest, tc.size)
		}
	}
}

// deepest returns the deepest level with tables.
func deepest(t *testing.T, db *DB) (level int) {
	for i, n := range stats(t, db).LevelTablesCounts {
		if n > 0 {
			level = i
		}
	}
	return level
}

// TestCompactionTotalSize checks that CompactionTotalSize bounds level 1, unless that is less than
// four memtables, and the multiplier the levels below.
func TestCompactionTotalSize(t *testing.T) {
	const writeBuffer = 32 << 10
	const base = 4 * writeBuffer / memtablesPerBuffer
	for _, tc := range []struct {
		multiplier float64
		least      int // the levels above this one cannot hold everything
	}{{2, 5}, {0, 3}} {
		db := scattered(t, storage.NewMemStorage(), &opt.Options{
			WriteBuffer: writeBuffer, CompactionTableSize: 16 << 10, CompactionTotalSize: 1 << 10, CompactionTotalSizeMultiplier: tc.multiplier,
		})
		what := fmt.Sprintf("multiplier %v: level 1 with at most %d bytes, and level %d in use", tc.multiplier, base, tc.least)
		eventually(t, what, func() bool { return stats(t, db).LevelSizes[1] <= base && deepest(t, db) >= tc.least })
	}
	for _, o := range []opt.Options{
		{CompactionTotalSize: 64 << 10, CompactionTotalSizeMultiplier: 100},
		{CompactionTotalSize: 4 * scatteredBytes},
	} {
		o.WriteBuffer, o.CompactionTableSize = writeBuffer, 16<<10
		if level := deepest(t, scattered(t, storage.NewMemStorage(), &o)); level > 2 {
			t.Errorf("CompactionTotalSize %d, multiplier %v: level %d is in use", o.CompactionTotalSize, o.CompactionTotalSizeMultiplier, level)
		}
	}
}

func TestBlockSize(t *testing.T) {
	indexes := map[int]uint64{}
	for _, size := range []int{1 << 10, 16 << 10} {
		db := scattered(t, storage.NewMemStorage(), &opt.Options{BlockSize: size})
		compactAll(t, db)
		indexes[size] = db.s.Metrics().Memory.Indexes
	}
	// There are 16 times as many blocks, but part of the bytes is per table, not per block.
	if indexes[1<<10] < 4*indexes[16<<10] {
		t.Errorf("bytes of indexes by BlockSize: %v", indexes)
	}
}

func TestCompression(t *testing.T) {
	sizes := map[opt.Compression]int64{}
	for _, c := range []opt.Compression{opt.DefaultCompression, opt.NoCompression, opt.SnappyCompression} {
		db, err := Open(storage.NewMemStorage(), &opt.Options{Compression: c})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		fill(t, db, 5000)
		compactAll(t, db)
		sizes[c] = stats(t, db).LevelSizes.Sum()
	}
	if sizes[opt.DefaultCompression] != sizes[opt.SnappyCompression] || sizes[opt.NoCompression] < 4*sizes[opt.SnappyCompression] {
		t.Errorf("bytes of tables by Compression: %v", sizes)
	}
}

// customFilter is a custom Filter.
type customFilter struct{ filter.Filter }

func (customFilter) Name() string { return "own" }

// TestFilters checks that tables get filters of 10 bits per key without NewBloomFilter, and that
// the filters of existing tables are used whatever Filter is set.
func TestFilters(t *testing.T) {
	bits := func(db *DB) float64 {
		db.s.Tables() // loads them
		return 8 * float64(db.s.Metrics().Memory.Filters) / scatteredKeys
	}
	for _, f := range []filter.Filter{nil, customFilter{filter.NewBloomFilter(5)}} {
		db := scattered(t, storage.NewMemStorage(), &opt.Options{Filter: f})
		compactAll(t, db)
		if got := bits(db); got < 9 || got > 11 {
			t.Errorf("Filter %v: %.1f bits per key", f, got)
		}
	}
	stor := storage.NewMemStorage()
	db := scattered(t, stor, &opt.Options{Filter: filter.NewBloomFilter(16)})
	compactAll(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*opt.Options{{}, {AltFilters: []filter.Filter{customFilter{}}}, {Filter: filter.NewBloomFilter(5)}} {
		db, err := Open(stor, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := bits(db); got < 14 || got > 17 {
			t.Errorf("opened with %+v: %.1f bits per key", o, got)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// openCounter is a Storage that counts the tables that are open for reading.
type openCounter struct {
	storage.Storage
	open atomic.Int32
}

type openReader struct {
	storage.Reader
	open *atomic.Int32
}

func (c *openCounter) Open(fd storage.FileDesc) (storage.Reader, error) {
	r, err := c.Storage.Open(fd)
	if err == nil && fd.Type == storage.TypeTable {
		c.open.Add(1)
		r = openReader{r, &c.open}
	}
	return r, err
}

func (r openReader) Close() error {
	r.open.Add(-1)
	return r.Reader.Close()
}

func TestOpenFilesCacheCapacity(t *testing.T) {
	for _, capacity := range []int{3, 0} {
		stor := &openCounter{Storage: storage.NewMemStorage()}
		db := scattered(t, stor, &opt.Options{CompactionTableSize: 64 << 10, OpenFilesCacheCapacity: capacity, DisableBlockCache: true})
		compactAll(t, db)
		for i := range scatteredKeys {
			if _, err := db.Get(fmt.Appendf(nil, "key%06d", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		want := func(open int) bool { return open > 10 }
		if capacity > 0 {
			want = func(open int) bool { return open <= capacity }
		}
		// Files of tables that compaction has dropped are closed in the background.
		eventually(t, fmt.Sprintf("OpenFilesCacheCapacity %d", capacity), func() bool { return want(int(stor.open.Load())) })
	}
}

func TestBlockCacheCapacity(t *testing.T) {
	for _, tc := range []struct {
		o           opt.Options
		ro          opt.ReadOptions
		least, most int
	}{
		{o: opt.Options{BlockCacheCapacity: 128 << 10}, least: 64 << 10, most: 128 << 10},
		{o: opt.Options{}, least: scatteredBytes / 2, most: opt.DefaultBlockCacheCapacity},
		{o: opt.Options{BlockCacheCapacity: -1}},
		{o: opt.Options{BlockCacher: opt.NoCacher}},
		{ro: opt.ReadOptions{DontFillCache: true}},
	} {
		db := scattered(t, storage.NewMemStorage(), &tc.o)
		compactAll(t, db)
		for range 3 {
			it := db.NewIterator(nil, &tc.ro)
			for it.Next() {
			}
			it.Release()
			if err := it.Error(); err != nil {
				t.Fatal(err)
			}
		}
		if got := stats(t, db).BlockCacheSize; got < tc.least || got > tc.most {
			t.Errorf("%+v, %+v: %d bytes in the cache, want %d to %d", tc.o, tc.ro, got, tc.least, tc.most)
		}
	}
}

func TestWriteBuffer(t *testing.T) {
	// Two memtables may become one table.
	if n := stats(t, scattered(t, storage.NewMemStorage(), &opt.Options{WriteBuffer: 96 << 10})).MemComp; n < scatteredBytes/(64<<10) {
		t.Errorf("WriteBuffer of 96 KiB: %d flushes", n)
	}
	if n := stats(t, scattered(t, storage.NewMemStorage(), &opt.Options{WriteBuffer: 6 * scatteredBytes})).MemComp; n != 0 {
		t.Errorf("WriteBuffer larger than all data: %d flushes", n)
	}
}

// TestCompactionL0Trigger checks that level 0 may hold as many bytes as with goleveldb at the same
// trigger, although memtables are smaller.
func TestCompactionL0Trigger(t *testing.T) {
	for trigger, want := range map[int]int{0: 4 * memtablesPerBuffer, 7: 7 * memtablesPerBuffer, math.MaxInt/2 + 1: 1000} {
		so, blocks := storeOptions(&opt.Options{CompactionL0Trigger: trigger}, storage.NewMemStorage())
		blocks.release()
		if so.L0Tables != want {
			t.Errorf("CompactionL0Trigger %d: %d tables, want %d", trigger, so.L0Tables, want)
		}
	}
}

func TestErrorIfAndReadOnly(t *testing.T) {
	stor := storage.NewMemStorage()
	for _, o := range []*opt.Options{{ErrorIfMissing: true}, {ErrorIfExist: true, ReadOnly: true}} {
		if _, err := Open(stor, o); !os.IsNotExist(err) {
			t.Errorf("Open of no database with %+v: %v", o, err)
		}
	}
	db, err := Open(stor, nil)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, 10)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		if _, err := Open(stor, &opt.Options{ErrorIfExist: true, ReadOnly: readOnly}); !os.IsExist(err) {
			t.Errorf("ErrorIfExist, ReadOnly %t: %v", readOnly, err)
		}
	}
	if db, err = Open(stor, &opt.Options{ReadOnly: true, ErrorIfMissing: true}); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Put(nil, nil, nil); err != ErrReadOnly {
		t.Errorf("Put in a read-only database: %v", err)
	}
	if _, err := db.Get([]byte("key00007"), nil); err != nil {
		t.Error(err)
	}
}

// TestUnlimitedLevels checks that huge sizes and multipliers do not overflow into tiny ones.
func TestUnlimitedLevels(t *testing.T) {
	for _, tc := range []struct {
		o          opt.Options
		multiplier int
	}{
		{opt.Options{CompactionTotalSize: math.MaxInt}, 10},
		{opt.Options{CompactionTotalSizeMultiplier: math.Inf(1)}, 1000},
	} {
		so, blocks := storeOptions(&tc.o, storage.NewMemStorage())
		blocks.release()
		if so.LevelBaseBytes < 1<<30 || so.LevelMultiplier != tc.multiplier {
			t.Errorf("%+v: level 1 has %d bytes, the next ones %d times as many", tc.o, so.LevelBaseBytes, so.LevelMultiplier)
		}
	}
	for _, o := range []opt.Options{{CompactionTableSize: math.MaxInt}, {CompactionTableSizeMultiplier: math.Inf(1)}} {
		so, blocks := storeOptions(&o, storage.NewMemStorage())
		blocks.release()
		if so.TableBytes != 1<<30 {
			t.Errorf("%+v: tables of %d bytes", o, so.TableBytes)
		}
	}
}
