//go:build unix

package serve

import (
	"testing"
	"time"
)

// The buffer that the input of a client with its own goroutine is read into counts as memory for
// requests while the client's command waits.
func TestWaitingClientsCountBuffers(t *testing.T) {
	defer func() { way = loops }()
	way = goroutines
	const clients = 8
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, Password: "p", RequestBytes: 8 << 20})
	dialIn := func() *caller {
		c := dial(t, s)
		c.do("AUTH", "p")
		return c
	}
	reaches := func(want int64) {
		t.Helper()
		for begin := time.Now(); s.requestBytes.Load() != want; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("%d bytes are taken, want %d", s.requestBytes.Load(), want)
			}
		}
	}
	other := dialIn()
	other.do("CLIENT", "PAUSE", "600000", "WRITE")
	var waiting []*caller
	for range clients {
		c := dialIn()
		c.conn.Write(appendCall(nil, "SET", "k", "v"))
		waiting = append(waiting, c)
	}
	reaches(clients * readBytes)
	other.do("CLIENT", "UNPAUSE")
	for _, c := range waiting {
		if got := c.reply(); got != simple("OK") {
			t.Error(got)
		}
	}
	reaches(0)
	// Half of the memory for requests is left to larger requests.
	other.do("CLIENT", "PAUSE", "600000", "WRITE")
	for len(waiting) < 100 {
		waiting = append(waiting, dialIn())
	}
	for _, c := range waiting {
		c.conn.Write(appendCall(nil, "SET", "k", "v"))
	}
	reaches(s.cfg.RequestBytes / 2)
	other.do("CLIENT", "UNPAUSE")
	for _, c := range waiting {
		if got := c.reply(); got != simple("OK") {
			t.Error(got)
		}
	}
	reaches(0)
	// Clients without the password hold no more than their share.
	var outside []*caller
	for range 100 {
		c := dial(t, s)
		c.conn.Write([]byte("*2\r\n$4\r\nAUTH\r\n"))
		outside = append(outside, c)
	}
	for _, c := range outside {
		c.conn.Write([]byte("$1\r\np\r\n"))
		if got := c.reply(); got != simple("OK") {
			t.Error(got)
		}
	}
	reaches(0)
	if got := s.unauthBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken without the password", got)
	}
}
