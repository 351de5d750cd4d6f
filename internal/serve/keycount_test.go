package serve

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// keyspaceOf returns the numbers of a database's keys in INFO.
func keyspaceOf(c *caller, db int) (n keyCount) {
	text := c.do("INFO", "keyspace").(string)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("db%d:", db)); ok {
			if _, err := fmt.Sscanf(rest, "keys=%d,expires=%d,", &n.keys, &n.expires); err != nil {
				c.t.Fatalf("%q: %v", text, err)
			}
		}
	}
	return n
}

// counted counts the keys of the selected database one by one.
func counted(c *caller) (n keyCount) {
	names := c.do("KEYS", "*").([]any)
	for _, name := range names {
		switch ttl := c.do("PTTL", name.(string)).(int64); {
		case ttl == -1:
			n.keys++
		case ttl >= 0:
			n.keys++
			n.expires++
		}
	}
	return n
}

// DBSIZE and INFO report the right numbers of keys, whatever changes the keys.
func TestKeyCounts(t *testing.T) { everyWay(t, testKeyCounts) }

func testKeyCounts(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	rng := rand.New(rand.NewPCG(1, 2))
	key := func() string { return "k" + strconv.Itoa(rng.IntN(60)) }
	db := func() string { return strconv.Itoa(rng.IntN(numDatabases)) }
	change := func() []string {
		switch rng.IntN(24) {
		case 0:
			return []string{"MSET", key(), "1", key(), "2", key(), "3"}
		case 1:
			return []string{"SET", key(), "v", "PX", "1"}
		case 2:
			return []string{"SETEX", key(), "100", "v"}
		case 3:
			return []string{"DEL", key(), key(), key()}
		case 4:
			return []string{"EXPIRE", key(), "100"}
		case 5:
			return []string{"PERSIST", key()}
		case 6:
			return []string{"RENAME", key(), key()}
		case 7:
			return []string{"COPY", key(), key(), "DB", db(), "REPLACE"}
		case 8:
			return []string{"MOVE", key(), db()}
		case 9:
			return []string{"SWAPDB", db(), db()}
		case 10:
			if rng.IntN(8) == 0 {
				return []string{"FLUSHALL"}
			}
			return []string{"FLUSHDB"}
		case 11:
			return []string{"BF.ADD", "filter" + key(), "x"}
		case 12:
			return []string{"CF.ADD", "filter" + key(), "x"}
		case 13:
			return []string{"DEL", "filter" + key(), "filter" + key()}
		case 14:
			return []string{"PEXPIRE", "filter" + key(), "1"}
		case 15:
			return []string{"SET", "filter" + key(), "a string"}
		case 16:
			return []string{"EXPIREAT", key(), "1"}
		case 17:
			return []string{"GETDEL", key()}
		case 18:
			return []string{"APPEND", key(), "x"}
		case 19:
			return []string{"SELECT", db()}
		}
		return []string{"SET", key(), "v"}
	}
	for i := range 1500 {
		if rng.IntN(10) == 0 {
			c.do("MULTI")
			for range rng.IntN(5) {
				c.do(change()...)
			}
			c.do("DBSIZE")
			c.do("KEYS", "*")
			replies := c.do("EXEC").([]any)
			size, names := replies[len(replies)-2].(int64), replies[len(replies)-1].([]any)
			if size < int64(len(names)) || size > int64(len(names))+3 { // some may expire in between
				t.Fatalf("step %d: in a transaction DBSIZE is %d, with %d keys", i, size, len(names))
			}
		} else {
			c.do(change()...)
		}
		if rng.IntN(3) > 0 {
			continue
		}
		number := rng.IntN(numDatabases)
		c.do("SELECT", strconv.Itoa(number))
		// A key may expire between two commands.
		var size int64
		var want, reported keyCount
		for range 100 {
			want = counted(c)
			size, reported = c.do("DBSIZE").(int64), keyspaceOf(c, number)
			if size == want.keys && reported == want {
				break
			}
		}
		if size != want.keys || reported != want {
			t.Fatalf("step %d: DBSIZE is %d, INFO has %v, want %v", i, size, reported, want)
		}
	}
	if n := s.keyCounts.scans.Load(); n > 3 {
		t.Errorf("all keys were scanned %d times", n)
	}
}

// In a transaction, DBSIZE and INFO are not wrong when a changed key's old value cannot be read.
func TestKeyCountsInExecAfterReadError(t *testing.T) {
	s, fsys := startFaulty(t, Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("SET", "k", "v")
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := c.do("DBSIZE"); got != any(int64(1)) {
		t.Fatal(got)
	}
	for _, fails := range []bool{true, false} {
		if fsys.SetFaults(); fails {
			fsys.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return op.Kind == vfstest.OpReadAt }})
		}
		for _, call := range []string{"MULTI", "SET k w", "DBSIZE", "INFO keyspace"} {
			c.do(strings.Fields(call)...)
		}
		got := c.do("EXEC").([]any)
		_, failed := got[1].(failure)
		if keys := strings.Contains(got[2].(string), "keys=1,"); failed != fails || keys == fails || !fails && got[1] != any(int64(1)) {
			t.Errorf("reads fail: %v, %q", fails, got)
		}
	}
}

// A count while clients write includes all keys whose writes were acknowledged before it, and none
// whose writes were sent after it.
func TestKeyCountsUnderWrites(t *testing.T) { everyWay(t, testKeyCountsUnderWrites) }

func testKeyCountsUnderWrites(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	const clients, rounds, pipeline = 4, 150, 20
	var sent, acknowledged atomic.Int64
	var writers sync.WaitGroup
	for number := range clients {
		writers.Go(func() {
			conn, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			for round := range rounds {
				var b []byte
				for i := range pipeline {
					name := fmt.Sprintf("%d:%d:%d", number, round, i)
					if i%2 == 0 {
						b = appendCall(b, "SET", name, "v")
					} else {
						b = appendCall(b, "SETNX", name, "v")
					}
				}
				sent.Add(pipeline)
				conn.Write(b)
				for range pipeline {
					if _, err := readReply(r); err != nil {
						t.Error(err)
						return
					}
				}
				acknowledged.Add(pipeline)
			}
		})
	}
	c := dial(t, s)
	for done := false; !done; {
		low := acknowledged.Load()
		done = low == clients*rounds*pipeline || t.Failed()
		size := c.do("DBSIZE").(int64)
		if high := sent.Load(); size < low || size > high {
			t.Errorf("DBSIZE is %d, with %d keys before and %d after it", size, low, high)
			break
		}
	}
	writers.Wait()
	if n := c.do("DBSIZE"); n != int64(clients*rounds*pipeline) {
		t.Errorf("DBSIZE is %v in the end", n)
	}
}

// If more keys change than are remembered, the next count is a scan, and no snapshot is kept until
// then.
func TestKeyCountsAreDropped(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	fill := func(prefix string, n int) {
		args := []string{"MSET"}
		for i := range n {
			args = append(args, prefix+strconv.Itoa(i), "v")
		}
		c.do(args...)
	}
	steps := []struct {
		add       int
		snapshots int
		scans     int64
	}{
		{changedKeys + 1, 0, 1}, // the first count
		{changedKeys, 1, 1},
		{changedKeys + 1, 0, 2},
		{1, 1, 2},
	}
	total := 0
	for i, step := range steps {
		fill(strings.Repeat("x", i+1), step.add)
		total += step.add
		if n := s.db.Metrics().Snapshots; n != step.snapshots {
			t.Errorf("step %d: %d snapshots are open, not %d", i, n, step.snapshots)
		}
		if n := c.do("DBSIZE"); n != int64(total) {
			t.Errorf("step %d: DBSIZE is %v, want %d", i, n, total)
		}
		if n := s.keyCounts.scans.Load(); n != step.scans {
			t.Errorf("step %d: %d scans, not %d", i, n, step.scans)
		}
	}
	// No count for a long time.
	s.keyCounts.base.Load().made = time.Now().Add(-2 * baseLifetime)
	s.keyCounts.dropOld(s)
	if s.keyCounts.base.Load() == nil {
		t.Error("a base was dropped, although nothing had changed")
	}
	c.do("BF.ADD", "b", "x")
	s.keyCounts.dropOld(s)
	if n := s.db.Metrics().Snapshots; n != 0 {
		t.Error("an old snapshot is kept")
	}
	if n := c.do("DBSIZE"); n != int64(total+1) {
		t.Errorf("DBSIZE is %v, want %d", n, total+1)
	}
}

// The numbers of keys survive a restart. They are ignored if anything was written after them.
func TestKeyCountsAfterRestart(t *testing.T) {
	dir := t.TempDir()
	run := func(scans int64, calls [][]string, then func(db *sift.DB)) {
		t.Helper()
		db, err := sift.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.Serve() }()
		c := dial(t, s)
		for _, call := range calls {
			if got := fmt.Sprint(c.do(call[1:]...)); got != call[0] {
				t.Errorf("%s: %s, not %s", call[1:], got, call[0])
			}
		}
		if got := s.keyCounts.scans.Load(); got != scans {
			t.Errorf("%d scans, not %d", got, scans)
		}
		if err := s.Close(time.Second); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if then != nil {
			then(db)
		}
	}
	run(1, [][]string{{"OK", "MSET", "a", "1", "b", "2"}, {"OK", "SET", "short", "1", "PX", "1"}, {"OK", "SELECT", "3"},
		{"OK", "SETEX", "c", "1000", "3"}, {"1", "DBSIZE"}, {"OK", "SETEX", "d", "1000", "3"}}, nil)
	run(0, [][]string{{"2", "DBSIZE"}, {"OK", "SELECT", "3"}, {"2", "DBSIZE"},
		{"# Keyspace\r\ndb0:keys=2,expires=0,avg_ttl=0\r\ndb3:keys=2,expires=2,avg_ttl=0\r\n", "INFO", "keyspace"}}, nil)
	run(0, [][]string{{"2", "DBSIZE"}}, func(db *sift.DB) {
		key := append(appendSpace(nil, spaceHead, 0), "another"...)
		if err := db.Put(key, appendHead(nil, head{kind: kindString}), sift.NoSync); err != nil {
			t.Error(err)
		}
	})
	run(1, [][]string{{"3", "DBSIZE"}}, func(db *sift.DB) {
		if err := Repaired(db); err != nil {
			t.Error(err)
		}
	})
	run(1, [][]string{{"3", "DBSIZE"}}, nil)
	run(0, [][]string{{"3", "DBSIZE"}}, nil)
}

// The count is right after a kill.
func TestKeyCountsAfterKill(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		cmd, addr := spawn(t, dir, FsyncNo)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		c := &caller{t, conn, bufio.NewReader(conn)}
		for i := range 100 {
			if got, want := c.do("DBSIZE"), int64(100*round+i); got != want {
				t.Fatalf("round %d: DBSIZE is %v, not %d", round, got, want)
			}
			c.do("SET", fmt.Sprint(round, " ", i), "v")
		}
		conn.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// The count is right without a scan after the sweeper has removed keys.
func TestKeyCountsAfterSweep(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	const keys = 2 * sweepBatch
	c.do("SET", "stays", "v")
	for i := range keys {
		c.do("SET", fmt.Sprint(i), "v", "PX", "300")
	}
	c.do("SETEX", "later", "1000", "v")
	if n := c.do("DBSIZE"); n != int64(keys+2) && n != int64(2) {
		t.Errorf("DBSIZE is %v, want %d, or 2 if the keys have expired", n, keys+2)
	}
	waitFor(t, "expired keys are removed", func() bool { return s.stats.expired.Load() == keys })
	if got := keyspaceOf(c, 0); got != (keyCount{2, 1}) || c.do("DBSIZE") != int64(2) {
		t.Errorf("after %d keys have expired there are %v", keys, got)
	}
	if n := s.keyCounts.scans.Load(); n != 1 {
		t.Errorf("%d scans, want 1", n)
	}
}
