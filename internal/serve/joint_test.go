package serve

import (
	"errors"
	"testing"
	"time"
)

// TestCombiner: the SETs that clients send while another client writes are combined into one write,
// and all clients get the same reply.
func TestCombiner(t *testing.T) {
	for _, fails := range []bool{false, true} {
		s, g := startGroup(t, groupDB(t), true)
		before := g.writes.Load()
		enter, leave := make(chan struct{}), make(chan struct{})
		g.writing = func() {
			enter <- struct{}{}
			<-leave
		}
		clients := make([]*caller, 10)
		for i := range clients {
			clients[i] = dial(t, s)
			clients[i].send("SET key"+formatInt(int64(i%7))+" "+formatInt(int64(i)), "SET other x")
			if i == 0 {
				<-enter
			}
		}
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			s.combiner.mu.Lock()
			n := len(s.combiner.waiting)
			s.combiner.mu.Unlock()
			if n == len(clients) { // including the writer
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d clients wait, want %d", n, len(clients))
			}
		}
		leave <- struct{}{}
		<-enter
		want := "+OK"
		if fails {
			gone := errors.New("gone")
			g.writeFails.Store(&gone)
			want = "-UNKNOWN"
		}
		leave <- struct{}{}
		for i, c := range clients {
			if i == 0 {
				wantReply(t, c.reply(), "+OK")
			} else {
				wantReply(t, c.reply(), want)
			}
		}
		if n := g.writes.Load() - before; n != 2 {
			t.Errorf("%d writes, want 2", n)
		}
		g.writing = nil
		if fails {
			continue
		}
		c := dial(t, s)
		wantReply(t, c.do("DBSIZE"), ":8")
		for i := range 7 {
			got := c.do("GET", "key"+formatInt(int64(i)))
			if got != formatInt(int64(i)) && got != formatInt(int64(i+7)) {
				t.Errorf("key%d: %v", i, got)
			}
		}
	}
}
