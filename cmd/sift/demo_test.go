package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sourceTree writes some files and returns their directory.
func sourceTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "\tline %d of a file\r\n", i+1)
	}
	for name, content := range map[string]string{
		"a.txt":          text.String(),
		"dir/b.txt":      text.String() + "no line end",
		"dir/deep/c.txt": "\n\n",
		"dir/empty":      "",
		"binary":         "text\n\x00\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDemo(t *testing.T) {
	root, db := sourceTree(t), filepath.Join(t.TempDir(), "db")
	out := mustSift(t, "", "demo", "--tree", root, "--dir", db, "--lookups", "2000")
	for _, want := range []string{"5 files", "6,003 lines", "2,000 lines that do not exist", "ribbon(10)", "excluded none\nof the 2,000 existing keys"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	rows := regexp.MustCompile(`(?m)^(off|on), (cold|warm) +2,000 +([\d.]+) +([\d,]+) +[\d.]+ +([\d,]+) +(\S+)`).FindAllStringSubmatch(out, -1)
	if len(rows) != 4 {
		t.Fatalf("%d rows of figures in\n%s", len(rows), out)
	}
	_, text, _ := strings.Cut(out, "With a cold cache")
	for line := range strings.Lines(text) {
		if len(line) > 81 && !strings.Contains(line, db) {
			t.Errorf("line of %d bytes: %s", len(line), line)
		}
	}
	reads := func(i int) float64 {
		n, err := strconv.ParseFloat(rows[i][3], 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if off, on := reads(0), reads(2); off < 20 || on > off/2 {
		t.Errorf("cold: %v block reads without filters, %v with", off, on)
	}
	// Everything fits into the block cache.
	if reads(1) != 0 || reads(3) != 0 {
		t.Errorf("block reads from a warm cache in\n%s", out)
	}
	if rows[0][6] != "-" || rows[0][5] != "0" || rows[2][6] == "-" || rows[2][5] == "0" {
		t.Errorf("filter bytes and rates in\n%s", out)
	}

	// Each line is stored under its file name and line number.
	if got := mustSift(t, "", "get", db, "dir/b.txt:0003001"); got != "no line end\n" {
		t.Errorf("last line: %q", got)
	}
	if got := mustSift(t, "", "scan", "--prefix", "dir/deep/", db); got != "dir/deep/c.txt:0000001\t\ndir/deep/c.txt:0000002\t\n" {
		t.Errorf("empty lines: %q", got)
	}
	if got := mustSift(t, "", "get", db, "a.txt:0000001"); got != `\tline 1 of a file\r`+"\n" {
		t.Errorf("first line: %q", got)
	}
	r := runSift(t, "", "demo", "--tree", root, "--dir", db)
	if r.status != statusFailed || !strings.Contains(r.err, "not empty") {
		t.Errorf("a directory in use: status %d, %q", r.status, r.err)
	}
}

func TestDemoLeavesNothing(t *testing.T) {
	root, tmp := sourceTree(t), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("TMP", tmp)
	if out := mustSift(t, "", "demo", "--tree", root, "--keys-limit", "100"); !strings.Contains(out, "100 lines in 1 table of") {
		t.Errorf("printed\n%s", out)
	}
	if out := mustSift(t, "", "demo", "--tree", root, "--keys-limit", "1"); !strings.Contains(out, "saved no block reads") {
		t.Errorf("with one key, for which no block is read, printed\n%s", out)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left %v behind, %v", left, err)
	}
}

// TestPageCache checks that the demo only says of the page cache what its figures show.
func TestPageCache(t *testing.T) {
	const cached, disk = "The files are in the page cache", "block reads wait for the disk"
	row := func(perRead time.Duration, dropped bool) lookups {
		return lookups{reads: 1000, took: 1000 * perRead, dropped: dropped}
	}
	fast, slow := 8*time.Microsecond, 190*time.Microsecond
	for _, c := range []struct {
		name          string
		off, warm, on lookups
		want          string // "" for nothing
		holds         bool   // says that it holds the files in the warm rows
	}{
		{"kept", row(fast, false), row(fast, false), row(fast, false), cached, false},
		{"kept in part", row(slow, false), row(slow, false), row(slow, false), "", false},
		{"kept, slow at first", row(slow, false), row(fast, false), row(fast, false), "", false},
		{"dropped", row(slow, true), row(fast, true), row(slow, true), disk, true},
		{"dropped, little memory", row(slow, true), row(slow, true), row(slow, true), disk, false},
		{"dropped once", row(slow, true), row(fast, true), row(slow, false), "", false},
		{"dropped the second time", row(fast, false), row(fast, false), row(slow, true), "", false},
		{"a fast disk", row(fast, true), row(fast, true), row(fast, true), disk, true},
		{"no reads", lookups{dropped: true}, lookups{dropped: true}, lookups{dropped: true}, "", false},
	} {
		got := pageCache(c.off, c.warm, c.on)
		if !strings.Contains(got, c.want) || c.want == "" && got != "" || strings.Contains(got, "it holds most") != c.holds {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestDemoWithoutTree(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := runSift(t, "", "demo")
	if r.status != statusFailed || !strings.Contains(r.err, "--tree") {
		t.Errorf("without Go: status %d, %q", r.status, r.err)
	}
	r = runSift(t, "", "demo", "--tree", t.TempDir())
	if r.status != statusFailed || !strings.Contains(r.err, ": no files") {
		t.Errorf("an empty tree: status %d, %q", r.status, r.err)
	}
	binary := t.TempDir()
	if err := os.WriteFile(filepath.Join(binary, "x"), []byte{0}, 0o644); err != nil {
		t.Fatal(err)
	}
	r = runSift(t, "", "demo", "--tree", binary)
	if r.status != statusFailed || !strings.Contains(r.err, ": no text files") {
		t.Errorf("a tree without text: status %d, %q", r.status, r.err)
	}
}

// TestSample: every key has the same chance of being sampled.
func TestSample(t *testing.T) {
	const offered, kept = 10000, 1000
	s := sample{size: kept}
	for i := range offered {
		s.offer([]byte(strconv.Itoa(i)))
	}
	if len(s.keys) != kept {
		t.Fatalf("%d keys kept", len(s.keys))
	}
	half, seen := 0, map[string]bool{}
	for _, k := range s.keys {
		i, err := strconv.Atoi(string(k))
		if err != nil || seen[string(k)] {
			t.Fatalf("key %q", k)
		}
		seen[string(k)] = true
		if i < offered/2 {
			half++
		}
	}
	// The bounds are six standard deviations of 1,000 coin tosses. The seed is fixed.
	if half < 405 || half > 595 {
		t.Errorf("%d of %d keys are from the first half", half, kept)
	}
	between := s.between()
	for _, k := range between {
		if !seen[strings.TrimSuffix(string(k), ".5")] || !strings.HasSuffix(string(k), ".5") {
			t.Errorf("between: %q", k)
		}
	}
	if len(between) != kept {
		t.Errorf("%d keys between, want %d", len(between), kept)
	}
}
