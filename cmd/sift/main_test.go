package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestMain runs the program itself if the environment asks for it, for tests that run it as a
// process.
func TestMain(m *testing.M) {
	if os.Getenv("SIFT_TEST_AS_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// result is the output and the exit status of a command.
type result struct {
	out, err string
	status   int
}

// runSift runs a command in this process.
func runSift(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	status := run(context.Background(), args, strings.NewReader(stdin), &out, &err)
	return result{out.String(), err.String(), status}
}

// mustSift runs a command that must succeed and returns what it printed.
func mustSift(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := runSift(t, stdin, args...)
	if r.status != 0 || r.err != "" {
		t.Fatalf("sift %q: status %d, stderr %q", args, r.status, r.err)
	}
	return r.out
}

// noSuchFile is part of the error of Unix for a missing file.
const noSuchFile = "no such file"

// socket returns the path of a Unix socket, a file that is neither regular nor a directory.
func socket(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Unix sockets are different here")
	}
	dir, err := os.MkdirTemp("", "sift") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path
}

// step is one command of a story. DB in its arguments and expectations stands
// for a directory that does not exist when the story begins.
type step struct {
	args  string // separated by blanks; a pair of single quotes is an empty one
	stdin string
	out   string // all of standard output
	err   string // part of standard error; "" if nothing is printed there
	// If err is set, the status is 1 for a missing key and 3 otherwise. usage makes it 2;
	// with warns, err is a warning and the status is 0.
	usage, warns bool
}

func (s step) run(t *testing.T, db string) {
	t.Helper()
	var args []string
	for _, a := range strings.Fields(s.args) {
		args = append(args, strings.ReplaceAll(strings.Trim(a, "'"), "DB", db))
	}
	r := runSift(t, s.stdin, args...)
	if s.err == noSuchFile && runtime.GOOS == "windows" {
		s.err = "sift: " // the message varies
	}
	want := statusFailed
	switch {
	case s.err == "" || s.warns:
		want = statusOK
	case s.usage:
		want = statusUsage
	case strings.Contains(s.err, "no such key"):
		want = statusNotFound
	}
	if r.status != want {
		t.Errorf("sift %s: status %d, want %d", s.args, r.status, want)
	}
	if out := strings.ReplaceAll(r.out, db, "DB"); out != s.out {
		t.Errorf("sift %s prints\n%s\nwant\n%s", s.args, out, s.out)
	}
	if !strings.Contains(r.err, s.err) || s.err == "" && r.err != "" {
		t.Errorf("sift %s: stderr %q, want %q", s.args, r.err, s.err)
	}
}

func TestStories(t *testing.T) {
	stories := []struct {
		name  string
		steps []step
	}{
		{"a key's life", []step{
			{args: "put DB user:17 Ada"},
			{args: "get DB user:17", out: "Ada\n"},
			{args: "put DB user:17 Grace"},
			{args: "get DB user:17", out: "Grace\n"},
			{args: "delete DB user:17"},
			{args: "get DB user:17", err: `key "user:17": there is no such key`},
			{args: `get DB a\tb\x00`, err: `key "a\tb\x00": there is no such key`},
			{args: "delete DB user:17"},
		}},
		{"edge keys", []step{
			{args: "put DB '' empty"},
			{args: "get DB ''", out: "empty\n"},
			{args: "put DB k ''"},
			{args: "get DB k", out: "\n"},
			{args: "put DB -- -k -v"},
			{args: "get DB -- -k", out: "-v\n"},
			{args: "scan DB", out: "\tempty\n-k\t-v\nk\t\n"},
			{args: "scan --hex DB", out: "\t656d707479\n2d6b\t2d76\n6b\t\n"},
			{args: "scan --from=-k --to=-l DB", out: "-k\t-v\n"},
			{args: "delete DB -- '' -k"},
			{args: "scan DB", out: "k\t\n"},
		}},
		{"forms", []step{
			{args: `put DB a\tb \x00\xff\\`},
			{args: "get --hex DB 610962", out: "00ff5c\n"},
			{args: `get DB a\x09b`, out: `\x00\xff\\` + "\n"},
			{args: "get --raw DB a\\tb", out: "\x00\xff\\"},
			{args: "put --hex DB c3a9 0A"},
			{args: "get DB é", out: `\n` + "\n"},
			{args: "put DB piped", stdin: "two\nlines\\n"},
			{args: "get --raw DB piped", out: "two\nlines\\n"},
			{args: "get DB piped", out: `two\nlines\\n` + "\n"},
		}},
		{"ranges", []step{
			{args: "load DB", stdin: "a\t1\nb\t2\nba\t3\nc\t4\n"},
			{args: "scan --from b DB", out: "b\t2\nba\t3\nc\t4\n"},
			{args: "scan --to b DB", out: "a\t1\n"},
			{args: "scan --from aa --to c DB", out: "b\t2\nba\t3\n"},
			{args: "scan --to '' DB"},
			{args: "scan --from c --to a DB"},
			{args: "scan --prefix b DB", out: "b\t2\nba\t3\n"},
			{args: "scan --prefix b --from ba --keys-only DB", out: "ba\n"},
			{args: "scan --limit 2 DB", out: "a\t1\nb\t2\n"},
			{args: "scan --limit 0 DB"},
			{args: "scan --hex --from 62 --to 6261 DB", out: "62\t32\n"},
		}},
		{"load", []step{
			{args: "load DB", stdin: "k\told\nk\tnew\r\nlast\tno line end"},
			{args: "scan DB", out: "k\tnew\nlast\tno line end\n"},
			{args: "load DB"},
			{args: "load --hex DB", stdin: "\t00\n6B\t\n"},
			{args: "scan --hex DB", out: "\t00\n6b\t\n6c617374\t6e6f206c696e6520656e64\n"},
			{args: "load DB", stdin: "good\t1\nno tab here\nunread\t1\n", err: "sift: line 2: no tab"},
			{args: "load DB", stdin: "a\tb\tc\n", err: "sift: line 1: more than one tab"},
			{args: "load DB", stdin: "a\tb\n\n", err: "sift: line 2: no tab"},
			{args: "load DB", stdin: "a\tx\\q\n", err: `sift: line 1: value: unknown escape: a backslash before "q"`},
			{args: "load --hex DB", stdin: "00\t00\n0\t00\n", err: "sift: line 2: key: not hexadecimal: odd length"},
			{args: "load --hex DB", stdin: "zz\t00\n", err: "sift: line 1: key: not hexadecimal: invalid byte"},
			{args: "scan --prefix good DB", out: "good\t1\n"}, // lines before the bad one are stored
			{args: "scan --prefix unread DB"},
		}},
		{"load sorted", []step{
			{args: "load DB", stdin: "b\told\nz\told\n"},
			{args: "load --sorted DB", stdin: "a\t1\nb\t2\nc\t3"},
			{args: "scan DB", out: "a\t1\nb\t2\nc\t3\nz\told\n"},
			{args: "load --sorted DB", stdin: "d\t1\ne\t2\nd\t3\n", err: `sift: line 3: key "d" does not come after "e"`},
			{args: "load --sorted DB", stdin: "\\x00\t1\n\\x00\t2\n", err: `sift: line 2: key "\x00" does not come after "\x00"`},
			{args: "load --sorted --hex DB", stdin: "00\t\n\t\n", err: `sift: line 2: key "" does not come after "00"`},
			{args: "load --sorted DB", stdin: "d\t1\nno tab\n", err: "sift: line 2: no tab"},
			{args: "load --sorted DB"},
			{args: "scan --keys-only DB", out: "a\nb\nc\nz\n"}, // a failed load stores nothing
		}},
		{"batch", []step{
			{args: "batch DB", stdin: "put\ta\t1\nput\tb\t2\r\ndelete\ta\nput\tc\t\ndelete\tabsent"},
			{args: "scan DB", out: "b\t2\nc\t\n"},
			{args: "batch DB"},
			{args: "batch --hex DB", stdin: "put\t00ff\t0A\ndelete\t62\n"},
			{args: "scan --hex DB", out: "00ff\t0a\n63\t\n"},
			{args: "batch DB", stdin: "put\tx\t1\nset\ty\t1\n", err: `sift: line 2: "set" is none of put, delete and delete-range`},
			{args: "batch DB", stdin: "put x 1\n", err: `sift: line 1: "put x 1" is none of put, delete and delete-range; tabs separate the fields`},
			{args: "batch DB", stdin: "put\tx\t1\ndelete-range\ta\n", err: "sift: line 2: delete-range takes 2 arguments, separated by tabs, got 1"},
			{args: "batch DB", stdin: "delete-range\ta\t\\q\n", err: `sift: line 1: bound: unknown escape: a backslash before "q"`},
			{args: "batch DB", stdin: "put\tx\t1\nput\ty\n", err: "sift: line 2: put takes 2 arguments, separated by tabs, got 1"},
			{args: "batch DB", stdin: "put\tx\t1\ndelete\ty\tz\n", err: "sift: line 2: delete takes 1 argument, separated by tabs, got 2"},
			{args: "batch DB", stdin: "put\tx\t1\n\n", err: `sift: line 2: "" is none`},
			{args: "batch DB", stdin: "put\tx\t1\ndelete\t\\q\n", err: `sift: line 2: key: unknown escape: a backslash before "q"`},
			{args: "batch --hex DB", stdin: "put\t00\t0\n", err: "sift: line 1: value: not hexadecimal: odd length"},
			{args: "get DB x", err: "no such key"}, // a script with a bad line writes nothing
		}},
		{"batch with ranges", []step{
			{args: "batch DB", stdin: "put\tm1\ta\nput\tm2\ta\nput\tm9\ta\nput\tz\ta\nput\tb\ta\n"},
			{args: "batch DB", stdin: "put\tm3\tb\ndelete-range\tm1\tm9\nput\tm2\tb\nput\tzz\tb\ndelete-range\tz\t\n"},
			{args: "scan DB", out: "b\ta\nm2\tb\nm9\ta\n"},
			{args: "batch DB", stdin: "delete-range\t\t\n"},
			{args: "scan DB"},
		}},
		{"compact and filters", []step{
			{args: "load --filter none DB", stdin: lines(1000)},
			{args: "filter stats DB", out: "level   table  filter  units  size  bits/key  FPR  observed  reads/absent\n0      000005  none        -     -         -    -         -          1.00\n"},
			{args: "filter build DB", out: "1 table rewritten; the filters take 1.22KiB\n"},
			{args: "filter build DB", out: "0 tables rewritten; the filters take 1.22KiB\n"},
			{args: "get DB key000500", out: "value 500\n"},
			{args: "get DB key000500x", err: "no such key"},
		}},
		{"what is missing", []step{
			{args: "get DB k", err: "does not exist"},
			{args: "scan DB", err: "does not exist"},
			{args: "delete DB k", err: "does not exist"},
			{args: "stats DB", err: "does not exist"},
			{args: "filter stats DB", err: "does not exist"},
			{args: "filter build DB", err: "does not exist"},
			{args: "compact DB", err: "does not exist"},
			{args: "checkpoint DB DB-2", err: "does not exist"},
			{args: "check DB", err: "does not exist"},
			{args: "repair DB", err: "does not exist"},
			{args: "dump DB/000005.ldb", err: noSuchFile},
		}},
		{"a file for a database", []step{
			{args: "put DB k v"},
			{args: "scan DB/CURRENT", err: "list "},
			{args: "check DB/CURRENT", err: "list "},
			{args: "compact DB/CURRENT", err: "list "},
		}},
		{"nonsense", []step{
			{args: "frobnicate", err: "unknown command frobnicate", usage: true},
			{args: "filter frobnicate", err: "unknown command frobnicate", usage: true},
			{args: "delete --range DB b a", err: "does not come before", usage: true},
			{args: "delete --range DB a ''", err: "does not come before", usage: true},
			{args: "get", err: `expected "<dir> <key>"` + "\nRun \"sift get --help\"", usage: true},
			{args: "get DB", err: `expected "<key>"`, usage: true},
			{args: "get DB k extra", err: "unexpected argument extra", usage: true},
			{args: "scan --nonsense DB", err: "unknown flag --nonsense", usage: true},
			{args: "scan --limit -1 DB", err: "--limit", usage: true},
			{args: "scan --limit many DB", err: "--limit", usage: true},
			{args: "filter plan DB --memory", err: "--memory: expected a value, got none\n", usage: true},
			{args: `get DB k\`, err: "a backslash at the end", usage: true},
			{args: `get DB k\x1`, err: `\x without two hexadecimal digits`, usage: true},
			{args: `get DB k\xg0`, err: `\x without two hexadecimal digits`, usage: true},
			{args: "get --hex DB xyz", err: `key "xyz": not hexadecimal`, usage: true},
			{args: "get --hex --raw DB 00", err: "--hex and --raw can't be used together", usage: true},
			{args: "put --filter bloom DB k v", err: "--filter: ", usage: true},
			{args: "put --filter bloom(1000000) DB k v", err: "--filter: ", usage: true},
			{args: "put --filter spam(1) DB k v", err: `"spam(1)" is unknown`, usage: true},
			{args: "filter stats --probes -1 DB", err: "--probes", usage: true},
			{args: "demo --tree DB", err: noSuchFile},
			{args: "demo --filter none", err: "--filter none", usage: true},
			{args: "demo --lookups 0", err: "must be positive", usage: true},
			{args: "get DB k", err: "does not exist"}, // none of the above created it
		}},
	}
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "db")
			for _, s := range story.steps {
				s.run(t, db)
			}
		})
	}
}

// lines returns n lines for load: key000000 to key000999, say.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i))
	}
	return b.String()
}

func line(i int) string { return fmt.Sprintf("key%06d\tvalue %d\n", i, i) }

// TestOnlyCurrent: no error recommends a repair where there is nothing to repair, and what it
// recommends instead helps.
func TestOnlyCurrent(t *testing.T) {
	for _, content := range []string{"garbage", "MANIFEST-000005\n"} {
		db := t.TempDir()
		current := filepath.Join(db, "CURRENT")
		if err := os.WriteFile(current, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"scan", db}, {"put", db, "k", "v"}, {"check", db}} {
			r := runSift(t, "", args...)
			if text := r.out + r.err; r.status != statusFailed || !strings.Contains(text, "remove CURRENT") || strings.Contains(text, "sift repair") || strings.Contains(text, "Repair") {
				t.Errorf("%q: %+v", args, r)
			}
		}
		if err := os.Remove(current); err != nil {
			t.Fatal(err)
		}
		mustSift(t, "", "put", db, "k", "v")
	}
}

// TestEmptyDirectory: commands that need a database leave nothing in a directory without one.
func TestEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, args := range []string{"scan", "get", "stats", "tables", "check", "repair", "compact", "delete", "filter build"} {
		words := append(strings.Fields(args), dir)
		if args == "get" || args == "delete" {
			words = append(words, "k")
		}
		if r := runSift(t, "", words...); r.status != statusFailed || !strings.Contains(r.err, "does not exist") {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v behind, %v", left, err)
	}
}

// TestHelpCommand: help is another way to write --help.
func TestHelpCommand(t *testing.T) {
	for command, want := range map[string]string{
		"help": "--help", "help get": "get --help", "help filter stats": "filter stats --help", "": "--help",
	} {
		if got, want := mustSift(t, "", strings.Fields(command)...), mustSift(t, "", strings.Fields(want)...); got != want {
			t.Errorf("sift %s prints\n%s\nwant\n%s", command, got, want)
		}
	}
}
