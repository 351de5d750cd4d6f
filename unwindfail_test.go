package sift

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestPanicAfterFailure checks that the writers of a group whose log write failed get ErrReopen,
// since the log may hold their batches, even if the callback that reports the failure panics.
func TestPanicAfterFailure(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", &Options{FS: faulty, Events: Events{Failed: func(error) { panic("failed") }}})
	if err := db.Put([]byte("a"), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	faulty.SetFaults(vfstest.Fault{Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpWrite }, Sticky: true})
	var batch Batch
	batch.Put([]byte("b"), nil)
	first, second := newCommit(), newCommit()
	first.batch, second.batch = &batch, &batch
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the callback was not called")
			}
		}()
		db.commit.run([]*commit{first, second})
	}()
	for i, r := range []*commit{first, second} {
		if !errors.Is(r.err, ErrReopen) {
			t.Errorf("writer %d of the group gets %v", i, r.err)
		}
	}
	if err := db.Put([]byte("c"), nil, NoSync); !errors.Is(err, ErrReopen) {
		t.Errorf("a later writer gets %v", err)
	}
	faulty.SetFaults()
	if err := db.Close(); !errors.Is(err, ErrReopen) {
		t.Errorf("Close returns %v", err)
	}
}

// TestPanicInJointCommit checks that the members of a joint transaction get an error if a callback
// panics on the goroutine of the one that commits it.
func TestPanicInJointCommit(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	o.Events.Failed = func(error) { panic("failed") }
	db := mustOpen(t, "db", o)
	q := &db.joints
	q.took = time.Hour // no call is left out
	q.contention.Store(maxContention)
	call := func(fn func(tx *Tx) error) <-chan error {
		q.calls.Store(0) // no probe
		return inBackground(func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v", p)
				}
			}()
			return db.TransactWith(context.Background(), &TxOptions{NoSync: true, Tries: 1}, fn)
		})
	}
	started, goOn := make(chan struct{}), make(chan struct{})
	first := call(func(tx *Tx) error { close(started); <-goOn; return tx.Put([]byte("a"), nil) })
	<-started
	second := call(func(tx *Tx) error {
		faulty.SetFaults(vfstest.Fault{Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpWrite }, Sticky: true})
		return tx.Put([]byte("b"), nil)
	})
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		q.mu.Lock()
		n := len(q.waiting)
		q.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the second call does not join")
		}
	}
	close(goOn)
	if err := ended(t, "the call that commits", second); err == nil || !strings.HasPrefix(err.Error(), "panic") {
		t.Errorf("the call that commits returns %v", err)
	}
	if err := ended(t, "the other member", first); !errors.Is(err, ErrReopen) {
		t.Errorf("the other member returns %v", err)
	}
	faulty.SetFaults()
	nothingLeft(t, db)
	if err := db.Close(); !errors.Is(err, ErrReopen) {
		t.Error(err)
	}
}

// TestPanicInLog checks that nothing more is written after the file system has panicked in a write
// or a sync of the log, which may then hold what the memtable lacks (I5), and that what was
// acknowledged is there after the next Open.
func TestPanicInLog(t *testing.T) {
	for name, fails := range map[string]func(op vfstest.Op) bool{
		"write":            func(op vfstest.Op) bool { return op.Kind == vfstest.OpWrite },
		"sync":             func(op vfstest.Op) bool { return op.Kind == vfstest.OpSync },
		"the next log":     func(op vfstest.Op) bool { return op.Kind == vfstest.OpCreate },
		"its first record": func(op vfstest.Op) bool { return op.Kind == vfstest.OpWrite },
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfstest.NewMem()
			faulty := vfstest.Inject(mem)
			db := mustOpen(t, "db", uncached(faulty))
			if err := db.Put([]byte("a"), nil, NoSync); err != nil {
				t.Fatal(err)
			}
			logNum := db.commit.log.Num()
			faulty.SetHook(func(op vfstest.Op) error {
				kind, num, ok := manifest.ParseName(filepath.Base(op.Name))
				if ok && kind == manifest.KindLog && (num > logNum || !strings.HasPrefix(name, "its")) && fails(op) {
					panic("the file system")
				}
				return nil
			})
			func() {
				defer func() {
					if recover() == nil {
						t.Error("nothing panicked")
					}
				}()
				if name == "write" || name == "sync" {
					t.Error(db.Put([]byte("b"), nil, Sync))
				} else {
					t.Error(db.Flush())
				}
			}()
			faulty.SetHook(nil)
			if err := db.Put([]byte("c"), nil, NoSync); !errors.Is(err, ErrReopen) {
				t.Errorf("a later write returns %v", err)
			}
			if has, err := db.Has([]byte("a")); !has || err != nil {
				t.Errorf("the acknowledged key: %t, %v", has, err)
			}
			if err := db.Close(); !errors.Is(err, ErrReopen) {
				t.Errorf("Close returns %v", err)
			}
			db = mustOpen(t, "db", uncached(mem))
			defer mustClose(t, db)
			if has, err := db.Has([]byte("a")); !has || err != nil {
				t.Errorf("the acknowledged key after the next Open: %t, %v", has, err)
			}
			if has, err := db.Has([]byte("c")); has || err != nil {
				t.Errorf("the refused key after the next Open: %t, %v", has, err)
			}
		})
	}
}
