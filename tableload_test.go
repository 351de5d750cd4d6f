package sift

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// reads returns a fault that never strikes, and counts the operations on tables.
func reads(ops *atomic.Int64) vfstest.Fault {
	return vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
		if onTable(op) {
			ops.Add(1)
		}
		return false
	}}
}

// TestOpenReadsNoTable checks that Open does no operations on tables, however many there are.
func TestOpenReadsNoTable(t *testing.T) {
	for _, o := range []Options{{}, {ReadOnly: true}, {FilterMemory: 1 << 10}} {
		faulty := vfstest.Inject(vfstest.NewMem())
		manyTables(t, "db", faulty, 500)
		var ops atomic.Int64
		faulty.SetFaults(reads(&ops))
		o.FS, o.loadLate, o.DisableAutoCompaction = faulty, true, true
		db := mustOpen(t, "db", &o)
		if n := ops.Load(); n != 0 {
			t.Errorf("Open does %d operations on tables", n)
		}
		if _, err := db.Get([]byte("key00007")); err != nil {
			t.Error(err)
		}
		if ops.Load() == 0 {
			t.Error("Get does no operation on tables, so nothing is counted")
		}
		mustClose(t, db)
	}
}

// TestLoadLate checks that every call that reads works with tables that have not been loaded, with
// and without I/O errors. Each call has its own database.
func TestLoadLate(t *testing.T) {
	const n = 300
	key := func(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }
	scan := func(db *DB) error {
		it, err := db.NewIter(nil)
		if err != nil {
			return err
		}
		keys := 0
		for ok := it.First(); ok; ok = it.Next() {
			keys++
		}
		if err := it.Close(); err != nil {
			return err
		} else if keys != n {
			return fmt.Errorf("a scan finds %d keys", keys)
		}
		return nil
	}
	calls := map[string]func(db *DB) error{
		"Get": func(db *DB) error { _, err := db.Get(key(n / 2)); return err },
		"Get of none": func(db *DB) error {
			_, err := db.Get(append(key(n/2), '+'))
			if errors.Is(err, ErrNotFound) {
				return nil
			} else if err == nil {
				err = errors.New("found")
			}
			return err
		},
		"GetMany": func(db *DB) error {
			values, err := db.GetMany([][]byte{key(0), key(n / 2), key(n - 1), []byte("key0+")})
			if err == nil && (values[0] == nil || values[1] == nil || values[2] == nil || values[3] != nil) {
				err = fmt.Errorf("%q", values)
			}
			return err
		},
		"NewIter": scan,
		"HasRange": func(db *DB) error {
			found, err := db.HasRange(key(n/2), key(n/2+1))
			if err == nil && !found {
				err = errors.New("not found")
			}
			return err
		},
		"ApproximateSize": func(db *DB) error { // a table that cannot be loaded counts as a whole
			size, err := db.ApproximateSize(key(n/2), key(n-1))
			if err == nil && (size < 8<<10 || size > 60<<10) {
				err = fmt.Errorf("the size is %d bytes", size)
			}
			return err
		},
		"Compact": func(db *DB) error {
			return errors.Join(db.Put(key(1), nil, Sync), db.Compact(context.Background(), nil, nil), scan(db))
		},
		"BuildFilters": func(db *DB) error { _, err := db.BuildFilters(context.Background()); return errors.Join(err, scan(db)) },
		"DeleteRange": func(db *DB) error {
			err := db.DeleteRange(context.Background(), key(10), key(n))
			_, gone := db.Get(key(n / 2))
			if err == nil && !errors.Is(gone, ErrNotFound) {
				err = fmt.Errorf("a deleted key: %v", gone)
			}
			return err
		},
		"Tables": func(db *DB) error {
			for _, m := range db.Tables() {
				if m.Err != nil {
					return m.Err
				}
				if m.Keys == 0 || m.FilterBytes == 0 {
					return fmt.Errorf("%+v", m)
				}
			}
			return nil
		},
		"PlanFilters": func(db *DB) error {
			p, err := db.PlanFilters(1 << 20)
			for _, m := range p.Tables {
				if m.Err != nil {
					err = m.Err
				}
			}
			if err == nil && p.Bytes == 0 {
				err = errors.New("no filters")
			}
			return err
		},
	}
	mem := vfstest.NewMem()
	manyTables(t, "db", mem, n)
	ops := mem.NumOps()
	names, err := mem.List("db")
	if err != nil {
		t.Fatal(err)
	}
	there := setOf(names) // tables written later are loaded at once
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for at := 0; ; at++ {
				img := mem.CrashImage(ops, vfstest.KeepUnsynced)
				faulty := vfstest.Inject(img)
				o := uncached(faulty)
				o.loadLate = true
				db := mustOpen(t, "db", o)
				left := int64(at)
				faulty.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
					if !onTable(op) || !there[filepath.Base(op.Name)] || !slices.Contains([]vfstest.OpKind{vfstest.OpSize, vfstest.OpOpen, vfstest.OpReadAt}, op.Kind) {
						return false
					}
					return atomic.AddInt64(&left, -1) == -1
				}})
				err := call(db)
				failed := len(faulty.Failed()) > 0
				if err != nil && (!failed || !errors.Is(err, syscall.EIO)) {
					t.Fatalf("operation %d fails, %v: %v", at, faulty.Failed(), err)
				}
				faulty.SetFaults()
				if err != nil {
					if err := call(db); err != nil {
						t.Fatalf("the call after operation %d has failed: %v", at, err)
					}
				}
				mustClose(t, db)
				if open := faulty.OpenFiles(); len(open) > 0 {
					t.Errorf("left open: %v", open)
				}
				if !failed {
					break
				}
			}
		})
	}
}

// TestLoadOnce checks that concurrent lookups that need the same table read its parts once.
func TestLoadOnce(t *testing.T) {
	mem := vfstest.NewMem()
	manyTables(t, "db", mem, 500)
	single := func(at int) int64 {
		faulty := vfstest.Inject(mem)
		var ops atomic.Int64
		faulty.SetFaults(reads(&ops))
		o := uncached(faulty)
		o.loadLate, o.ReadOnly = true, true
		db := mustOpen(t, "db", o)
		var wg sync.WaitGroup
		for range at {
			wg.Go(func() {
				if _, err := db.Get([]byte("key00007+")); !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		mustClose(t, db)
		return ops.Load()
	}
	if one, many := single(1), single(16); one != many || one == 0 {
		t.Errorf("one lookup does %d operations, and 16 at once do %d", one, many)
	}
}

// TestHungLoad checks that, while the read of one table hangs, lookups in others and writes
// continue. Close waits for the loader, which loads no further tables.
func TestHungLoad(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	manyTables(t, "db", faulty, 500)
	release, hung := make(chan struct{}), make(chan struct{})
	var path atomic.Pointer[string]
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpReadAt && onTable(op) {
			if path.CompareAndSwap(nil, &op.Name) {
				close(hung)
			}
			if *path.Load() == op.Name {
				<-release
			}
		}
		return nil
	})
	o := uncached(faulty)
	o.cleanNow = false
	db := mustOpen(t, "db", o)
	<-hung
	var other []*manifest.TableMeta
	for _, metas := range db.state.Load().version.Levels {
		for _, meta := range metas {
			if meta.Handle.(*table).path != *path.Load() {
				other = append(other, meta)
			}
		}
	}
	if len(other) < 4 {
		t.Fatalf("only %d other tables", len(other))
	}
	for _, meta := range other {
		if _, err := db.Get(base.UserKey(meta.Smallest)); err != nil {
			t.Error(err)
		}
		if n := meta.Handle.(*table).reader.Load().HeldFilterSteps(); n != 0 {
			t.Errorf("%d steps of a filter are loaded before all tables have been opened", n)
		}
	}
	if err := db.Put([]byte("new"), nil, Sync); err != nil {
		t.Error(err)
	}
	closed := inBackground(db.Close)
	<-db.loader.stop
	close(release)
	if err := ended(t, "Close", closed); err != nil {
		t.Error(err)
	}
	if open := faulty.OpenFiles(); len(open) > 0 {
		t.Errorf("left open: %v", open)
	}
}

// loadingJobs are the calls whose jobs load the tables that they look at.
var loadingJobs = map[string]func(db *DB, ctx context.Context) error{
	"Compact": func(db *DB, ctx context.Context) error { return db.Compact(ctx, nil, nil) },
	"BuildFilters": func(db *DB, ctx context.Context) error {
		_, err := db.BuildFilters(ctx)
		return err
	},
	"DeleteRange": func(db *DB, ctx context.Context) error { return db.DeleteRange(ctx, nil, nil) },
}

// TestCanceledLoad checks that jobs that load tables load no more of them once their context has
// ended.
func TestCanceledLoad(t *testing.T) {
	for name, call := range loadingJobs {
		t.Run(name, func(t *testing.T) {
			faulty := vfstest.Inject(vfstest.NewMem())
			manyTables(t, "db", faulty, 500)
			o := uncached(faulty)
			o.loadLate = true
			db := mustOpen(t, "db", o)
			defer mustClose(t, db)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var mu sync.Mutex
			read := map[string]bool{}
			faulty.SetHook(func(op vfstest.Op) error {
				if op.Kind == vfstest.OpReadAt && onTable(op) {
					mu.Lock()
					defer mu.Unlock()
					if read[op.Name] = true; len(read) == 2 {
						cancel()
					}
				}
				return nil
			})
			err := call(db, ctx)
			faulty.SetHook(nil)
			if !errors.Is(err, context.Canceled) || len(read) != 2 {
				t.Errorf("%v after reads of %d tables", err, len(read))
			}
		})
	}
}

// TestLoadTakesTurns checks that jobs that load many tables from a slow disk let other steps run
// meanwhile.
func TestLoadTakesTurns(t *testing.T) {
	for name, call := range loadingJobs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faulty := vfstest.Inject(vfstest.NewMem())
			manyTables(t, "db", faulty, 500)
			db := mustOpen(t, "db", &Options{FS: faulty, CacheBytes: -1, loadLate: true})
			defer mustClose(t, db)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			const slow = 5 * time.Millisecond
			var reads, waited, longest int64 // all reads, those since the last turn of the other job, and their maximum
			var mu sync.Mutex
			other := inBackground(func() error {
				return db.do(ctx, func(context.Context) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					waited = 0
					return false, nil
				})
			})
			faulty.SetHook(func(op vfstest.Op) error {
				if op.Kind == vfstest.OpReadAt && onTable(op) {
					time.Sleep(slow)
					mu.Lock()
					defer mu.Unlock()
					reads, waited = reads+1, waited+1
					longest = max(longest, waited)
				}
				return nil
			})
			if err := call(db, ctx); err != nil {
				t.Error(err)
			}
			faulty.SetHook(nil)
			cancel()
			if err := ended(t, "the other job", other); !errors.Is(err, context.Canceled) {
				t.Errorf("the other job: %v", err)
			}
			const perTable = 10 // the reads of a table, at most
			if limit := int64(searchTime/slow) + perTable; longest > limit || reads < 2*limit {
				t.Errorf("%d of %d reads of tables without a turn of another job; want at most %d", longest, reads, limit)
			}
		})
	}
}

// openLater opens a database of one table, which is loaded on demand, and whose filter is not
// loaded until a test calls DB.loadAndReport. The errors of which Events.Failed is notified are
// added to failed.
func openLater(t *testing.T, dir string, fsys vfs.FS, failed *[]error) (*DB, *table) {
	t.Helper()
	o := &Options{FS: fsys, CacheBytes: -1, MapBytes: -1, loadLate: true}
	o.Events.Failed = func(err error) { *failed = append(*failed, err) }
	db := mustOpen(t, dir, o)
	var tables []*table
	for _, metas := range db.state.Load().version.Levels {
		for _, meta := range metas {
			tables = append(tables, meta.Handle.(*table))
		}
	}
	if len(tables) != 1 {
		t.Fatalf("%d tables", len(tables))
	}
	tables[0].filterLater = true
	return db, tables[0]
}

// TestFilterLater checks that lookups read a table whose filter has not been loaded yet, and that
// the loader then loads it: the whole filter, the units before a damaged one, or, after an error of
// the disk, nothing until the filter memory manager does.
func TestFilterLater(t *testing.T) {
	faulty := vfstest.Inject(vfs.OS)
	dir := t.TempDir()
	db := mustOpen(t, dir, &Options{FS: faulty, Filter: filter.Ribbon(16)})
	for i := range 20_000 {
		if err := db.Put(fmt.Appendf(nil, "key%06d", i), fmt.Appendf(nil, "value%d", i), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	var failed []error

	db, tab := openLater(t, dir, faulty, &failed)
	blocksRead := func() (n uint64) { // by lookups of a hundred absent keys, and of a present one
		before := db.Metrics().BlockReads
		for i := range 100 {
			if _, err := db.Get(fmt.Appendf(nil, "key%06d+", i)); !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
		}
		if _, err := db.Get([]byte("key000007")); err != nil {
			t.Error(err)
		}
		return db.Metrics().BlockReads - before
	}
	if n := blocksRead(); n < 100 {
		t.Errorf("%d block reads before the filter is loaded", n)
	}
	db.loadAndReport(tab)
	db.loadAndReport(tab)
	if n := blocksRead(); n > 10 {
		t.Errorf("%d block reads with the filter", n)
	}
	r := tab.reader.Load()
	steps, units := len(r.FilterSteps()), r.NumFilterUnits()
	if held := r.HeldFilterSteps(); held != steps || units < 2 || len(failed) > 0 {
		t.Errorf("%d of %d steps are loaded, of %d units; errors: %v", held, steps, units, failed)
	}
	mustClose(t, db)

	db, tab = openLater(t, dir, faulty, &failed)
	r, err := tab.load()
	if err != nil {
		t.Fatal(err)
	}
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: onTable, Err: syscall.EIO})
	db.loadAndReport(tab)
	faulty.SetFaults()
	if held := r.HeldFilterSteps(); held != 0 || len(failed) != 1 || !errors.Is(failed[0], syscall.EIO) {
		t.Errorf("%d steps are loaded from a disk that fails; errors: %v", held, failed)
	}
	db.filterManager.Rebalance(math.MaxInt64)
	if held := r.HeldFilterSteps(); held != steps {
		t.Errorf("the filter memory manager loads %d of %d steps", held, steps)
	}
	mustClose(t, db)

	data, err := os.ReadFile(tab.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.MetaBlocks() {
		if strings.HasSuffix(m.Name, fmt.Sprint(".", units-1)) {
			data[m.Offset+m.Length/2] ^= 1
		}
	}
	if err := os.WriteFile(tab.path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	failed = nil
	db, tab = openLater(t, dir, faulty, &failed)
	if n := blocksRead(); n < 100 {
		t.Errorf("%d block reads before the filter is loaded", n)
	}
	db.loadAndReport(tab)
	r = tab.reader.Load()
	if held := r.HeldFilterSteps(); held == 0 || held >= steps || len(failed) != 1 || !errors.Is(failed[0], ErrCorruption) {
		t.Errorf("%d of %d steps are loaded of a filter with a damaged unit; errors: %v", held, steps, failed)
	}
	if n := blocksRead(); n > 50 {
		t.Errorf("%d block reads with the other units", n)
	}
	mustClose(t, db)
}
