package serve

import (
	"strings"
	"testing"
	"time"
)

// waiting sends a pipeline, and returns when its large command waits for others, until goOn is
// called.
func waiting(t *testing.T, s *Server, c *caller, pipeline ...[]string) (goOn func()) {
	t.Helper()
	s.larges.enter(s.larges.most)
	var calls []byte
	for _, call := range pipeline {
		calls = appendCall(calls, call...)
	}
	c.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.conn.Write(calls); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the client waits", func() bool {
		if s.larges.turn.TryLock() {
			s.larges.turn.Unlock()
			return false
		}
		return true
	})
	return func() { s.larges.leave(s.larges.most) }
}

// The SETs that a client has collected are written before it waits for memory: FLUSHALL may come in
// between.
func TestLargeAfterSET(t *testing.T) { everyWay(t, testLargeAfterSET) }

func testLargeAfterSET(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	a, b := dial(t, s), dial(t, s)
	b.do("SET", "large", strings.Repeat("v", heavyBytes))
	goOn := waiting(t, s, a, []string{"SET", "f", "plain"}, []string{"GET", "large"})
	b.do("FLUSHALL")
	b.do("BF.ADD", "f", "item")
	goOn()
	for _, want := range []any{simple("OK"), null{2}} {
		if got, err := readReply(a.r); got != want || err != nil {
			t.Fatal(got, err)
		}
	}
	if got := b.do("BF.EXISTS", "f", "item"); got != any(int64(1)) {
		t.Errorf("the filter that was created after FLUSHALL: %v", got)
	}
}

// A client that waits for others' large values is not closed for doing nothing.
func TestLargeNotEvicted(t *testing.T) { everyWay(t, testLargeNotEvicted) }

func testLargeNotEvicted(t *testing.T) {
	s := start(t, t.TempDir(), Config{RequestBytes: 8 << 20, Fsync: FsyncNo}, func(s *Server) { s.shortTime = 50 * time.Millisecond })
	c := dial(t, s)
	goOn := waiting(t, s, c, []string{"SET", "large", strings.Repeat("v", heavyBytes)})
	for range 3 {
		time.Sleep(2 * s.shortTime) // longer than a client may hold memory without progress
		s.short.Store(true)
		waitFor(t, "the server looks for clients to close", func() bool { return !s.short.Load() })
	}
	goOn()
	if got, err := readReply(c.r); got != simple("OK") || err != nil {
		t.Errorf("%v, %v; %d closed", got, err, s.stats.evicted.Load())
	}
}
