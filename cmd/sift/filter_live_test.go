package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/siftdb/sift/filter/live"
)

func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// TestFilterLive builds, merges, queries and inspects filters with each type of element, in sift's
// format and in Guava's.
func TestFilterLive(t *testing.T) {
	for _, tc := range []struct{ filter, elements, guava string }{
		{"bloom(items=1e5,fpr=1e-6)", "text", ""},
		{"bloom(items=1e5,fpr=1e-6,scheme=guava)", "int64", "--guava"},
		{"bloom(items=1e5,fpr=1e-6,scheme=guava)", "int32", ""},
		{"counting(items=1e5,fpr=1e-6)", "text", ""},
		{"cuckoo(items=1e5,fpr=1e-6)", "int64", ""},
		{"pair(added=bloom(items=1e5,fpr=1e-6),removed=bloom(items=10,fpr=1e-6))", "text", ""},
		{"sharded(shards=4,of=cuckoo(items=3e4,fpr=1e-6))", "int32", ""},
	} {
		t.Run(tc.filter+" "+tc.elements, func(t *testing.T) {
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			command := func(args ...string) []string {
				args = append([]string{"filter", "live"}, args...)
				if tc.guava != "" && args[2] != "query" {
					args = append(args, tc.guava)
				}
				return append(args, "--elements", tc.elements)
			}
			out := mustSift(t, numbers(0, 10_000)+"5\n", command("build", tc.filter, "-o", file("a"))...)
			if !strings.HasPrefix(out, "10,001 lines, 10,000 new;") {
				t.Errorf("build: %s", out)
			}
			mustSift(t, numbers(10_000, 12_000), command("build", tc.filter, "-o", file("b"))...)
			out = mustSift(t, "", command("merge", file("a"), file("b"), "-o", file("c"))...)
			if !strings.HasPrefix(out, "2 files of ") {
				t.Errorf("merge: %s", out)
			}
			r := runSift(t, numbers(11_990, 12_010), command("query", file("c"))...)
			if r.status != 0 || r.out != numbers(11_990, 12_000) || !strings.Contains(r.err, "20 lines: 10 may be in the filter, 10 not") {
				t.Errorf("query: %+v", r)
			}
			r = runSift(t, numbers(11_990, 12_010), command("query", "--absent", file("c"))...)
			if r.out != numbers(12_000, 12_010) {
				t.Errorf("query --absent: %+v", r)
			}
			out = mustSift(t, "", "filter", "live", "inspect", file("c"))
			for _, want := range []string{"kind", "fill", "FPR now"} {
				if !strings.Contains(out, want) {
					t.Errorf("inspect does not print the %s: %s", want, out)
				}
			}
			kind, _, _ := strings.Cut(tc.filter, "(")
			if !strings.Contains(out, kind) {
				t.Errorf("inspect: %s", out)
			}
			object := decode(t, mustSift(t, "", "filter", "live", "inspect", "--json", file("c")))
			if name := object["kind"].(string); !strings.HasPrefix(name, kind) || object["bytes"].(float64) < 1 || object["fpr"] == nil || object["count"] == nil {
				t.Errorf("inspect --json: %v", object)
			}
		})
	}
}

// TestFilterLiveGuavaFirst: --guava with a filter that Guava does not have is refused before the
// input is read.
func TestFilterLiveGuavaFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	for _, filter := range []string{"bloom(items=10,fpr=0.1)", "cuckoo(items=10,fpr=0.1)"} {
		r := runSift(t, "no number\n", "filter", "live", "build", filter, "-o", file, "--guava", "--elements", "int64")
		if r.status != statusUsage || !strings.Contains(r.err, "--guava: ") {
			t.Errorf("%s: %+v", filter, r)
		}
	}
}

// TestFilterLiveOthersFiles: inspect reads files written by Guava, and by programs that use package
// live, except those of kinds that the commands do not have.
func TestFilterLiveOthersFiles(t *testing.T) {
	java, err := filepath.Glob("../../filter/live/testdata/guava/*.bin")
	if err != nil || len(java) == 0 {
		t.Fatalf("no Guava files: %v", err)
	}
	for _, path := range java {
		if out := mustSift(t, "", "filter", "live", "inspect", path); !strings.Contains(out, "Guava") {
			t.Errorf("%s: %s", path, out)
		}
	}
	golden, err := filepath.Glob("../../filter/live/testdata/golden/*.v1")
	if err != nil || len(golden) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range golden {
		name := filepath.Base(path)
		r := runSift(t, "", "filter", "live", "inspect", path)
		if foreign := name == "cold.v1" || name == "layered.v1"; (r.status == 0) == foreign {
			t.Errorf("%s: %+v", name, r)
		}
	}
	custom := filepath.Join(t.TempDir(), "custom")
	f, err := live.NewBloom(live.BloomOptions[float64]{Items: 10, FPR: 0.1, Funnel: func(dst []byte, v float64) []byte { return dst }})
	if err != nil {
		t.Fatal(err)
	}
	if err := live.WriteFile(custom, f); err != nil {
		t.Fatal(err)
	}
	if out := mustSift(t, "", "filter", "live", "inspect", custom); !strings.Contains(out, "funnel") {
		t.Errorf("%s", out)
	}
}

// TestFilterLiveFull: a filter whose bits are all set has no estimate of its number of elements.
// The output says so instead of printing a number.
func TestFilterLiveFull(t *testing.T) {
	for _, filter := range []string{
		"bloom(items=10,fpr=0.1)", "bloom(items=10,fpr=0.1,scheme=blocked)", "counting(items=10,fpr=0.1)", "dedup(items=10,fpr=0.1)",
		"sharded(shards=2,of=bloom(items=10,fpr=0.1))", "pair(added=bloom(items=10,fpr=0.1),removed=bloom(items=10,fpr=0.1))",
	} {
		file := filepath.Join(t.TempDir(), "full")
		mustSift(t, numbers(0, 20_000), "filter", "live", "build", filter, "-o", file)
		for _, args := range [][]string{{"inspect", file}, {"merge", file, file, "-o", file}} {
			out := mustSift(t, "", append([]string{"filter", "live"}, args...)...)
			if !strings.Contains(out, "unknown, the filter is full") || strings.Contains(out, "-1") {
				t.Errorf("%s: %q: %s", filter, args, out)
			}
		}
	}
}

// TestFilterLiveQueryBadLine: a line that cannot be looked up is reported by its number.
func TestFilterLiveQueryBadLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	mustSift(t, "1\n", "filter", "live", "build", "--elements", "int64", "bloom(items=10,fpr=0.1)", "-o", file)
	r := runSift(t, numbers(1, 5001)+"x\n7\n", "filter", "live", "query", "--elements", "int64", file)
	if r.status != statusFailed || !strings.HasPrefix(r.err, "sift: line 5001: ") {
		t.Errorf("status %d, %q", r.status, r.err)
	}
}

// TestFilterLiveReplacesOnlyFiles: the output file does not replace a socket or a device.
func TestFilterLiveReplacesOnlyFiles(t *testing.T) {
	path := socket(t)
	r := runSift(t, "a\n", "filter", "live", "build", "bloom(items=10,fpr=0.1)", "-o", path)
	if r.status != statusFailed || !strings.Contains(r.err, path+" is not a regular file") {
		t.Errorf("%+v", r)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Errorf("%v, %v", info, err)
	}
}

// TestFilterLiveRejects: a build, merge or query that fails reports why, and leaves no file.
func TestFilterLiveRejects(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	missing := noSuchFile
	if runtime.GOOS == "windows" {
		missing = "sift: open " // the rest of the message varies
	}
	for _, tc := range []struct {
		stdin, want string
		args        []string
	}{
		{"1\n2\nx\n", "line 3: ", []string{"build", "bloom(items=10,fpr=0.1)", "-o", file, "--elements", "int64"}},
		{numbers(0, 5000), "filter is full", []string{"build", "cuckoo(items=10,fpr=0.1)", "-o", file}},
		{"", "growth is not a field", []string{"build", "bloom(items=10,growth=2)", "-o", file}},
		{"", "FPR 7 is not", []string{"build", "bloom(items=10,fpr=7)", "-o", file}},
		{"", "FPR is missing", []string{"build", "bloom(items=10)", "-o", file}},
		{"", "FPR is missing", []string{"build", "sharded(shards=2,of=counting(items=10))", "-o", file}},
		{"", "Guava's format has no cuckoo filter", []string{"build", "cuckoo(items=10,fpr=0.1)", "-o", file, "--guava"}},
		{"", missing, []string{"query", file}},
		{"", "1.00TiB or more, above --max-memory 16.0GiB", []string{"build", "bloom(bits=8796093022208,hashes=3)", "-o", file}},
		{"", "or more, above --max-memory", []string{"build", "sharded(shards=100000,of=counting(items=1e8,fpr=0.01))", "-o", file}},
		{"", "or more, above --max-memory 1.00KiB", []string{"build", "--max-memory", "1KiB", "cuckoo(items=1e6,fpr=0.01)", "-o", file}},
		{numbers(0, 20_000), ", above --max-memory 4.00KiB", []string{"build", "--max-memory", "4KiB", "scalable(items=100,fpr=0.01)", "-o", file}},
		{"", "the filter takes", []string{"build", "--max-memory", "1200000", "bloom(items=1e6,fpr=0.01,scheme=blocked)", "-o", file}},
		{"", "filled by a program", []string{"build", "rotating(items=10,fpr=0.1)", "-o", file}},
		{"", filepath.Dir(file) + " is a directory", []string{"build", "bloom(items=10,fpr=0.1)", "-o", filepath.Dir(file)}},
	} {
		r := runSift(t, tc.stdin, append([]string{"filter", "live"}, tc.args...)...)
		if r.status < statusUsage || !strings.Contains(r.err, tc.want) {
			t.Errorf("%q: %+v", tc.args, r)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%q left a file", tc.args)
		}
	}
	mustSift(t, "a\n", "filter", "live", "build", "bloom(items=10,fpr=0.1)", "-o", file)
	other := file + "2"
	mustSift(t, "a\n", "filter", "live", "build", "bloom(items=1000,fpr=0.1)", "-o", other)
	if r := runSift(t, "", "filter", "live", "merge", file, other, "-o", file+"3"); r.status != statusFailed || !strings.Contains(r.err, "filters differ") {
		t.Errorf("%+v", r)
	}
	if r := runSift(t, "1\n", "filter", "live", "query", "--elements", "int64", file); r.status != statusFailed || !strings.Contains(r.err, "--elements") {
		t.Errorf("%+v", r)
	}
	cuckoo := file + "4"
	mustSift(t, "a\n", "filter", "live", "build", "cuckoo(items=10,fpr=0.1)", "-o", cuckoo)
	if r := runSift(t, "", "filter", "live", "merge", cuckoo, other, "-o", file+"3"); r.status != statusFailed || !strings.Contains(r.err, "kinds of filter: Cuckoo and Bloom") {
		t.Errorf("%+v", r)
	}
	for _, text := range []string{"", "sift", "some text that is no filter"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := runSift(t, "", "filter", "live", "inspect", file); r.status != statusFailed || !strings.Contains(r.err, file+": neither a filter file of sift") {
			t.Errorf("%+v", r)
		}
	}
	if err := os.WriteFile(file, []byte("siftlive and then something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := runSift(t, "", "filter", "live", "inspect", file); r.status != statusFailed || !strings.Contains(r.err, "damaged") {
		t.Errorf("%+v", r)
	}
}

// TestEachBatchLongLines checks that long lines are not collected in large batches.
func TestEachBatchLongLines(t *testing.T) {
	in := strings.NewReader(strings.Repeat(strings.Repeat("x", 64<<10)+"\n", 200))
	e := &env{ctx: context.Background(), in: in, out: bufio.NewWriter(io.Discard), err: io.Discard}
	most, lines := 0, 0
	err := e.eachBatch("", func(first int64, batch []string) error {
		if first != int64(lines+1) {
			t.Errorf("a batch begins at line %d after %d", first, lines)
		}
		n := 0
		for _, l := range batch {
			n += len(l)
		}
		most, lines = max(most, n), lines+len(batch)
		return nil
	})
	if err != nil || lines != 200 || most > 2<<20 {
		t.Errorf("%v, %d lines, a batch of %d bytes", err, lines, most)
	}
}

// TestFilterLiveReadOnlyDir: a directory that cannot be written to is an error before the input is
// read.
func TestFilterLiveReadOnlyDir(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no directory /proc, to which not even root can write")
	}
	in := strings.NewReader("a\n")
	var stderr strings.Builder
	args := []string{"filter", "live", "build", "bloom(items=10,fpr=0.1)", "-o", "/proc/f"}
	if status := run(context.Background(), args, in, io.Discard, &stderr); status != statusFailed || in.Len() != 2 {
		t.Errorf("status %d, %d bytes left, stderr %q", status, in.Len(), &stderr)
	}
}
