package sift

import (
	"context"
	"errors"
	"math/rand/v2"
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

// TestCanceledJobs cancels calls of Compact at any time.
func TestCanceledJobs(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	loadKeys(t, db, 100)
	for range 500 {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			for range rand.IntN(30) {
				runtime.Gosched()
			}
			cancel()
		})
		if err := db.Compact(ctx, nil, nil); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		wg.Wait()
	}
}

// TestSnapshotDuringDrop takes a snapshot while DeleteRange drops a table: it must see either all keys
// or, if it had to wait, none.
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

// TestTableErrorConcurrent lists tables while reads fail to open them.
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
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			if _, err := db.Get([]byte("key000003")); err != nil && !errors.Is(err, failed) {
				t.Error(err)
			}
		}
	})
	for range 200 {
		db.Tables()
	}
	wg.Wait()
	faulty.SetFaults()
}
