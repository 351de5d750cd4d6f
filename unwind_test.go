package sift_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// TestPanickingCallback checks that a callback that panics on the goroutine of a writer keeps no
// other writer waiting, nor Close, and that what was acknowledged is there.
func TestPanickingCallback(t *testing.T) {
	const enough = 5
	var panics atomic.Int64
	db, err := sift.Open(t.TempDir(), &sift.Options{
		L0Tables: 1, MemtableBytes: 64 << 10,
		Events: sift.Events{Stalled: func(sift.StallEvent) {
			if panics.Add(1) <= enough {
				panic("stalled")
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	put := func(key []byte) (err error) {
		defer func() {
			if recover() != nil {
				err = sift.ErrTryAgain
			}
		}()
		return db.Put(key, make([]byte, 100), sift.NoSync)
	}
	var writers sync.WaitGroup
	var acknowledged [4][]string
	for w := range acknowledged {
		writers.Go(func() {
			for i := 0; panics.Load() < enough; i++ {
				key := fmt.Sprintf("%d/%08d", w, i)
				switch err := put([]byte(key)); {
				case err == nil:
					acknowledged[w] = append(acknowledged[w], key)
				case !errors.Is(err, sift.ErrTryAgain):
					t.Errorf("Put: %v", err)
					return
				}
			}
		})
	}
	within(t, time.Minute, "Put", writers.Wait)
	for _, keys := range acknowledged {
		for _, key := range keys {
			if has, err := db.Has([]byte(key)); !has || err != nil {
				t.Fatalf("%s: %t, %v", key, has, err)
			}
		}
	}
	within(t, time.Minute, "Close", func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
