package serve

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// Checkpoints complete while filters change, and a server that starts from the files as they were
// at some moment has the filters of that moment, bit for bit.
func TestCheckpointUnderLoad(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo}, func(s *Server) { s.minRedo = 4 << 10 })
	c := dial(t, s)
	c.do("BF.RESERVE", "b", "0.01", "400000") // 135 pages
	c.do("BF.RESERVE", "grows", "0.01", "100")
	c.do("CF.RESERVE", "c", "200000", "EXPANSION", "2") // 64 pages
	for round := range 3 {
		before := s.stats.checkpoints.Load()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for n := range 3 {
			c := dial(t, s)
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					var b []byte
					for j := range 50 {
						item := fmt.Sprintf("%d:%d:%d:%d", round, n, i, j)
						b = appendCall(b, "BF.ADD", "b", item)
						b = appendCall(b, "BF.ADD", "grows", item)
						b = appendCall(b, "CF.ADD", "c", item)
						b = appendCall(b, "CF.DEL", "c", strings.TrimSuffix(item, "7"))
					}
					if _, err := c.conn.Write(b); err != nil {
						return
					}
					for range 200 {
						if _, err := readReply(c.r); err != nil {
							return
						}
					}
				}
			})
		}
		for deadline := time.Now().Add(time.Minute); s.stats.checkpoints.Load() < before+12; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%d checkpoints in a minute", s.stats.checkpoints.Load()-before)
				break
			}
		}
		close(stop)
		wg.Wait()
		dir := filepath.Join(t.TempDir(), "copy")
		if err := s.db.Checkpoint(dir); err != nil {
			t.Fatal(err)
		}
		other := dial(t, start(t, dir, Config{Fsync: FsyncNo}))
		for _, key := range []string{"b", "grows", "c"} {
			kind := "BF"
			if key == "c" {
				kind = "CF"
			}
			if a, b := c.do(kind+".DEBUG", key), other.do(kind+".DEBUG", key); fmt.Sprint(a) != fmt.Sprint(b) {
				t.Errorf("%s: %v, in the copy %v", key, a, b)
			}
			for iter := int64(0); ; {
				at := fmt.Sprint(iter)
				a, b := c.do(kind+".SCANDUMP", key, at).([]any), other.do(kind+".SCANDUMP", key, at).([]any)
				if a[0] != b[0] || a[1] != b[1] {
					t.Errorf("%s: the dumps differ at %d", key, iter)
					break
				}
				if iter = a[0].(int64); iter == 0 {
					break
				}
			}
		}
	}
}

// If a checkpoint writes pages after their filter was deleted and its entries were removed, those
// pages are removed as well.
func TestCheckpointOfDeleted(t *testing.T) {
	db := groupDB(t)
	g := &singleNodeGroup{db: db}
	s, err := New(db, Config{Addr: "127.0.0.1:0", Group: g, Leads: true}) // nothing runs in the background
	if err != nil {
		t.Fatal(err)
	}
	s.ctx = t.Context() // of removeRange
	run := func(call string) {
		t.Helper()
		c := localClient(s)
		args := fields(call)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
	}
	collect := func() {
		t.Helper()
		if err := s.collect(<-s.garbage); err != nil {
			t.Fatal(err)
		}
	}
	run("BF.ADD f x")
	g.writing = func() { // of a page
		g.writing = nil
		run("DEL f")
		collect()
	}
	if err := s.checkpoint(filterOf(s, "f")); err != nil {
		t.Fatal(err)
	}
	if g.writing != nil {
		t.Fatal("the checkpoint has written no page")
	}
	for len(s.garbage) > 0 {
		collect()
	}
	for e, err := range db.Scan(&sift.IterOptions{Prefix: []byte{spaceFilter}}) {
		t.Errorf("%q is left, %v", e.Key, err)
	}
}
