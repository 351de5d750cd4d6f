package sift

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

func TestWorthLogging(t *testing.T) {
	var r retries
	now := time.Unix(0, 0)
	lines := func(from, to int) (logged []int) { // one failure per second
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
		t.Error("another error is not logged exactly once")
	}
	if got := fmt.Sprint(lines(250, 253)); got != "[250 251]" {
		t.Errorf("the first error again: logged at %s", got)
	}
	if got := fmt.Sprint(lines(1000, 1003)); got != "[1000 1001]" {
		t.Errorf("the same error long after: logged at %s", got)
	}
}

// TestRepeatedFailures checks that a flush or compaction that keeps failing is logged from time to
// time, and that the next Flush or write retries it when the fault is gone.
func TestRepeatedFailures(t *testing.T) {
	for _, c := range []struct {
		what string
		auto bool // whether compactions are automatic
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
						t.Fatalf("the call while the fault lasts: %v", err)
					}
					if time.Since(begin) > time.Minute {
						t.Fatalf("only %d failures", failed.Load())
					}
				}
			}
			fails(50)
			n := strings.Count(out.String(), c.what)
			reminders := bits.Len(uint(time.Since(begin) / firstReminder)) // at least as many as were due
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
					t.Fatalf("the call when the fault is gone: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
			mustClose(t, db)
		})
	}
}

// TestRetryPauseEnds checks that a caller that gets the error, and Close, end the pause after a
// failure at once, however long it has become.
func TestRetryPauseEnds(t *testing.T) {
	for what, end := range map[string]func(d *DB){
		"a write": func(d *DB) {
			d.bg.mu.Lock()
			defer d.bg.mu.Unlock()
			d.bg.retrySoon(&d.bg.compacting)
		},
		"Close": (*DB).stopCompactions,
	} {
		synctest.Test(t, func(t *testing.T) {
			d := bareDB()
			d.bg.cancel = func() {}
			begin := time.Now()
			var paused time.Duration
			go func() {
				d.bg.compacting.early, d.bg.compacting.due = begin.Add(time.Millisecond), begin.Add(time.Hour)
				d.bg.pauseRetry(&d.bg.compacting, func() bool { return d.bg.over() != nil })
				paused = time.Since(begin)
			}()
			time.Sleep(time.Minute)
			end(d)
			synctest.Wait()
			if paused != time.Minute {
				t.Errorf("a pause that %s ends after a minute took %v", what, paused)
			}
		})
	}
}
