package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siftdb/sift/bench/memory"
	"github.com/siftdb/sift/bench/result"
)

// run executes a command and returns its output.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := execute(args, &out, &out); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// TestReport measures, compares two results, and fills in a README.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	measure := func(name, rounds string) (path, printed string) {
		out := filepath.Join(dir, name)
		printed = run(t, "--quick", "--num", "2000", "--reads", "2000", "--rounds", rounds, "--growth", "500,1000", "--parts", "stores,growth,plan",
			"--engines", "sift,sift:ribbon(8),goleveldb", "--benchmarks", "fillrandom,readmissing,compact,readmissing,readrandom,open", "--out", out)
		return filepath.Join(out, "result.json"), printed
	}
	old, printed := measure("old", "4")
	for _, want := range []string{"micros/op", "sift, ribbon(8)", "terms of goleveldb:", "Lookups of absent keys"} {
		if !strings.Contains(printed, want) {
			t.Errorf("output lacks %q:\n%s", want, printed)
		}
	}
	for _, name := range []string{"report.html", "result.csv", "benchstat.txt", "absent-cpu.svg", "growth.svg", "throughput.svg", "plan-even.svg"} {
		if info, err := os.Stat(filepath.Join(dir, "old", name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := result.Read(old)
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range []string{"sift", "sift:ribbon(8)", "goleveldb"} {
		for _, state := range []string{"quiesced", "compacted"} {
			r := f.Row(result.Key{Section: "stores", Store: store, Benchmark: "readmissing", State: state, Num: 2000})
			if r.Of(result.CPU).N != 4 || r.Of(result.FilterBytes).Median < 1000 {
				t.Errorf("%s, %s: %d rounds, filters of %v bytes", store, state, r.Of(result.CPU).N, r.Of(result.FilterBytes).Median)
			}
		}
	}

	newer, _ := measure("new", "4")
	if got := run(t, "compare", old, newer); !strings.Contains(got, "beyond noise") || !strings.Contains(got, "Mann-Whitney") {
		t.Errorf("compare printed\n%s", got)
	}
	if got := run(t, "compare", old, old); !strings.Contains(got, "\n0 of ") && !strings.HasPrefix(got, "0 of ") {
		t.Errorf("a result compared with itself:\n%s", got)
	}
	if got := run(t, "show", old); !strings.Contains(got, "goleveldb") {
		t.Errorf("show printed\n%s", got)
	}
	readme := filepath.Join(dir, "README.md")
	if err := os.WriteFile(readme, []byte("# x\n<!-- bench:absent -->\n<!-- /bench:absent -->\nend\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := execute([]string{"readme", "--result", old, "--file", readme, "--check"}, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
		t.Error("a README without figures passed the check")
	}
	run(t, "readme", "--result", old, "--file", readme)
	run(t, "readme", "--result", old, "--file", readme, "--check")
	if content, err := os.ReadFile(readme); err != nil || !strings.Contains(string(content), "| sift, ribbon(8) |") || !strings.HasSuffix(string(content), "end\n") {
		t.Errorf("README %q, %v", content, err)
	}
	if got := run(t, "readme", "--result", old, "--names"); !strings.Contains(got, "absent\n") || !strings.Contains(got, "machine\n") {
		t.Errorf("names %q", got)
	}
}

// TestExistingDB keeps databases and reads them in a later run.
func TestExistingDB(t *testing.T) {
	dir := t.TempDir()
	db, out := filepath.Join(dir, "db"), filepath.Join(dir, "out")
	common := []string{"--num", "1000", "--reads", "1000", "--rounds", "1", "--engines", "sift,bbolt", "--db", db, "--out", out}
	run(t, append([]string{"--benchmarks", "fillrandom", "--keep"}, common...)...)
	run(t, append([]string{"--benchmarks", "fillrandom,readrandom,readmissing", "--use_existing_db", "--histogram", "--passes", "3"}, common...)...)
	f, err := result.Read(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	if rows := f.Select(func(r *result.Row) bool { return r.Benchmark == "fillrandom" }); len(rows) != 0 {
		t.Error("fillrandom ran on existing databases")
	}
	if r := f.Row(result.Key{Section: "stores", Store: "sift", Benchmark: "readrandom", State: "quiesced", Num: 1000}); r.Of(result.CPU).N != 3 {
		t.Errorf("readrandom ran %d times on the existing database, want 3", r.Of(result.CPU).N)
	}
	if rows := f.Select(func(r *result.Row) bool { return r.Benchmark == "compact" }); len(rows) != 0 {
		t.Error("compact ran although it was not requested")
	}
	run(t, append([]string{"--benchmarks", "compact,readrandom", "--use_existing_db", "--merge"}, common...)...)
	if f, err = result.Read(filepath.Join(out, "result.json")); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"quiesced", "compacted"} {
		if r := f.Row(result.Key{Section: "stores", Store: "sift", Benchmark: "readrandom", State: state, Num: 1000}); r.Of(result.CPU).N == 0 {
			t.Errorf("after two runs the result has no readrandom of the %s store", state)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{
		{"--engines", "nosuch"}, {"--engines", "sift:nosuch(3)"}, {"--engines", "bbolt:bloom(10)"}, {"--benchmarks", "nosuch"},
		{"--parts", "nosuch"}, {"--data", "nosuch"}, {"--keep"}, {"compare", "nosuch", "nosuch"}, {"--num", "x"},
	} {
		if err := execute(append(args, "--out", t.TempDir()), &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%q gave no error", args)
		}
	}
	for _, command := range []string{"queue", "txn"} {
		if err := execute([]string{command, "--engines", "nosuch"}, &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), `"nosuch"`) {
			t.Errorf("%s of an unknown engine: %v", command, err)
		}
	}
}

func TestList(t *testing.T) {
	got := run(t, "list")
	for _, want := range []string{"sift", "goleveldb", "pebble", "badger", "bbolt", "rocksdb", "leveldb", "readmissing", "ycsb-f"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestMemoryRows checks that all rows have as many columns as the table header.
func TestMemoryRows(t *testing.T) {
	for _, killed := range []bool{false, true} {
		if row := memoryRow(memory.Result{Killed: killed}, 1); len(row) != len(memoryHeader) {
			t.Errorf("%q", row)
		}
	}
}

// TestSavedTables runs commands that save their tables, and generates a document from them.
func TestSavedTables(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("results", 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "queue", "--engines", "sift", "--windows", "10", "--workloads", "queue", "--time", "10ms", "--save", "queue")
	run(t, "txn", "--engines", "sift", "--goroutines", "2", "--workloads", "counter", "--time", "10ms", "--rounds", "1", "--save=txn")
	run(t, "queue", "--engines", "sift", "--windows", "20", "--workloads", "range,points", "--time", "10ms", "--save", "queue", "--add")
	run(t, "ranges", "--num", "500", "--bits", "10", "--save", "ranges")
	if err := execute([]string{"txn", "--engines", "sift,bbolt", "--time", "1ms", "--rounds", "1", "--save", "queue", "--add"}, io.Discard, io.Discard); err == nil {
		t.Error("rows were added to a table with other columns")
	}
	f := result.New(result.Meta{})
	if err := f.Write("result.json"); err != nil {
		t.Fatal(err)
	}
	const text = "<!-- bench:queue -->\n<!-- /bench:queue -->\n<!-- bench:txn -->\n<!-- /bench:txn -->\n<!-- bench:ranges -->\n<!-- /bench:ranges -->\n"
	if err := os.WriteFile("doc.md", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "readme", "--result", "result.json", "--file", "doc.md")
	run(t, "readme", "--result", "result.json", "--file", "doc.md", "--check")
	b, err := os.ReadFile("doc.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, want := range []string{"| queue | 10 | sift |", "| series, DeleteRange | 20 | sift |", "| series, point deletes | 20 | sift |", "| 1 counter, synced | 2 |", "| uniform | 500 |"} {
		if strings.Count(doc, want) != 1 {
			t.Errorf("%q is not in\n%s", want, doc)
		}
	}
	if strings.Contains(doc, "--save") {
		t.Errorf("the commands show how they were saved:\n%s", doc)
	}
}

// TestMemoryPlots draws plots into a new directory.
func TestMemoryPlots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plots")
	c := memoryCmd{Plots: dir}
	for _, workload := range []string{memory.Absent, memory.Open} {
		c.results = append(c.results, memory.Result{Case: memory.Case{Engine: "sift", Workload: workload, Limit: 64 << 20}, Ops: 1, Seconds: 1})
	}
	if err := c.plot(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"memory-absent.svg", "memory-open.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
