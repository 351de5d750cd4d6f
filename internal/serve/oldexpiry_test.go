package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/siftdb/sift"
)

// indexEntries returns the number of entries in the expiry index.
func indexEntries(t *testing.T, s *Server) (n int) {
	t.Helper()
	for _, err := range s.db.Scan(&sift.IterOptions{Prefix: []byte{spaceExpiry}}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A large MSET over keys with an expiry leaves no entries in the index, and its keys do not expire.
func TestLargeMSETOverExpiring(t *testing.T) { everyWay(t, testLargeMSETOverExpiring) }

func testLargeMSETOverExpiring(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	const n = 3 * partArgs
	c.do("SELECT", "2")
	value := strings.Repeat("v", largePending/n)
	call := []string{"MSET"}
	for i := range n {
		key := fmt.Sprint("key", i)
		call = append(call, key, value)
		if i%3 > 0 {
			c.do("SET", key, "old", "PX", fmt.Sprint(1_000_000_000+i))
		}
	}
	if got, want := indexEntries(t, s), 2*n/3; got != want {
		t.Fatalf("%d entries, want %d", got, want)
	}
	if got := c.do(call...); got != simple("OK") {
		t.Fatal(got)
	}
	if got := indexEntries(t, s); got != 0 {
		t.Errorf("%d entries are left", got)
	}
	for i := range n {
		if key := fmt.Sprint("key", i); c.do("GET", key) != any(value) || c.do("PTTL", key) != any(int64(-1)) {
			t.Fatalf("%s is %.20v, expires in %v", key, c.do("GET", key), c.do("PTTL", key))
		}
	}
}

// If other clients change keys after a large MSET has looked up their old expiries, a key that has
// the same expiry again keeps its entry in the index, and an entry that was added in between has no
// effect.
func TestOldExpiryWithConcurrentChange(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	at := s.nowMs() + 1_000_000
	w := s.newWrites(keptBytes)
	w.hold()
	defer w.release()
	c.do("SET", "again", "v", "PXAT", fmt.Sprint(at))
	c.do("SET", "other", "v", "PXAT", fmt.Sprint(at+1))
	old := []oldExpiry{{key: []byte("again"), expiry: at}, {key: []byte("other"), expiry: at}, {key: []byte("gone"), expiry: at}}
	if err := w.removeOld(old); err != nil {
		t.Fatal(err)
	}
	for key, expiry := range map[string]int64{"again": at, "other": at + 1} {
		if ok, err := s.db.Has(w.expiryKey(nil, expiry, []byte(key))); !ok {
			t.Errorf("the entry of %q is gone: %v", key, err)
		}
	}
	// An entry without a key, like one that was added between findOld and the write.
	if err := s.db.Put(w.expiryKey(nil, s.nowMs()-1, []byte("kept")), nil, sift.NoSync); err != nil {
		t.Fatal(err)
	}
	c.do("SET", "kept", "v")
	w.release()
	s.expiring.due(0)
	waitFor(t, "the sweeper removes the entry", func() bool { return indexEntries(t, s) == 2 })
	if got := c.do("GET", "kept"); got != "v" {
		t.Errorf("kept: %v", got)
	}
}
