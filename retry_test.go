package sift

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

func TestWorthLogging(t *testing.T) {
	var r retries
	now := time.Unix(0, 0)
	lines := func(from, to int) (logged []int) { // a failure a second
		for i := from; i < to; i++ {
			if r.worthLogging(fmt.Errorf("create %06d.ldb: %w", i, syscall.ENOSPC), now.Add(time.Duration(i)*time.Second)) {
				logged = append(logged, i)
			}
		}
		return logged
	}
	if got, want := fmt.Sprint(lines(0, 250)), "[0 1 3 7 15 31 63 123 183 243]"; got != want {
		t.Errorf("logged at %s, want %s", got, want)
	}
	if other := errors.New("read: input/output error"); !r.worthLogging(other, now.Add(250*time.Second)) || r.worthLogging(other, now.Add(250*time.Second)) {
		t.Error("another error is not logged once")
	}
	if got := fmt.Sprint(lines(250, 253)); got != "[250 251]" {
		t.Errorf("the first error again: logged at %s", got)
	}
	if got := fmt.Sprint(lines(1000, 1003)); got != "[1000 1001]" {
		t.Errorf("the same error long after: logged at %s", got)
	}
}

// A flush or compaction that keeps failing is logged from time to time. When the fault
// is gone, the next Flush or write makes it retry.
func TestRepeatedFailures(t *testing.T) {
	for _, c := range []struct {
		what string
		auto bool // compactions
		ask  func(db *DB) error
	}{
		{"flush failed", false, (*DB).Flush},
		{"compaction of level 0 failed", true, func(db *DB) error { return db.Put([]byte("k"), nil, NoSync) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			fs := vfstest.Inject(vfstest.NewMem())
			o := uncached(fs)
			o.DisableAutoCompaction = true
			db := mustOpen(t, "db", o)
			for range stopFactor {
				if err := db.Put([]byte("k"), nil, NoSync); err != nil {
					t.Fatal(err)
				}
				if err := db.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			mustClose(t, db)

			var out logged
			var failed atomic.Int64
			o.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))
			o.Events.Failed = func(error) { failed.Add(1) }
			o.retryDelay = time.Millisecond
			o.DisableAutoCompaction, o.L0Tables = !c.auto, 1
			fault := vfstest.Fault{Index: -1, Sticky: true, Err: syscall.ENOSPC, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpCreate && onTable(op) }}
			fs.SetFaults(fault)
			begin := time.Now()
			db = mustOpen(t, "db", o)
			if !c.auto {
				if err := db.Put([]byte("k"), nil, NoSync); err != nil {
					t.Fatal(err)
				}
			}
			fails := func(n int64) {
				for n += failed.Load(); failed.Load() < n; time.Sleep(time.Millisecond) {
					if err := c.ask(db); !errors.Is(err, ErrTryAgain) {
						t.Fatalf("while it fails: %v", err)
					}
					if time.Since(begin) > time.Minute {
						t.Fatalf("only %d tries", failed.Load())
					}
				}
			}
			fails(50)
			n := strings.Count(out.String(), c.what)
			reminders := bits.Len(uint(time.Since(begin) / firstReminder)) // no fewer than were due then
			if n == 0 || n > 1+reminders {
				t.Errorf("%d failures are logged %d times, with %d reminders due", failed.Load(), n, reminders)
			}
			fault.Err = syscall.EIO
			fs.SetFaults(fault)
			fails(50)
			if n := strings.Count(out.String(), syscall.EIO.Error()); n == 0 || n > 1+bits.Len(uint(time.Since(begin)/firstReminder)) {
				t.Errorf("the other error is logged %d times", n)
			}
			fs.SetFaults()
			for err := c.ask(db); err != nil; err = c.ask(db) {
				if !errors.Is(err, ErrTryAgain) || time.Since(begin) > time.Minute {
					t.Fatalf("when the fault is gone: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
			mustClose(t, db)
		})
	}
}

// However long the pause after a failure has become, a caller that gets its error, a
// job and Close end it.
func TestRetryPauseEnds(t *testing.T) {
	for what, end := range map[string]func(db *DB){
		"a write": func(db *DB) {
			db.bg.mu.Lock()
			defer db.bg.mu.Unlock()
			db.bg.retrySoon(&db.bg.compacting)
		},
		"Compact": func(db *DB) {
			// The compacting goroutine has nothing else to do and does the job.
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Error(err)
			}
		},
		"Close": (*DB).stopCompactions,
	} {
		db := mustOpen(t, "db", uncached(vfstest.NewMem()))
		loadKeys(t, db, 10)
		pausing := make(chan struct{})
		over := inBackground(func() error {
			close(pausing)
			db.bg.pauseRetry(&db.bg.compacting, time.Millisecond, time.Hour, func() bool { return db.bg.over() != nil })
			return nil
		})
		<-pausing
		end(db)
		if err := ended(t, "a pause that "+what+" ends", over); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
