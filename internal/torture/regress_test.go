package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestRegress tests the smallest case of each defect that the tests of this package have found, and
// cases that no other test executes.
func TestRegress(t *testing.T) {
	for _, r := range []struct {
		name string
		run  func() error
	}{
		{"directories above a new database are durable", regressParents},
		{"failed background work is tried again", regressPause},
		{"an abandoned log is skipped", regressUnusedLog},
		{"power is lost while a torn log is recovered", regressTornTwice},
		{"a directory that cannot be read is not missing", regressUnreadable},
		{"numbers of existing files are not reused", regressFileNumbers},
		{"a full disk does not fill up with logs", regressLogLitter},
		{"a compaction that is not recorded has failed", regressCompactFails},
		{"writes do not wait for compactions that fail", regressThrottle},
		{"a database that does not open is checked on a failing disk", regressCheckBroken},
	} {
		t.Run(r.name, func(t *testing.T) {
			if err := r.run(); err != nil {
				t.Error(err)
			}
		})
	}
}

// small is an environment for a case with faults.
func small() (*Env, *vfstest.Faulty) {
	e := NewEnv(1)
	f := vfstest.Inject(e.Mem)
	e.FS = f
	return e, f
}

func regressParents() error {
	e := NewEnv(1)
	e.Dir = filepath.FromSlash("/a/b/c/db")
	e.Open()
	e.Put("k", 10, true)
	e.Checkpoint(filepath.FromSlash("/x/y/copy"))
	c := &Cuts{Env: e, Oracle: e.H, keys: e.H.Keys()}
	return errors.Join(e.Err, c.Cut(e.ops(), vfstest.LoseUnsynced), e.DB.Close())
}

// regressPause makes a flush fail once. It must be retried without another event to wake it.
func regressPause() error {
	for range 50 {
		e, f := small()
		e.Open()
		e.Put("k", 10, false)
		f.SetFaults(vfstest.Fault{Index: -1, Match: isTable(vfstest.OpCreate)})
		if err := e.DB.Flush(); err == nil {
			return errors.New("the flush did not fail")
		}
		end := time.Now().Add(10 * time.Second)
		for e.DB.Flush() != nil {
			if time.Now().After(end) {
				return errors.New("the flush is not tried again")
			}
			time.Sleep(100 * time.Microsecond)
		}
		if err := e.DB.Close(); err != nil {
			return err
		}
	}
	return nil
}

func isTable(kind vfstest.OpKind) func(vfstest.Op) bool {
	return func(op vfstest.Op) bool { return op.Kind == kind && strings.HasSuffix(op.Name, ".ldb") }
}

func isLog(kind vfstest.OpKind) func(vfstest.Op) bool {
	return func(op vfstest.Op) bool { return op.Kind == kind && strings.HasSuffix(op.Name, ".log") }
}

// regressUnusedLog makes the creation of a new log fail after its header is written, and its
// removal, too. The previous log stays in use, and is torn.
func regressUnusedLog() error {
	e, f := small()
	e.Open()
	e.Put("a", 10, true)
	f.SetFaults(
		vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpSyncDir }},
		vfstest.Fault{Index: -1, Match: isLog(vfstest.OpRemove)})
	if err := e.DB.Flush(); err == nil {
		return errors.New("the flush did not fail")
	}
	e.Put("b", 10, true)
	e.Put("c", 2000, false)
	return e.cutHere(30)
}

// cutHere cuts the power now, in several ways.
func (e *Env) cutHere(tears int) error {
	if e.Err != nil {
		return e.Err
	}
	c := &Cuts{Env: e, Oracle: e.H, keys: e.H.Keys()}
	ops := e.ops()
	err := errors.Join(c.Cut(ops, vfstest.LoseUnsynced), c.Cut(ops, vfstest.KeepUnsynced))
	for i := range tears {
		err = errors.Join(err, c.Cut(ops, vfstest.TearUnsynced(uint64(i))))
	}
	return errors.Join(err, e.DB.Close())
}

// regressTornTwice recovers from a torn log, and loses power at every moment of the recovery.
func regressTornTwice() error {
	e := NewEnv(1)
	e.Open()
	e.Put("a", 10, true)
	e.Put("b", 3000, false)
	ops := e.ops()
	if err := errors.Join(e.Err, e.DB.Close()); err != nil {
		return err
	}
	torn := 0
	for seed := range uint64(20) {
		img := e.Mem.CrashImage(ops, vfstest.TearUnsynced(seed))
		o := e.options(img)
		db, err := sift.Open(e.Dir, o)
		if err != nil {
			return err
		}
		contents, err := contentsOf(db)
		torn += len(db.Metrics().Recovery.Torn)
		if err = errors.Join(err, db.Close()); err != nil {
			return err
		}
		for n := range img.NumOps() {
			again, err := e.readImage(img.CrashImage(n, vfstest.KeepUnsynced))
			if err != nil {
				return fmt.Errorf("seed %d, after %d operations: %w", seed, n, err)
			}
			if sumOf(again) != sumOf(contents) {
				return fmt.Errorf("seed %d, after %d operations: %s", seed, n, difference(again, contents))
			}
		}
	}
	if torn == 0 {
		return errors.New("no log was torn")
	}
	return nil
}

func regressUnreadable() error {
	e, f := small()
	e.Open()
	e.Close()
	o := e.options(f)
	o.ReadOnly = true
	f.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpList }})
	_, err := sift.Open(e.Dir, o)
	_, rerr := sift.Repair(e.Dir, e.options(f))
	for _, err := range []error{err, rerr} {
		if !errors.Is(err, syscall.EIO) || errors.Is(err, sift.ErrNotExist) {
			return fmt.Errorf("got %w, want EIO", err)
		}
	}
	return e.Err
}

// regressFileNumbers makes each listing of the directory fail in turn while a
// database with a log is opened. An open that succeeds must have seen all names.
func regressFileNumbers() error {
	for n := range 20 {
		e, _ := small()
		e.Open()
		e.Put("a", 10, true)
		lists := 0
		img := e.Mem.CrashImage(e.ops(), vfstest.KeepUnsynced)
		if err := e.DB.Close(); err != nil {
			return err
		}
		f := vfstest.Inject(img)
		f.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
			if op.Kind == vfstest.OpList {
				lists++
			}
			return lists == n+1 && op.Kind == vfstest.OpList
		}})
		before, err := img.List(e.Dir)
		if err != nil {
			return err
		}
		db, err := sift.Open(e.Dir, e.options(f))
		for _, op := range img.Ops(0, img.NumOps()) {
			for _, name := range before {
				if op.Kind == vfstest.OpCreate && filepath.Base(op.Name) == name {
					return fmt.Errorf("listing %d fails, and %s is created again", n, name)
				}
			}
		}
		if err == nil {
			err = db.Close()
		}
		if err != nil && !errors.Is(err, syscall.EIO) {
			return err
		}
	}
	return nil
}

// regressLogLitter writes to a full disk over and over: no write that needs a new log
// may leave one behind.
func regressLogLitter() error {
	e, f := small()
	e.Open()
	e.Put("a", 3000, true)
	f.SetFaults(vfstest.Fault{Index: -1, Err: syscall.ENOSPC, Sticky: true, Match: isLog(vfstest.OpSync)})
	for range 20 {
		if err := e.DB.Put([]byte("b"), make([]byte, 3000), sift.NoSync); err == nil {
			return errors.New("the write did not fail")
		}
	}
	names, err := e.Mem.List(e.Dir)
	if err != nil {
		return err
	}
	f.SetFaults()
	if err := e.DB.Close(); err != nil {
		return err
	}
	if len(names) > 6 {
		return fmt.Errorf("files: %v", names)
	}
	return nil
}

// regressCompactFails makes each sync of the MANIFEST fail in turn while tables are moved
// down, and while they are merged: Compact must not succeed if the MANIFEST does not have
// the result.
func regressCompactFails() error {
	failed := map[bool]int{}
	for n := range 40 {
		e, f := small()
		moved := n%2 == 0
		e.Options.DisableAutoCompaction = true
		e.Options.Filter = filter.None() // so that no table is rewritten for its filter
		e.Open()
		e.Put("a", 10, true)
		e.Flush()
		if !moved {
			e.Compact("", "")
			e.Put("a", 20, true)
			e.Flush()
		}
		syncs, struck := 0, false
		f.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
			if op.Kind != vfstest.OpSync || !strings.HasPrefix(filepath.Base(op.Name), "MANIFEST-") {
				return false
			}
			syncs++
			struck = struck || syncs == n/2+1
			return syncs == n/2+1
		}})
		err := e.DB.Compact(context.Background(), nil, nil)
		if struck {
			failed[moved]++
		}
		if struck != (err != nil) {
			return fmt.Errorf("sync %d of the MANIFEST failed: %v, and Compact returns %w", n/2, struck, err)
		}
		if cerr := e.DB.Close(); cerr != nil && !struck {
			return cerr
		}
	}
	if failed[true] == 0 || failed[false] == 0 {
		return fmt.Errorf("not every kind of compaction has failed: %v", failed)
	}
	return nil
}

// regressThrottle makes every compaction fail. Once level 0 is full, writes must return
// ErrTryAgain, and succeed again when the disk works.
func regressThrottle() error {
	e, f := small()
	e.Options.L0Tables, e.Options.CacheBytes = 1, -1
	e.Open()
	e.Put("a", 10, true)
	e.Compact("", "")
	if e.Err != nil {
		return e.Err
	}
	old, err := e.Mem.List(e.Dir)
	if err != nil {
		return err
	}
	f.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpReadAt && slices.Contains(old, filepath.Base(op.Name))
	}})
	refused := error(nil)
	for end := time.Now().Add(20 * time.Second); refused == nil && time.Now().Before(end); {
		if refused = e.DB.Put([]byte("a"), make([]byte, 1000), sift.NoSync); refused == nil {
			refused = e.DB.Flush()
		}
	}
	if !errors.Is(refused, sift.ErrTryAgain) || errors.Is(refused, sift.ErrReopen) || !errors.Is(refused, syscall.EIO) {
		return fmt.Errorf("level 0 is full, and a write returns %w", refused)
	}
	f.SetFaults()
	for end := time.Now().Add(20 * time.Second); refused != nil && time.Now().Before(end); time.Sleep(e.Retry) {
		refused = e.DB.Put([]byte("c"), nil, sift.NoSync)
	}
	return errors.Join(refused, e.DB.Close())
}

// regressCheckBroken checks a database without a MANIFEST, and makes each operation fail in
// turn: tables that could not be read must not pass as intact.
func regressCheckBroken() error {
	e, _ := small()
	e.Open()
	for i := range 3 {
		e.Put(fmt.Sprint(i), 10, true)
		e.Flush()
	}
	e.Close()
	if e.Err != nil {
		return e.Err
	}
	if err := writeFile(e.Mem, filepath.Join(e.Dir, "CURRENT"), []byte("nothing")); err != nil {
		return err
	}
	check := func(fs vfs.FS) (report sift.CheckReport, err error) {
		return sift.Check(context.Background(), e.Dir, e.options(fs), func(error) {})
	}
	whole, err := check(e.Mem)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		f := vfstest.Inject(e.Mem)
		f.SetFaults(vfstest.Fault{Index: n})
		report, err := check(f)
		failed := f.Failed()
		if len(failed) == 0 {
			return nil
		}
		missed := report.Tables < whole.Tables || report.Faults == whole.Faults && failed[0].Kind == vfstest.OpReadAt
		if err == nil && missed {
			return fmt.Errorf("operation %v fails, and Check reports %+v", failed[0], report)
		}
	}
}
