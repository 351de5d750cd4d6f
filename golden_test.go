package sift_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

var updateGolden = flag.String("golden.write", "", "write the databases of a release, such as 1.0, to testdata/releases")

// goldenOptions are the kinds of databases that are kept for each release.
var goldenOptions = map[string]sift.Options{
	"default": {},
	"bloom":   {Filter: filter.Bloom(10), DisableCompression: true},
	"fuse":    {Filter: filter.Fuse(8)},
	"rocksdb": {Filter: filter.RocksDBBloom(10)},
	"keyed":   {KeyedFilters: true},
	"ranges":  {RangeFilter: filter.Range(12, 0), Prefix: sift.PrefixUpTo('/', 1)},
}

// TestReleases checks that the databases that each release has written can be read and hold what
// was written: tables, a log that was not flushed, overwritten and deleted keys.
func TestReleases(t *testing.T) {
	if *updateGolden != "" {
		writeGolden(t, filepath.Join("testdata", "releases", *updateGolden))
	}
	releases, err := os.ReadDir(filepath.Join("testdata", "releases"))
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range releases {
		dirs, err := os.ReadDir(filepath.Join("testdata", "releases", release.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if len(dirs) == 0 {
			t.Errorf("release %s has no databases", release.Name())
		}
		for _, d := range dirs {
			t.Run(release.Name()+"/"+d.Name(), func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "releases", release.Name(), d.Name()))); err != nil {
					t.Fatal(err)
				}
				o, known := goldenOptions[d.Name()]
				if !known {
					t.Fatal("no options for this kind of database")
				}
				o.ReadOnly = true
				db := mustOpen(t, dir, &o)
				checkGolden(t, db)
				mustClose(t, db)
				o.ReadOnly = false
				db = mustOpen(t, dir, &o)
				checkGolden(t, db)
				for _, m := range db.Tables() {
					if m.FilterErr != nil || m.HeldUnits == 0 {
						t.Errorf("table %d: %v units of its filter are held, %v", m.Num, m.HeldUnits, m.FilterErr)
					}
				}
				if err := db.Compact(context.Background(), nil, nil); err != nil {
					t.Fatal(err)
				}
				checkGolden(t, db)
				mustClose(t, db)
				if _, err := sift.Check(context.Background(), dir, nil, func(err error) { t.Error(err) }); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

const goldenKeys = 600

// goldenKey and goldenValue return what the databases hold: of every four keys, the first
// has one value, the second was overwritten, the third was deleted, the fourth is in the
// log.
func goldenKey(i int) []byte { return fmt.Appendf(nil, "device-%d/%08d", i%7, i) }

func goldenValue(i, version int) []byte {
	return fmt.Appendf(nil, "value %d of %d, %0*d", version, i, i%50, 0)
}

func writeGolden(t *testing.T, release string) {
	for name, o := range goldenOptions {
		dir := filepath.Join(release, name)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		work := t.TempDir()
		o.DisableAutoCompaction = true
		db := mustOpen(t, work, &o)
		put := func(first, step, version int) {
			for i := first; i < goldenKeys; i += step {
				if err := db.Put(goldenKey(i), goldenValue(i, version), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		put(0, 4, 1)
		put(1, 4, 1)
		put(2, 4, 1)
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		put(1, 4, 2)
		for i := 2; i < goldenKeys; i += 4 {
			if err := db.Delete(goldenKey(i), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		put(3, 4, 1)
		// A copy of the directory as it is: closing would flush the log.
		if err := os.CopyFS(dir, os.DirFS(work)); err != nil {
			t.Fatal(err)
		}
		mustClose(t, db)
		trimPreallocated(t, dir)
	}
}

// trimPreallocated cuts off most of the space that logs have allocated in advance.
func trimPreallocated(t *testing.T, dir string) {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(len(logs), "logs:", err)
	}
	for _, path := range logs {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		const page = 4 << 10
		used := len(bytes.TrimRight(content, "\x00"))
		if err := os.Truncate(path, min(int64(len(content)), int64(used+2*page)/page*page)); err != nil {
			t.Fatal(err)
		}
	}
}

func checkGolden(t *testing.T, db *sift.DB) {
	t.Helper()
	for i := range goldenKeys {
		value, err := db.Get(goldenKey(i))
		version := 1
		if i%4 == 1 {
			version = 2
		}
		switch {
		case i%4 == 2:
			if !errors.Is(err, sift.ErrNotFound) {
				t.Fatalf("deleted %q: %q, %v", goldenKey(i), value, err)
			}
		case err != nil || string(value) != string(goldenValue(i, version)):
			t.Fatalf("%q: %q, %v", goldenKey(i), value, err)
		}
		if _, err := db.Get(append(goldenKey(i), '!')); !errors.Is(err, sift.ErrNotFound) {
			t.Fatalf("Get of an absent key: %v", err)
		}
	}
	n := 0
	for _, err := range db.Scan(nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != goldenKeys/4*3 {
		t.Errorf("a scan finds %d keys", n)
	}
}
