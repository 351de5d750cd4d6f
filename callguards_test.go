package sift

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/gap"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// Tests of calls during which the context ends, the database is closed, or the disk fails.

func onLog(op vfstest.Op) bool { return filepath.Ext(op.Name) == ".log" }

// tableNames returns the names of the table files on a disk.
func tableNames(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != ".ldb" })
}

// TestIngestOrNothing checks that Ingest is atomic, whichever disk operation fails: it has its
// whole effect or none, at once and after a reopen, and leaves no orphaned table.
func TestIngestOrNothing(t *testing.T) {
	disk := closedDisk(t, vfstest.NewMem())
	ops := disk.NumOps()
	before := swallowKeys
	count := func(db *DB) (n int) {
		for _, err := range db.Scan(nil) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	again := 0
	for at := 0; ; at++ {
		img := disk.CrashImage(ops, vfstest.KeepUnsynced)
		faulty := vfstest.Inject(img)
		o := uncached(faulty)
		o.retryDelay = time.Nanosecond
		db := mustOpen(t, "db", o)
		faulty.SetFaults(vfstest.Fault{Index: faulty.NumOps() + at})
		err := putAndIngest(db, nil)
		failed := faulty.Failed()
		faulty.SetFaults()
		_, putErr := db.Get([]byte("b"))
		n, want := count(db), before
		if putErr == nil {
			want++
		}
		if err == nil {
			want += 3
		}
		if n != want {
			t.Errorf("%v fails (%v): %d keys, want %d", failed, err, n, want)
		}
		reopen := errors.Is(err, ErrReopen)
		if err != nil && !reopen {
			// Ingest can be repeated once a failed flush has been retried.
			err := putAndIngest(db, nil)
			for begin := time.Now(); errors.Is(err, ErrTryAgain) && time.Since(begin) < 30*time.Second; {
				err = putAndIngest(db, nil)
			}
			if err != nil {
				t.Errorf("%v has failed, and the next Ingest: %v", failed, err)
			}
			again++
		}
		if cerr := db.Close(); (cerr != nil) != reopen && len(failed) > 0 && failed[0].Kind != vfstest.OpClose {
			t.Errorf("%v has failed (%v), and Close: %v", failed, err, cerr)
		}
		db = mustOpen(t, "db", uncached(img))
		if n := count(db); n != before+4 && (!reopen || n != before && n != before+1) {
			t.Errorf("%v has failed (%v): %d keys after a reopen", failed, err, n)
		}
		named := 0
		for _, metas := range db.state.Load().version.Levels {
			named += len(metas)
		}
		if names := tableNames(t, img); len(names) != named {
			t.Errorf("%v has failed: table files %q for %d tables", failed, names, named)
		}
		mustClose(t, db)
		if len(failed) == 0 {
			break
		}
	}
	if again == 0 {
		t.Error("no Ingest failed in a way that allows another one")
	}
}

// TestIngestGivesUp checks that an Ingest removes its tables if its context ends while it waits for
// another job before it adds them.
func TestIngestGivesUp(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(faulty))
	defer mustClose(t, db)
	running, release := make(chan struct{}), make(chan struct{})
	other := inBackground(func() error {
		return db.do(context.Background(), func(context.Context) (bool, error) {
			close(running)
			<-release
			return true, nil
		})
	})
	<-running
	ctx, cancel := context.WithCancel(context.Background())
	var log string
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpCreate && onLog(op) { // the tables are complete
			log = op.Name
			cancel()
		}
		return nil
	})
	err := db.Ingest(ctx, func(yield func(Op, error) bool) { yield(Op{Key: []byte("key")}, nil) })
	faulty.SetHook(nil)
	if err != context.Canceled || log == "" {
		t.Errorf("Ingest: %v, after the log %q was created", err, log)
	}
	if names := tableNames(t, faulty); len(names) != 0 {
		t.Errorf("the table files %q are left", names)
	}
	if _, err := faulty.Size(log); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the log of the canceled Ingest: %v", err)
	}
	close(release)
	if err := ended(t, "the other job", other); err != nil {
		t.Error(err)
	}
	if err := db.Put([]byte("other"), nil, nil); err != nil {
		t.Error(err)
	}
	if ok, err := db.Has([]byte("key")); ok || err != nil {
		t.Errorf("the key of the canceled Ingest is present: %t, %v", ok, err)
	}
}

// TestDeleteRangeCanceled checks that DeleteRange stops when its context ends or a write fails,
// whatever it is doing.
func TestDeleteRangeCanceled(t *testing.T) {
	long := bytes.Repeat([]byte("k"), 1<<10)
	key := func(i int) []byte { return fmt.Appendf(nil, "%s%04d", long, i) }
	const n = 1200 // more than find reads between checks of the context, and more than one batch
	for _, c := range []struct {
		name string
		on   func(op vfstest.Op) bool
		err  error // what the operation fails with; nil: it succeeds, and the context ends
		want error
	}{
		{"while it reads", func(op vfstest.Op) bool { return onTable(op) && op.Kind == vfstest.OpReadAt }, nil, context.Canceled},
		{"while it deletes", func(op vfstest.Op) bool { return onLog(op) && op.Kind == vfstest.OpWrite }, nil, context.Canceled},
		{"a delete fails", func(op vfstest.Op) bool { return onLog(op) && op.Kind == vfstest.OpWrite }, syscall.ENOSPC, ErrReopen},
	} {
		faulty := vfstest.Inject(vfstest.NewMem())
		o := uncached(faulty)
		o.MemtableBytes, o.TableBytes = 8<<20, 8<<20
		db := mustOpen(t, "db", o)
		for i := range n {
			if err := db.Put(key(i), nil, NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		struck := false
		faulty.SetHook(func(op vfstest.Op) error {
			if struck || !c.on(op) {
				return nil
			}
			struck = true
			if c.err == nil {
				cancel()
			}
			return c.err
		})
		// The table begins before the range, so it is not dropped.
		err := db.DeleteRange(ctx, key(1), nil)
		faulty.SetHook(nil)
		if !struck || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if ok, err := db.Has(key(0)); !ok || err != nil {
			t.Errorf("%s: a key outside the range: %t, %v", c.name, ok, err)
		}
		if c.err == nil {
			if err := db.DeleteRange(context.Background(), key(1), nil); err != nil {
				t.Error(err)
			}
			if ok, err := db.HasRange(key(1), nil); ok || err != nil {
				t.Errorf("%s: HasRange after another DeleteRange: %t, %v", c.name, ok, err)
			}
		}
		cancel()
		if err := db.Close(); (err != nil) != (c.err != nil) {
			t.Errorf("%s: Close: %v", c.name, err)
		}
	}
}

// TestDeleteRangeInParts checks that DeleteRange deletes more keys than it collects in one step.
func TestDeleteRangeInParts(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.MemtableBytes, o.TableBytes = 16<<20, 16<<20
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	long := bytes.Repeat([]byte("k"), 64<<10)
	key := func(i int) []byte { return fmt.Appendf(nil, "%s%04d", long, i) }
	n := maxFoundBytes/len(long) + 10
	for i := range n {
		if err := db.Put(key(i), nil, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	written := db.Metrics().LastSequence
	if err := errors.Join(db.Flush(), db.DeleteRange(context.Background(), key(1), key(n-1))); err != nil {
		t.Fatal(err)
	}
	if deleted := db.Metrics().LastSequence - written; deleted != uint64(n-2) {
		t.Errorf("%d tombstones for %d keys", deleted, n-2)
	}
	for i := range n {
		if ok, err := db.Has(key(i)); err != nil || ok != (i == 0 || i == n-1) {
			t.Errorf("key %d: %t, %v", i, ok, err)
		}
	}
}

// TestDeleteRangeBesideSnapshot checks that a snapshot taken while DeleteRange looks for keys keeps
// the tables that would have been dropped.
func TestDeleteRangeBesideSnapshot(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(faulty))
	defer mustClose(t, db)
	put := func(keys ...string) {
		for _, key := range keys {
			if err := db.Put([]byte(key), []byte("value"), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "z") // read, since the table is not within the range
	put("k", "l") // to be dropped
	var s *Snapshot
	faulty.SetHook(func(op vfstest.Op) error {
		if s == nil && onTable(op) && op.Kind == vfstest.OpReadAt {
			s = db.Snapshot()
		}
		return nil
	})
	if err := db.DeleteRange(context.Background(), []byte("b"), []byte("y")); err != nil {
		t.Fatal(err)
	}
	faulty.SetHook(nil)
	if s == nil {
		t.Fatal("no table was read")
	}
	for _, key := range []string{"a", "k", "l", "z"} {
		if v, err := s.Get([]byte(key)); string(v) != "value" || err != nil {
			t.Errorf("the snapshot has %s=%q, %v", key, v, err)
		}
		if ok, err := db.Has([]byte(key)); err != nil || ok != (key == "a" || key == "z") {
			t.Errorf("the database has %s: %t, %v", key, ok, err)
		}
	}
	s.Close()
}

// TestClosedWhileCompacting checks that Compact returns ErrClosed if the database is closed during
// a step.
func TestClosedWhileCompacting(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(faulty))
	loadKeys(t, db, 3000)
	closed := make(chan error, 1)
	started := false
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpCreate && onTable(op) && !started {
			started = true
			go func() { closed <- db.Close() }()
			<-db.bg.closed.Done()
		}
		return nil
	})
	if err := db.Compact(context.Background(), nil, nil); err != ErrClosed || !started {
		t.Errorf("Compact: %v; a table was created: %t", err, started)
	}
	if err := ended(t, "Close", closed); err != nil {
		t.Error(err)
	}
}

// TestStopsWhenClosing checks that a write that waits for level 0 fails when the database is
// closed.
func TestStopsWhenClosing(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	db.stopCompactions()
	if err := db.commit.throttle.stop(db, 0); err != ErrClosed {
		t.Error(err)
	}
	mustClose(t, db)
}

// TestSlowedEvent checks that a delayed write is reported with the duration of the delay.
func TestSlowedEvent(t *testing.T) {
	var events []StallEvent
	o := uncached(vfstest.NewMem())
	o.L0Tables = 1
	o.Events.Stalled = func(e StallEvent) { events = append(events, e) }
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	for range slowFactor {
		if err := errors.Join(db.Put([]byte("key"), nil, NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	auto := DB{opts: db.opts}
	auto.opts.DisableAutoCompaction = false
	auto.state.Store(db.state.Load())
	w := throttle{owed: minSleep - 1}
	if err := w.wait(&auto, 0); err != nil || len(events) != 0 || w.owed != minSleep-1 {
		t.Errorf("a delay below minSleep: %v, events %v, owed %v", err, events, w.owed)
	}
	w.owed = minSleep
	if err := w.wait(&auto, 0); err != nil || len(events) != 1 || events[0].Stopped || events[0].Took != minSleep || w.owed > 0 {
		t.Errorf("a delay of minSleep: %v, events %v, owed %v", err, events, w.owed)
	}
}

// TestCleanerClosed checks that a closed cleaner drops tasks.
func TestCleanerClosed(t *testing.T) {
	var c cleaner
	c.idle.L = &c.mu
	ran := make(chan int, 2)
	c.do(func() { ran <- 1 })
	c.close()
	c.do(func() { ran <- 2 })
	if len(ran) != 1 || len(c.queue) != 0 || c.running {
		t.Errorf("%d tasks have run, %d are queued", len(ran), len(c.queue))
	}
}

// TestIdleDeletions checks that a table of tombstones in level 0 is compacted if no other
// compaction is worthwhile.
func TestIdleDeletions(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	loadKeys(t, db, 2*minDeletions+2)
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	for i := range minDeletions {
		if err := db.Delete(fmt.Appendf(nil, "key%06d", 2*i), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	version := db.state.Load().version
	tables := version.Levels[0]
	if len(tables) != 1 {
		t.Fatalf("%d tables in level 0, want 1", len(tables))
	}
	// Pretend that level 1 is much larger, but not too large.
	at := version.Levels[version.Deepest][0]
	below := &manifest.TableMeta{Num: at.Num, Size: 100 << 10, Smallest: at.Smallest, Largest: at.Largest, Handle: at.Handle}
	edit := &manifest.Edit{
		Deleted: []manifest.DeletedTable{{Level: version.Deepest, Num: below.Num}},
		Added:   []manifest.AddedTable{{Level: 1, Table: below}},
	}
	large, err := version.Apply(edit)
	if err != nil {
		t.Fatal(err)
	}
	auto := automatic(db)
	auto.opts.LevelBaseBytes = 1 << 20
	auto.state.Store(&readState{version: large})
	if _, ok := compact.PickIdle(large, auto.compactConfig()); ok {
		t.Fatal("the table would be compacted in any case")
	}
	if s := auto.choose(false); !s.idle || s.plan.Level != 0 || len(s.plan.Inputs[0]) != 1 || s.plan.Inputs[0][0] != tables[0] {
		t.Errorf("chosen: idle %t, %+v", s.idle, s.plan)
	}
}

// TestTombstoneAboveDamage checks that a tombstone is kept if its key lies within the range of a
// table that cannot be read.
func TestTombstoneAboveDamage(t *testing.T) {
	mem := closedDisk(t, vfstest.NewMem())
	damageFooter(t, mem, "db")
	o := uncached(mem)
	o.loadLate = true
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	if err := errors.Join(db.Delete([]byte("key000005x"), NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	newest := db.state.Load().version.Levels[0][0]
	if p := newest.Handle.(*table).reader.Load().Properties(); p.NumDeletions != 1 {
		t.Errorf("%d tombstones are kept, want 1", p.NumDeletions)
	}
}

// TestResetBesideGaps checks that an iterator that is reset to a range that begins and ends in gaps
// finds the keys in between, if there are any.
func TestResetBesideGaps(t *testing.T) {
	db, it := deletedKeys(t, "key00500x", "last")
	for range 2 { // to record the gaps
		if !it.First() || !it.Next() || string(it.Key()) != "last" {
			t.Fatalf("First and Next lead to %q, %v", it.Key(), it.Err())
		}
	}
	if n := len(db.gaps.Gaps()); n != 2 {
		t.Fatalf("%d gaps, want 2", n)
	}
	for _, c := range []struct{ lower, upper, want string }{
		{"key00100", "key00900", "key00500x"},
		{"key00100", "key00200", ""},
		{"key00100", "z", "key00500x last"},
		{"a", "key00900", "key00500x"},
		{"key00600", "key00900", ""},
	} {
		o := &IterOptions{LowerBound: []byte(c.lower), UpperBound: []byte(c.upper)}
		if err := it.Reset(o); err != nil {
			t.Fatal(err)
		}
		var forward, backward []string
		for ok := it.First(); ok; ok = it.Next() {
			forward = append(forward, string(it.Key()))
		}
		for ok := it.Last(); ok; ok = it.Prev() {
			backward = append(backward, string(it.Key()))
		}
		slices.Reverse(backward)
		if got := strings.Join(forward, " "); got != c.want || !slices.Equal(forward, backward) || it.Err() != nil {
			t.Errorf("from %s to %s: %q, backward %q, %v", c.lower, c.upper, forward, backward, it.Err())
		}
		has, err := db.HasRanges([]KeyRange{{o.LowerBound, o.UpperBound}})
		if err != nil || has[0] != (c.want != "") {
			t.Errorf("from %s to %s: HasRanges: %t, %v", c.lower, c.upper, has, err)
		}
	}
}

// TestWalkFails checks that a walk over tombstones that fails records no gap.
func TestWalkFails(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	o.BlockBytes = 64
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	loadKeys(t, db, 400)
	for i := range 300 {
		if err := db.Delete(fmt.Appendf(nil, "key%06d", 50+i), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	for at := 0; ; at++ {
		reads := 0
		faulty.SetHook(func(op vfstest.Op) error {
			if onTable(op) && op.Kind == vfstest.OpReadAt {
				if reads++; reads > at {
					return syscall.EIO
				}
			}
			return nil
		})
		it, err := db.NewIter(&IterOptions{LowerBound: []byte("key000050")})
		if err != nil {
			t.Fatal(err)
		}
		ok := it.First()
		faulty.SetHook(nil)
		if ok {
			if string(it.Key()) != "key000350" || len(db.gaps.Gaps()) != 1 {
				t.Errorf("First is at %q, with %d gaps", it.Key(), len(db.gaps.Gaps()))
			}
			it.Close()
			break
		}
		if err := it.Close(); !errors.Is(err, syscall.EIO) || len(db.gaps.Gaps()) != 0 {
			t.Errorf("after %d reads: %v, %d gaps", reads, err, len(db.gaps.Gaps()))
		}
	}
}

// TestWalkAheadOfClosed checks that walkAhead does nothing if the database has been closed or its
// tables cannot be opened.
func TestWalkAheadOfClosed(t *testing.T) {
	mem := closedDisk(t, vfstest.NewMem())
	faulty := vfstest.Inject(mem)
	o := uncached(faulty)
	o.loadLate = true
	db := mustOpen(t, "db", o)
	watch := db.gaps.Watch([]byte("key000100"), []byte("key000110"), gap.View{Seq: db.visible.Load()}, false)
	watch.Done([]byte("key000110"), 100)
	if len(db.gaps.Gaps()) != 1 {
		t.Fatal("no gap was recorded")
	}
	run := deletedRun{from: []byte("key000110"), to: []byte("key000190"), n: aheadEvery}
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return onTable(op) && op.Kind == vfstest.OpOpen }})
	ops := faulty.NumOps()
	db.walkAhead(run)
	if faulty.NumOps() == ops || db.ahead.ns.Load() != 0 {
		t.Errorf("tables cannot be opened: %d operations, and a walk of %d ns is counted", faulty.NumOps()-ops, db.ahead.ns.Load())
	}
	faulty.SetFaults()
	mustClose(t, db)
	ops = faulty.NumOps()
	db.walkAhead(run)
	if faulty.NumOps() != ops || db.ahead.ns.Load() != 0 {
		t.Error("walkAhead reads a closed database")
	}
}

// TestCheckStops checks that a canceled Check stops before it looks up the keys.
func TestCheckStops(t *testing.T) {
	faulty := vfstest.Inject(closedDisk(t, vfstest.NewMem()))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	verified := false
	faulty.SetHook(func(op vfstest.Op) error {
		switch {
		case onTable(op):
			verified = true
		case op.Kind == vfstest.OpList && verified: // the search for orphans, which follows the tables
			cancel()
		}
		return nil
	})
	report, err := Check(ctx, "db", uncached(faulty), func(err error) { t.Error(err) })
	if err != context.Canceled || report.Entries != 0 || report.Tables == 0 {
		t.Errorf("Check: %v, %d entries in %d tables", err, report.Entries, report.Tables)
	}
}

// TestNoDatabase checks that a directory without a database is reported as ErrNotExist, and that a
// directory below a file cannot be locked.
func TestNoDatabase(t *testing.T) {
	mem := vfstest.NewMem()
	if err := mem.MkdirAll("db"); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(o *Options){
		"read-only": readOnly, "ErrorIfMissing": func(o *Options) { o.ErrorIfMissing = true },
	} {
		o := uncached(mem)
		set(o)
		if _, err := Open("db", o); !errors.Is(err, ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Repair("db", uncached(mem)); !errors.Is(err, ErrNotExist) {
		t.Errorf("Repair: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := LockDirectory(filepath.Join(file, "db"), true); err == nil {
		t.Error("a directory below a file is locked")
		l.Close()
	}
}

// TestManyMissing checks that, if many tables are missing, Open reports the first few and closes
// all others.
func TestManyMissing(t *testing.T) {
	for _, missing := range []int{maxOpenErrors - 1, maxOpenErrors, maxOpenErrors + 1} {
		mem := vfstest.NewMem()
		db := mustOpen(t, "db", uncached(mem))
		for i := range missing + 1 {
			if err := errors.Join(db.Put(fmt.Appendf(nil, "key%d", i), nil, NoSync), db.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, db)
		names := tableNames(t, mem)
		if len(names) != missing+1 {
			t.Fatalf("%d table files", len(names))
		}
		for _, name := range names[1:] {
			if err := mem.Remove(filepath.Join("db", name)); err != nil {
				t.Fatal(err)
			}
		}
		faulty := vfstest.Inject(mem)
		_, err := Open("db", uncached(faulty))
		if !errors.Is(err, ErrCorruption) || strings.Count(err.Error(), "missing") != min(missing, maxOpenErrors) {
			t.Errorf("%d tables are missing: %v", missing, err)
		}
		if open := faulty.OpenFiles(); len(open) > 0 {
			t.Errorf("%d tables are missing: left open: %q", missing, open)
		}
	}
}

// unkeyedRange is a range filter policy that cannot be keyed.
type unkeyedRange struct{ filter.RangePolicy }

func (unkeyedRange) Name() string { return "unkeyed" }

// TestRangeFilterWithoutKey checks that Open refuses KeyedFilters with a range filter that cannot
// be keyed.
func TestRangeFilterWithoutKey(t *testing.T) {
	o := keyedOptions(vfstest.NewMem())
	o.RangeFilter = unkeyedRange{filter.Range(10, 0)}
	if _, err := Open("db", o); err == nil || !strings.Contains(err.Error(), "unkeyed cannot be keyed") {
		t.Error(err)
	}
	o.RangeFilter = filter.Range(10, 0)
	mustClose(t, mustOpen(t, "db", o))
}

// TestDefaultLogger checks that the default logger passes on only warnings and errors, with
// attributes and groups.
func TestDefaultLogger(t *testing.T) {
	var out bytes.Buffer
	l := slog.New(warnings{slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})})
	l = l.With("a", 1).WithGroup("g").With("b", 2)
	l.Info("not passed on")
	l.Warn("passed on", "c", 3)
	if got, want := out.String(), "level=WARN msg=\"passed on\" a=1 g.b=2 g.c=3\n"; got != want {
		t.Errorf("the log is %q, want %q", got, want)
	}
}

// TestGarbageOfMoreThanHeap checks that no garbage is reported if the database holds more than the
// heap.
func TestGarbageOfMoreThanHeap(t *testing.T) {
	if n := garbageOf(1 << 62); n != 0 {
		t.Errorf("%d bytes of garbage", n)
	}
}

// TestLargeVersion checks that a lookup in a version with a large level skips levels without
// tables.
func TestLargeVersion(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	loadKeys(t, db, 100)
	s := db.state.Load()
	from := s.version.Deepest
	edit := &manifest.Edit{}
	for _, meta := range s.version.Levels[from] {
		edit.Deleted = append(edit.Deleted, manifest.DeletedTable{Level: from, Num: meta.Num})
		edit.Added = append(edit.Added, manifest.AddedTable{Level: from + 2, Table: meta})
	}
	if err := db.applyEdit(edit, nil, 0); err != nil {
		t.Fatal(err)
	}
	db.state.Load().version.Large = true
	wantKeys(t, db, 100)
}

// TestSnapshotReads checks that the reads of a snapshot return what it sees, and fail once it is
// closed.
func TestSnapshotReads(t *testing.T) {
	prefix := &hookedPrefix{Prefixer: FixedPrefix(1)}
	o := uncached(vfstest.NewMem())
	o.Prefix = prefix
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	if err := db.Put([]byte("a"), []byte("1"), NoSync); err != nil {
		t.Fatal(err)
	}
	s := db.Snapshot()
	if err := errors.Join(db.Put([]byte("a"), []byte("2"), NoSync), db.Put([]byte("b"), nil, NoSync)); err != nil {
		t.Fatal(err)
	}
	keys := [][]byte{[]byte("a"), []byte("b")}
	values, err := s.GetMany(keys)
	if err != nil || len(values) != 2 || string(values[0]) != "1" || values[1] != nil {
		t.Errorf("GetMany: %q, %v", values, err)
	}
	ranges := []KeyRange{{[]byte("a"), []byte("b")}, {[]byte("b"), []byte("c")}}
	has, err := s.HasRanges(ranges)
	if err != nil || !slices.Equal(has, []bool{true, false}) {
		t.Errorf("HasRanges: %t, %v", has, err)
	}
	if ok, err := s.HasPrefix([]byte("b")); ok || err != nil {
		t.Errorf("HasPrefix: %t, %v", ok, err)
	}
	// If the snapshot is closed while NewIter looks for the tables, NewIter closes its iterator.
	hook := func() { s.Close() }
	prefix.hook.Store(&hook)
	if it, err := s.NewIter(&IterOptions{Prefix: []byte("a")}); it != nil || err != ErrClosed || !s.closed.Load() {
		t.Errorf("NewIter of a snapshot that is closed meanwhile: %v, %v", it, err)
	}
	if has, err := s.HasRanges(ranges); has != nil || err != ErrClosed {
		t.Errorf("HasRanges: %t, %v", has, err)
	}
	if ok, err := s.HasPrefix([]byte("a")); ok || err != ErrClosed {
		t.Errorf("HasPrefix: %t, %v", ok, err)
	}
	if err := s.View([]byte("a"), func([]byte) error { return errors.New("called") }); err != ErrClosed {
		t.Errorf("View: %v", err)
	}
}

// TestUnfinishedTableStays checks that a table of a failed compaction that cannot be removed is
// logged, and that the next Open removes it.
func TestUnfinishedTableStays(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	var out bytes.Buffer
	o := uncached(faulty)
	o.Logger = slog.New(slog.NewTextHandler(&out, nil))
	db := mustOpen(t, "db", o)
	loadKeys(t, db, 100)
	var created string
	faulty.SetFaults(
		vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
			fails := op.Kind == vfstest.OpSync && onTable(op)
			if fails {
				created = op.Name
			}
			return fails
		}},
		vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpRemove && onTable(op) }})
	if err := db.Compact(context.Background(), nil, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("Compact: %v", err)
	}
	faulty.SetFaults()
	if !strings.Contains(out.String(), "removing an unfinished table failed") {
		t.Error(out.String())
	}
	if _, err := faulty.Size(created); err != nil {
		t.Fatal(err)
	}
	faulty.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpSync && onTable(op) }})
	if err := db.Compact(context.Background(), nil, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("Compact: %v", err)
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), "removing an unfinished table failed"); n != 1 {
		t.Errorf("the failed removal is logged %d times, want 1", n)
	}
	mustClose(t, db)
	mustClose(t, mustOpen(t, "db", uncached(faulty)))
	if _, err := faulty.Size(created); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished table after the next Open: %v", err)
	}
}

// TestOps checks that an empty batch has no operations, and that a loop over Ops can end early.
func TestOps(t *testing.T) {
	var b Batch
	for op := range b.Ops() {
		t.Errorf("an empty batch has %v", op)
	}
	b.Put([]byte("a"), []byte("1"))
	b.Delete([]byte("b"))
	n := 0
	for op := range b.Ops() {
		if n++; op.Delete || string(op.Key) != "a" || string(op.Value) != "1" {
			t.Errorf("the first operation is %v", op)
		}
		break
	}
	if n != 1 {
		t.Errorf("the loop saw %d operations, want 1", n)
	}
}

// TestRangeProbeOfUnreadable checks that a table that cannot be read is not skipped: HasRange
// returns its error.
func TestRangeProbeOfUnreadable(t *testing.T) {
	mem := closedDisk(t, vfstest.NewMem())
	damageFooter(t, mem, "db")
	o := uncached(mem)
	o.loadLate, o.RangeFilter = true, filter.Range(10, 0)
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	for _, metas := range db.state.Load().version.Levels {
		for _, meta := range metas {
			key := base.UserKey(meta.Smallest)
			lower, upper := append(slices.Clone(key), 0), append(slices.Clone(key), 1)
			if ok, err := db.HasRange(lower, upper); ok || !errors.Is(err, ErrCorruption) {
				t.Errorf("from %q: %t, %v", lower, ok, err)
			}
		}
	}
}

// TestFlushFailsWhileWriting checks that, while flushes fail, a write that needs a new memtable is
// refused, and so are Ingest and Close; the next Open finds everything that was accepted.
func TestFlushFailsWhileWriting(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	o.retryDelay = time.Hour // no retries, except those that a caller requests
	db := mustOpen(t, "db", o)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return onTable(op) && op.Kind == vfstest.OpCreate }})
	value := make([]byte, 40<<10) // two do not fit into a memtable
	var err error
	n := 0
	for ; err == nil && n < 10; n++ {
		err = db.Put(fmt.Appendf(nil, "key%d", n), value, NoSync)
		if n == 1 {
			if err := db.bg.waitFlushed(); !errors.Is(err, ErrTryAgain) {
				t.Errorf("waiting for a flush that fails: %v", err)
			}
		}
	}
	if !errors.Is(err, ErrTryAgain) || !errors.Is(err, syscall.EIO) || n != 3 {
		t.Errorf("write %d fails with %v, want the third to fail", n, err)
	}
	if err := putAndIngest(db, nil); !errors.Is(err, ErrTryAgain) {
		t.Errorf("Ingest: %v", err)
	}
	if err := db.Close(); !errors.Is(err, ErrTryAgain) {
		t.Errorf("Close: %v", err)
	}
	faulty.SetFaults()
	db = mustOpen(t, "db", o)
	for key, want := range map[string]bool{"key0": true, "key1": true, "key2": false, "b": true, "z": false} {
		if ok, err := db.Has([]byte(key)); ok != want || err != nil {
			t.Errorf("after a reopen, %s is present: %t, %v", key, ok, err)
		}
	}
	mustClose(t, db)
}
