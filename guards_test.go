package sift

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// Tests of errors that a failing disk rarely causes, or only together with a bug of the store. The
// tests cause them directly.

func onTable(op vfstest.Op) bool { return filepath.Ext(op.Name) == ".ldb" }

// uncached returns options under which each lookup reads a table.
func uncached(fs vfs.FS) *Options {
	o := keyedOptions(fs)
	o.KeyedFilters, o.CacheBytes = false, -1
	return o
}

// TestFailsOnce checks that the first failure of the MANIFEST or the log is returned by everything
// after it, and that nothing is written after it.
func TestFailsOnce(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, 100)
	first, second := errors.New("first"), errors.New("second")
	version := db.state.Load().version
	failed, fatal := db.fail(first)
	if twice, again := db.fail(second); !failed || twice || again != fatal || !errors.Is(fatal, first) || !errors.Is(fatal, ErrReopen) {
		t.Errorf("the MANIFEST fails with %v, and then %v", fatal, again)
	}
	ops := mem.NumOps()
	rewrite := rewritePlan(0, version.Levels[0][0])
	for what, err := range map[string]error{
		"an edit":      db.applyEdit(&manifest.Edit{}, nil, 0),
		"a compaction": db.runPlan(context.Background(), &rewrite),
		"a write":      db.Put([]byte("k"), nil, nil),
		"Flush":        db.Flush(),
		"Compact":      db.Compact(context.Background(), nil, nil),
		"BuildFilters": buildFilters(db, nil),
	} {
		if err != fatal {
			t.Errorf("%s after the MANIFEST has failed: %v", what, err)
		}
	}
	db.bg.mu.Lock()
	db.bg.compactErr = second
	db.bg.mu.Unlock()
	if err := db.commit.throttle.stop(db, 0); err != fatal {
		t.Errorf("a write that waits for compactions: %v", err)
	}
	db.bg.mu.Lock()
	db.bg.flushes, db.bg.filled, db.bg.flushErr = []*flushJob{{}}, db.bg.filled+1, second
	db.bg.mu.Unlock()
	if err := db.bg.waitFlushed(); err != fatal {
		t.Errorf("waiting for a flush: %v", err)
	}
	db.bg.mu.Lock()
	db.bg.flushes = nil
	db.bg.mu.Unlock()
	if mem.NumOps() != ops || db.state.Load().version != version {
		t.Error("there are disk operations or a new version after the MANIFEST has failed")
	}
	bgErr := db.commit.fail(first)
	if again := db.commit.fail(second); again != bgErr || !errors.Is(bgErr, first) || !errors.Is(bgErr, ErrReopen) {
		t.Errorf("the log fails with %v, and then %v", bgErr, again)
	}
	if err := db.Close(); !errors.Is(err, first) {
		t.Errorf("Close: %v", err)
	}
}

// TestNothingRemovedAfterFailure checks that closing the last iterator over an old version removes
// the tables that only this version has, but not after the MANIFEST has failed.
func TestNothingRemovedAfterFailure(t *testing.T) {
	for _, fails := range []bool{false, true} {
		mem := vfstest.NewMem()
		db := mustOpen(t, "db", uncached(mem))
		loadKeys(t, db, 100)
		path := db.state.Load().version.Levels[0][0].Handle.(*table).path
		it, err := db.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := mem.Size(path); err != nil {
			t.Fatalf("removed before the iterator was closed: %v", err)
		}
		if fails {
			db.fail(errors.New("the MANIFEST cannot be written"))
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := mem.Size(path); (err == nil) != fails {
			t.Errorf("the MANIFEST has failed: %t; the size of the table: %v", fails, err)
		}
		db.Close()
	}
}

// TestClosedWhileReading checks that reads that hold a version, so that Close does not wait for
// them, return ErrClosed if the database is closed before they read a table.
func TestClosedWhileReading(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	prefix := &hookedPrefix{Prefixer: FixedPrefix(1)}
	o := uncached(faulty)
	o.Prefix = prefix
	db := mustOpen(t, "db", o)
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := tx.Has([]byte("key")); ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := errors.Join(tx.Put([]byte("other"), nil), db.Put([]byte("key"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	closed := false
	faulty.SetHook(func(op vfstest.Op) error {
		if onTable(op) && op.Kind == vfstest.OpReadAt && !closed {
			closed = true
			return db.Close()
		}
		return nil
	})
	if err := tx.Commit(); err != ErrClosed || !closed {
		t.Errorf("Commit: %v, closed: %t", err, closed)
	}
	faulty.SetHook(nil)

	o.loadLate = true
	db = mustOpen(t, "db", o)
	hook := func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	prefix.hook.Store(&hook)
	if _, err := db.HasRanges([]KeyRange{{[]byte("k"), []byte("l")}}); err != ErrClosed || prefix.hook.Load() != nil {
		t.Errorf("HasRanges: %v", err)
	}
}

// TestScanEnds checks that a loop over Scan closes its iterator, however the loop ends, so that the
// tables that it has read can be removed.
func TestScanEnds(t *testing.T) {
	for _, end := range []string{"no more keys", "break", "panic", "Goexit"} {
		mem := vfstest.NewMem()
		db := mustOpen(t, "db", uncached(mem))
		loadKeys(t, db, 100)
		path := db.state.Load().version.Levels[0][0].Handle.(*table).path
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			for range db.Scan(nil) {
				switch end {
				case "break":
					return
				case "panic":
					panic(end)
				case "Goexit":
					runtime.Goexit()
				}
			}
		}()
		<-done
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := mem.Size(path); err == nil {
			t.Errorf("%s: a table that was compacted has not been removed", end)
		}
		mustClose(t, db)
	}
}

// TestEditThatDoesNotFit checks that an edit that does not fit the version is not written to the
// MANIFEST, nor is anything written after it.
func TestEditThatDoesNotFit(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, 100)
	ops := mem.NumOps()
	err := db.applyEdit(&manifest.Edit{Deleted: []manifest.DeletedTable{{Level: 3, Num: 999}}}, nil, 0)
	if !errors.Is(err, ErrReopen) || mem.NumOps() != ops {
		t.Errorf("an edit removes a table that does not exist: %v, %d operations", err, mem.NumOps()-ops)
	}
	if again := db.Put([]byte("k"), nil, nil); again != err {
		t.Errorf("a write after that: %v", again)
	}
	wantKeys(t, db, 100)
	db.Close()
	db = mustOpen(t, "db", uncached(mem))
	wantKeys(t, db, 100)
	mustClose(t, db)
}

// TestBatchKeepsItsError checks that a batch that has rejected an operation rejects later ones and
// cannot be written.
func TestBatchKeepsItsError(t *testing.T) {
	cause := errors.New("too large")
	b := Batch{err: cause}
	b.Put([]byte("k"), []byte("v"))
	b.Delete([]byte("k"))
	if b.Len() != 0 || len(b.data) != 0 {
		t.Errorf("a batch with an error accepts %d operations, %d bytes", b.Len(), len(b.data))
	}
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	if err := db.Write(&b, nil); err != cause {
		t.Errorf("Write: %v", err)
	}
	mustClose(t, db)
	var whole Batch
	whole.Put([]byte("a"), []byte("1"))
	whole.Put([]byte("b"), []byte("2"))
	calls := 0
	payload := append(wal.AppendBatchHeader(nil, 1, whole.count), whole.data[wal.BatchHeaderLen:]...)
	_, _, err := wal.DecodeBatch(payload, func(uint64, base.Kind, []byte, []byte) error { calls++; return cause })
	if err != cause || calls != 1 {
		t.Errorf("DecodeBatch with a function that fails: %v after %d calls", err, calls)
	}
	whole.Put([]byte("c"), make([]byte, 1<<20))
	if err := whole.insert(memtable.New(0), nil, 1); err == nil {
		t.Error("a memtable without space accepts a batch")
	}
}

// TestRewriteFails checks that Compact returns an error when it cannot write the new version of a
// table, and succeeds later.
func TestRewriteFails(t *testing.T) {
	mem := vfstest.NewMem()
	o := uncached(mem)
	db := mustOpen(t, "db", o)
	loadKeys(t, db, 3000)
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	faulty := vfstest.Inject(mem)
	o = uncached(faulty)
	o.Filter = filter.Bloom(4)
	db = mustOpen(t, "db", o)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpCreate && onTable(op) }})
	if err := db.Compact(context.Background(), nil, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("Compact: %v", err)
	}
	faulty.SetFaults()
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Error(err)
	}
	wantPolicies(t, db, filter.Bloom(4).Name())
	wantKeys(t, db, 3000)
	mustClose(t, db)
}

// TestPartlyKeyed checks that, in a database with a secret, a level whose policy cannot be keyed
// has unkeyed filters.
func TestPartlyKeyed(t *testing.T) {
	o := keyedOptions(vfstest.NewMem())
	mustClose(t, mustOpen(t, "db", o))
	o.KeyedFilters = false
	o.LevelFilters = []filter.Policy{filter.Bloom(10), filter.RocksDBBloom(10)}
	db := mustOpen(t, "db", o)
	loadKeys(t, db, 1500)
	wantPolicies(t, db, "keyed("+filter.Bloom(10).Name()+")", filter.RocksDBBloom(10).Name())
	wantKeys(t, db, 1500)
	mustClose(t, db)
}

// TestGetManyErrors checks that GetMany returns the error of any of its reads, and that of a table
// that cannot be opened, in level 0 and below.
func TestGetManyErrors(t *testing.T) {
	const n = 400
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key%06d", i)
	}
	for _, compacted := range []bool{false, true} {
		for _, few := range []bool{false, true} {
			mem := vfstest.NewMem()
			faulty := vfstest.Inject(mem)
			db := mustOpen(t, "db", uncached(faulty))
			fillOneLevel(t, db, keys, compacted)
			ask := keys
			if few {
				ask = keys[:3]
			}
			failed := 0
			for at := 0; ; at++ {
				reads := 0
				faulty.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
					if op.Kind == vfstest.OpReadAt && onTable(op) {
						reads++
					}
					return reads == at+1
				}})
				values, err := db.GetMany(ask)
				if reads <= at {
					if err != nil || slices.ContainsFunc(values, func(v []byte) bool { return v == nil }) {
						t.Errorf("no read fails: %v", err)
					}
					break
				}
				if failed++; !errors.Is(err, syscall.EIO) || values != nil {
					t.Errorf("compacted %v, %d keys, read %d fails: %v", compacted, len(ask), at, err)
				}
			}
			if failed == 0 {
				t.Error("no read failed")
			}
			faulty.SetFaults()
			mustClose(t, db)

			damageFooter(t, mem, "db")
			db = mustOpen(t, "db", uncached(mem))
			if _, err := db.GetMany(ask); !errors.Is(err, ErrCorruption) {
				t.Errorf("compacted %v, a damaged table: %v", compacted, err)
			}
			mustClose(t, db)
		}
	}
}

// fillOneLevel writes the keys to one table of level 0, or of a deeper level.
func fillOneLevel(t *testing.T, db *DB, keys [][]byte, compacted bool) {
	t.Helper()
	for _, k := range keys {
		if err := db.Put(k, k, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if compacted {
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if inLevel0 := len(db.state.Load().version.Levels[0]) > 0; inLevel0 == compacted {
		t.Fatalf("compacted %v, but level 0 has tables: %v", compacted, inLevel0)
	}
}

// damageFooter makes all tables impossible to open.
func damageFooter(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if filepath.Ext(name) != ".ldb" {
			continue
		}
		path := filepath.Join(dir, name)
		b := readFile(t, fs, path)
		b[len(b)-1] ^= 1
		writeFile(t, fs, path, b)
	}
}

func readFile(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	size, err := fs.Size(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t *testing.T, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestNeighborFails checks that the second of two adjacent tables is read, too, if both may have
// entries of a key, as LevelDB may write them, and that its error is returned.
func TestNeighborFails(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(faulty))
	loadKeys(t, db, 4000)
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	var tables []*manifest.TableMeta
	level := 0
	for l, metas := range db.state.Load().version.Levels {
		if len(metas) > 1 {
			tables, level = metas, l
		}
	}
	if level == 0 {
		t.Fatal("no level has two tables")
	}
	// Pretend that both tables have entries of the second table's first key.
	key := slices.Clone(base.UserKey(tables[1].Smallest))
	first := &manifest.TableMeta{Num: tables[0].Num, Size: tables[0].Size, Smallest: tables[0].Smallest, Handle: tables[0].Handle,
		Largest: base.AppendInternalKey(nil, key, base.MaxSequence, base.KindSet)}
	s := db.state.Load()
	version, err := s.version.Apply(&manifest.Edit{
		Deleted: []manifest.DeletedTable{{Level: level, Num: first.Num}},
		Added:   []manifest.AddedTable{{Level: level, Table: first}},
	})
	if err != nil {
		t.Fatal(err)
	}
	version.Ref()
	if at, _ := version.FindTable(level, key); at != 0 {
		t.Fatalf("%q is looked up in table %d first", key, at)
	}
	db.state.Store(&readState{mem: s.mem, imms: s.imms, version: version})
	name := filepath.Base(tables[1].Handle.(*table).path)
	before := db.Metrics().Levels[level].Filter.Probes
	for i := range 4 {
		fails := i%2 != 0
		version.Large = i >= 2
		faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
			return fails && op.Kind == vfstest.OpReadAt && filepath.Base(op.Name) == name
		}})
		v, err := db.Get(key)
		values, merr := db.GetMany([][]byte{key})
		if fails {
			if !errors.Is(err, syscall.EIO) || !errors.Is(merr, syscall.EIO) {
				t.Errorf("the neighbor cannot be read: %v, %v", err, merr)
			}
		} else if err != nil || merr != nil || string(values[0]) != string(v) || !strings.HasPrefix(string(v), "value") {
			t.Errorf("Get(%q) is %q, %v; GetMany %q, %v", key, v, err, values, merr)
		}
	}
	faulty.SetFaults()
	m := db.Metrics()
	if n := m.Levels[level].Filter.Probes - before; n != 4*2*2 || m.Levels[0].Filter.Probes != 0 {
		t.Errorf("filters were probed %d times in level %d and %d times in level 0", n, level, m.Levels[0].Filter.Probes)
	}
	mustClose(t, db)
}

// TestCheckCanceled checks that a canceled Check returns ctx.Err(), whatever faults it has found
// before.
func TestCheckCanceled(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, 4000)
	mustClose(t, db)
	names, err := mem.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names { // a byte of the first block of each table
		if filepath.Ext(name) == ".ldb" {
			b := readFile(t, mem, filepath.Join("db", name))
			b[10] ^= 1
			writeFile(t, mem, filepath.Join("db", name), b)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	faults := 0
	_, err = Check(ctx, "db", uncached(mem), func(error) { faults++; cancel() })
	if faults == 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("Check after %d faults: %v", faults, err)
	}
}

// TestRecoveryCannotFlush checks that Open fails if recovery cannot write the tables of a log that
// does not fit into a memtable, and that a later Open succeeds.
func TestRecoveryCannotFlush(t *testing.T) {
	const n = 2000
	mem := vfstest.NewMem()
	o := uncached(mem)
	o.MemtableBytes = 8 << 20
	db := mustOpen(t, "db", o)
	for i := range n {
		if err := db.Put(fmt.Appendf(nil, "key%06d", i), fmt.Appendf(nil, "value%d", i), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	img := mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced)
	mustClose(t, db)
	failed := 0
	for at := 0; ; at++ {
		disk := img.CrashImage(img.NumOps(), vfstest.KeepUnsynced)
		faulty := vfstest.Inject(disk)
		seen := 0
		faulty.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
			if !onTable(op) || op.Kind == vfstest.OpRemove || op.Kind == vfstest.OpClose {
				return false
			}
			seen++
			return seen == at+1
		}})
		o := uncached(faulty)
		o.MemtableBytes = 16 << 10
		db, err := Open("db", o)
		if seen <= at {
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, db)
			break
		}
		if failed++; !errors.Is(err, syscall.EIO) {
			t.Fatalf("operation %d on a table fails: %v", at, err)
		}
		o = uncached(disk)
		o.MemtableBytes = 16 << 10
		db = mustOpen(t, "db", o)
		wantKeys(t, db, n)
		mustClose(t, db)
	}
	if failed < 6 {
		t.Errorf("only %d operations failed", failed)
	}
}

// TestUnreadableBehindDamage checks that a damaged log that cannot be read to its end does not
// count as torn: Open returns the I/O error.
func TestUnreadableBehindDamage(t *testing.T) {
	mem := vfstest.NewMem()
	o := uncached(mem)
	o.MemtableBytes = 8 << 20
	db := mustOpen(t, "db", o)
	value := make([]byte, 20000)
	for i := range 8 {
		if err := db.Put(fmt.Appendf(nil, "key%d", i), value, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Put([]byte("last"), value, Sync); err != nil {
		t.Fatal(err)
	}
	if err := db.Put([]byte("and"), nil, Sync); err != nil {
		t.Fatal(err)
	}
	img := mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced)
	mustClose(t, db)
	log := oneFile(t, img, ".log")
	b := readFile(t, img, log)
	b[100] ^= 1 // the first record
	writeFile(t, img, log, b)
	failed := 0
	for at := 0; ; at++ {
		faulty := vfstest.Inject(img)
		reads := 0
		faulty.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
			if op.Kind == vfstest.OpReadAt && op.Name == log {
				reads++
			}
			return reads == at+1
		}})
		db, err := Open("db", uncached(faulty))
		if err == nil {
			mustClose(t, db)
			t.Fatalf("Open succeeds although read %d of a damaged log fails", at)
		}
		if reads <= at {
			if !errors.Is(err, ErrCorruption) {
				t.Errorf("a damaged log: %v", err)
			}
			break
		}
		if failed++; !errors.Is(err, syscall.EIO) {
			t.Errorf("read %d of a damaged log fails: %v", at, err)
		}
	}
	if failed < 3 {
		t.Errorf("only %d reads failed", failed)
	}
}

func oneFile(t *testing.T, fs vfs.FS, ext string) string {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != ext })
	if len(names) != 1 {
		t.Fatalf("files %q, want one", names)
	}
	return filepath.Join("db", names[0])
}

// TestCutBeforeUnusedLog checks that the torn end of a log is cut off and reported if the log after
// it was never used: such a log does not prove that anything is missing.
func TestCutBeforeUnusedLog(t *testing.T) {
	mem := vfstest.NewMem()
	faulty := vfstest.Inject(mem)
	db := mustOpen(t, "db", uncached(faulty))
	for i := range 10 {
		if err := db.Put(fmt.Appendf(nil, "key%d", i), []byte("value"), Sync); err != nil {
			t.Fatal(err)
		}
	}
	log := oneFile(t, mem, ".log")
	faulty.SetFaults(
		vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpSyncDir }},
		vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpRemove }})
	if err := db.Flush(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Flush: %v", err)
	}
	img := mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced)
	faulty.SetFaults()
	mustClose(t, db)
	mustClose(t, mustOpen(t, "db", uncached(img.CrashImage(img.NumOps(), vfstest.KeepUnsynced))))

	b := bytes.TrimRight(readFile(t, img, log), "\x00")
	for desc, cut := range map[string]func(b []byte) []byte{
		"torn": func(b []byte) []byte { return b[:len(b)-3] },
		// Zeros in place of the last record could be space allocated in advance.
		"zeros": func(b []byte) []byte {
			clear(b[len(b)-record.HeaderLen-wal.BatchHeaderLen-len("\x01\x04key9\x05value"):])
			return b
		},
	} {
		img := img.CrashImage(img.NumOps(), vfstest.KeepUnsynced)
		writeFile(t, img, log, cut(bytes.Clone(b)))
		db := mustOpen(t, "db", uncached(img))
		if torn := db.Metrics().Recovery.Torn; len(torn) != 1 {
			t.Errorf("%s: Torn is %v", desc, torn)
		}
		for i := range 10 {
			if ok, err := db.Has(fmt.Appendf(nil, "key%d", i)); err != nil || ok != (i < 9) {
				t.Errorf("%s: key %d: %v, %v", desc, i, ok, err)
			}
		}
		mustClose(t, db)
	}
}

// TestKeyRangeUnreadable checks that the key range of a table without properties is read from its
// blocks, and that failing to read them is not damage.
func TestKeyRangeUnreadable(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(faulty))
	loadKeys(t, db, 500)
	for level, metas := range db.state.Load().version.Levels {
		for _, meta := range metas {
			x := meta.Handle.(*table)
			p := x.reader.Load().Properties()
			p.Smallest, p.Largest = nil, nil
			for _, fails := range []bool{false, true} {
				faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return fails && op.Kind == vfstest.OpReadAt }})
				smallest, largest, err := x.keyRange(x.reader.Load())
				if fails && !errors.Is(err, syscall.EIO) || !fails && (!bytes.Equal(smallest, meta.Smallest) || !bytes.Equal(largest, meta.Largest)) {
					t.Errorf("level %d, %v, reads fail %v: %q..%q, %v", level, meta, fails, smallest, largest, err)
				}
			}
			faulty.SetFaults()
		}
	}
	mustClose(t, db)
}

// TestManifestBehindLog checks that the edit of a compaction does not raise the MANIFEST's last
// sequence number to those in the log (I9): goleveldb would drop these records.
func TestManifestBehindLog(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, &Options{Filter: filter.None()})
	if err := db.Put([]byte("flushed"), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, dir, nil)
	if err := db.Put([]byte("logged"), nil, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := db.BuildFilters(context.Background()); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	state, err := manifest.Load(vfs.OS, dir)
	if now := db.Metrics().LastSequence; err != nil || state.LastSeq >= now {
		t.Errorf("the last sequence number in the MANIFEST is %d, and that in the log %d; %v", state.LastSeq, now, err)
	}
	mustClose(t, db)
}

// TestDeleteRangeKeepsNewer checks that DeleteRange does not drop a table with an entry that was
// written after the call began.
func TestDeleteRangeKeepsNewer(t *testing.T) {
	db, _ := memDB(t)
	if err := errors.Join(db.Put([]byte("a"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	meta := db.state.Load().version.Levels[0][0]
	db.snapshots.mu.Lock()
	defer db.snapshots.mu.Unlock()
	for began, want := range []bool{false, true} { // the entry has sequence number 1
		r := rangeDeletion{db: db, began: uint64(began)}
		if got := r.unseen(meta); got != want {
			t.Errorf("DeleteRange began at %d: the table may be dropped: %t", began, got)
		}
	}
}

// TestVersionsInManyTables checks that, of tables that begin and end with the same key, the newest
// one with a visible entry determines the result; if it cannot be read, its error is returned.
func TestVersionsInManyTables(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(faulty))
	defer mustClose(t, db)
	for i := range 3 {
		if err := errors.Join(db.Put([]byte("k"), []byte{'1' + byte(i)}, NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	tables := db.state.Load().version.Levels[0]
	if len(tables) != 3 {
		t.Fatalf("%d tables in level 0, want 3", len(tables))
	}
	find := func(seq uint64) (string, error) {
		l := lookup{key: lookupKey(nil, []byte("k")), seq: seq, counts: db.reads.stripe()}
		value, _, _, err := l.neighbors(tables, 1)
		return string(value), err
	}
	for seq, want := range []string{"", "1", "2", "3", "3"} {
		if got, err := find(uint64(seq)); got != want || err != nil {
			t.Errorf("at sequence number %d: %q, %v", seq, got, err)
		}
	}
	newest := filepath.Base(tables[0].Handle.(*table).path)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpReadAt && filepath.Base(op.Name) == newest
	}})
	if got, err := find(3); !errors.Is(err, syscall.EIO) {
		t.Errorf("the newest table cannot be read: %q, %v", got, err)
	}
	faulty.SetFaults()
}

// TestReserveFileNumbers checks that the next file number is above those of all files, unless that
// would leave no number.
func TestReserveFileNumbers(t *testing.T) {
	for name, want := range map[string]uint64{
		"CURRENT": 7, "000006.ldb": 7, "000007.ldb": 8, "000008.log": 9, "MANIFEST-000009": 10,
		fmt.Sprintf("%d.ldb", uint64(1)<<62): 7, fmt.Sprintf("%d.ldb", uint64(1)<<62-1): 1 << 62,
	} {
		var d DB
		d.nextFile.Store(7)
		d.reserveFileNumbers([]string{name})
		if next := d.nextFile.Load(); next != want {
			t.Errorf("with %s, the next number is %d; want %d", name, next, want)
		}
	}
}

// TestRepairSequence checks that the last sequence number that Repair takes from batches is that of
// their last operation; empty batches do not count.
func TestRepairSequence(t *testing.T) {
	d := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, d)
	r := repairer{db: d, report: &RepairReport{}}
	put := []byte{byte(base.KindSet), 1, 'k', 1, 'v'}
	for _, c := range []struct {
		first uint64
		count uint32
		want  uint64
	}{{0, 0, 0}, {1, 1, 1}, {10, 3, 12}, {5, 2, 12}, {100, 0, 12}} {
		batch := wal.AppendBatchHeader(nil, c.first, c.count)
		for range c.count {
			batch = append(batch, put...)
		}
		if r.takeBatch("000001.log", batch, 0); r.lastSeq != c.want || len(r.report.Dropped) > 0 {
			t.Errorf("after %d operations from %d on: %d, %v; want %d", c.count, c.first, r.lastSeq, r.report.Dropped, c.want)
		}
	}
}

// TestRepairLevel checks that Repair puts all tables into the first level whose target size they do
// not exceed, or into the last.
func TestRepairLevel(t *testing.T) {
	d := &DB{opts: Options{LevelBaseBytes: 10, LevelMultiplier: 10}}
	for bytes, want := range map[int64]int{0: 1, 10: 1, 11: 2, 100: 2, 101: 3, 1e6: 6, 1e6 + 1: 6, 1e12: 6} {
		if got := (&repairer{db: d, bytes: bytes}).level(); got != want {
			t.Errorf("%d bytes go to level %d, want %d", bytes, got, want)
		}
	}
}

// TestLastSequences checks that writes can use the last sequence number of the format, and none
// after it, and that transactions that write cannot begin at ownSeq: they need the numbers from
// there on for their own writes.
func TestLastSequences(t *testing.T) {
	one := func(yield func(Op, error) bool) { yield(Op{Key: []byte("c")}, nil) }
	ingest := func(d *DB) error { return d.Ingest(context.Background(), one) }
	put := func(d *DB) error { return d.Put([]byte("c"), nil, nil) }
	for _, last := range []func(*DB) error{put, ingest} {
		d := mustOpen(t, "db", uncached(vfstest.NewMem()))
		for _, seq := range []uint64{ownSeq - 1, ownSeq} {
			d.visible.Store(seq)
			tx, err := d.Begin(nil)
			if seq == ownSeq && !errors.Is(err, ErrReadOnly) || seq < ownSeq && err != nil {
				t.Errorf("Begin at %d: %v", seq, err)
			}
			if err == nil {
				tx.Discard()
			}
		}
		d.visible.Store(base.MaxSequence - 3)
		d.commit.lastSeq = base.MaxSequence - 3
		var b Batch
		b.Put([]byte("a"), nil)
		b.Put([]byte("b"), nil)
		if err := d.Write(&b, nil); err != nil {
			t.Error(err)
		}
		if err := d.Write(&b, nil); err != errNoSequence {
			t.Errorf("two operations with one number left: %v", err)
		}
		if err := last(d); err != nil {
			t.Errorf("one operation with one number left: %v", err)
		}
		for _, none := range []func(*DB) error{put, ingest} {
			if err := none(d); err != errNoSequence {
				t.Errorf("one operation with no number left: %v", err)
			}
		}
		for _, key := range []string{"a", "b", "c"} {
			if _, err := d.Get([]byte(key)); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		mustClose(t, d)
	}
}

// TestCheckpointDuringIngest checks a checkpoint taken when the tables of an Ingest are in the
// version and their sequence number is not yet visible: it has the tables, so its MANIFEST must
// have the number.
func TestCheckpointDuringIngest(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	if err := db.Put([]byte("a"), []byte("old"), nil); err != nil {
		t.Fatal(err)
	}
	ops := func(yield func(Op, error) bool) { yield(Op{Key: []byte("a"), Value: []byte("new")}, nil) }
	if err := db.Ingest(context.Background(), ops); err != nil {
		t.Fatal(err)
	}
	seq := db.visible.Load()
	db.visible.Store(seq - 1)
	err := db.Checkpoint("copy")
	db.visible.Store(seq)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	state, err := manifest.Load(mem, "copy")
	if err != nil {
		t.Fatal(err)
	}
	if state.LastSeq != seq {
		t.Errorf("the last sequence number is %d, but a table holds %d", state.LastSeq, seq)
	}
	db = mustOpen(t, "copy", uncached(mem))
	if v, err := db.Get([]byte("a")); err != nil || string(v) != "new" {
		t.Errorf("the checkpoint has %q, %v", v, err)
	}
	mustClose(t, db)
}

// TestFailedOpenLeavesNoTables checks that an Open that fails removes the tables that it has
// written from a log.
func TestFailedOpenLeavesNoTables(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	const n = 300
	for i := range n {
		if err := db.Put(fmt.Appendf(nil, "key%06d", i), make([]byte, 100), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	faulty := vfstest.Inject(mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced))
	mustClose(t, db)

	o := uncached(faulty)
	o.MemtableBytes = 4 << 10
	tables := 0
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
		if op.Kind == vfstest.OpCreate && onTable(op) {
			tables++
		}
		return op.Kind == vfstest.OpCreate && filepath.Ext(op.Name) == ".log"
	}})
	if _, err := Open("db", o); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Open when no log can be created: %v", err)
	}
	faulty.SetFaults()
	names, err := faulty.List("db")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != ".ldb" })
	if tables < 2 || len(names) > 0 {
		t.Errorf("Open wrote %d tables and left %q", tables, names)
	}
	if open := faulty.OpenFiles(); len(open) > 0 {
		t.Errorf("left open: %v", open)
	}
	db = mustOpen(t, "db", o)
	if got := countKeys(t, db); got != n {
		t.Errorf("%d keys, want %d", got, n)
	}
	mustClose(t, db)
}

// manifestNum returns the number of the current MANIFEST.
func manifestNum(db *DB) uint64 {
	db.manifestMu.Lock()
	defer db.manifestMu.Unlock()
	return db.manifest.Num()
}

// TestManifestOfManyTables checks that an edit does not always start a new MANIFEST if the snapshot
// of the version alone exceeds the size at which one is started.
func TestManifestOfManyTables(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.manifestBytes = 1
	db := mustOpen(t, "db", o)
	const tables = 40
	last, started := manifestNum(db), 0
	for i := range tables {
		if err := db.Put(fmt.Appendf(nil, "key%06d", i), nil, NoSync); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		if num := manifestNum(db); num != last {
			last, started = num, started+1
		}
	}
	if n := db.state.Load().version.NumTables(); n != tables || started == 0 || started > 10 {
		t.Errorf("%d new MANIFESTs for %d tables", started, n)
	}
	mustClose(t, db)
	db = mustOpen(t, "db", o)
	if n := countKeys(t, db); n != tables {
		t.Errorf("%d keys, want %d", n, tables)
	}
	mustClose(t, db)
}

// TestFileNumbersRunOut checks that nothing is written next to a file with the highest number that
// a name may hold: files with higher numbers would not be found again.
func TestFileNumbersRunOut(t *testing.T) {
	mem := vfstest.NewMem()
	mustClose(t, mustOpen(t, "db", uncached(mem)))
	last := manifest.MakeName(manifest.KindTemp, 1<<62-1)
	for _, dir := range []string{"db", "new"} {
		if err := mem.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		writeFile(t, mem, filepath.Join(dir, last), nil)
		if _, err := Open(dir, uncached(mem)); !errors.Is(err, ErrCorruption) {
			t.Errorf("Open of %s: %v", dir, err)
		}
		if _, err := Repair(dir, uncached(mem)); !errors.Is(err, ErrCorruption) {
			t.Errorf("Repair of %s: %v", dir, err)
		}
	}
	o := uncached(mem)
	o.ReadOnly = true
	mustClose(t, mustOpen(t, "db", o))
	for _, dir := range []string{"db", "new"} {
		if err := mem.Remove(filepath.Join(dir, last)); err != nil {
			t.Fatal(err)
		}
		mustClose(t, mustOpen(t, dir, uncached(mem)))
	}
}

// TestNewerIsNotSeen checks that the iterator of a snapshot skips entries that were written later,
// in both directions, even among tombstones.
func TestNewerIsNotSeen(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	var b Batch
	b.Put([]byte("b"), []byte("old"))
	for i := range 3 * walkAfter {
		b.Delete(fmt.Appendf(nil, "k%02d", i))
	}
	b.Put([]byte("m"), []byte("old"))
	if err := db.Write(&b, NoSync); err != nil {
		t.Fatal(err)
	}
	s := db.Snapshot()
	defer s.Close()
	b.Reset()
	for _, key := range []string{"a", "b", "k02x", "k05x", "m", "z"} {
		b.Put([]byte(key), []byte("new"))
	}
	if err := db.Write(&b, NoSync); err != nil {
		t.Fatal(err)
	}
	for _, flushed := range []bool{false, true} {
		if flushed {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		it, err := s.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		var forward, backward []string
		for ok := it.First(); ok; ok = it.Next() {
			forward = append(forward, fmt.Sprintf("%s=%s", it.Key(), it.Value()))
		}
		for ok := it.Last(); ok; ok = it.Prev() {
			backward = append(backward, fmt.Sprintf("%s=%s", it.Key(), it.Value()))
		}
		if want := []string{"b=old", "m=old"}; !slices.Equal(forward, want) || !slices.Equal(backward, []string{want[1], want[0]}) {
			t.Errorf("flushed %t: %q, backward %q", flushed, forward, backward)
		}
		if err := it.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFindIgnoresNewer checks that DeleteRange ignores a tombstone that may not be durable: it must
// not hide a value.
func TestFindIgnoresNewer(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	key := []byte("key")
	if err := errors.Join(db.Put(key, nil, NoSync), db.Flush(), db.Delete(key, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	for seq, want := range map[uint64]bool{0: false, 1: true, 2: false, 3: false} { // the value has 1, the tombstone 2
		r := rangeDeletion{db: db, began: 3, seq: seq}
		found, _, err := r.find(context.Background(), db.state.Load().version, nil)
		if found != want || err != nil {
			t.Errorf("at sequence number %d: found %t, %v", seq, found, err)
		}
	}
}

// TestSequenceOfTables checks that the last sequence number is at least that of the first and last
// key of every table, and that Repair, without a MANIFEST, finds that of the newest entry.
func TestSequenceOfTables(t *testing.T) {
	ikey := func(seq uint64) []byte { return base.AppendInternalKey(nil, []byte("key"), seq, base.KindSet) }
	for _, c := range []struct{ manifest, smallest, largest, want uint64 }{
		{5, 3, 4, 5}, {5, 9, 4, 9}, {5, 3, 1000, 1000}, {5, 1000, 999, 1000}, {0, 1, 0, 1},
	} {
		v := &manifest.Version{}
		v.Levels[2] = []*manifest.TableMeta{{Smallest: ikey(c.smallest), Largest: ikey(c.largest)}}
		if got := maxSequence(c.manifest, v); got != c.want {
			t.Errorf("%+v: maxSequence is %d", c, got)
		}
	}

	mem := closedDisk(t, vfstest.NewMem())
	db := mustOpen(t, "db", uncached(mem))
	// The newest entry is neither the first nor the last.
	if err := errors.Join(db.Put([]byte("key000100"), []byte("value100"), NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	if err := mem.Remove("db/CURRENT"); err != nil {
		t.Fatal(err)
	}
	report, err := Repair("db", uncached(mem))
	if err != nil || report.FromManifest || report.Entries != swallowKeys {
		t.Fatalf("Repair: %+v, %v", report, err)
	}
	db = mustOpen(t, "db", uncached(mem))
	defer mustClose(t, db)
	if n := db.Metrics().LastSequence; n != swallowKeys+1 {
		t.Errorf("the last sequence number is %d after %d writes", n, swallowKeys+1)
	}
	wantKeys(t, db, swallowKeys)
}

// TestIterRoom checks that the initial buffers of an iterator do not overlap, and that together
// they fill iterRoom.
func TestIterRoom(t *testing.T) {
	var r iterRoom
	r.init()
	key, seek := bytes.Repeat([]byte("k"), cap(r.keyBuf)), bytes.Repeat([]byte("s"), cap(r.seek))
	r.keyBuf, r.seek = append(r.keyBuf, key...), append(r.seek, seek...)
	if !bytes.Equal(r.keyBuf, key) || !bytes.Equal(r.seek, seek) || len(key) != len(seek) || len(key)+len(seek) != len(r.bufs) {
		t.Errorf("the buffers have %d and %d bytes of %d", len(key), len(seek), len(r.bufs))
	}
}

// metricsWriter calls Metrics whenever something is logged, as a handler may.
type metricsWriter struct{ db *atomic.Pointer[DB] }

func (w metricsWriter) Write(p []byte) (int, error) {
	if db := w.db.Load(); db != nil {
		db.Metrics()
	}
	return len(p), nil
}

// TestLogDuringDrop checks that a logger may call Metrics while DeleteRange drops tables and a new
// MANIFEST begins.
func TestLogDuringDrop(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	var at atomic.Pointer[DB]
	o := uncached(faulty)
	o.cleanNow, o.manifestBytes = false, 1
	o.Logger = slog.New(slog.NewTextHandler(metricsWriter{&at}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	db := mustOpen(t, "db", o)
	at.Store(db)
	rolls := func() bool {
		db.manifestMu.Lock()
		defer db.manifestMu.Unlock()
		return db.manifest.Size() >= 2*db.manifest.Base()
	}
	for first := true; first || !rolls(); first = false { // the next edit begins a new MANIFEST
		if err := errors.Join(db.Put([]byte("k"), nil, nil), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpList || (op.Kind == vfstest.OpRemove || op.Kind == vfstest.OpClose) && strings.HasPrefix(filepath.Base(op.Name), "MANIFEST-")
	}})
	if err := ended(t, "DeleteRange", inBackground(func() error { return db.DeleteRange(context.Background(), nil, nil) })); err != nil {
		t.Error(err)
	}
	faulty.SetFaults()
	mustClose(t, db)
}

// TestFailedManifestLeavesNothing checks that an Open or a Repair that cannot write a MANIFEST
// leaves no tables and no logs: each attempt would leave another copy.
func TestFailedManifestLeavesNothing(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	if err := db.Put([]byte("k"), []byte("v"), nil); err != nil {
		t.Fatal(err)
	}
	img := mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced)
	mustClose(t, db)
	faulty := vfstest.Inject(img)
	o := uncached(faulty)
	files := func() (names []string) {
		all, err := faulty.List("db")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			if ext := filepath.Ext(name); ext == ".ldb" || ext == ".log" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	for _, c := range []struct {
		what string
		call func() error
	}{
		{"Open", func() error { _, err := Open("db", o); return err }},
		{"Repair", func() error { _, err := Repair("db", o); return err }},
	} {
		before := files()
		faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
			return op.Kind == vfstest.OpCreate && strings.HasPrefix(filepath.Base(op.Name), "MANIFEST-")
		}})
		if err := c.call(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", c.what, err)
		}
		faulty.SetFaults()
		if after := files(); !slices.Equal(before, after) {
			t.Errorf("%s leaves %q, before it there were %q", c.what, after, before)
		}
	}
	mustClose(t, mustOpen(t, "db", o))
}

// TestOpenBelowReadOnlyRoot checks that a database can be created below a directory on a read-only
// volume, which cannot be synced.
func TestOpenBelowReadOnlyRoot(t *testing.T) {
	fsys := vfstest.Inject(vfstest.NewMem())
	root := string(filepath.Separator)
	fsys.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: syscall.EROFS, Match: func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpSyncDir && op.Name == root
	}})
	mustClose(t, mustOpen(t, filepath.Join(root, "data", "db"), &Options{FS: fsys}))
}

// TestNewManifestFails checks that the database continues with its MANIFEST while no new one can be
// created, and starts a new one when that is possible again.
func TestNewManifestFails(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	o.manifestBytes = 1
	db := mustOpen(t, "db", o)
	first := manifestNum(db)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: syscall.EMFILE, Match: func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpCreate && strings.HasPrefix(filepath.Base(op.Name), "MANIFEST-")
	}})
	for range 5 {
		if err := flushTwice(db, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(faulty.Failed()) == 0 || manifestNum(db) != first {
		t.Errorf("%d failures, MANIFEST %d after %d", len(faulty.Failed()), manifestNum(db), first)
	}
	faulty.SetFaults()
	if err := flushTwice(db, nil); err != nil {
		t.Fatal(err)
	}
	if manifestNum(db) == first {
		t.Error("no new MANIFEST is started once that is possible")
	}
	mustClose(t, db)
	db = mustOpen(t, "db", o)
	if n := countKeys(t, db); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
	mustClose(t, db)
}
