package serve

import (
	"fmt"
	"testing"
	"time"
)

// Expired keys are removed, whichever command set the expiry, although the sweeper reads the index
// only when the next key is due.
func TestSweeperKnowsWhenNextIsDue(t *testing.T) {
	dir := t.TempDir()
	far := func(s *Server) bool {
		next := s.expiring.next.Load()
		return next != never && next > s.nowMs()+900_000_000
	}
	looksNot := func(t *testing.T, s *Server) {
		t.Helper()
		sweeps := s.sweeps.Load()
		if err := s.sweepDue(nil); err != nil || s.sweeps.Load() != sweeps {
			t.Error("the sweeper reads the index though nothing is due", err)
		}
	}
	t.Run("a first run", func(t *testing.T) {
		s := start(t, dir, Config{Fsync: FsyncNo})
		c := dial(t, s)
		looksNot(t, s)
		const soon = "300"
		c.do("SET", "restored", "v")
		payload := c.do("DUMP", "restored").(string)
		for _, call := range [][]string{
			{"SET", "set", "v", "PX", soon},
			{"PSETEX", "psetex", soon, "v"},
			{"SET", "later", "v"},
			{"PEXPIRE", "later", soon},
			{"SET", "getex", "v"},
			{"GETEX", "getex", "PX", soon},
			{"RESTORE", "restored", soon, payload, "REPLACE"},
			{"SET", "from", "v", "PX", soon},
			{"RENAME", "from", "to"},
			{"SET", "moved", "v", "PX", soon},
			{"MOVE", "moved", "3"},
			{"BF.ADD", "bloom", "x"},
			{"PEXPIRE", "bloom", soon},
			{"MULTI"},
			{"SET", "queued", "v", "PX", soon},
			{"EXEC"},
			{"SELECT", "5"},
			{"SET", "swapped", "v", "PX", soon},
			{"SWAPDB", "5", "1"},
			{"SELECT", "0"},
			{"SET", "far", "v", "EX", "1000000"},
		} {
			if got, failed := c.do(call...).(failure); failed {
				t.Fatal(call, got)
			}
		}
		waitFor(t, "all keys that have expired are removed", func() bool { return s.stats.expired.Load() == 10 })
		waitFor(t, "only the far one is due", func() bool { return far(s) })
		c.do("MSET", "plain", "v", "set", "v")
		looksNot(t, s)
	})
	t.Run("the next run", func(t *testing.T) {
		s := start(t, dir, Config{Fsync: FsyncNo})
		if !far(s) {
			t.Errorf("the next key is due at %d", s.expiring.next.Load())
		}
		looksNot(t, s)
	})
}

// When no key has an expiry any more, plain writes no longer look up their keys.
func TestExpiringIsCleared(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	const keys, batch = fewBits + 5000, 1000
	for from := 0; from < keys; from += batch {
		var calls []byte
		for i := from; i < from+batch; i++ {
			calls = appendCall(calls, "SET", fmt.Sprint("k", i), "v", "PX", "1")
		}
		if _, err := c.conn.Write(calls); err != nil {
			t.Fatal(err)
		}
		for range batch {
			c.reply()
		}
	}
	if s.expiring.ones.Load() <= fewBits {
		t.Fatalf("only %d bits", s.expiring.ones.Load())
	}
	waitFor(t, "no key counts as one with an expiry", func() bool { return s.expiring.ones.Load() == 0 })
	for i := range s.expiring.bits {
		if s.expiring.bits[i].Load() != 0 {
			t.Fatal("a bit is still set")
		}
	}
	c.do("SET", "k", "v", "PX", "1")
	if s.expiring.ones.Load() != 1 {
		t.Error("a new key does not count")
	}
}

// The sweeper leaves two thirds of the time to clients, and less when it has fallen behind.
func TestSweepPause(t *testing.T) {
	for _, test := range []struct{ took, late, want time.Duration }{
		{time.Millisecond, 0, 2 * time.Millisecond},
		{time.Millisecond, -time.Hour, 2 * time.Millisecond}, // the clock was set back
		{time.Millisecond, sweepEvery, 2 * time.Millisecond},
		{time.Millisecond, 4 * sweepEvery, time.Millisecond / 2},
		{10 * sweepEvery, sweepEvery, sweepEvery},
		{time.Millisecond, 1 << 62, 0},
	} {
		if got := sweepPause(test.took, test.late); got != test.want {
			t.Errorf("after a batch that took %v, %v late: %v, want %v", test.took, test.late, got, test.want)
		}
	}
}
