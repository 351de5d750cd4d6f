package sift

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// manyTables creates a database in dir whose keys, key00000 and so on, are in many tables of one
// level below level 0.
func manyTables(t *testing.T, dir string, fsys vfs.FS, keys int) {
	t.Helper()
	db := mustOpen(t, dir, &Options{FS: fsys, TableBytes: 2 << 10, DisableCompression: true})
	for i := range keys {
		if err := db.Put(fmt.Appendf(nil, "key%05d", i), make([]byte, 100), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
}

// TestTransientOpenError checks that lookups, scans and compactions retry opening a table after a
// lack of descriptors or an I/O error.
func TestTransientOpenError(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.EIO} {
		for _, kind := range []vfstest.OpKind{vfstest.OpOpen, vfstest.OpReadAt} {
			t.Run(fmt.Sprint(errno, " at ", kind), func(t *testing.T) {
				faulty := vfstest.Inject(vfstest.NewMem())
				manyTables(t, "db", faulty, 500)
				fails := func(op vfstest.Op) bool { return op.Kind == kind && strings.HasSuffix(op.Name, ".ldb") }
				faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: fails, Err: errno})
				db := mustOpen(t, "db", uncached(faulty))
				if _, err := db.Get([]byte("key00007")); !errors.Is(err, errno) {
					t.Errorf("Get while tables cannot be opened: %v", err)
				}
				if err := db.Compact(context.Background(), nil, nil); err != nil && !errors.Is(err, errno) {
					t.Errorf("Compact: %v", err)
				}
				if err := db.Tables()[0].Err; !errors.Is(err, errno) {
					t.Errorf("Tables reports %v", err)
				}
				faulty.SetFaults()
				for i := range 500 {
					if _, err := db.Get(fmt.Appendf(nil, "key%05d", i)); err != nil {
						t.Fatalf("Get after the error: %v", err)
					}
				}
				if err := db.Compact(context.Background(), nil, nil); err != nil {
					t.Errorf("Compact after the error: %v", err)
				}
				for _, m := range db.Tables() {
					if m.Err != nil {
						t.Errorf("Tables reports %v after the error", m.Err)
					}
				}
				mustClose(t, db)
				if open := faulty.OpenFiles(); len(open) > 0 {
					t.Errorf("left open: %v", open)
				}
			})
		}
	}
}

// TestMaxOpenFiles checks that lookups in more tables than Options.MaxOpenFiles find all keys and
// leave no more table files open than that.
func TestMaxOpenFiles(t *testing.T) {
	const most, keys = 3, 500
	faulty := vfstest.Inject(vfstest.NewMem())
	manyTables(t, "db", faulty, keys)
	o := uncached(faulty)
	o.MaxOpenFiles, o.loadLate = most, true
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	if n := db.state.Load().version.NumTables(); n <= 2*most {
		t.Fatalf("only %d tables", n)
	}
	for i := range keys {
		if _, err := db.Get(fmt.Appendf(nil, "key%05d", i*7919%keys)); err != nil {
			t.Fatal(err)
		}
		open := 0
		for _, name := range faulty.OpenFiles() {
			if strings.HasSuffix(name, ".ldb") {
				open++
			}
		}
		if open == 0 || open > most {
			t.Fatalf("%d table files are open after %d lookups", open, i+1)
		}
	}
}

// TestDamageIsLocal checks that a damaged table causes errors only for keys and ranges within it,
// not for keys between it and its neighbors.
func TestDamageIsLocal(t *testing.T) {
	mem := vfstest.NewMem()
	manyTables(t, "db", mem, 500)
	db := mustOpen(t, "db", uncached(mem))
	tables := db.Tables()
	if len(tables) < 4 {
		t.Fatalf("only %d tables", len(tables))
	}
	// first is the table before the damaged one, and gap is a key between the two.
	first, damaged := tables[1], tables[2]
	gap := append(bytes.Clone(first.Largest), 0)
	mustClose(t, db)
	f, err := mem.Create(damaged.Path)
	if err == nil {
		_, err = f.Write(make([]byte, damaged.Size))
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, "db", uncached(mem))
	var err1, err2 *CorruptionError
	for _, as := range []**CorruptionError{&err1, &err2} {
		if _, err := db.Get(damaged.Smallest); !errors.As(err, as) {
			t.Errorf("Get of a key in the damaged table: %v", err)
		}
	}
	if err1 != err2 {
		t.Error("the damaged table is opened again")
	}
	if _, err := db.Get(gap); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get of a key before the damaged table: %v", err)
	}
	if values, err := db.GetMany([][]byte{first.Smallest, gap}); err != nil || values[0] == nil || values[1] != nil {
		t.Errorf("GetMany of keys before the damaged table: %q, %v", values, err)
	}
	it, err := db.NewIter(&IterOptions{LowerBound: first.Smallest, UpperBound: gap})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	if err := it.Err(); err != nil || n == 0 {
		t.Errorf("a scan of the range before the damaged table: %d keys, %v", n, err)
	}
	if n = 0; it.Last() {
		n++
	}
	if err := it.Err(); err != nil || n == 0 {
		t.Errorf("the last key of the range before the damaged table: %v", err)
	}
	if err := it.Close(); err != nil {
		t.Error(err)
	}
	mustClose(t, db)
}

// TestCompacted checks that a table counts as compacted if it has one entry per key and no
// tombstones.
func TestCompacted(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	put := func(key string) error { return db.Put([]byte(key), nil, nil) }
	for _, c := range []struct {
		write func() error
		want  bool
	}{
		{func() error { return errors.Join(put("a"), put("b")) }, true},
		{func() error { return db.Delete([]byte("a"), nil) }, false},
		{func() error {
			err := put("a")
			defer db.Snapshot().Close()
			return errors.Join(err, put("a"), db.Flush())
		}, false},
	} {
		if err := errors.Join(c.write(), db.Flush()); err != nil {
			t.Fatal(err)
		}
		newest := db.state.Load().version.Levels[0][0].Handle.(*table)
		if _, err := newest.load(); err != nil {
			t.Fatal(err)
		}
		if got := newest.compacted(); got != c.want {
			t.Errorf("table %d counts as compacted: %v", newest.meta.Num, got)
		}
	}
}

// TestManifestTailIsReported checks that Open and Check report that the torn end of the MANIFEST
// was ignored.
func TestManifestTailIsReported(t *testing.T) {
	dir := t.TempDir()
	manyTables(t, dir, nil, 10)
	names, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	f, err := os.OpenFile(names[0], os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString("\x01\x02\x03\x04\x40\x00\x01cut") // the header announces 64 bytes
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	report, err := Check(context.Background(), dir, nil, func(err error) { t.Error(err) })
	if err != nil || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], names[0]) {
		t.Errorf("Check notes %q, %v", report.Notes, err)
	}
	db := mustOpen(t, dir, nil)
	torn := db.Metrics().Recovery.Torn
	var damage *CorruptionError
	if len(torn) != 1 || !errors.As(torn[0], &damage) || damage.Path != names[0] {
		t.Errorf("Torn is %v", torn)
	}
	mustClose(t, db)
}

// TestWriteKeepsNoBatch checks that the write path does not keep a caller's batch in memory.
func TestWriteKeepsNoBatch(t *testing.T) {
	db := mustOpen(t, "db", &Options{FS: vfstest.NewMem()})
	var b Batch
	b.Put([]byte("k"), make([]byte, 1<<20))
	if err := db.Write(&b, NoSync); err != nil {
		t.Fatal(err)
	}
	for i, part := range db.commit.parts[:cap(db.commit.parts)] {
		if part != nil {
			t.Errorf("part %d still holds %d bytes", i, len(part))
		}
	}
	mustClose(t, db)
}

// TestPlanBesideFilterManager lets the race detector check PlanFilters, Tables and Metrics
// while the filter memory manager runs.
func TestPlanBesideFilterManager(t *testing.T) {
	mem := vfstest.NewMem()
	manyTables(t, "db", mem, 500)
	db := mustOpen(t, "db", &Options{FS: mem, FilterMemory: 1 << 10})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 50 {
			db.filterManager.Rebalance(1 << 20)
		}
	})
	for range 50 {
		if _, err := db.PlanFilters(1 << 10); err != nil {
			t.Error(err)
		}
		db.Metrics()
		db.Tables()
	}
	wg.Wait()
	mustClose(t, db)
}
