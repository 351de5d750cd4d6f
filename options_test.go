package sift

import (
	"errors"
	"slices"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestOptionBounds checks that the least and the greatest value of each option are valid, and that
// those beyond them are not.
func TestOptionBounds(t *testing.T) {
	for _, c := range []struct {
		name     string
		set      func(o *Options, n int)
		min, max int // max 0: none
	}{
		{"MemtableBytes", func(o *Options, n int) { o.MemtableBytes = n }, 1 << 10, 1 << 30},
		{"TableBytes", func(o *Options, n int) { o.TableBytes = n }, 1 << 10, 1 << 30},
		{"BlockBytes", func(o *Options, n int) { o.BlockBytes = n }, 64, 4 << 20},
		{"LevelMultiplier", func(o *Options, n int) { o.LevelMultiplier = n }, 2, 1000},
		{"L0Tables", func(o *Options, n int) { o.L0Tables = n }, 1, 1000},
		{"TxBytes", func(o *Options, n int) { o.TxBytes = n }, 1 << 10, 1 << 30},
		{"Memory", func(o *Options, n int) { o.Memory = int64(n) }, 1 << 20, 0},
		{"LevelBaseBytes", func(o *Options, n int) { o.LevelBaseBytes = int64(n) }, 1 << 10, 0},
		{"LevelFilters", func(o *Options, n int) { o.LevelFilters = make([]filter.Policy, n) }, 0, manifest.NumLevels},
	} {
		valid := func(n int) bool {
			var o Options
			c.set(&o, n)
			_, err := o.resolve()
			return err == nil
		}
		if !valid(c.min) || c.max > 0 && !valid(c.max) {
			t.Errorf("%s: %d or %d is not valid", c.name, c.min, c.max)
		}
		// The zero value is the default.
		if c.min > 1 && valid(c.min-1) || c.max > 0 && valid(c.max+1) {
			t.Errorf("%s: %d or %d is valid", c.name, c.min-1, c.max+1)
		}
	}
}

// TestOptionDefaults checks that options that are not set have their documented defaults.
func TestOptionDefaults(t *testing.T) {
	r, err := (&Options{Memory: 1 << 30}).resolve()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"CacheBytes", r.CacheBytes, 8_388_608},
		{"MemtableBytes", int64(r.MemtableBytes), 16_777_216},
		{"TableBytes", int64(r.TableBytes), 8_388_608},
		{"BlockBytes", int64(r.BlockBytes), 4096},
		{"LevelBaseBytes", r.LevelBaseBytes, 67_108_864},
		{"LevelMultiplier", int64(r.LevelMultiplier), 10},
		{"L0Tables", int64(r.L0Tables), 8},
		{"TxBytes", int64(r.TxBytes), 67_108_864},
		{"TxLifetime", int64(r.TxLifetime), 60_000_000_000},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d by default; want %d", c.name, c.got, c.want)
		}
	}
	for memtable, want := range map[int]int{1024: 1_048_576, 2_097_152: 1_048_576, 2_097_154: 1_048_577, 16_777_214: 8_388_607, 1 << 30: 8_388_608} {
		r, err := (&Options{Memory: 1 << 30, MemtableBytes: memtable}).resolve()
		if err != nil || r.TableBytes != want {
			t.Errorf("TableBytes is %d with memtables of %d, %v; want %d", r.TableBytes, memtable, err, want)
		}
	}
}

// TestCompactConfig checks that the size of tables is limited to a sixteenth of Memory, and that
// level 1 has room for at least four memtables.
func TestCompactConfig(t *testing.T) {
	d := &DB{opts: Options{Memory: 1 << 30, MemtableBytes: 1000, TableBytes: 2000, L0Tables: 3, LevelBaseBytes: 5000, LevelMultiplier: 7}}
	want := compact.Config{L0Trigger: 3, LevelBaseBytes: 5000, LevelBaseMin: 4000, LevelMultiplier: 7, TableBytes: 2000, MaxTableBytes: 67_108_864}
	if got := d.compactConfig(); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}

// TestFlushFilter checks that, if Filter is not set, level 0 has the filter for flushes and the
// other levels have the default; if it is set, all levels have it.
func TestFlushFilter(t *testing.T) {
	for _, o := range []Options{{}, {Filter: filter.Bloom(7)}} {
		r, err := o.resolve()
		if err != nil {
			t.Fatal(err)
		}
		for level, p := range r.LevelFilters {
			want := filter.Default()
			if o.Filter != nil {
				want = o.Filter
			} else if level == 0 {
				want = filter.DefaultForFlush()
			}
			if p.Name() != want.Name() {
				t.Errorf("level %d has %s; want %s", level, p.Name(), want.Name())
			}
		}
	}
}

// TestNoCache checks that a negative CacheBytes means no cache, and that a positive one is the size
// of the cache.
func TestNoCache(t *testing.T) {
	for bytes, want := range map[int64]int64{-1: 0, 1: 1, 1 << 20: 1 << 20} {
		o := Options{CacheBytes: bytes}
		r, err := o.resolve()
		if err != nil {
			t.Fatal(err)
		}
		if bytes < 0 && r.BlockCache != nil || bytes > 0 && (r.BlockCache == nil || r.BlockCache.Capacity() != want) {
			t.Errorf("CacheBytes %d: the cache is %v", bytes, r.BlockCache)
		}
	}
}

// TestCollects checks that the heap is collected once enough large values have been dropped since
// the last collection, and not before.
func TestCollects(t *testing.T) {
	var c collector
	if c.drop(minDropped/largeCopies - 1) {
		t.Error("the heap is collected below the minimum")
	}
	if !c.drop(1 << 40) {
		t.Error("the heap is not collected after a TiB")
	}
	c.collect()
	if n := c.dropped.Load(); n != 0 {
		t.Errorf("%d dropped bytes are left after a collection", n)
	}
}

// TestFits checks that a batch may take all of the largest memtable, and no more.
func TestFits(t *testing.T) {
	d := &DB{opts: Options{arenaBytes: 1000}}
	for n, want := range map[int]bool{0: true, 1000: true, 1001: false} {
		if err := d.fits(n); (err == nil) != want || err != nil && !errors.Is(err, ErrBatchTooLarge) {
			t.Errorf("a batch of %d bytes: %v", n, err)
		}
	}
}

// TestFilterKeyLength checks that a secret file that is a byte too short or too long counts as
// damaged.
func TestFilterKeyLength(t *testing.T) {
	mem := vfstest.NewMem()
	if err := mem.MkdirAll("db"); err != nil {
		t.Fatal(err)
	}
	if err := writeFilterKey(mem, "db", filter.Secret{1}); err != nil {
		t.Fatal(err)
	}
	path := oneFile(t, mem, "")
	whole := readFile(t, mem, path)
	if len(whole) != filterKeyLen {
		t.Fatalf("the file has %d bytes", len(whole))
	}
	for n, want := range map[int]bool{filterKeyLen - 1: false, filterKeyLen: true, filterKeyLen + 1: false, filterKeyLen + 2: false} {
		writeFile(t, mem, path, append(slices.Clone(whole), 0, 0)[:n])
		s, err := readFilterKey(mem, path)
		if (err == nil) != want || err != nil && !errors.Is(err, ErrCorruption) || want && s != (filter.Secret{1}) {
			t.Errorf("a file of %d bytes: %v", n, err)
		}
	}
}
