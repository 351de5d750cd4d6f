package sift

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"testing"
	"weak"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestResolveMemory checks that the defaults are small if there is little memory, and bounded if
// there is much.
func TestResolveMemory(t *testing.T) {
	mapped := func(n int64) int64 {
		if math.MaxInt == math.MaxInt32 {
			return 0
		}
		return n
	}
	for _, c := range []struct {
		limit, memory, cacheBytes int64
		memtableBytes             int
	}{
		{0, 1 << 30, 8 << 20, 16 << 20},
		{1 << 20, 1 << 20, 32 << 10, 64 << 10},
		{16 << 20, 8 << 20, 256 << 10, 512 << 10},
		{32 << 20, 16 << 20, 512 << 10, 1 << 20},
		{40 << 20, 20 << 20, 640 << 10, 1 << 20},
		{64 << 20, 32 << 20, 1 << 20, 1 << 20},
		{512 << 20, 256 << 20, 8 << 20, 8 << 20},
		{1 << 40, 1 << 39, 8 << 20, 16 << 20},
	} {
		var o Options
		o.resolveMemory(c.limit, 0)
		if o.Memory != c.memory || o.MapBytes != mapped(c.limit+c.limit/4) || o.CacheBytes != c.cacheBytes || o.MemtableBytes != c.memtableBytes {
			t.Errorf("%d bytes of memory: %d, %d mapped, cache %d, memtable %d", c.limit, o.Memory, o.MapBytes, o.CacheBytes, o.MemtableBytes)
		}
		if rest := o.spareMemory(); rest < o.Memory/4 || rest > o.Memory {
			t.Errorf("%d bytes of memory: %d of %d are left", c.limit, rest, o.Memory)
		}
		if all := gcFactor*(fullMemtables*memtableMemory(int64(o.MemtableBytes))+o.CacheBytes) + o.spareMemory(); all > o.Memory {
			t.Errorf("%d bytes of memory: %d of %d are assigned", c.limit, all, o.Memory)
		}
		given := Options{Memory: 64 << 20, MemtableBytes: 1 << 20, CacheBytes: -1, MapBytes: -1}
		want := given
		if given.resolveMemory(c.limit, 0); given.Memory != want.Memory || given.MemtableBytes != want.MemtableBytes || given.CacheBytes != want.CacheBytes || given.MapBytes != want.MapBytes || given.cacheGrows {
			t.Errorf("%d bytes of memory: the options that were set became %+v", c.limit, given)
		}
	}
	// A small address space: mappings leave three quarters of it to the heap.
	var o Options
	if o.resolveMemory(1<<30, 1<<30); o.MapBytes != mapped(1<<28) {
		t.Errorf("mapped tables may take %d of 2^30 addresses", o.MapBytes)
	}
}

// TestDivideMemory checks how memory is divided: memtables come first, three of them with an eighth
// more each, then the minimum of the block cache, then indexes, which get up to half of the rest
// and are assumed to take all of it while tables are being loaded. Filters get what is left, and so
// does a block cache that can grow, if there are no filters. All of that counts twice, since it is
// in the heap.
func TestDivideMemory(t *testing.T) {
	for _, c := range []struct {
		memory, cache                   int64
		memtable                        int
		spare, filters, loading, growth int64
	}{
		{1 << 20, 32 << 10, 1 << 20, 256 << 10, 128 << 10, 64 << 10, 128 << 10}, // the minimum of a quarter
		{4 << 20, -1, 64 << 10, 3664 << 10, 1832 << 10, 916 << 10, 0},           // no cache
		{4 << 20, 100 << 10, 64 << 10, 3464 << 10, 1732 << 10, 866 << 10, 1732 << 10},
		{6 << 20, 1 << 20, 256 << 10, 2368 << 10, 1184 << 10, 592 << 10, 1184 << 10},
	} {
		d := &DB{opts: Options{Memory: c.memory, MemtableBytes: c.memtable, CacheBytes: c.cache, BlockCache: NewBlockCache(0), cacheGrows: c.cache > 0}}
		d.loader.done = make(chan struct{})
		if got := d.opts.spareMemory(); got != c.spare {
			t.Errorf("%d bytes, memtables of %d, a cache of %d: %d are spare; want %d", c.memory, c.memtable, c.cache, got, c.spare)
		}
		loading := d.divideMemory()
		close(d.loader.done)
		filters := d.divideMemory()
		if loading != c.loading || filters != c.filters || d.filters.Limit() != filters {
			t.Errorf("%d bytes, memtables of %d, a cache of %d: filters get %d while tables are loaded, then %d; want %d and %d",
				c.memory, c.memtable, c.cache, loading, filters, c.loading, c.filters)
		}
		if got := d.opts.BlockCache.Capacity(); got != max(c.cache, 0)+c.growth {
			t.Errorf("%d bytes, memtables of %d, a cache of %d: the cache grows to %d; want %d", c.memory, c.memtable, c.cache, got, max(c.cache, 0)+c.growth)
		}
		for _, f := range []struct{ filters, indexes int64 }{{0, c.spare / 2}, {c.spare / 8, c.spare / 2}, {c.spare / 2, c.spare / 14 * 4}, {c.memory, c.spare / 8}} {
			if got := d.opts.maxIndexBytes(f.filters); max(got-f.indexes/gcFactor, f.indexes/gcFactor-got) > 8 {
				t.Errorf("%d of %d spare bytes are for filters: indexes get %d; want %d", f.filters, c.spare, got, f.indexes/gcFactor)
			}
		}
		d.opts.FilterMemory = 1000
		if got := d.divideMemory(); got != 1000 || d.filters.Limit() != 1000 {
			t.Errorf("filters get %d of %d bytes although FilterMemory is 1000", got, c.memory)
		}
	}
}

// TestGarbageOf checks that, given the size of everything live, garbageOf returns the rest of the
// heap: dead objects, the unused parts of pages, and free pages.
func TestGarbageOf(t *testing.T) {
	live, dead := make([]byte, 24<<20), make([]byte, 64<<20)
	runtime.KeepAlive(dead)
	dead = nil
	var got, want int64
	for range 10 { // other goroutines allocate, and free pages are returned to the system
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		got = int64(garbageOf(m.HeapAlloc))
		want = int64(m.HeapSys - m.HeapReleased - m.HeapAlloc)
		if want > 24<<20 && max(got-want, want-got) < 4<<20 {
			break
		}
		dead = make([]byte, 64<<20)
		runtime.KeepAlive(dead)
		dead = nil
	}
	runtime.KeepAlive(live)
	if max(got-want, want-got) >= 4<<20 {
		t.Errorf("%d bytes of garbage; want some %d", got, want)
	}
}

// TestMemoryIsACap writes and reads a database whose indexes and filters do not fit into
// Options.Memory, and checks throughout that what it holds stays within it, and that all keys are
// found.
func TestMemoryIsACap(t *testing.T) {
	o := &Options{Memory: 3 << 20, MemtableBytes: 128 << 10, TableBytes: 256 << 10, BlockBytes: 128}
	db := mustOpen(t, t.TempDir(), o)
	const keys = 100_000
	key := func(i int) []byte { // separators are so long that indexes are evicted
		return fmt.Appendf(nil, "%c-the-same-for-long-%012x", 'a'+i/20%2, uint64(i)*0x9e3779b97f4a7c15>>16)
	}
	check := func(when string, i int) {
		m := db.Metrics().Memory
		// Indexes being loaded, table metadata, and indexes loaded since the memory was last
		// divided.
		slack := uint64(64<<10) + uint64(o.Memory)/gcFactor/10
		for _, l := range db.Metrics().Levels {
			slack += 2 << 10 * uint64(l.Tables)
		}
		if held := m.Total() - m.Garbage; held > uint64(o.Memory)/gcFactor+slack {
			t.Fatalf("%s %d: %d bytes are held, want at most %d: %+v", when, i, held, uint64(o.Memory)/gcFactor+slack, m)
		}
	}
	for i := range keys {
		if err := db.Put(key(i), key(i), NoSync); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			check("write", i)
		}
	}
	for i := range keys / 20 {
		i *= 20
		value, err := db.Get(key(i))
		if err != nil || string(value) != string(key(i)) {
			t.Fatalf("key %d: %q, %v", i, value, err)
		}
		if i%1000 == 0 {
			check("read", i)
		}
	}
	if loads := db.Metrics().IndexLoads; loads == 0 || db.filters.HeldBytes() == 0 {
		t.Errorf("%d indexes were loaded again, %d bytes of filters are held", loads, db.filters.HeldBytes())
	}
	mustClose(t, db)
	if held := db.indexes.HeldBytes(); held != 0 {
		t.Errorf("%d bytes of indexes are left after Close", held)
	}
}

// TestFlushedMemtableIsFreed checks that nothing keeps a memtable in memory once it has been
// flushed.
func TestFlushedMemtableIsFreed(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &Options{cleanNow: true})
	defer mustClose(t, db)
	mem := weak.Make(db.state.Load().mem)
	if err := db.Put([]byte("key"), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if runtime.GC(); mem.Value() == nil {
			return
		}
	}
	t.Error("the memtable is still reachable")
}

// TestMemoryOfSmallIndexes checks that the small indexes of many tables take no more than seven
// eighths of what is left for indexes and filters, before and after the database is opened again,
// that all keys are found, and that filters get the rest.
func TestMemoryOfSmallIndexes(t *testing.T) {
	dir := t.TempDir()
	o := &Options{Memory: 1 << 20, MemtableBytes: 64 << 10, TableBytes: 64 << 10, BlockBytes: 64}
	db := mustOpen(t, dir, o)
	key := func(i int) []byte { return fmt.Appendf(nil, "key%012x", uint64(i)*0x9e3779b97f4a7c15>>16) }
	const keys = 100_000
	for i := range keys {
		if err := db.Put(key(i), make([]byte, 20), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	rest := db.opts.spareMemory() / gcFactor
	for _, when := range []string{"written", "opened"} {
		for i := 0; i < keys; i += 50 {
			if _, err := db.Get(key(i)); err != nil {
				t.Fatal(err)
			}
			if i%1000 != 0 {
				continue
			}
			m, tables := db.Metrics(), 0
			for _, l := range m.Levels {
				tables += l.Tables
			}
			// A table has less than 1 KiB of metadata.
			if held, limit := m.Memory.Indexes, uint64(rest/8*7); held > limit+uint64(tables)<<10 || db.indexes.HeldBytes() > int64(limit) {
				t.Fatalf("%s %d: the indexes of %d tables take %d bytes, %d with metadata; want at most %d", when, i, tables, db.indexes.HeldBytes(), held, limit)
			}
		}
		filters, indexes := db.divideMemory(), db.indexes.HeldBytes()
		if db.Metrics().IndexLoads == 0 || indexes <= rest/2 {
			t.Errorf("%s: indexes take %d of %d bytes, %d were loaded again", when, indexes, rest, db.Metrics().IndexLoads)
		}
		if filters != rest-indexes {
			t.Errorf("%s: filters may take %d bytes, with indexes of %d and %d for both", when, filters, indexes, rest)
		}
		mustClose(t, db)
		db = mustOpen(t, dir, o)
	}
	mustClose(t, db)
}

// TestCheckpointCache checks that a checkpoint does not change the size of a block cache that has
// grown into what filters leave.
func TestCheckpointCache(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &Options{Memory: 16 << 20})
	defer mustClose(t, db)
	for i := range 50_000 {
		if err := db.Put(fmt.Appendf(nil, "key%d", i), nil, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	db.filterManager.Close() // it would divide the memory again
	defer db.startFilterManager()
	db.divideMemory()
	before := db.opts.BlockCache.Capacity()
	if err := db.Checkpoint(filepath.Join(t.TempDir(), "copy")); err != nil {
		t.Fatal(err)
	}
	if after := db.opts.BlockCache.Capacity(); after != before || db.filters.HeldBytes() == 0 {
		t.Errorf("the cache had %d bytes and has %d, with filters of %d", before, after, db.filters.HeldBytes())
	}
}

// TestSpareMemoryOfHugeCache checks that a cache larger than Memory, even one without a limit,
// leaves a quarter of Memory to filters and indexes.
func TestSpareMemoryOfHugeCache(t *testing.T) {
	for _, memory := range []int64{1 << 30, math.MaxInt64} {
		for _, cache := range []int64{memory, 1<<62 + memory/2, 3 << 61, math.MaxInt64} {
			o := &Options{Memory: memory, CacheBytes: cache, BlockCache: NewBlockCache(0)}
			r, err := o.resolve()
			if err != nil {
				t.Fatal(err)
			}
			if n := r.spareMemory(); n != memory/4 {
				t.Errorf("a cache of %d bytes leaves %d of %d", cache, n, memory)
			}
		}
	}
}

// smallIndexDB returns a database without a block cache and with blocks of about two keys, of which
// an index takes 7 to 10 bytes each.
func smallIndexDB(t *testing.T, keys int, o *Options) (*DB, func(i int) []byte) {
	t.Helper()
	o.FS, o.DisableAutoCompaction = vfstest.NewMem(), true
	o.Memory, o.MemtableBytes, o.TableBytes, o.BlockBytes, o.CacheBytes = 1<<20, 64<<10, 64<<10, 64, -1
	db := mustOpen(t, "db", o)
	key := func(i int) []byte { return fmt.Appendf(nil, "key%012x", uint64(i)*0x9e3779b97f4a7c15>>16) }
	for i := range keys {
		if err := db.Put(key(i), make([]byte, 20), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	return db, key
}

// TestFilterMemoryBesideIndexes checks that small indexes leave room for the filters that
// FilterMemory allows.
func TestFilterMemoryBesideIndexes(t *testing.T) {
	const keys = 100_000
	db, key := smallIndexDB(t, keys, &Options{FilterMemory: 144 << 10})
	defer mustClose(t, db)
	db.filterManager.Rebalance(math.MaxInt64)
	for i := 0; i < keys; i += 50 {
		if _, err := db.Get(key(i)); err != nil {
			t.Fatal(err)
		}
	}
	db.divideMemory()
	filters, indexes, rest := db.filters.HeldBytes(), db.indexes.HeldBytes(), db.opts.spareMemory()/gcFactor
	if filters < 64<<10 || filters+indexes > rest {
		t.Errorf("filters of %d and indexes of %d bytes are held, of %d", filters, indexes, rest)
	}
}

// TestUnusedFilterMemory checks that indexes may take what FilterMemory allows and no filter needs.
func TestUnusedFilterMemory(t *testing.T) {
	const keys = 15_000
	db, key := smallIndexDB(t, keys, &Options{FilterMemory: 1 << 20, Filter: filter.None()})
	defer mustClose(t, db)
	db.divideMemory()
	if n, spare := db.indexes.HeldBytes(), db.opts.spareMemory(); n < 7*spare/32/gcFactor || n > 3*spare/4/gcFactor {
		t.Fatalf("indexes take %d bytes of %d", n, spare)
	}
	var before uint64
	for range 2 {
		before = db.Metrics().IndexLoads
		for i := 0; i < keys; i += 20 {
			if _, err := db.Get(key(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := db.Metrics().IndexLoads - before; n != 0 {
		t.Errorf("%d indexes were loaded again although %d bytes suffice", n, db.opts.spareMemory()/gcFactor)
	}
}

// TestIngestedOpsAreFreed checks that nothing keeps the operations of an Ingest in memory.
func TestIngestedOpsAreFreed(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &Options{cleanNow: true})
	defer mustClose(t, db)
	ingest := func() weak.Pointer[[1 << 20]byte] {
		input := new([1 << 20]byte)
		err := db.Ingest(t.Context(), func(yield func(Op, error) bool) { yield(Op{Key: []byte("k"), Value: input[:]}, nil) })
		if err != nil {
			t.Fatal(err)
		}
		return weak.Make(input)
	}
	input := ingest()
	for range 50 {
		if runtime.GC(); input.Value() == nil {
			return
		}
	}
	t.Error("the operations are still reachable")
}
