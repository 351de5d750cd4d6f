package sift_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// within fails the test, with the stacks of all goroutines, if fn does not return in
// time. It is for calls that might hang, not for slow ones.
func within(t *testing.T, limit time.Duration, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		buf := make([]byte, 1<<20)
		os.Stderr.Write(buf[:runtime.Stack(buf, true)])
		t.Fatalf("%s has not returned after %v", what, limit)
	}
}

// TestCompactUnderLoad guards against a lost wakeup: writers that wait for level 0 to
// shrink must be woken for every version, including that of a manual compaction.
func TestCompactUnderLoad(t *testing.T) {
	db, err := sift.Open(t.TempDir(), &sift.Options{L0Tables: 1, MemtableBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			value := make([]byte, 100)
			for i := 0; ctx.Err() == nil; i++ {
				if err := db.Put(fmt.Appendf(nil, "%d/%08d", w, i%20000), value, sift.NoSync); err != nil {
					t.Errorf("Put: %v", err)
					return
				}
			}
		})
	}
	within(t, 30*time.Second, "Compact", func() {
		for begin := time.Now(); time.Since(begin) < 2*time.Second; {
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Errorf("Compact: %v", err)
			}
		}
	})
	stop()
	within(t, 30*time.Second, "Put", wg.Wait)
	within(t, 30*time.Second, "Close", func() {
		if err := db.Close(); err != nil && !errors.Is(err, sift.ErrClosed) {
			t.Error(err)
		}
	})
}
