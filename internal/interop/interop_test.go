package interop

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siftdb/sift"
	sfilter "github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/fixtures"
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// scanner opens a database, compacts all of it if compact is set, and calls fn
// for each entry in order, after looking up its key.
type scanner func(dir string, compact bool, fn func(key, value []byte)) error

// engines are the engines that read what sift wrote. The build tag leveldb adds
// LevelDB itself.
var engines = map[string]scanner{"goleveldb": scanGoLevelDB}

// scanGoLevelDB is as strict as possible, except with a log that was not closed
// and ends in preallocated space: with StrictJournal goleveldb reports the zeros
// as damage.
func scanGoLevelDB(dir string, compact bool, fn func(key, value []byte)) error {
	strict := opt.StrictAll
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, log := range logs {
		if b, err := os.ReadFile(log); err != nil {
			return err
		} else if bytes.HasSuffix(b, make([]byte, 7)) {
			strict &^= opt.StrictJournal
		}
	}
	db, err := leveldb.OpenFile(dir, &opt.Options{Strict: strict, Filter: filter.NewBloomFilter(10), ErrorIfMissing: true})
	if err != nil {
		return err
	}
	defer db.Close()
	if compact {
		if err := db.CompactRange(util.Range{}); err != nil {
			return err
		}
	}
	it := db.NewIterator(nil, nil)
	defer it.Release()
	for it.Next() {
		value, err := db.Get(it.Key(), nil)
		if err != nil || string(value) != string(it.Value()) {
			return fmt.Errorf("Get of %q differs from the iterator: %w", it.Key(), err)
		}
		fn(it.Key(), it.Value())
	}
	return it.Error()
}

// compare reads a copy of dir with every engine.
func compare(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	for name, scan := range engines {
		for _, compact := range []bool{false, true} {
			i := 0
			err := scan(copyDir(t, dir), compact, func(key, value []byte) {
				if i < len(keys) && (string(key) != keys[i] || string(value) != want[keys[i]]) {
					t.Errorf("%s: entry %d is %q", name, i, key)
				}
				i++
			})
			if err != nil || i != len(keys) {
				t.Errorf("%s, compact %v: %d keys, %v; want %d", name, compact, i, err, len(keys))
			}
		}
	}
	// And back: sift opens what another engine has rewritten.
	for name, scan := range engines {
		back := copyDir(t, dir)
		if err := scan(back, true, func(_, _ []byte) {}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "FILTERKEY")); err == nil {
			if _, err := os.Stat(filepath.Join(back, "FILTERKEY")); err != nil {
				t.Errorf("%s removes the secret of keyed filters: %v", name, err)
			}
		}
		db, err := sift.Open(back, nil)
		if err != nil {
			t.Errorf("opening what %s left: %v", name, err)
			continue
		}
		for k, v := range want {
			if got, err := db.Get([]byte(k)); err != nil || string(got) != v {
				t.Errorf("after %s: Get(%q) = %.40q, %v", name, k, got, err)
				break
			}
		}
		found := 0
		for e, err := range db.Scan(nil) {
			if v, ok := want[string(e.Key)]; err != nil || !ok || string(e.Value) != v {
				t.Errorf("after %s: the scan returns %q = %.40q, %v", name, e.Key, e.Value, err)
				break
			}
			found++
		}
		if found != len(want) {
			t.Errorf("after %s: the scan returns %d keys, want %d", name, found, len(want))
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(to, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Chmod(name, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestFixtures has the other engines read their own databases after sift has
// recovered them, and again after it has compacted them.
func TestFixtures(t *testing.T) {
	from := fixtures.Dir(t)
	for _, f := range []struct{ dir, listing string }{
		{"leveldb-cpp-1.23/walonly", "walonly"}, {"leveldb-cpp-1.23/small", "small"},
		{"leveldb-cpp-1.23/medium", "medium"}, {"leveldb-cpp-1.23/race", "race"},
		{"goleveldb-1.0.0/walonly", "walonly"}, {"goleveldb-1.0.0/small", "small"},
		{"goleveldb-1.0.0/medium", "medium"}, {"goleveldb-1.0.0/nobloom", "small"},
		{"superset/cpp-full", "medium"}, {"superset/gol-fullonly", "medium"},
	} {
		t.Run(f.dir, func(t *testing.T) {
			want := maps.Collect(fixtures.Listing(t, f.listing))
			dir := copyDir(t, filepath.Join(from, f.dir))
			db, err := sift.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			compare(t, dir, want)
			if db, err = sift.Open(dir, nil); err != nil {
				t.Fatal(err)
			}
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			compare(t, dir, want)
		})
	}
}

// TestOwn has the other engines read databases that sift wrote: with several
// levels, with an unflushed log and durability markers in it, and with several filters.
func TestOwn(t *testing.T) {
	for name, opts := range map[string]*sift.Options{
		"default":       {},
		"levels":        {MemtableBytes: 32 << 10, TableBytes: 16 << 10, LevelBaseBytes: 64 << 10, LevelMultiplier: 4},
		"keyed":         {KeyedFilters: true, MemtableBytes: 32 << 10},
		"no filter":     {Filter: sfilter.None(), MemtableBytes: 32 << 10},
		"rocksdb bloom": {Filter: sfilter.RocksDBBloom(10), MemtableBytes: 32 << 10},
		"uncompressed":  {DisableCompression: true, MemtableBytes: 32 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db, err := sift.Open(dir, opts)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for i := range 4000 {
				o := sift.NoSync
				if i%100 < 3 {
					o = sift.Sync
				}
				k, v := fmt.Sprintf("key%05d", i*7919%5000), fmt.Sprintf("value %d %s", i, strings.Repeat("x", i%80))
				if i%5 == 4 {
					delete(want, k)
					err = db.Delete([]byte(k), o)
				} else {
					want[k] = v
					err = db.Put([]byte(k), []byte(v), o)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			// As a crash would leave it, with entries in the log.
			waitQuiet(db)
			compare(t, dir, want)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			compare(t, dir, want)
		})
	}
}

// TestDeepLevels opens a database of goleveldb with more levels than sift and LevelDB
// have, which small tables or much data cause. sift finds all of it, and leaves a
// database that the other engines can read, without tables below the last level.
func TestDeepLevels(t *testing.T) {
	dir := t.TempDir()
	small := &opt.Options{WriteBuffer: 16 << 10, CompactionTableSize: 8 << 10, CompactionTotalSize: 16 << 10, CompactionTotalSizeMultiplier: 1.1, Filter: filter.NewBloomFilter(10)}
	db, err := leveldb.OpenFile(dir, small)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	deepest := 0
	for i := 0; deepest < 8; i++ {
		if i == 200_000 {
			t.Fatalf("after %d writes goleveldb's deepest level is %d", i, deepest)
		}
		k, v := fmt.Sprintf("key%05d", i*7919%20011), fmt.Sprintf("value %d", i)
		if i%5 == 4 {
			delete(want, k)
			err = db.Delete([]byte(k), nil)
		} else {
			want[k] = v
			err = db.Put([]byte(k), []byte(v), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			var stats leveldb.DBStats
			if err := db.Stats(&stats); err != nil {
				t.Fatal(err)
			}
			for level, n := range stats.LevelTablesCounts {
				if n > 0 {
					deepest = level
				}
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{true, false} {
		db, err := sift.Open(dir, &sift.Options{ReadOnly: readOnly})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for e, err := range db.Scan(nil) {
			if err != nil {
				t.Fatal(err)
			}
			v, err := db.Get(e.Key)
			if w := want[string(e.Key)]; w != string(e.Value) || w != string(v) || err != nil {
				t.Fatalf("%q is %q in a scan and %q, %v, in a lookup; want %q", e.Key, e.Value, v, err, w)
			}
			n++
		}
		if n != len(want) {
			t.Errorf("read-only %v: %d keys, want %d", readOnly, n, len(want))
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sift.Check(context.Background(), dir, nil, func(fault error) { t.Error(fault) }); err != nil {
		t.Error(err)
	}
	compare(t, dir, want)
}

// waitQuiet returns when no flush or compaction is running: a copy of the
// directory is then what a crash would leave.
func waitQuiet(db *sift.DB) {
	for last := (sift.Metrics{}); ; {
		m := db.Metrics()
		if m.Flushes == last.Flushes && m.Compactions == last.Compactions && m.Moves == last.Moves && m.CompactReadBytes == last.CompactReadBytes {
			return
		}
		last = m
		time.Sleep(300 * time.Millisecond)
	}
}
