package serve

import "testing"

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
	stranger := dial(t, s)
	for _, step := range []struct {
		args []string
		want any
	}{
		{[]string{"PING"}, failure("NOAUTH Authentication required.")},
		{[]string{"AUTH", "abc"}, failure("WRONGPASS invalid username-password pair or user is disabled.")},
		{[]string{"AUTH", "abc\x00def"}, simple("OK")},
		{[]string{"CONFIG", "SET", "requirepass", ""}, simple("OK")},
	} {
		if got := stranger.do(step.args...); got != step.want {
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
