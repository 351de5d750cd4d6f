package sift

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// Tests of locks that other tests rarely contend for. In most of them it is the race detector that
// notices when one is released too early.

// TestFatalConcurrent reads the error that ends all writing while it is set.
func TestFatalConcurrent(t *testing.T) {
	for range 50 {
		d := bareDB()
		var wg sync.WaitGroup
		wg.Go(func() {
			for d.bg.fatal() == nil {
				runtime.Gosched()
			}
		})
		runtime.Gosched()
		d.bg.change(func() { d.bg.fatalErr = ErrReopen })
		wg.Wait()
	}
}

// TestCanceledJobs cancels jobs during their only step: do returns only when the step has ended.
func TestCanceledJobs(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	for range 100 {
		ctx, cancel := context.WithCancel(context.Background())
		ended := false
		err := db.do(ctx, func(context.Context) (last bool, err error) {
			cancel()
			time.Sleep(100 * time.Microsecond)
			ended = true
			return true, nil
		})
		if err != nil && !errors.Is(err, context.Canceled) || !ended {
			t.Fatalf("the step has ended: %t, %v", ended, err)
		}
	}
}

// TestSnapshotDuringDrop takes a snapshot while DeleteRange drops a table: it must see either all
// keys or, if it had to wait, none.
func TestSnapshotDuringDrop(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", uncached(faulty))
	defer mustClose(t, db)
	if err := errors.Join(db.Put([]byte("key"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	taken := make(chan *Snapshot, 1)
	var once sync.Once
	early := false
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind != vfstest.OpWrite || !strings.HasPrefix(filepath.Base(op.Name), "MANIFEST") {
			return nil
		}
		once.Do(func() {
			go func() { taken <- db.Snapshot() }()
			for range 50 {
				if early = early || len(taken) > 0; !early {
					time.Sleep(time.Millisecond)
				}
			}
		})
		return nil
	})
	if err := db.DeleteRange(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	faulty.SetHook(nil)
	if db.Metrics().Levels[0].Tables != 0 {
		t.Fatal("the table is not dropped")
	}
	s := <-taken
	defer s.Close()
	if found, err := s.Has([]byte("key")); found != early || err != nil {
		t.Errorf("the snapshot was taken before the drop: %t; it has the key: %t, %v", early, found, err)
	}
}

// TestTableErrorConcurrent asks for the error of a table while it cannot be opened.
func TestTableErrorConcurrent(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	db := mustOpen(t, "db", o)
	loadKeys(t, db, 100)
	mustClose(t, db)
	o.loadLate = true
	db = mustOpen(t, "db", o)
	defer mustClose(t, db)
	failed := errors.New("failed")
	faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: onTable, Err: failed})
	tab := db.state.Load().version.Levels[0][0].Handle.(*table)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2000 {
			if _, err := tab.load(); !errors.Is(err, failed) {
				t.Error(err)
			}
		}
	})
	for range 2000 {
		if err := tab.lastErr(); err != nil && !errors.Is(err, failed) {
			t.Error(err)
		}
	}
	wg.Wait()
	faulty.SetFaults()
}

// TestKeepTablesConcurrent counts the calls that need all tables from several goroutines.
func TestKeepTablesConcurrent(t *testing.T) {
	var l snapshotList
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				l.keepTables(1)
				l.keepTables(-1)
			}
		})
	}
	wg.Wait()
	if l.tableUsers != 0 {
		t.Errorf("%d calls are left", l.tableUsers)
	}
}
