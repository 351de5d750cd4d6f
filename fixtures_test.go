package sift_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/fixtures"
)

// copyDir copies a directory of plain files into a new temporary one.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	err := os.CopyFS(to, os.DirFS(from))
	for errors.Is(err, fs.ErrNotExist) { // an open database has removed a file
		to = t.TempDir()
		err = os.CopyFS(to, os.DirFS(from))
	}
	if err != nil {
		t.Fatal(err)
	}
	// The originals may be read-only.
	err = filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return os.Chmod(path, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// compareDB checks that the database holds exactly what is wanted.
func compareDB(t *testing.T, db *sift.DB, want map[string]string) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	i := 0
	for e, err := range db.Scan(nil) {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(keys) || string(e.Key) != keys[i] || string(e.Value) != want[keys[i]] {
			t.Fatalf("scan: entry %d is %q", i, e.Key)
		}
		i++
	}
	if i != len(keys) {
		t.Fatalf("scan: %d keys; want %d", i, len(keys))
	}
	for k, v := range want {
		if got, err := db.Get([]byte(k)); err != nil || string(got) != v {
			t.Fatalf("Get(%q) = %.40q, %v", k, got, err)
		}
	}
}

// fixtureDirs are databases of other engines; policy is that of their filters, if there are tables.
var fixtureDirs = []struct{ dir, listing, policy string }{
	{"leveldb-cpp-1.23/walonly", "walonly", "leveldb.BuiltinBloomFilter2"},
	{"leveldb-cpp-1.23/wal", "wal", "leveldb.BuiltinBloomFilter2"},
	{"leveldb-cpp-1.23/small", "small", "leveldb.BuiltinBloomFilter2"},
	{"leveldb-cpp-1.23/medium", "medium", "leveldb.BuiltinBloomFilter2"},
	{"leveldb-cpp-1.23/race", "race", "leveldb.BuiltinBloomFilter2"},
	{"goleveldb-1.0.0/walonly", "walonly", "leveldb.BuiltinBloomFilter"},
	{"goleveldb-1.0.0/wal", "wal", "leveldb.BuiltinBloomFilter"},
	{"goleveldb-1.0.0/small", "small", "leveldb.BuiltinBloomFilter"},
	{"goleveldb-1.0.0/medium", "medium", "leveldb.BuiltinBloomFilter"},
	{"goleveldb-1.0.0/nobloom", "small", "none"},
	{"superset/cpp-full", "medium", "unknown"},
	{"superset/gol-fullonly", "medium", "unknown"},
}

// TestFixtures reads databases written by other engines: read-only, as they are, after a
// compaction, and after reopening.
func TestFixtures(t *testing.T) {
	from := fixtures.Dir(t)
	for _, f := range fixtureDirs {
		t.Run(f.dir, func(t *testing.T) {
			t.Parallel()
			want := maps.Collect(fixtures.Listing(t, f.listing))
			dir := copyDir(t, filepath.Join(from, f.dir))
			ro, err := sift.Open(dir, &sift.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			compareDB(t, ro, want)
			for _, table := range ro.Tables() {
				if table.FilterPolicy != f.policy || table.FilterErr != nil {
					t.Errorf("%s has the filter %s, %v; want %s", table.Path, table.FilterPolicy, table.FilterErr, f.policy)
				}
			}
			if err := ro.Close(); err != nil {
				t.Fatal(err)
			}
			checkDir(t, dir)
			db, err := sift.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			compareDB(t, db, want)
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
			compareDB(t, db, want)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			checkDir(t, dir)
			if db, err = sift.Open(dir, nil); err != nil {
				t.Fatal(err)
			}
			compareDB(t, db, want)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func checkDir(t *testing.T, dir string) {
	t.Helper()
	if _, err := sift.Check(context.Background(), dir, nil, func(fault error) { t.Errorf("check: %v", fault) }); err != nil {
		t.Error(err)
	}
}

// TestWrongFilter checks that a table's RocksDB Bloom filter is used: that of the fixture holds
// only one absent key, so Get finds nothing.
func TestWrongFilter(t *testing.T) {
	from := fixtures.Dir(t)
	dir := copyDir(t, filepath.Join(from, "superset/cpp-full-lying"))
	faults := 0
	if _, err := sift.Check(context.Background(), dir, nil, func(error) { faults++ }); err != nil || faults == 0 {
		t.Errorf("check found %d faults in filters with false negatives, %v", faults, err)
	}
	// Read-only, as a compaction would build the filters again.
	db, err := sift.Open(dir, &sift.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.Tables() // loads the filters
	misses := 0
	for k := range fixtures.Listing(t, "medium") {
		if _, err := db.Get([]byte(k)); errors.Is(err, sift.ErrNotFound) {
			misses++
		}
	}
	if misses < 1000 {
		t.Errorf("%d keys excluded by a filter with false negatives; want most of 1878: the filter is not probed", misses)
	}
}

// outcome is the expected result of opening and reading a damaged database.
type outcome int

const (
	exact     outcome = iota // all keys
	cutOff                   // all keys but the last, and the cut is reported
	openError                // Open names a file
	readError                // Open succeeds, reads of the damaged part name a file; the rest is right
	emptyLog                 // no keys: the state of a new database
)

var corruptDirs = []struct {
	name string
	want outcome
}{
	{"cpp-ok", exact},
	{"cpp-current-dangling", openError},
	{"cpp-current-missing", openError},
	{"cpp-current-nonl", openError},
	{"cpp-data-flip", readError},
	{"cpp-filter-flip", exact},
	{"cpp-filter-zero", exact},
	{"cpp-footer-handle", exact},
	{"cpp-footer-indexhandle", readError},
	{"cpp-footer-magic", readError},
	{"cpp-index-flip", readError},
	{"cpp-log-empty", emptyLog},
	{"cpp-log-garbage-tail", exact},
	{"cpp-log-last-crc", openError},
	{"cpp-log-last-zero", cutOff},
	{"cpp-log-mid-block-lost", openError},
	{"cpp-log-mid-crc", openError},
	{"cpp-log-mid-zero", openError},
	{"cpp-log-missing", openError},
	{"cpp-log-trunc-header", cutOff},
	{"cpp-log-trunc-payload", cutOff},
	{"cpp-log-zero-tail", exact},
	{"cpp-manifest-flip", openError},
	{"cpp-manifest-trunc", openError},
	{"cpp-metaindex-flip", exact},
	{"cpp-table-empty", readError},
	{"cpp-table-missing", openError},
	{"cpp-table-truncated", readError},
}

// TestCorruptFixtures opens damaged databases: each must give the right data or an error that names
// a file, and never silently fewer keys. Repair must recover what can be read.
func TestCorruptFixtures(t *testing.T) {
	from := fixtures.Dir(t)
	for _, c := range corruptDirs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			listing := "medium"
			if strings.HasPrefix(c.name, "cpp-log-") {
				listing = "wal"
			}
			want := maps.Collect(fixtures.Listing(t, listing))
			dir := copyDir(t, filepath.Join(from, "corrupt", c.name))
			db, err := sift.Open(dir, &sift.Options{ReadOnly: true})
			if c.want == openError {
				needCorruption(t, err)
			} else if err != nil {
				t.Fatal(err)
			} else {
				readDamaged(t, db, c.want, want)
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			repairDamaged(t, dir, c.want, want)
		})
	}
}

func needCorruption(t *testing.T, err error) {
	t.Helper()
	var c *sift.CorruptionError
	if !errors.Is(err, sift.ErrCorruption) || !errors.As(err, &c) || c.Path == "" {
		t.Fatalf("got %v; want a corruption error that names a file", err)
	}
}

func readDamaged(t *testing.T, db *sift.DB, o outcome, want map[string]string) {
	torn := db.Metrics().Recovery.Torn
	got, failed := 0, 0
	for k, v := range want {
		value, err := db.Get([]byte(k))
		switch {
		case err == nil && string(value) == v:
			got++
		case err == nil:
			t.Errorf("Get(%q) = %.40q", k, value)
		case errors.Is(err, sift.ErrNotFound):
		default:
			needCorruption(t, err)
			failed++
		}
	}
	scanned := 0
	var scanErr error
	for e, err := range db.Scan(nil) {
		if err != nil {
			scanErr = err
			break
		}
		if v, ok := want[string(e.Key)]; !ok || v != string(e.Value) {
			t.Errorf("scan: wrong entry %q", e.Key)
		}
		scanned++
	}
	missing := len(want) - got - failed
	switch o {
	case exact:
		if got != len(want) || scanned != len(want) || scanErr != nil {
			t.Errorf("got %d keys, scanned %d (%v); want %d", got, scanned, scanErr, len(want))
		}
	case cutOff:
		if missing != 1 || failed != 0 || scanned != len(want)-1 || scanErr != nil || len(torn) != 1 {
			t.Errorf("%d keys missing, %d gave an error, scanned %d (%v), reported %v", missing, failed, scanned, scanErr, torn)
		} else {
			needCorruption(t, torn[0])
		}
	case readError:
		if missing != 0 || failed == 0 {
			t.Errorf("%d keys silently missing, %d gave an error", missing, failed)
		}
		needCorruption(t, scanErr)
	case emptyLog:
		if got != 0 || failed != 0 || scanned != 0 || scanErr != nil {
			t.Errorf("got %d keys from an empty log, %d gave an error, scanned %d (%v)", got, failed, scanned, scanErr)
		}
	}
}

// repairDamaged repairs a database and checks that its contents are right, and that the old
// files are still there.
func repairDamaged(t *testing.T, dir string, o outcome, want map[string]string) {
	before := readAll(t, dir)
	report, err := sift.Repair(dir, nil)
	if err != nil {
		t.Fatalf("repair: %v", err)
	}
	after := readAll(t, dir)
	for name, data := range before {
		if name == "LOCK" || name == "CURRENT" {
			continue
		}
		if after[name] != data && after[filepath.Join("lost", name)] != data {
			t.Errorf("repair destroyed %s", name)
		}
	}
	db, err := sift.Open(dir, &sift.Options{ErrorIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range db.Scan(nil) {
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := want[string(e.Key)]; !ok {
			t.Errorf("after repair: unknown key %q", e.Key)
		} else if v != string(e.Value) && len(report.Dropped) == 0 {
			t.Errorf("after repair: wrong value for %q", e.Key)
		}
		n++
	}
	if n < len(want) && len(report.Dropped) == 0 && o != emptyLog {
		t.Errorf("repair found %d of %d keys and reported nothing dropped", n, len(want))
	}
	t.Logf("repair: %d of %d keys, dropped %d", n, len(want), len(report.Dropped))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	checkDir(t, dir)
}

// readAll returns the files below a directory by relative path.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestForeignTables checks that tables of formats that are not LevelDB's are reported as
// unsupported.
func TestForeignTables(t *testing.T) {
	from := fixtures.Dir(t)
	for _, name := range []string{"rocksdb-7.8.3_fv5_crc_bloom.sst", "pebble-2.1.7_f2_bloom.sst"} {
		t.Run(name, func(t *testing.T) {
			// A database whose one table is replaced by the foreign one.
			dir := t.TempDir()
			data, err := os.ReadFile(filepath.Join(from, "tables", name))
			if err != nil {
				t.Fatal(err)
			}
			db, err := sift.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3000 {
				if err := db.Put(fmt.Appendf(nil, "key%08d", i), []byte("v"), sift.NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			tables, err := filepath.Glob(filepath.Join(dir, "*.ldb"))
			if err != nil || len(tables) != 1 {
				t.Fatal(tables, err)
			}
			size, err := os.Stat(tables[0])
			if err != nil {
				t.Fatal(err)
			}
			// Keep the size that the MANIFEST gives, and the end of the file.
			n := int(size.Size())
			if n <= len(data) {
				data = data[len(data)-n:]
			} else {
				data = append(make([]byte, n-len(data)), data...)
			}
			if err := os.WriteFile(tables[0], data, 0o644); err != nil {
				t.Fatal(err)
			}
			if db, err = sift.Open(dir, nil); err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Get([]byte("key00000001")); !errors.Is(err, sift.ErrUnsupported) || !strings.Contains(err.Error(), ".ldb") {
				t.Errorf("Get: %v; want ErrUnsupported that names the file", err)
			}
		})
	}
}

// TestDeleteRangeOtherTables deletes ranges from databases of other engines, whose tables have no
// properties, with and without an open snapshot.
func TestDeleteRangeOtherTables(t *testing.T) {
	from := fixtures.Dir(t)
	for _, f := range fixtureDirs {
		t.Run(f.dir, func(t *testing.T) {
			t.Parallel()
			all := maps.Collect(fixtures.Listing(t, f.listing))
			keys := slices.Sorted(maps.Keys(all))
			third, last := keys[len(keys)/3], keys[len(keys)-1]
			for _, r := range [][2]string{{"", ""}, {"", third}, {third, ""}, {third, last}} {
				db, err := sift.Open(copyDir(t, filepath.Join(from, f.dir)), nil)
				if err != nil {
					t.Fatal(err)
				}
				left := maps.Clone(all)
				maps.DeleteFunc(left, func(k, _ string) bool { return k >= r[0] && (r[1] == "" || k < r[1]) })
				snap := db.Snapshot()
				deleteRange(t, db, r[0], r[1])
				compareDB(t, db, left)
				if got := contents(t, snap); !maps.Equal(got, all) {
					t.Errorf("a snapshot has %d keys, and had %d", len(got), len(all))
				}
				snap.Close()
				deleteRange(t, db, r[0], r[1])
				compareDB(t, db, left)
				if err := db.Compact(context.Background(), nil, nil); err != nil {
					t.Fatal(err)
				}
				compareDB(t, db, left)
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestOtherFilters checks that LevelDB's own filters exclude absent keys, and that Check counts
// them.
func TestOtherFilters(t *testing.T) {
	from := fixtures.Dir(t)
	for _, f := range fixtureDirs {
		if f.listing != "medium" {
			continue
		}
		dir := copyDir(t, filepath.Join(from, f.dir))
		report, err := sift.Check(t.Context(), dir, nil, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		if report.Tables == 0 || report.Filters != report.Tables || report.FilterlessBytes != 0 {
			t.Errorf("%s: Check: %+v", f.dir, report)
		}
		db := mustOpen(t, dir, &sift.Options{ReadOnly: true}) // no compaction gives the tables other filters
		db.Tables()                                           // loads the filters
		for key := range fixtures.Listing(t, f.listing) {
			if found, err := db.Has([]byte(key + "absent")); found || err != nil {
				t.Fatal(found, err)
			}
		}
		var useful, positive uint64
		for _, l := range db.Metrics().Levels {
			useful += l.Filter.Useful
			positive += l.Filter.FalsePositive
		}
		if useful < 10*positive || useful == 0 {
			t.Errorf("%s: filters excluded %d absent keys, and did not exclude %d", f.dir, useful, positive)
		}
		mustClose(t, db)
	}
}
