package serve

import (
	"fmt"
	"strings"
	"testing"
)

// RESET undoes CLIENT REPLY and READONLY.
func TestResetOfModes(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	var b []byte
	for _, call := range []string{"CLIENT REPLY OFF", "PING", "RESET", "ECHO x"} {
		b = appendCall(b, strings.Fields(call)...)
	}
	c.conn.Write(b)
	for _, want := range []any{simple("RESET"), "x"} {
		if got := c.reply(); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	db := groupDB(t)
	startGroup(t, db, true)
	follower, _ := startGroup(t, db, false)
	f := dial(t, follower)
	f.do("READONLY")
	wantReply(t, f.do("GET", "foo"), "nil")
	f.do("RESET")
	wantReply(t, f.do("GET", "foo"), "-MOVED 12182 ")
}

// CLIENT PAUSE WRITE delays an EXEC only if it writes.
func TestPausedExec(t *testing.T) { everyWay(t, testPausedExec) }

func testPausedExec(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	reader, writer, other := dial(t, s), dial(t, s), dial(t, s)
	reader.do("MULTI")
	reader.do("GET", "k")
	writer.do("MULTI")
	writer.do("SET", "k", "v")
	other.do("CLIENT", "PAUSE", "100000", "WRITE")
	writer.conn.Write(appendCall(nil, "EXEC"))
	if got := fmt.Sprint(reader.do("EXEC")); got != "[{2}]" {
		t.Errorf("an EXEC that reads: %v", got)
	}
	other.do("CLIENT", "UNPAUSE")
	if got := fmt.Sprint(writer.reply()); got != "[OK]" {
		t.Errorf("an EXEC that writes: %v", got)
	}
}

// SLOWLOG does not show a password.
func TestSlowlogHidesPassword(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("CONFIG", "SET", "slowlog-log-slower-than", "0")
	c.do("CONFIG", "SET", "timeout", "0", "RequirePass", "secret")
	c.do("MULTI")
	c.do("CONFIG", "SET", "requirepass", "secret")
	c.do("EXEC")
	got := fmt.Sprint(c.do("SLOWLOG", "GET", "-1"))
	if strings.Contains(got, "secret") || strings.Count(got, "(redacted)") != 2 || !strings.Contains(got, "slowlog-log-slower-than 0") {
		t.Error(got)
	}
}

// COMMAND GETKEYS finds a key that comes after a subcommand. Without a key, it returns the error of
// Redis.
func TestCommandGetKeysOfSubcommands(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	const none = "ERR The command has no key arguments"
	for call, want := range map[string]failure{
		"OBJECT HELP": none, "MEMORY HELP": none, "CONFIG HELP": none,
		"OBJECT ENCODING": "ERR Invalid number of arguments specified for command", "OBJECT NOSUCH": "ERR Invalid command specified",
	} {
		if got := c.do(append([]string{"COMMAND", "GETKEYS"}, strings.Fields(call)...)...); got != want {
			t.Errorf("%s: %v, want %v", call, got, want)
		}
	}
	got, ok := c.do("COMMAND", "GETKEYS", "OBJECT", "ENCODING", "k").([]any)
	if !ok || len(got) != 1 || got[0] != "k" {
		t.Errorf("OBJECT ENCODING k: %v", got)
	}
}
