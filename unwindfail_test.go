package sift

import (
	"errors"
	"testing"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestPanicAfterFailure checks that the writers of a group whose log write failed get ErrReopen, since
// the log may hold their batches, even if the callback that reports the failure panics.
func TestPanicAfterFailure(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	db := mustOpen(t, "db", &Options{FS: faulty, Events: Events{Failed: func(error) { panic("failed") }}})
	if err := db.Put([]byte("a"), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	faulty.SetFaults(vfstest.Fault{Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpWrite }, Sticky: true})
	var batch Batch
	batch.Put([]byte("b"), nil)
	c := &db.commit
	first, second := commitPool.Get().(*commit), commitPool.Get().(*commit)
	first.batch, second.batch = &batch, &batch
	c.queue, c.leading = append(c.queue, first, second), true
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the callback was not called")
			}
		}()
		c.lead(first)
	}()
	if <-second.wake; !errors.Is(second.err, ErrReopen) {
		t.Errorf("the second writer of the group gets %v", second.err)
	}
	if err := db.Put([]byte("c"), nil, NoSync); !errors.Is(err, ErrReopen) {
		t.Errorf("a later writer gets %v", err)
	}
	faulty.SetFaults()
	if err := db.Close(); !errors.Is(err, ErrReopen) {
		t.Errorf("Close returns %v", err)
	}
}
