package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/siftdb/sift"
)

const mib = 1 << 20

// tightServer returns the leader of a group that accepts batches of up to 12 MiB, while arguments
// have up to 1 MiB, so that commands may write up to 8 MiB. Nothing runs in the background.
func tightServer(t *testing.T) *Server {
	t.Helper()
	db := groupDB(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Group: &singleNodeGroup{db: db, maxBatch: 12 * mib}, Leads: true, MaxBulkBytes: mib})
	if err != nil {
		t.Fatal(err)
	}
	s.ctx = t.Context()
	return s
}

// doAll executes commands of one client, writes their changes, and returns the replies.
func doAll(t *testing.T, s *Server, calls ...[]string) string {
	t.Helper()
	c := localClient(s)
	defer c.dropQueue()
	for _, call := range calls {
		var args [][]byte
		for _, a := range call {
			args = append(args, []byte(a))
		}
		c.do(lookup(args[0]), args)
	}
	if err := c.finishWrites(); err != nil {
		t.Fatal(err)
	}
	if s.failed.Load() {
		t.Fatal("the server takes no more writes")
	}
	return string(c.w.Buf)
}

// longKey returns a key of n bytes, in the same slot as the others.
func longKey(i, n int) string {
	key := fmt.Sprintf("{x}%d,", i)
	return key + strings.Repeat("k", n-len(key))
}

// repeated returns n calls.
func repeated(n int, call func(i int) []string) (calls [][]string) {
	for i := range n {
		calls = append(calls, call(i))
	}
	return calls
}

// Many long keys that expire at the same time, or are flushed, are removed in several writes.
func TestLongKeysAreRemoved(t *testing.T) {
	const keys, size = 128, 24 << 10
	s := tightServer(t)
	s.cfg.Group.(*singleNodeGroup).maxBatch = 2 * mib
	left := func() (n int) {
		for _, space := range []byte{spaceHead, spaceExpiry} {
			for _, err := range s.db.Scan(&sift.IterOptions{Prefix: []byte{space}}) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
		}
		return n
	}
	for i := range keys {
		doAll(t, s, []string{"SET", longKey(i, size), "v", "PXAT", "1000"})
	}
	if n := left(); n != 2*keys {
		t.Fatalf("%d entries", n)
	}
	if err := s.sweepDue(&client{srv: s, writes: s.newWrites(keptBytes)}); err != nil {
		t.Fatal(err)
	}
	if n := left(); n > 0 || s.stats.expired.Load() != keys {
		t.Errorf("of the expired keys %d entries are left; %d were removed", n, s.stats.expired.Load())
	}
	for i := range keys {
		doAll(t, s, []string{"SET", longKey(i, size), "v"})
	}
	doAll(t, s, []string{"FLUSHALL"})
	if err := s.collectOld(); err != nil {
		t.Fatal(err)
	}
	if n := left(); n > 0 {
		t.Errorf("after FLUSHALL %d entries are left", n)
	}
	doAll(t, s, []string{"SET", "k", "v"}) // checks that the server still takes writes
}

// A key that is longer than what is otherwise removed at once is removed as well.
func TestVeryLongKeyIsRemoved(t *testing.T) {
	s := tightServer(t)
	doAll(t, s, []string{"SET", longKey(1, removeBytes+1), "v", "PXAT", "1000"}, []string{"SET", longKey(2, removeBytes+1), "v", "PXAT", "1000"})
	if err := s.sweepDue(&client{srv: s, writes: s.newWrites(keptBytes)}); err != nil || s.stats.expired.Load() != 2 {
		t.Errorf("%d keys were removed, %v", s.stats.expired.Load(), err)
	}
}
