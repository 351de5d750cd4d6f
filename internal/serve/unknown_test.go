package serve

import (
	"bufio"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// redisCommands returns Redis' commands, and subcommands as "client|list".
func redisCommands(t *testing.T) (names, subs []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/redis-commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			continue
		}
		for _, name := range strings.Fields(line) {
			if strings.Contains(name, "|") {
				subs = append(subs, name)
			} else {
				names = append(names, name)
			}
		}
	}
	if len(names) < 250 || len(subs) < 30 {
		t.Fatalf("only %d commands and %d subcommands", len(names), len(subs))
	}
	return names, subs
}

// A command of Redis either exists or gets the error for an unknown command.
func TestUnknownCommands(t *testing.T) {
	names, subs := redisCommands(t)
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
	refused := 0
	for _, name := range names {
		if commands[name] != nil {
			continue
		}
		refused++
		want := failure("ERR unknown command '" + name + "', with args beginning with: 'a' 'b' ")
		if got := c.do(name, "a", "b"); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		c.do("MULTI")
		if got := c.do(name, "a", "b"); got != want {
			t.Errorf("%s in a transaction: %v", name, got)
		}
		if got := c.do("EXEC"); got != failure("EXECABORT Transaction discarded because of previous errors.") {
			t.Errorf("EXEC after %s: %v", name, got)
		}
		if got := c.do("COMMAND", "INFO", name).([]any); got[0] != (null{2}) {
			t.Errorf("COMMAND INFO %s: %v", name, got)
		}
	}
	for name := range commands {
		if !slices.Contains(names, name) && !strings.HasPrefix(name, "bf.") && !strings.HasPrefix(name, "cf.") {
			t.Errorf("Redis has no command %s", name)
		}
	}
	for _, name := range subs {
		container, sub, _ := strings.Cut(name, "|")
		upper := strings.ToUpper(container)
		if _, ok := subcommands[container][sub]; ok {
			continue
		}
		refused++
		want := failure("ERR unknown subcommand '" + sub + "'. Try " + upper + " HELP.")
		if got := c.do(container, sub, "a"); got != want {
			t.Errorf("%s %s: %v, want %v", container, sub, got, want)
		}
	}
	t.Logf("%d commands and subcommands refused", refused)
}

// The error for an unknown command is that of Redis: it is compared with a redis-server without the
// commands that do not exist here.
func TestUnknownCommandsAsRedis(t *testing.T) {
	names, _ := redisCommands(t)
	absent := []string{"hexpire", "hexpireat", "hexpiretime", "hpersist", "hpexpire", "hpexpireat", "hpexpiretime", "hpttl", "httl", "waitaof", "sentinel"}
	var without []string
	for _, name := range names {
		// Redis does not start if its configuration renames a command that it does not have.
		if commands[name] == nil && !slices.Contains(absent, name) {
			without = append(without, "--rename-command", name, "")
		}
	}
	conn, err := net.Dial("tcp", startRedis(t, without...))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	redis := &caller{t, conn, bufio.NewReader(conn)}
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
	long := strings.Repeat("long ", 40)
	for _, name := range names {
		if commands[name] != nil {
			continue
		}
		for _, args := range [][]string{{name}, {strings.ToUpper(name), "key", "value"}, {name, long, long}, {name, "a\r\nb", "\x00"}} {
			if got, want := c.do(args...), redis.do(args...); got != want {
				t.Errorf("%.40q: %v, Redis %v", args, got, want)
			}
		}
	}
}
