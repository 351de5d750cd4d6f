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

// Commands do not create keys of more than maxKeyBytes, but read and delete those that are there.
func TestLongKeys(t *testing.T) { everyWay(t, testLongKeys) }

func testLongKeys(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, MaxBulkBytes: 4 << 20, RequestBytes: 64 << 20})
	c := dial(t, s)
	longest, tooLong := strings.Repeat("k", maxKeyBytes), strings.Repeat("k", maxKeyBytes+1)
	if got := c.do("SET", longest, "v"); got != simple("OK") {
		t.Fatalf("SET of the longest key: %v", got)
	}
	for _, call := range [][]string{
		{"SET", tooLong, "v"}, {"SET", tooLong, "v", "EX", "10"}, {"MSET", "a", "v", tooLong, "v"}, {"INCR", tooLong}, {"RENAME", longest, tooLong},
		{"COPY", longest, tooLong}, {"BITOP", "AND", tooLong, longest}, {"BF.ADD", tooLong, "x"}, {"CF.ADD", tooLong, "x"},
	} {
		wantReply(t, c.do(call...), "-ERR key is longer than 1MiB")
	}
	wantReply(t, c.do("MULTI"), "+OK")
	wantReply(t, c.do("SET", tooLong, "v"), "-ERR key is longer")
	wantReply(t, c.do("EXEC"), "-EXECABORT")
	for _, call := range [][]string{{"GET", tooLong}, {"DEL", tooLong}, {"EXISTS", tooLong}, {"APPEND", "a", tooLong}} {
		if got, failed := c.do(call...).(failure); failed {
			t.Errorf("%s: %v", call[0], got)
		}
	}
	if got := c.do("DBSIZE"); got != int64(2) {
		t.Errorf("%v keys, want 2", got)
	}
}
