package serve

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// The password may be changed while the server runs: new clients must give the new one.
func TestConfigPassword(t *testing.T) { everyWay(t, testConfigPassword) }

func testConfigPassword(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	if got := c.do("CONFIG", "SET", "requirepass", "abc\x00def"); got != simple("OK") {
		t.Fatal(got)
	}
	if got := c.do("PING"); got != simple("PONG") {
		t.Errorf("a client that was connected before: %v", got)
	}
	unauth := dial(t, s)
	for _, step := range []struct {
		args []string
		want any
	}{
		{[]string{"PING"}, failure("NOAUTH Authentication required.")},
		{[]string{"AUTH", "abc"}, failure("WRONGPASS invalid username-password pair or user is disabled.")},
		{[]string{"AUTH", "abc\x00def"}, simple("OK")},
		{[]string{"CONFIG", "SET", "requirepass", ""}, simple("OK")},
	} {
		if got := unauth.do(step.args...); got != step.want {
			t.Errorf("%q: %v, want %v", step.args, got, step.want)
		}
	}
	if got := dial(t, s).do("PING"); got != simple("PONG") {
		t.Errorf("without a password: %v", got)
	}
	if wrong := (&Server{cfg: Config{Addr: "0.0.0.0:1"}}).setPassword(""); wrong == "" {
		t.Error("a server on a non-loopback address accepts an empty password")
	}
}

// When the password is removed, a client that has not authenticated need not do so, and is not
// disconnected.
func TestPasswordRemoved(t *testing.T) { everyWay(t, testPasswordRemoved) }

func testPasswordRemoved(t *testing.T) {
	const limit = time.Second
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, AuthTimeout: limit})
	c := dial(t, s)
	c.do("CONFIG", "SET", "requirepass", "p")
	unauth := dial(t, s)
	if got := unauth.do("PING"); got != failure("NOAUTH Authentication required.") {
		t.Errorf("without the password: %v", got)
	}
	c.do("CONFIG", "SET", "requirepass", "")
	for range 2 {
		if got := unauth.do("PING"); got != simple("PONG") {
			t.Errorf("when none is required any more: %v", got)
		}
		time.Sleep(limit * 5 / 4)
	}
}

// A client that authenticates while the server is being closed, and then does not read its reply,
// does not keep Close waiting.
func TestAuthDuringClose(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Password: "p", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	closing, cancel := context.WithCancel(context.Background())
	cancel()
	s.serving = closing
	near, far := net.Pipe() // without buffers
	defer far.Close()
	c := localClient(s)
	c.conn, c.trusted, c.r = near, false, resp.NewReader(near, resp.Limits{}, true)
	near.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // as Close does
	c.do(lookup([]byte("auth")), fields("AUTH p"))
	sent := make(chan error, 1)
	go func() { sent <- c.send() }()
	select {
	case err := <-sent:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("sending a reply that nobody reads: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("sending a reply that nobody reads does not end")
	}
}
