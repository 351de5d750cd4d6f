package sift

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// ended returns a call's result, and fails the test if the call does not return. It is for
// calls that might hang, not for slow ones.
func ended(t *testing.T, what string, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not return", what)
		return nil
	}
}

// inBackground calls fn in a goroutine; the channel receives its result.
func inBackground(fn func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- fn() }()
	return result
}

// TestJobsTakeTurns checks that a job that never ends takes turns with the compactions that the
// tree needs and with other jobs, and that Close ends it.
func TestJobsTakeTurns(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.L0Tables, o.DisableAutoCompaction = 1, false
	db := mustOpen(t, "db", o)
	var turns atomic.Int64
	endless := inBackground(func() error {
		return db.do(context.Background(), func(context.Context) (bool, error) {
			turns.Add(1)
			return false, nil
		})
	})
	for begin := time.Now(); turns.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the job does not begin")
		}
	}
	for i := range 3 {
		before := db.stats.compactions.Load() + db.stats.moves.Load()
		if err := db.Put(fmt.Appendf(nil, "key%d", i), nil, NoSync); err != nil {
			t.Fatal(err)
		}
		if err := ended(t, "Flush", inBackground(db.Flush)); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); db.stats.compactions.Load()+db.stats.moves.Load() == before; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 30*time.Second {
				t.Fatalf("round %d: nothing is compacted during %d turns of the endless job", i, turns.Load())
			}
		}
		if err := ended(t, "Compact", inBackground(func() error { return db.Compact(context.Background(), nil, nil) })); err != nil {
			t.Fatal(err)
		}
		steps, seen := 0, int64(0)
		err := ended(t, "a job of two steps", inBackground(func() error {
			return db.do(context.Background(), func(context.Context) (last bool, err error) {
				if steps++; steps == 2 && turns.Load() == seen {
					t.Error("the endless job had no turn between the steps of another job")
				}
				seen = turns.Load()
				return steps == 2, nil
			})
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := ended(t, "Close", inBackground(db.Close)); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := ended(t, "the job", endless); err != ErrClosed {
		t.Errorf("the job ends with %v", err)
	}
}

// TestJobContext checks that a job's context is checked while the job is queued, while it runs and
// between its steps.
func TestJobContext(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	cause := context.DeadlineExceeded
	expired := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}

	entered, release := make(chan struct{}), make(chan struct{})
	first := inBackground(func() error {
		return db.do(context.Background(), func(context.Context) (bool, error) {
			close(entered)
			<-release
			return true, nil
		})
	})
	<-entered
	queued := inBackground(func() error { return db.Compact(expired(), nil, nil) })
	if err := ended(t, "a queued job", queued); !errors.Is(err, cause) {
		t.Errorf("a queued job: %v", err)
	}
	close(release)
	if err := ended(t, "the first job", first); err != nil {
		t.Error(err)
	}

	running := inBackground(func() error {
		return db.do(expired(), func(ctx context.Context) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		})
	})
	if err := ended(t, "a running job", running); !errors.Is(err, cause) {
		t.Errorf("a running job: %v", err)
	}
	between := inBackground(func() error {
		return db.do(expired(), func(context.Context) (bool, error) { return false, nil })
	})
	if err := ended(t, "a job between steps", between); !errors.Is(err, cause) {
		t.Errorf("a job between its steps: %v", err)
	}
}

// TestCompactContextWhileFlushing checks that Compact returns when its context ends, even if the
// disk hangs during its flush.
func TestCompactContextWhileFlushing(t *testing.T) {
	fs := vfstest.Inject(vfstest.NewMem())
	o := uncached(fs)
	db := mustOpen(t, "db", o)
	loadKeys(t, db, 10)
	entered, release := make(chan struct{}, 100), make(chan struct{})
	fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpCreate && strings.HasSuffix(op.Name, ".ldb") {
			entered <- struct{}{}
			<-release
		}
		return nil
	})
	if err := db.Put([]byte("k"), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := inBackground(func() error { return db.Compact(ctx, nil, nil) })
	<-entered
	cancel()
	if err := ended(t, "Compact", result); !errors.Is(err, context.Canceled) {
		t.Errorf("Compact: %v", err)
	}
	close(release)
	if err := ended(t, "Close", inBackground(db.Close)); err != nil {
		t.Error(err)
	}
}

// TestCompactBehindCompaction checks that Compact drops overwritten entries even if, when it is
// called, a compaction is running that keeps them, for a snapshot that has ended since.
func TestCompactBehindCompaction(t *testing.T) {
	fs := vfstest.Inject(vfstest.NewMem())
	o := uncached(fs)
	o.DisableCompression, o.TableBytes = true, 1<<10
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	put := func() {
		for i := range 200 {
			if err := db.Put(fmt.Appendf(nil, "key%06d", i), make([]byte, 100), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	put()
	s := db.Snapshot()
	put()
	entered, release := make(chan struct{}), make(chan struct{})
	var blocked atomic.Bool
	fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpCreate && onTable(op) && blocked.CompareAndSwap(false, true) {
			close(entered)
			<-release
		}
		return nil
	})
	running := inBackground(func() error {
		return db.do(context.Background(), func(ctx context.Context) (bool, error) {
			plan, _ := compact.PickOld(db.state.Load().version, db.compactConfig(), nil, nil, math.MaxUint64)
			plan.TrivialMove = false
			return true, db.runPlan(ctx, &plan)
		})
	})
	<-entered
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	compacting := inBackground(func() error { return db.Compact(context.Background(), nil, nil) })
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		db.bg.mu.Lock()
		jobs := len(db.bg.jobs)
		db.bg.mu.Unlock()
		if jobs == 2 {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the job of Compact is not queued")
		}
	}
	close(release)
	if err := errors.Join(ended(t, "the compaction", running), ended(t, "Compact", compacting)); err != nil {
		t.Fatal(err)
	}
	tables, old := 0, 0
	for _, metas := range db.state.Load().version.Levels {
		for _, meta := range metas {
			tables++
			if !meta.Handle.(*table).compacted() {
				old++
			}
		}
	}
	if tables < 10 || old > 0 {
		t.Errorf("of %d tables, %d have overwritten entries", tables, old)
	}
}

// TestCloseEndsStall checks that Close ends a write that waits for level 0.
func TestCloseEndsStall(t *testing.T) {
	fs := vfstest.Inject(vfstest.NewMem())
	o := uncached(fs)
	o.L0Tables, o.MemtableBytes, o.DisableAutoCompaction = 1, 1<<10, false
	db := mustOpen(t, "db", o)
	entered, release := make(chan struct{}), make(chan struct{})
	hold := inBackground(func() error {
		return db.do(context.Background(), func(ctx context.Context) (bool, error) {
			close(entered)
			<-release
			return true, nil
		})
	})
	<-entered // nothing is compacted until release
	writes := inBackground(func() error {
		for i := 0; ; i++ {
			if err := db.Put(fmt.Appendf(nil, "key%06d", i), make([]byte, 100), NoSync); err != nil {
				return err
			}
		}
	})
	for begin := time.Now(); len(db.state.Load().version.Levels[0]) < stopFactor; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("level 0 does not fill")
		}
	}
	closed := inBackground(db.Close)
	if err := ended(t, "Put", writes); err != ErrClosed {
		t.Errorf("Put: %v", err)
	}
	close(release)
	if err := ended(t, "Close", closed); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := ended(t, "the job", hold); err != nil {
		t.Error(err)
	}
}

// TestHungReadBlocksNoWrite checks that a read that hangs delays no write: the read state that it
// uses is released in the background, and its files are removed when it has ended.
func TestHungReadBlocksNoWrite(t *testing.T) {
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key%06d", i)
	}
	for what, read := range map[string]func(db *DB) error{
		"Get":     func(db *DB) error { _, err := db.Get(keys[500]); return err },
		"GetMany": func(db *DB) error { _, err := db.GetMany(keys); return err },
	} {
		t.Run(what, func(t *testing.T) {
			fs := vfstest.Inject(vfs.OS)
			dir := t.TempDir()
			o := &Options{FS: fs, MemtableBytes: 1 << 20, CacheBytes: -1, MapBytes: -1, L0Tables: 4}
			db := mustOpen(t, dir, o)
			loadKeys(t, db, len(keys))
			entered, release := make(chan struct{}), make(chan struct{})
			var hung atomic.Bool
			fs.SetHook(func(op vfstest.Op) error {
				if op.Kind == vfstest.OpReadAt && onTable(op) && hung.CompareAndSwap(false, true) {
					close(entered)
					<-release
				}
				return nil
			})
			reading := inBackground(func() error { return read(db) })
			<-entered
			const size = 64 << 10
			writes := inBackground(func() error {
				for i := range 64 << 20 / size {
					if err := db.Put(fmt.Appendf(nil, "new%06d", i), make([]byte, size), NoSync); err != nil {
						return err
					}
				}
				return db.Flush()
			})
			if err := ended(t, "a write during a hung read", writes); err != nil {
				t.Error(err)
			}
			select {
			case err := <-reading:
				t.Errorf("the read did not hang: %v", err)
			default:
			}
			close(release)
			if err := ended(t, what, reading); err != nil {
				t.Error(err)
			}
			if err := ended(t, "Close", inBackground(db.Close)); err != nil {
				t.Error(err)
			}
			report := mustCheck(t, dir, &Options{})
			names, err := fs.List(dir)
			if err != nil {
				t.Fatal(err)
			}
			tables := 0
			for _, name := range names {
				if strings.HasSuffix(name, ".ldb") {
					tables++
				}
			}
			if tables != report.Tables {
				t.Errorf("%d table files, but %d tables", tables, report.Tables)
			}
		})
	}
}

// TestHungFilterReadBlocksNoWrite checks that a hung read of the filter memory manager blocks
// neither compactions nor writes, even while Metrics waits for the manager.
func TestHungFilterReadBlocksNoWrite(t *testing.T) {
	fs := vfstest.Inject(vfs.OS)
	dir := t.TempDir()
	o := &Options{FS: fs, MemtableBytes: 1 << 20, CacheBytes: -1, MapBytes: -1, L0Tables: 2, FilterMemory: 1 << 20}
	db := mustOpen(t, dir, o)
	loadKeys(t, db, 1000)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	// The manager has loaded the filter, or will soon; once it is dropped it is read again.
	entered, release := make(chan struct{}), make(chan struct{})
	tab := db.state.Load().version.Levels[0][0].Handle.(*table)
	var hung atomic.Bool
	fs.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpReadAt && op.Name == tab.path && hung.CompareAndSwap(false, true) {
			close(entered)
			<-release
		}
		return nil
	})
	reading := inBackground(func() error {
		err := tab.reader.Load().LoadFilterSteps(0)
		db.filterManager.Rebalance(1 << 20)
		return err
	})
	<-entered
	metrics := inBackground(func() error { db.Metrics(); return nil })
	const size = 64 << 10
	writes := inBackground(func() error {
		for i := range 64 << 20 / size {
			if err := db.Put(fmt.Appendf(nil, "new%06d", i), make([]byte, size), NoSync); err != nil {
				return err
			}
		}
		return db.Compact(context.Background(), []byte("new"), nil)
	})
	if err := ended(t, "a write during a hung read of a filter", writes); err != nil {
		t.Error(err)
	}
	if db.stats.compactions.Load() == 0 {
		t.Error("nothing was compacted")
	}
	select {
	case <-reading:
		t.Error("the read did not hang")
	default:
	}
	close(release)
	for what, result := range map[string]<-chan error{"rebalance": reading, "Metrics": metrics} {
		if err := ended(t, what, result); err != nil {
			t.Error(err)
		}
	}
	if err := ended(t, "Close", inBackground(db.Close)); err != nil {
		t.Error(err)
	}
	mustCheck(t, dir, &Options{})
}

// TestJobClearsError checks that after a job has succeeded, writes no longer report that an earlier
// compaction failed, and that they do if it has failed, too.
func TestJobClearsError(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer db.Close()
	failed := errors.New("an earlier compaction failed")
	db.bg.change(func() { db.bg.compactErr = failed })
	for _, result := range []error{errors.New("the job fails"), nil} {
		err := db.do(context.Background(), func(context.Context) (bool, error) { return true, result })
		want := failed
		if result == nil {
			want = nil
		}
		db.bg.mu.Lock()
		if err != result || db.bg.compactErr != want {
			t.Errorf("a job that returns %v: %v, and %v remains", result, err, db.bg.compactErr)
		}
		db.bg.mu.Unlock()
	}
}

// withDamagedLevel returns options for a database whose tables in level 1, above the same keys in
// level 2, are damaged, and in which compactions of level 1 are due.
func withDamagedLevel(t *testing.T) *Options {
	t.Helper()
	mem := vfstest.NewMem()
	o := uncached(mem)
	o.DisableCompression = true
	db := mustOpen(t, "db", o)
	fill := func() {
		for i := range 8000 {
			if err := db.Put(fmt.Appendf(nil, "a%06d", i), make([]byte, 100), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	run := func(p *compact.Plan) {
		if err := db.runPlan(context.Background(), p); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, meta := range db.state.Load().version.Levels[1] { // to level 2
		p := compact.Plan{Level: 1, OutputLevel: 2, TrivialMove: true}
		p.Inputs[0] = []*manifest.TableMeta{meta}
		run(&p)
	}
	fill()
	p, _ := compact.PickOld(db.state.Load().version, db.compactConfig(), nil, nil, math.MaxUint64)
	p.TrivialMove = false
	run(&p) // to level 1, above the same keys in level 2
	damaged := db.state.Load().version.Levels[1]
	mustClose(t, db)
	for _, meta := range damaged {
		writeFile(t, mem, meta.Handle.(*table).path, make([]byte, meta.Size))
	}
	o.DisableAutoCompaction, o.L0Tables = false, 1
	return o
}

// TestDamageStopsNoOtherLevel checks that a damaged table, whose compaction fails again and again,
// does not keep other levels from being compacted: in the end all writes would fail.
func TestDamageStopsNoOtherLevel(t *testing.T) {
	db := mustOpen(t, "db", withDamagedLevel(t))
	defer mustClose(t, db)
	for i := range 10 {
		write := inBackground(func() error { return errors.Join(db.Put([]byte("z"), nil, nil), db.Flush()) })
		if err := ended(t, "a write", write); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
}

// TestFailingCompactionDelaysNoSteps checks that the steps of a job do not wait for the retry of a
// failing compaction, and that it is retried while the job continues.
func TestFailingCompactionDelaysNoSteps(t *testing.T) {
	fs := vfstest.Inject(vfstest.NewMem())
	o := uncached(fs)
	db := mustOpen(t, "db", o)
	if err := flushTwice(db, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	var failed atomic.Int64
	o.Events.Failed = func(error) { failed.Add(1) }
	o.DisableAutoCompaction, o.L0Tables, o.retryDelay = false, 1, 50*time.Millisecond
	fs.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpCreate && onTable(op) }})
	db = mustOpen(t, "db", o)
	defer mustClose(t, db)
	defer fs.SetFaults()
	begin := time.Now()
	for failed.Load() < 4 { // the pause is now 8 times as long as at first
		if time.Sleep(time.Millisecond); time.Since(begin) > 30*time.Second {
			t.Fatal("the compaction does not fail")
		}
	}
	begin = time.Now()
	steps := 0
	if err := db.do(context.Background(), func(context.Context) (last bool, err error) { steps++; return steps == 15, nil }); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 20*o.retryDelay {
		t.Errorf("a job of %d steps took %v", steps, took)
	}
	before := failed.Load()
	err := db.do(context.Background(), func(context.Context) (last bool, err error) {
		time.Sleep(time.Millisecond)
		return failed.Load() > before+1 || time.Since(begin) > 30*time.Second, nil
	})
	if err != nil || failed.Load() <= before+1 {
		t.Errorf("during a job, a compaction that has failed is not retried: %v", err)
	}
}

// TestCanceledByDisk checks that an error of a file system which looks like a canceled context is a
// failure like others.
func TestCanceledByDisk(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(faulty))
	defer mustClose(t, db)
	if err := flushTwice(db, nil); err != nil {
		t.Fatal(err)
	}
	plan, ok := compact.PickOld(db.state.Load().version, db.compactConfig(), nil, nil, math.MaxUint64)
	if !ok {
		t.Fatal("nothing to compact")
	}
	plan.TrivialMove, plan.Score = false, 1 // as if it were due
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: context.Canceled, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpCreate && onTable(op) }})
	err := automaticErr(t, db, &plan)
	faulty.SetFaults()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the failure is not recorded: %v", err)
	}
}

// automaticErr runs an automatic compaction on the compacting goroutine, and returns the error for
// writes that wait for level 0.
func automaticErr(t *testing.T, db *DB, plan *compact.Plan) (err error) {
	t.Helper()
	jobErr := db.do(context.Background(), func(ctx context.Context) (last bool, _ error) {
		db.runAutomatic(ctx, plan)
		db.bg.mu.Lock()
		defer db.bg.mu.Unlock()
		err = db.bg.compactErr
		return true, nil
	})
	if jobErr != nil {
		t.Fatal(jobErr)
	}
	return err
}

// TestFailedLevels checks that the failure of a compaction is an error of writes only if it is one
// of level 0 that is due, and that after a failed retry, the other levels that have failed come
// next.
func TestFailedLevels(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(faulty))
	defer mustClose(t, db)
	if err := flushTwice(db, nil); err != nil {
		t.Fatal(err)
	}
	version, cfg := db.state.Load().version, db.compactConfig()
	idle, found := compact.PickIdle(version, cfg)
	cfg.L0Trigger = 1
	upper, due := compact.Pick(version, cfg, db.pointers)
	if !found || !due || upper.TrivialMove {
		t.Fatalf("plans: %+v, %+v", idle, upper)
	}
	lower := upper
	lower.Level, lower.OutputLevel = 2, 3
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpCreate && onTable(op) }})
	defer faulty.SetFaults()
	for i, c := range []struct {
		plan    *compact.Plan
		failed  [manifest.NumLevels]bool
		refused bool // whether writes that wait for level 0 fail
	}{
		{&lower, [manifest.NumLevels]bool{2: true}, false},
		{&upper, [manifest.NumLevels]bool{0: true, 2: true}, true},
		{&lower, [manifest.NumLevels]bool{2: true}, false}, // the job has cleared the error
		{&upper, [manifest.NumLevels]bool{0: true, 2: true}, true},
		{&upper, [manifest.NumLevels]bool{0: true}, true},
		{&idle, [manifest.NumLevels]bool{0: true}, false},
	} {
		err := automaticErr(t, db, c.plan)
		if db.failedLevels != c.failed || (err != nil) != c.refused {
			t.Errorf("failure %d: failed levels %v, error %v", i, db.failedLevels, err)
		}
	}
	// A success in another level leaves the error of level 0.
	err := db.do(context.Background(), func(ctx context.Context) (last bool, err error) {
		db.runAutomatic(ctx, &upper)
		db.runAutomatic(ctx, &compact.Plan{Level: 2, OutputLevel: 3})
		db.bg.mu.Lock()
		defer db.bg.mu.Unlock()
		if db.bg.compactErr == nil {
			t.Error("the success of another level has cleared the error of level 0")
		}
		return true, nil
	})
	if err != nil {
		t.Error(err)
	}
	// So does a job that fails, but not one that succeeds, even if its caller has given up
	// meanwhile.
	for _, fails := range []bool{true, false} {
		ctx, cancel := context.WithCancel(context.Background())
		err := db.do(ctx, func(ctx context.Context) (last bool, err error) {
			db.runAutomatic(ctx, &upper)
			cancel()
			if fails {
				return false, errors.New("failed")
			}
			return false, nil
		})
		db.bg.mu.Lock()
		if err == nil || (db.bg.compactErr != nil) != fails {
			t.Errorf("after a job with the error %v: %v", err, db.bg.compactErr)
		}
		db.bg.mu.Unlock()
	}
}

// TestSuccessEndsFailures checks that the success of a level that has failed ends its failures,
// even if another level has been compacted after the pause and before the retry.
func TestSuccessEndsFailures(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	o.retryDelay = time.Nanosecond
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	if err := flushTwice(db, nil); err != nil {
		t.Fatal(err)
	}
	plan, _ := compact.PickOld(db.state.Load().version, db.compactConfig(), nil, nil, math.MaxUint64)
	err := db.do(context.Background(), func(ctx context.Context) (last bool, err error) {
		r := &db.bg.compacting
		faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpCreate && onTable(op) }})
		db.runAutomatic(ctx, &plan)
		db.runAutomatic(ctx, &plan)
		faulty.SetFaults()
		if r.failed != 2 {
			t.Errorf("%d failures", r.failed)
		}
		db.runAutomatic(ctx, &compact.Plan{Level: 2, OutputLevel: 3})
		if r.failed != 2 {
			t.Errorf("%d failures after the success of another level", r.failed)
		}
		db.runAutomatic(ctx, &plan)
		if r.failed != 0 || db.failedLevels != [manifest.NumLevels]bool{} {
			t.Errorf("%d failures after a success, in levels %v", r.failed, db.failedLevels)
		}
		return true, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFailedLevelWaitsBesideOthers checks that a failed level waits for its retry even if other
// levels are compacted meanwhile.
func TestFailedLevelWaitsBesideOthers(t *testing.T) {
	o := withDamagedLevel(t)
	var failed, compacted atomic.Int64
	o.Events.Failed = func(err error) {
		if strings.Contains(err.Error(), "compacting level 1") {
			failed.Add(1)
		}
	}
	o.Events.Compacted = func(CompactionEvent) { compacted.Add(1) }
	o.retryDelay = time.Hour
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	for i := range 20 {
		n := compacted.Load()
		if err := errors.Join(db.Put([]byte("z"), nil, nil), db.Flush()); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		for begin := time.Now(); compacted.Load() == n && time.Since(begin) < 5*time.Second; {
			time.Sleep(time.Millisecond)
		}
	}
	if n := failed.Load(); n != 1 {
		t.Errorf("the compaction of level 1 failed %d times within its pause of an hour", n)
	}
}

// TestDamageIsRetriedRarely checks that a compaction that fails because of damage, which would
// rewrite the same tables each time, is retried less and less often, even if writes ask for it.
func TestDamageIsRetriedRarely(t *testing.T) {
	o := withDamagedLevel(t)
	var failed atomic.Int64
	o.Events.Failed = func(err error) {
		if strings.HasPrefix(err.Error(), "compacting level") {
			failed.Add(1)
		}
	}
	o.retryDelay = time.Millisecond
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	for begin := time.Now(); time.Since(begin) < time.Second; time.Sleep(time.Millisecond) {
		db.bg.mu.Lock()
		db.bg.retrySoon(&db.bg.compacting)
		db.bg.mu.Unlock()
	}
	if n := failed.Load(); n == 0 || n > 15 { // 1, 2, 4, ... ms; without the longer pause some hundred
		t.Errorf("a compaction of damaged tables failed %d times in a second", n)
	}
}

// TestDamageDelaysNoOtherRetry checks that a level that the disk has failed does not wait for the
// long pause of a damaged one.
func TestDamageDelaysNoOtherRetry(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	err := db.do(context.Background(), func(context.Context) (last bool, err error) {
		r := &db.bg.compacting
		r.failed = 20
		db.failedLevels[0], db.failedLevels[1], db.damagedLevels[1] = true, true, true
		db.failure(r, "a test", ErrCorruption)
		if wait := time.Until(r.due); wait > maxRetryFactor*retryDelay {
			t.Errorf("beside a level that may succeed soon, the pause is %v", wait)
		}
		db.failedLevels[0] = false
		db.failure(r, "a test", ErrCorruption)
		if wait := time.Until(r.due); wait < time.Minute {
			t.Errorf("with damage only, the pause is %v", wait)
		}
		return true, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFlushFailsBesideCompaction checks, under the race detector, that a flush and a compaction can
// fail at the same time.
func TestFlushFailsBesideCompaction(t *testing.T) {
	o := withDamagedLevel(t)
	faulty := vfstest.Inject(o.FS)
	o.FS, o.retryDelay = faulty, time.Millisecond
	var flushes, compactions atomic.Int64
	o.Events.Failed = func(err error) {
		if strings.HasPrefix(err.Error(), "compacting level") {
			compactions.Add(1)
		} else if errors.Is(err, syscall.ENOSPC) {
			flushes.Add(1)
		}
	}
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: syscall.ENOSPC, Match: func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpCreate && strings.HasSuffix(op.Name, ".ldb")
	}})
	if err := db.Put([]byte("z"), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); flushes.Load() < 20 || compactions.Load() < 5; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%d flushes and %d compactions have failed", flushes.Load(), compactions.Load())
		}
		if err := db.Flush(); err == nil {
			t.Fatal("the flush succeeds")
		}
	}
	faulty.SetFaults()
	for begin := time.Now(); db.Flush() != nil; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("once there is space, the flush still fails")
		}
	}
}

// TestDamageStopsNoWait checks that a write that waits for level 0 gets an error at once if level 0
// is damaged, since the retry may be an hour away: also if the damage was found while no compaction
// was due, and after a job has succeeded.
func TestDamageStopsNoWait(t *testing.T) {
	mem := vfstest.NewMem()
	o := uncached(mem)
	db := mustOpen(t, "db", o)
	fill := func() {
		t.Helper()
		if err := errors.Join(db.Put([]byte("k"), nil, NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	fill()
	damaged := db.state.Load().version.Levels[0][0]
	mustClose(t, db)
	writeFile(t, mem, damaged.Handle.(*table).path, make([]byte, damaged.Size))
	failed := make(chan error, 1)
	o.Events.Failed = func(err error) {
		if strings.HasPrefix(err.Error(), "compacting level 0") {
			select {
			case failed <- err:
			default:
			}
		}
	}
	o.DisableAutoCompaction, o.L0Tables, o.retryDelay = false, 4, time.Hour
	db = mustOpen(t, "db", o)
	defer func() { mustClose(t, db) }()
	if err := ended(t, "the idle compaction", failed); !errors.Is(err, ErrCorruption) {
		t.Fatalf("the idle compaction: %v", err)
	}
	for len(db.state.Load().version.Levels[0]) < stopFactor*o.L0Tables {
		fill()
	}
	for _, when := range []string{"after an idle compaction has found damage", "after a job has succeeded"} {
		err := ended(t, "a write "+when, inBackground(func() error { return db.Put([]byte("k"), nil, NoSync) }))
		if !errors.Is(err, ErrTryAgain) || !errors.Is(err, ErrCorruption) {
			t.Errorf("a write %s: %v", when, err)
		}
		job := func(context.Context) (last bool, err error) { return true, nil }
		if err := db.do(context.Background(), job); err != nil {
			t.Fatal(err)
		}
	}
}
