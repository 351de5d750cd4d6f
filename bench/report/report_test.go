package report

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"html"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/bench/alone"
	"github.com/siftdb/sift/bench/budget"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/bench/memory"
	"github.com/siftdb/sift/bench/result"
	"golang.org/x/perf/benchfmt"
)

// sample returns a result with figures in every table and plot.
func sample() *result.File {
	f := result.New(result.Meta{
		When: "2026-01-02", Took: "3m0s", Command: "go run -C bench . --engines 'sift,pebble'", Commit: "abc123",
		Machine:    measure.Machine{CPU: "A <fine> & fast CPU", Cores: 2, Arch: "linux/amd64", Go: "go1.26"},
		Versions:   []result.Named{{Name: "sift", Text: "abc"}, {Name: "pebble", Text: "v2"}},
		Terms:      []string{"everything is equal"},
		Deviations: []result.Named{{Name: "pebble", Text: "</script> is no tag here"}},
		Warnings:   []string{"the machine was busy"},
	})
	add := func(k result.Key, values map[string]float64) *result.Row {
		r := f.Row(k)
		for unit, v := range values {
			r.Add(unit, v)
			r.Add(unit, v*1.1)
			r.Add(unit, v*0.9)
		}
		return r
	}
	const num = 1000
	for i, who := range []reader{{"sift", ""}, {"sift:ribbon(7)", ""}, {"pebble", ""}, {"pebble", "prefix"}, {"bbolt", "txn"}} {
		cost := float64(i + 1)
		for _, b := range []string{"readmissing", "readrandom", "seekrandom", "readseq", "readreverse", "absent-zipf", "absent-mix50", "multimissing"} {
			for _, state := range []string{"quiesced", "compacted"} {
				r := add(result.Key{Section: "stores", Store: who.store, Mode: who.mode, Benchmark: b, State: state, Num: num}, map[string]float64{
					result.OpsPerSec: 1e6 / cost, result.EntriesPerS: 1e6, result.CPU: cost, result.P99: 9000, result.BlockReads: 10 * cost,
					result.FilterBytes: 1250, result.Allocs: cost, result.Probes: 2, result.Peak: 12,
				})
				r.AddBars([]measure.Bar{{From: 128, To: 256, Count: 900}, {From: 256, To: 512, Count: 90}, {From: 512, To: 1024, Count: 10}})
				if who.store == "sift" && b == "readmissing" {
					r.Levels = []engine.LevelFilter{{Level: 1, Tables: 3, Bytes: 5e6, FilterBytes: 1250, Probes: 2000, Useful: 1980, FalsePositive: 20, ExpectedFPR: 0.01}}
				}
			}
		}
		if who.mode != "" {
			continue
		}
		for _, b := range []string{"fillrandom", "fillseq", "ycsb-a", "ycsb-f"} {
			add(result.Key{Section: "stores", Store: who.store, Benchmark: b, Num: num}, map[string]float64{
				result.OpsPerSec: 2e5 + 1e5*cost, result.QuiescedPerS: 1e5, result.CPU: cost, result.WriteAmp: 3, result.Space: 90, result.P999: 1e5, result.Peak: 30,
			})
		}
		add(result.Key{Section: "stores", Store: who.store, Benchmark: "open", State: "compacted", Num: num}, map[string]float64{result.OpenTime: 5})
		for _, n := range []int{100, 1000} {
			add(result.Key{Section: "growth", Store: who.store, Benchmark: "readmissing", State: "quiesced", Num: n}, map[string]float64{result.CPU: cost})
		}
	}
	for i, store := range []string{"sift:none", "sift:bloom(4)", "sift:bloom(10)", "pebble:bloom(10)"} {
		add(result.Key{Section: "sweep", Store: store, Benchmark: "readmissing", State: "quiesced", Num: num}, map[string]float64{
			result.BlockReads: 1000 / math.Pow(3, float64(i)), result.FilterBytes: float64(500 * i),
		})
	}
	for i, name := range []string{"sift bloom(10)", "pebble bloom(10)"} {
		for _, n := range []int{100, 1000} {
			for _, kind := range []string{"random", "text"} {
				add(result.Key{Section: alone.Section, Store: name, Benchmark: "filter", State: kind, Num: n}, map[string]float64{
					result.BitsPerKey: 10, result.FPR: 0.01, result.OverLimit: 1.5, result.Build: 20, result.HotAbsent: 10 + float64(i), result.ColdAbsent: 100, result.ColdIsolated: 200, result.Single: float64(n) / 10,
				})
			}
		}
		for _, bits := range []float64{4, 8, 12} {
			add(result.Key{Section: alone.CurveSection, Store: name + strings.Repeat("+", int(bits)), Benchmark: name[:len(name)-4], State: "random", Num: 1000},
				map[string]float64{result.BitsPerKey: bits, result.FPR: math.Pow(2, -bits/1.4)})
		}
	}
	for _, kind := range budget.Traffics() {
		for i, who := range []string{budget.Uniform, budget.Monkey, budget.Planned + "ribbon(16)", budget.BestSteps + "ribbon(16)", budget.Hindsight} {
			for _, bits := range []float64{2, 5} {
				add(result.Key{Section: budget.Section, Store: who, Benchmark: kind, State: fmt.Sprintf("%g bits/key", bits), Num: num},
					map[string]float64{result.BlockReads: 100 / bits / float64(i+1), result.FilterBytes: bits * num / 8})
			}
		}
	}
	add(result.Key{Section: alone.FloorSection, Store: "this machine", Benchmark: "line"}, map[string]float64{result.Dependent: 240, result.Independent: 33})
	return f
}

func TestTables(t *testing.T) {
	want := []string{"absent", "versus", "goals", "behind", "present", "scans", "writes", "places", "ycsb", "memory", "growth", "levels", "filters", "filters-text", "probes", "probes-text", "plan"}
	var got []string
	for _, table := range Tables(sample()) {
		got = append(got, table.Name)
		for _, r := range table.Rows {
			if len(r) != len(table.Header) {
				t.Errorf("%s: %d cells under %d column headers: %q", table.Name, len(r), len(table.Header), r)
			}
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("tables %q, want %q", got, want)
	}
	if tables := Tables(result.New(result.Meta{})); len(tables) != 0 {
		t.Errorf("an empty result gives %d tables", len(tables))
	}
}

// TestVersus checks that each store other than sift has one column, for its fastest way.
func TestVersus(t *testing.T) {
	got := Tables(sample())[1].Markdown()
	for _, want := range []string{
		"| CPU time per absent key | sift | pebble | bbolt, one transaction |\n",
		"| quiesced | 1.00 µs | 3.0× | 5.0× |\n", "| compacted | 1.00 µs | 3.0× | 5.0× |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}

// TestGoals checks a goal that is met, one that is missed, one for a figure of sift's own, and that
// of a measure of which more is better.
func TestGoals(t *testing.T) {
	got := Tables(sample())[2].Markdown()
	for _, want := range []string{
		"| readmissing, quiesced | CPU µs | pebble, SeekPrefixGE | 4.00× | 4.00× (the passes differ) |\n",
		"| readmissing, quiesced | CPU µs | pebble | 25.0× | 3.00×, missed |\n",
		"| readmissing, compacted | block reads / 1,000 | – | at most 1.20 | 10.0, missed |\n",
		"| fillseq | ops/s | pebble | 1.20× | 0.60×, missed |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "rocksdb") {
		t.Errorf("a goal against a store that was not measured:\n%s", got)
	}
}

func TestAbsentTable(t *testing.T) {
	table := Tables(sample())[0]
	want := `| sift | 1,000k | 1.00 | 10.0 | 1,000k | 1.00 | 10.0 | 1,250 | 10.0 |`
	if !strings.Contains(table.Markdown(), want+"\n") {
		t.Errorf("no line %s in\n%s", want, table.Markdown())
	}
	if !strings.Contains(table.Markdown(), "| pebble, SeekPrefixGE |") || !strings.Contains(table.Markdown(), "| sift, ribbon(7) |") {
		t.Errorf("names in\n%s", table.Markdown())
	}
}

// TestBehind makes sift worse in two benchmarks and better in one.
func TestBehind(t *testing.T) {
	f := result.New(result.Meta{})
	add := func(store, mode, benchmark, unit string, v float64) {
		f.Row(result.Key{Section: "stores", Store: store, Mode: mode, Benchmark: benchmark, State: "quiesced", Num: 10}).Add(unit, v)
	}
	add("sift", "", "seekrandom", result.CPU, 10)
	add("leveldb", "", "seekrandom", result.CPU, 5)
	add("pebble", "", "seekrandom", result.CPU, 9.8) // within 5%
	add("sift:none", "", "seekrandom", result.CPU, 1)
	for _, v := range []float64{6, 9, 10.5} { // by more than 5%, but within the spread
		add("rocksdb", "", "seekrandom", result.CPU, v)
	}
	add("sift", "", "readmissing", result.CPU, 1)
	add("pebble", "", "readmissing", result.CPU, 2)
	add("sift", "", "ycsb-a", result.OpsPerSec, 100_000)
	add("bbolt", "", "ycsb-a", result.OpsPerSec, 150_000)
	add("sift", "", "ycsb-a", result.CPU, 10)
	add("bbolt", "", "ycsb-a", result.CPU, 1)
	table := source{f}.behind()
	want := [][]string{
		{"seekrandom, quiesced", "CPU µs", "10.0", "leveldb 2.00×"},
		{"ycsb-a, quiesced", "ops/s", "100k", "bbolt 1.50×"},
	}
	if !reflect.DeepEqual(table.Rows, want) {
		t.Errorf("rows %q, want %q", table.Rows, want)
	}
	if len(table.Notes) != 1 || !strings.Contains(table.Notes[0], "other 1 of 3 comparisons") {
		t.Errorf("notes %q", table.Notes)
	}
}

func TestFigure(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want string
	}{
		{math.NaN(), "–"}, {0, "0"}, {0.00123, "0.0012"}, {0.5, "0.50"}, {9.996, "10.0"}, {12.34, "12.3"}, {99.96, "100"}, {1234567, "1,234,567"}, {-1500, "-1,500"},
	} {
		if got := Figure(c.v); got != c.want {
			t.Errorf("Figure(%v) = %q, want %q", c.v, got, c.want)
		}
	}
}

func TestBenchstatReads(t *testing.T) {
	f := sample()
	var b bytes.Buffer
	if err := WriteBenchstat(&b, f); err != nil {
		t.Fatal(err)
	}
	r := benchfmt.NewReader(&b, "sample")
	lines := 0
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			lines++
			if lines == 1 {
				if v, ok := rec.Value(result.CPU); !ok || v != 1 {
					t.Errorf("%s of the first line is %v, %v", result.CPU, v, ok)
				}
				if got := rec.Name.String(); got != "Stores/bench=readmissing/state=quiesced/store=sift/num=1000" {
					t.Errorf("name %q", got)
				}
			}
		case *benchfmt.SyntaxError:
			t.Error(rec)
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if want := 3 * len(f.Rows); lines != want {
		t.Errorf("%d lines, want %d", lines, want)
	}
	if got := r.Units().GetBetter(result.OpsPerSec); got != 1 {
		t.Errorf("better of %s: %d", result.OpsPerSec, got)
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	if err := WriteCSV(&b, sample()); err != nil {
		t.Fatal(err)
	}
	c := csv.NewReader(&b)
	c.FieldsPerRecord = -1
	records, err := c.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	last := records[len(records)-1]
	if got := strings.Join(last, ","); got != "floor,this machine,,line,,0,independent-line-ns,33,29.7,36.3,3" {
		t.Errorf("last line %s", got)
	}
}

// TestBlocks checks that a saved table cannot replace a table of the result.
func TestBlocks(t *testing.T) {
	f := result.New(result.Meta{})
	blocks, err := Blocks(f, map[string]*result.Table{"queue": {Header: []string{"a"}, When: "today"}})
	if err != nil || !strings.Contains(blocks["queue"], "today") || blocks["machine"] == "" {
		t.Error(blocks, err)
	}
	if _, err := Blocks(f, map[string]*result.Table{"machine": {}}); err == nil {
		t.Error("a saved table replaced the block of the machine")
	}
}

func TestOpenTotals(t *testing.T) {
	saved := &result.Table{Header: []string{"", "keys", "ops/s", "CPU µs", "open ms"}, Rows: [][]string{
		{"sift", "2,000", "10,000", "1", "5.4"}, // 100 ms for the lookups
		{"pebble", "2,000", "2,000", "1", "31"},
		{"sift", "2,000", "5,000", "1", "3"},
		{"sift", "50,000", "1,000", "1", "1,000"},
		{"pebble", "50,000", "killed", "", ""},
	}}
	blocks, err := Blocks(result.New(result.Meta{}), map[string]*result.Table{"open": saved})
	if err != nil {
		t.Fatal(err)
	}
	const want = `| Open and the first 1,000 lookups, ms | 2,000 keys | 50,000 keys |
| :--- | ---: | ---: |
| sift | 105 to 203 | 2000 |
| pebble | 531 | – |
`
	if got := blocks["open-total"]; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if _, err := openTotals(&result.Table{Name: "open", Header: saved.Header[1:]}); err == nil {
		t.Error("a table without stores gave no error")
	}
}

func TestFill(t *testing.T) {
	blocks := map[string]string{"a": "A\n", "b": "B\n"}
	text := "x\n<!-- bench:a -->\nold\n<!-- /bench:a -->\ny <!-- bench:b --><!-- /bench:b -->\n"
	want := "x\n<!-- bench:a -->\nA\n<!-- /bench:a -->\ny <!-- bench:b -->\nB\n<!-- /bench:b -->\n"
	got, err := Fill(text, blocks)
	if err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := Fill(got, blocks); err != nil || again != got {
		t.Errorf("filled again: %q, %v", again, err)
	}
	for _, bad := range []string{"<!-- bench:c -->\n<!-- /bench:c -->", "<!-- bench:a -->\n", "<!-- bench:a"} {
		if _, err := Fill(bad, blocks); err == nil {
			t.Errorf("%q gave no error", bad)
		}
	}
}

func TestSVG(t *testing.T) {
	plots := Plots(sample())
	if want := 10 + len(budget.Traffics()); len(plots) != want {
		t.Errorf("%d plots, want %d", len(plots), want)
	}
	checkSVG(t, plots)
}

// TestMemoryPlots: each workload has a plot, with a line for each engine that survived.
func TestMemoryPlots(t *testing.T) {
	at := func(engine, workload string, limit int64, ops int64, killed bool) memory.Result {
		return memory.Result{Case: memory.Case{Engine: engine, Workload: workload, Limit: limit << 20, Keys: 1000}, Ops: ops, Seconds: 2, Killed: killed}
	}
	plots := MemoryPlots([]memory.Result{
		at("sift", memory.Present, 256, 500, false), at("sift", memory.Present, 64, 100, false), at("sift/nomap", memory.Present, 64, 120, false),
		at("badger", memory.Present, 64, 0, true), at("sift", memory.Absent, 64, 100, false),
	})
	if len(plots) != 2 || plots[0].Name != "memory-absent" || plots[1].Name != "memory-present" {
		t.Fatalf("plots %+v", plots)
	}
	s := plots[1].Series
	if len(s) != 2 || s[0].Name != "sift" || s[1].Name != "sift/nomap" || s[0].Color == s[1].Color {
		t.Fatalf("series %+v", s)
	}
	if want := []Point{{X: 64, Y: 50}, {X: 256, Y: 250}}; !slices.Equal(s[0].Points, want) {
		t.Errorf("points %+v, want %+v", s[0].Points, want)
	}
	checkSVG(t, plots)
}

// checkSVG checks that the plots can be drawn, with legends and texts of known lengths.
func checkSVG(t *testing.T, plots []*Plot) {
	t.Helper()
	for _, p := range plots {
		var b bytes.Buffer
		if err := WriteSVG(&b, p); err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		for _, s := range p.Series {
			if !strings.Contains(b.String(), ">"+html.EscapeString(s.Name)+"<") {
				t.Errorf("%s: no legend of %q", p.Name, s.Name)
			}
		}
		if texts := strings.Count(b.String(), "<text "); texts == 0 || strings.Count(b.String(), " textLength=") != texts {
			t.Errorf("%s: not all of %d texts have a length", p.Name, texts)
		}
		d := xml.NewDecoder(&b)
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("%s: %v", p.Name, err)
				break
			}
		}
	}
}

func TestHistogram(t *testing.T) {
	got := Histogram(&result.Row{Key: result.Key{Store: "sift", Benchmark: "readrandom", State: "quiesced"}, Bars: []measure.Bar{{From: 64, To: 128, Count: 1}, {From: 128, To: 256, Count: 3}}})
	want := "\nsift readrandom/quiesced, nanoseconds per operation, count: 4\n" +
		"[        64,       128 )        1   25.000%   25.000% #####\n" +
		"[       128,       256 )        3   75.000%  100.000% ###############\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestGoalWithinNoise checks that a goal which some passes meet and others miss is marked.
func TestGoalWithinNoise(t *testing.T) {
	f := result.New(result.Meta{})
	for store, passes := range map[string][]float64{"sift": {0.24, 0.28, 0.23}, "rocksdb": {1.13, 1.13, 0.58}, "goleveldb": {5, 6, 7}} {
		for _, v := range passes {
			f.Row(result.Key{Section: "stores", Store: store, Benchmark: "readmissing", State: compacted, Num: 10}).Add(result.CPU, v)
		}
	}
	got := source{f}.goals().Markdown()
	for _, want := range []string{"| rocksdb | 3.00× | 4.71× (the passes differ) |", "| goleveldb | 10.0× | 25.0× |"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
}

// TestPeakIsMaximum checks that the peak of memory is that of the pass with the highest.
func TestPeakIsMaximum(t *testing.T) {
	r := result.New(result.Meta{}).Row(result.Key{})
	for _, v := range []float64{14, 0, 3} {
		r.Add(result.Peak, v)
		r.Add(result.CPU, v)
	}
	if peak, cpu := figure(r, result.Peak), figure(r, result.CPU); peak != 14 || cpu != 3 {
		t.Errorf("peak %v, CPU %v", peak, cpu)
	}
}

// TestVersusFastestWay checks that each state shows the way of a store that is fastest there.
func TestVersusFastestWay(t *testing.T) {
	f := result.New(result.Meta{})
	for who, cpu := range map[string][2]float64{"sift": {1, 1}, "rocksdb": {2, 5}, "rocksdb-mmap": {3, 4}} {
		for i, state := range []string{quiesced, compacted} {
			f.Row(result.Key{Section: "stores", Store: who, Benchmark: "readmissing", State: state, Num: 10}).Add(result.CPU, cpu[i])
		}
	}
	got := source{f}.versus()
	if want := []string{"CPU time per absent key", "sift", "rocksdb"}; !slices.Equal(got.Header, want) || got.Rows[0][2] != "2.0×" || got.Rows[1][2] != "4.0×" {
		t.Errorf("%q %q", got.Header, got.Rows)
	}
}

// TestVersusPartly checks that a way of a store without a figure does not hide one that has a
// figure.
func TestVersusPartly(t *testing.T) {
	f := result.New(result.Meta{})
	for who, cpu := range map[string][]float64{"sift": {1, 1}, "rocksdb": {2, 5}, "rocksdb-mmap": {3}} {
		for i, state := range []string{quiesced, compacted}[:len(cpu)] {
			f.Row(result.Key{Section: "stores", Store: who, Benchmark: "readmissing", State: state, Num: 10}).Add(result.CPU, cpu[i])
		}
	}
	got := source{f}.versus()
	if got.Rows[1][2] != "5.0×" {
		t.Errorf("%q %q", got.Header, got.Rows)
	}
}

// TestPlanStrayName: a result may have names of an earlier version, and after a merge it has them
// first.
func TestPlanStrayName(t *testing.T) {
	old := result.New(result.Meta{})
	r := old.Row(result.Key{Section: budget.Section, Store: "optimum in parts of ribbon(16)", Benchmark: budget.Even, State: "2 bits/key", Num: 10})
	r.Add(result.BlockReads, 1)
	r.Add(result.FilterBytes, 1)
	f := sample()
	f.Merge(old)
	Plots(f)
}
