package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"golang.org/x/term"
)

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                       nil,
		"  get \t k ":            {"get", "k"},
		`put 'a b' "it's"`:       {"put", "a b", "it's"},
		`put a'b 'c ''`:          {"put", "ab c", ""},
		`put '' ""`:              {"put", "", ""},
		`get \x00\\ é`:           {"get", `\x00\\`, "é"},
		`scan --prefix="a b" -x`: {"scan", "--prefix=a b", "-x"},
		"get \xff '\xc3 \xa9'":   {"get", "\xff", "\xc3 \xa9"},
	} {
		if got, err := splitWords(line); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`'`, `get "a`, `"a' b`} {
		if got, err := splitWords(line); err == nil {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// TestShellScript: the commands of a script use the shell's database, and the exit status is the
// highest of all lines.
func TestShellScript(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	for _, c := range []struct {
		script, out, err string
		status           int
	}{
		{script: "put user:17 'Ada Lovelace'\n\nput -- -k \"it's\"\r\nget user:17\nget -- -k", out: "Ada Lovelace\nit's\n"},
		{script: "scan --keys --limit 1\nscan --count\nexit\nget none", out: "-k\n2\n"},
		{script: "get none\nget user:17\n", out: "Ada Lovelace\n", err: "there is no such key", status: statusNotFound},
		{script: "filter stats --json --probes 0\n", out: `{"tables":[`},
		{script: "scan --limit\nput never 1\n", err: "--limit: expected uint value, got none", status: statusUsage},
		{script: "\nsift scan --limit\nput never 1\n", err: "line 2 has failed, and the script ends", status: statusUsage},
		{script: "sift scan --count\n", out: "2\n"},
		{script: "stats --nonsense\nput never 1\n", err: "unknown flag --nonsense", status: statusUsage},
		{script: "get 'never\nput never 1\n", err: "unterminated quote '", status: statusUsage},
		{script: "load\nput never 1\n", err: "load cannot be used in the shell", status: statusUsage},
		{script: "put never\nput never 1\n", err: "no standard input", status: statusUsage},
		{script: "filter live build bloom(items=9,fpr=0.1) -o never\nput never 1\n", err: "no standard input", status: statusUsage},
		{script: "dump no-such-file\nput never 1\n", err: "no-such-file", status: statusFailed},
		{script: "get never\n", err: "there is no such key", status: statusNotFound},
		{script: "delete -- user:17 -k\nscan\nquit\n"},
		{script: "put \xff 1\nget \\xff\n", out: "1\n"},
		{script: "help get\n", out: "Usage: sift get <dir> <key>"},
	} {
		r := runSift(t, c.script, "shell", db)
		if r.status != c.status || !strings.HasPrefix(r.out, c.out) || c.out == "" && r.out != "" || !strings.Contains(r.err, c.err) || c.err == "" && r.err != "" {
			t.Errorf("%q: status %d, prints %q, stderr %q; want %d, %q, %q", c.script, r.status, r.out, r.err, c.status, c.out, c.err)
		}
	}
	if r := runSift(t, "get k\n", "shell"); r.status != statusUsage {
		t.Errorf("without a database: %+v", r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if status := run(ctx, []string{"shell", db}, strings.NewReader("scan\n"), io.Discard, io.Discard); status != statusFailed {
		t.Errorf("interrupted: status %d", status)
	}
}

// TestShellReaderLeaves: a script fails if lines are left when the reader of its output has closed
// the pipe.
func TestShellReaderLeaves(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "a\t1\n", "load", db)
	for _, c := range []struct {
		script, err string
		status      int
	}{
		{script: "scan\n\nexit\nput b 2\n"},
		{"scan\nput b 2\n", "sift: line 2 was not executed: " + io.ErrClosedPipe.Error() + "\n", statusFailed},
	} {
		var stderr bytes.Buffer
		status := run(context.Background(), []string{"shell", db}, strings.NewReader(c.script), &failingWriter{err: io.ErrClosedPipe}, &stderr)
		if status != c.status || stderr.String() != c.err {
			t.Errorf("%q: status %d, stderr %q; want %d, %q", c.script, status, &stderr, c.status, c.err)
		}
	}
	if out := mustSift(t, "", "scan", "--keys", db); out != "a\n" {
		t.Errorf("scan prints %q", out)
	}
}

// typeInto returns the last line that the terminal reads when keys are typed, and what it
// displays.
func typeInto(t *testing.T, s *shell, keys string) (line, screen string) {
	t.Helper()
	var out bytes.Buffer
	terminal := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{strings.NewReader(keys), &out}, "sift> ")
	terminal.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		return s.tab(terminal, line, pos, key)
	}
	for {
		next, err := terminal.ReadLine()
		if err != nil {
			return line, out.String()
		}
		line = next
	}
}

// TestShellTyping tests completion and history in a terminal.
func TestShellTyping(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, "user:17\t1\nuser:18\t2\nother key\t3\n\\x00\\xff\t4\nmany\t1\n", "load", db)
	s := &shell{
		env: &env{ctx: context.Background(), out: bufio.NewWriter(io.Discard), err: io.Discard},
		dir: db, grammar: kong.Must(new(commands), kong.Vars{"filter": ""}).Model.Node,
	}
	const up = "\x1b[A"
	for _, c := range []struct{ keys, line, screen string }{
		{keys: "ge\tus\t8\t\r", line: "get user:18 "},
		{keys: "get us\t\r", line: "get user:1"},
		{keys: "get us\t\t\r", line: "get user:1", screen: "user:17  user:18"},
		{keys: "get ot\t\r", line: `get other\x20key `},
		{keys: "get \\x\t\r", line: `get \x`},
		{keys: "get \\x00\t\r", line: `get \x00\xff `},
		{keys: "get --hex 00\t\r", line: "get --hex 00ff "},
		{keys: "scan --rev\t--prefix m\t\r", line: "scan --reverse --prefix many "},
		{keys: "delete user:17 user:1\t8\r", line: "delete user:17 user:18"},
		{keys: "fil\tsta\t\r", line: "filter stats "},
		{keys: "filter st\t--pr\t\r", line: "filter stats --probes "},
		{keys: "get nothing\t\r", line: "get nothing"},
		{keys: "get 'us\t\r", line: "get 'us"},
		{keys: "lo\t\r", line: "lo"}, // load cannot be used in the shell
		{keys: "h\te\t\r", line: "help e"},
		{keys: "get a\rget b\r" + up + up + "\r", line: "get a"},
	} {
		line, screen := typeInto(t, s, c.keys)
		if line != c.line || !strings.Contains(screen, c.screen) {
			t.Errorf("%q gives %q, want %q; the screen shows %q", c.keys, line, c.line, screen)
		}
	}
}

// TestShellListsSome: Tab lists a bounded number of keys.
func TestShellListsSome(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(1000), "load", db)
	s := &shell{env: &env{}, dir: db, grammar: kong.Must(new(commands), kong.Vars{"filter": ""}).Model.Node}
	c := s.complete([]string{"get"}, "key0005")
	if c.common != "key0005" || len(c.words) != maxListed+1 || c.words[0] != "key000500" || c.words[maxListed] != "..." {
		t.Errorf("%+v", c)
	}
	s.dir += "-none"
	if c := s.complete([]string{"get"}, "key"); len(c.words) != 0 {
		t.Errorf("without a database: %+v", c)
	}
}
