package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

func TestStats(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(1000), "load", db)
	mustSift(t, "", "delete", db, "key000007")
	out := mustSift(t, "", "stats", "--tables", db)
	// Sizes of compressed tables and of memory vary, so they are not compared.
	out = regexp.MustCompile(`[\d.]+(B|KiB|MiB)`).ReplaceAllString(out, "SIZE")
	out = regexp.MustCompile(` +SIZE`).ReplaceAllString(out, "  SIZE")
	golden(t, "stats.txt", out)

	out = mustSift(t, "", "tables", db)
	if !regexp.MustCompile(`(?m)^0 +000005 +.* 1,000 +0  ribbon\(12\)  key000000  key000999$`).MatchString(out) || strings.Count(out, "\n") != 3 {
		t.Errorf("tables prints\n%s", out)
	}

	mustSift(t, "", "put", "--filter", "none", db, "key000007", "back")
	out = mustSift(t, "", "stats", db)
	if !regexp.MustCompile(`(?m)^total +3 `).MatchString(out) {
		t.Errorf("stats prints\n%s", out)
	}
	if mustSift(t, "", "checkpoint", db, db+"-2") != "" {
		t.Error("checkpoint has output")
	}
	if a, b := mustSift(t, "", "scan", db), mustSift(t, "", "scan", db+"-2"); a != b || strings.Count(a, "\n") != 1000 {
		t.Errorf("the checkpoint has %d lines, the database %d", strings.Count(b, "\n"), strings.Count(a, "\n"))
	}
}

// TestFilterStats: whatever the keys look like, the observed rate is near the expected one,
// and the same each time.
func TestFilterStats(t *testing.T) {
	for name, key := range map[string]func(i int) string{
		"digits":   func(i int) string { return "user:" + strconv.Itoa(i*7919%100000) },
		"words":    func(i int) string { return strings.Repeat("abc", i%5) + strconv.FormatInt(int64(i), 36) },
		"binary":   func(i int) string { return `\x` + strconv.FormatInt(int64(i%128+128), 16) + `\x01` + strconv.Itoa(i) },
		"one byte": func(i int) string { return `\x` + strconv.FormatInt(int64(i%128+128), 16) },
		"signs":    func(i int) string { return strconv.Itoa(i) + "//" },
	} {
		t.Run(name, func(t *testing.T) {
			var in strings.Builder
			for i := range 5000 {
				in.WriteString(key(i) + "\tv\n")
			}
			db := filepath.Join(t.TempDir(), "db")
			mustSift(t, in.String(), "load", db, "--filter", "bloom(10)")
			out := mustSift(t, "", "filter", "stats", db)
			row := regexp.MustCompile(`(?m)^0 +\d+ +bloom\(10\) .* ([\d.]+)% +([\d.]+)% +[\d.]+$`).FindStringSubmatch(out)
			if row == nil {
				t.Fatalf("no row in\n%s", out)
			}
			expected, err1 := strconv.ParseFloat(row[1], 64)
			observed, err2 := strconv.ParseFloat(row[2], 64)
			// With keys of one byte there are few absent ones to probe.
			if err1 != nil || err2 != nil || name != "one byte" && (observed < expected/2 || observed > expected*2) {
				t.Errorf("%v: expected %s%%, observed %s%%", name, row[1], row[2])
			}
			if again := mustSift(t, "", "filter", "stats", db); again != out {
				t.Errorf("the second time, filter stats prints\n%s\nthe first time\n%s", again, out)
			}
		})
	}
}

// TestFilterStatsManyProbes: filter stats accepts the largest number of probes, and can be
// interrupted.
func TestFilterStatsManyProbes(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(100), "load", db)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stderr bytes.Buffer
	args := []string{"filter", "stats", "--probes", strconv.Itoa(math.MaxInt), db}
	if status := run(ctx, args, strings.NewReader(""), io.Discard, &stderr); status != statusFailed || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("status %d, stderr %q", status, &stderr)
	}
}

func TestFilterSize(t *testing.T) {
	out := mustSift(t, "", "filter", "size", "--keys", "1e9", "--fpr", "0.1%")
	for _, want := range []string{`(?m)^limit +1\.16GiB +9\.97 +0\.0%`, `(?m)^classic bloom +1\.67GiB +14\.38 +44\.`, `(?m)^bloom\(`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	for _, family := range []string{"fuse", "ribbon", "rocksdb-bloom"} {
		if !strings.Contains(out, "\n"+family+"(") {
			t.Errorf("no %s in\n%s", family, out)
		}
	}
	// What a billion keys take at 0.001%: not the 120 MB that some tutorials claim.
	const classic = `(?m)^classic bloom +2\.79GiB +23\.96 `
	if out := mustSift(t, "", "filter", "size", "--keys", "1e9", "--fpr", "0.001%"); !regexp.MustCompile(classic).MatchString(out) {
		t.Errorf("no %s in\n%s", classic, out)
	}
	if same := mustSift(t, "", "filter", "size", "--keys", "1000000000", "--fpr", "0.001"); same != out {
		t.Errorf("0.1%% and 0.001 differ:\n%s\n%s", out, same)
	}
	for _, args := range [][]string{
		{"--keys", "many"},
		{"--keys", "0"},
		{"--keys", "NaN"},
		{"--keys", "1e9", "--fpr", "0"},
		{"--keys", "1e9", "--fpr", "100%"},
		{"--keys", "1e9", "--fpr", "low"},
		{"--keys", "1e300"},
		{"--keys", "1e300", "--range", "100"},
		{"--keys", "inf", "--range", "100", "--json"},
		{"--keys", "0.5", "--range", "100"},
		{"--keys", "1e9", "--fpr", "NaN", "--range", "100"},
		{"--keys", "1e9", "--range", "NaN"},
		{"--keys", "1e9", "--range", "0"},
		{"--keys", "1e9", "--range", "1e300"},
		{},
	} {
		if r := runSift(t, "", append([]string{"filter", "size"}, args...)...); r.status != statusUsage || r.err == "" || r.out != "" {
			t.Errorf("%q: status %d, prints %q, stderr %q", args, r.status, r.out, r.err)
		}
	}
}

// TestHelp: the help of every command has an example and fits in 80 columns.
func TestHelp(t *testing.T) {
	top := mustSift(t, "", "--help")
	if top != mustSift(t, "") {
		t.Error("without arguments, sift does not print the help")
	}
	commands := regexp.MustCompile(`(?m)^  ([a-z]+(?: [a-z]+)?)   `).FindAllStringSubmatch(top, -1)
	if len(commands) < 15 {
		t.Fatalf("%d commands in\n%s", len(commands), top)
	}
	for _, v := range commands {
		help := mustSift(t, "", append(strings.Fields(v[1]), "--help")...)
		if !regexp.MustCompile(`(?m)^Examples?:\n\n    (.*\W)?sift ` + v[1]).MatchString(help) {
			t.Errorf("no example in the help of %s:\n%s", v[1], help)
		}
		for _, line := range strings.Split(help, "\n") {
			if len(line) > 80 {
				t.Errorf("%s: a line of %d bytes: %s", v[1], len(line), line)
			}
		}
	}
	if out := mustSift(t, "", "--version"); !strings.HasPrefix(out, "sift ") || strings.Count(out, "\n") != 1 {
		t.Errorf("--version prints %q", out)
	}
}

// TestStatsOfDamage checks that commands that only show statistics report damage by their exit
// status, too.
func TestStatsOfDamage(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, lines(100), "load", db)
	path := filepath.Join(db, "000005.ldb")
	table, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table[len(table)-1] ^= 0xff // the magic number
	if err := os.WriteFile(path, table, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"stats", db}, {"stats", "--json", db}, {"tables", db}, {"tables", "--json", db},
		{"filter", "stats", db}, {"filter", "stats", "--json", db}, {"filter", "plan", "--memory", "1MiB", db}, {"filter", "plan", "--json", "--memory", "1MiB", db}} {
		if r := runSift(t, "", args...); r.status != statusFailed || r.out == "" || !strings.Contains(r.err, "000005.ldb") {
			t.Errorf("%q: status %d, stderr %q", args, r.status, r.err)
		}
	}
}

// flipFilter inverts a byte of the last unit of the filter of a table.
func flipFilter(t *testing.T, path string) {
	t.Helper()
	offset := -1
	for line := range strings.Lines(mustSift(t, "", "dump", "--json", path)) {
		if b := decode(t, line); b["type"] == "block" && strings.HasPrefix(fmt.Sprint(b["name"]), "fullfilter.") {
			offset = int(b["offset"].(float64))
		}
	}
	table, err := os.ReadFile(path)
	if err != nil || offset < 0 {
		t.Fatal(offset, err)
	}
	table[offset+100] ^= 0xff
	if err := os.WriteFile(path, table, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedFilter checks what commands say of a damaged filter: how much of it is in use, what
// that saves, and that a build mends it.
func TestDamagedFilter(t *testing.T) {
	for _, c := range []struct {
		lines       int // 30,000 keys have a filter of three units
		row, filter string
		partial     bool
	}{
		{1000, `(?m)^1 +000004  not in use +- +- +- +- +- +1\.00$`, "filters not in use    1 ", false},
		{30000, `(?m)^1 +000004  partly in use +2/\? .* 0\.391% .* 0\.0039$`, "filters partly in use 1 ", true},
	} {
		db := filepath.Join(t.TempDir(), "db")
		mustSift(t, lines(c.lines), "load", "--sorted", db)
		path := filepath.Join(db, "000004.ldb")
		flipFilter(t, path)
		for _, command := range []string{"stats", "tables", "filter stats", "filter plan --memory 1MiB"} {
			r := runSift(t, "", append(strings.Fields(command), db)...)
			if r.status != statusFailed || !strings.Contains(r.err, `"sift filter build `+db) || strings.Contains(r.err, "sift repair") {
				t.Errorf("%s: %+v", command, r)
			}
			for line := range strings.Lines(r.err) {
				if strings.Count(line, path) > 1 {
					t.Errorf("%s names the file twice: %s", command, line)
				}
			}
			if command == "stats" && !strings.Contains(r.out, c.filter) {
				t.Errorf("no %q in\n%s", c.filter, r.out)
			}
			if command == "filter stats" && !regexp.MustCompile(c.row).MatchString(r.out) {
				t.Errorf("no %s in\n%s", c.row, r.out)
			}
		}
		stats := decode(t, runSift(t, "", "filter", "stats", "--json", db).out)
		table := stats["tables"].([]any)[0].(map[string]any)
		if units, ok := table["filterUnits"]; !ok || units != nil || stats["wastedReads"] != table["wastedReads"] || c.partial && table["wastedReads"] != table["fpr"] {
			t.Errorf("filter stats prints %v", stats)
		}
		runSift(t, "", "filter", "build", db) // it may warn of the damage
		mustSift(t, "", "check", db)
	}
}

// TestCheckCounts checks that check prints no count that it does not know because of a fault.
func TestCheckCounts(t *testing.T) {
	flip := func(t *testing.T, path string, offset int) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		content[(offset+len(content))%len(content)] ^= 0xff
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name          string
		damage        func(t *testing.T, db string)
		text          string // what follows the size of the table
		filters, logs any
	}{
		{"block", func(t *testing.T, db string) { flip(t, filepath.Join(db, "000005.ldb"), 10) }, ", 1 with a filter; 1 log\n", 1.0, 1.0},
		{"filter", func(t *testing.T, db string) { flipFilter(t, filepath.Join(db, "000005.ldb")) }, ", 0 with a filter; 1 log\n", 0.0, 1.0},
		{"footer", func(t *testing.T, db string) { flip(t, filepath.Join(db, "000005.ldb"), -1) }, "; 1 log\n", nil, 1.0},
		{"CURRENT", func(t *testing.T, db string) { flip(t, filepath.Join(db, "CURRENT"), 0) }, "\n", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "db")
			mustSift(t, lines(1000), "load", db)
			c.damage(t, db)
			r := runSift(t, "", "check", db)
			if !regexp.MustCompile(`\n1 table of [\d.]+KiB`+c.text+"$").MatchString(r.out) || r.status != statusFailed {
				t.Errorf("check: %+v", r)
			}
			check := decode(t, runSift(t, "", "check", "--json", db).out)
			if check["tables"] != 1.0 || check["filters"] != c.filters || check["logs"] != c.logs || check["entries"] != nil || check["keys"] != nil {
				t.Errorf("check --json: %v", check)
			}
		})
	}
}

// namedPolicy is a policy with another name.
type namedPolicy struct {
	filter.Policy
	name string
}

func (p namedPolicy) Name() string { return p.name }

// TestNamesAreEscaped checks that no name in a file reaches the terminal unescaped.
func TestNamesAreEscaped(t *testing.T) {
	const evil = "bloom(10)\x1b]0;owned\x07\nforged"
	dir := filepath.Join(t.TempDir(), "db")
	db, err := sift.Open(dir, &sift.Options{Filter: namedPolicy{filter.Bloom(10), evil}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Put([]byte("k"), []byte("v"), sift.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	log, _ := logFile(t, append([]byte{1, byte(len(evil))}, evil...)) // an edit with a comparator
	shown := 0
	for _, args := range [][]string{{"tables", dir}, {"stats", "--tables", dir}, {"filter", "stats", dir},
		{"filter", "plan", "--memory", "1MiB", dir}, {"dump", "--as", "manifest", log}} {
		out := runSift(t, "", args...).out
		if strings.ContainsAny(out, "\x1b\x07") || strings.Contains(out, "\nforged") {
			t.Errorf("%q prints %q", args, out)
		}
		if strings.Contains(out, `\x1b`) {
			shown++
		}
	}
	if shown < 2 {
		t.Errorf("only %d commands show the name", shown)
	}
}

// TestDamageAndReaderLeaves checks that damage is reported even if nobody reads the output.
func TestDamageAndReaderLeaves(t *testing.T) {
	db := filepath.Join(t.TempDir(), "db")
	mustSift(t, strings.Repeat("a", 40_000)+"\t1\n"+strings.Repeat("b", 40_000)+"\t2\n", "load", db)
	tables, err := filepath.Glob(filepath.Join(db, "*.ldb"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("%q, %v", tables, err)
	}
	table, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	table[len(table)-1] ^= 0xff // the magic number
	if err := os.WriteFile(tables[0], table, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"tables", db}, {"tables", "--json", db}, {"stats", "--tables", db}, {"stats", "--tables", "--json", db},
		{"filter", "stats", db}, {"filter", "stats", "--json", db},
		{"filter", "plan", "--memory", "1MiB", db}, {"filter", "plan", "--json", "--memory", "1MiB", db},
	} {
		var stderr bytes.Buffer
		status := run(context.Background(), args, strings.NewReader(""), &failingWriter{err: io.ErrClosedPipe}, &stderr)
		if status != statusFailed || !strings.Contains(stderr.String(), filepath.Base(tables[0])) {
			t.Errorf("%q: status %d, stderr %q", args, status, &stderr)
		}
	}
}
