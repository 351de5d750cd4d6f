package result

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/siftdb/sift/bench/measure"
)

func fileWith(values map[string][]float64) *File {
	f := New(Meta{Command: "c"})
	r := f.Row(Key{Section: "stores", Store: "sift", Benchmark: "readmissing", State: "quiesced", Num: 10})
	for unit, vs := range values {
		for _, v := range vs {
			r.Add(unit, v)
		}
	}
	return f
}

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Summary
	}{
		{[]float64{3}, Summary{3, 3, 3, 1}},
		{[]float64{4, 1}, Summary{2.5, 1, 4, 2}},
		{[]float64{9, 1, 2}, Summary{2, 1, 9, 3}},
	} {
		f := fileWith(map[string][]float64{CPU: c.values})
		if got := f.Rows[0].Of(CPU); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, got, c.want)
		}
	}
	if s := fileWith(nil).Rows[0].Of(CPU); s.N != 0 || s.Median == s.Median {
		t.Errorf("nothing measured: %+v", s)
	}
}

func TestWriteRead(t *testing.T) {
	f := fileWith(map[string][]float64{CPU: {1.23456789, 2}, OpsPerSec: {1e6}})
	f.Rows[0].AddBars([]measure.Bar{{From: 4, To: 8, Count: 2}})
	f.Rows[0].AddBars([]measure.Bar{{From: 2, To: 4, Count: 1}, {From: 4, To: 8, Count: 3}})
	f.Row(Key{Section: "filters", Store: "x", Num: 1})
	path := filepath.Join(t.TempDir(), "r.json")
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	g, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g.Rows, f.Rows) || !reflect.DeepEqual(g.Meta, f.Meta) {
		t.Errorf("read %+v, wrote %+v", g.Rows[0], f.Rows[0])
	}
	if got := g.Rows[0].Values[CPU][0]; got != 1.2346 {
		t.Errorf("rounded to %v", got)
	}
	want := []measure.Bar{{From: 2, To: 4, Count: 1}, {From: 4, To: 8, Count: 5}}
	if !reflect.DeepEqual(g.Rows[0].Bars, want) {
		t.Errorf("bars %v, want %v", g.Rows[0].Bars, want)
	}
}

func TestMerge(t *testing.T) {
	a := New(Meta{Command: "a", Commit: "1", Took: "1m30s", Terms: []string{"x", "y"}, Versions: []Named{{"pebble", "2"}, {"sift", "1"}}, Skipped: []string{"rocksdb: not built in"}})
	b := New(Meta{Command: "b", Commit: "1", Took: "40s", Terms: []string{"x"}, Versions: []Named{{"rocksdb", "7"}, {"sift", "2"}}})
	a.Row(Key{Section: "stores", Store: "old"}).Add(CPU, 1)
	a.Row(Key{Section: "stores", Store: "both"}).Add(CPU, 2)
	b.Row(Key{Section: "stores", Store: "both"}).Add(CPU, 3)
	b.Row(Key{Section: "stores", Store: "new"}).Add(CPU, 4)
	b.Merge(a)
	var got []string
	for _, r := range b.Rows {
		got = append(got, fmt.Sprint(r.Store, " ", r.Of(CPU).Median))
	}
	if want := []string{"old 1", "both 3", "new 4"}; !reflect.DeepEqual(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if r := b.Row(Key{Section: "stores", Store: "old"}); r.Of(CPU).N != 1 {
		t.Errorf("the merged row is not found: %+v", r)
	}
	c := New(Meta{Command: "b", Commit: "1", Took: "1s"})
	c.Row(Key{Section: "filters", Store: "new"}).Add(CPU, 5)
	c.Merge(b)
	if m := c.Meta; m.Command != "a; b" || m.Commit != "1" || m.Took != "2m11s" || len(c.Rows) != 4 {
		t.Errorf("merged again: %+v", m)
	}
	m := b.Meta
	if m.Command != "a; b" || m.Commit != "1" || m.Took != "2m10s" || !reflect.DeepEqual(m.Terms, []string{"y", "x"}) || len(m.Skipped) != 0 ||
		!reflect.DeepEqual(m.Versions, []Named{{"pebble", "2"}, {"rocksdb", "7"}, {"sift", "2"}}) {
		t.Errorf("%+v", m)
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		desc     string
		unit     string
		old, new []float64
		change   bool
		better   int
	}{
		{"clear, enough rounds", CPU, []float64{10, 11, 10.5, 10.2, 10.1}, []float64{5, 5.1, 5.2, 4.9, 5}, true, 1},
		{"clear, for the worse", OpsPerSec, []float64{100, 101, 102, 103}, []float64{50, 51, 52, 53}, true, -1},
		{"noise", CPU, []float64{10, 12, 11, 9, 10}, []float64{11, 9.5, 10.5, 12, 10}, false, 0},
		{"real but small", CPU, []float64{100, 100, 100, 100}, []float64{101, 101, 101, 101}, false, 0},
		{"few rounds, ranges apart", CPU, []float64{10, 11}, []float64{7, 8}, true, 1},
		{"few rounds, ranges overlap", CPU, []float64{10, 20}, []float64{5, 11}, false, 0},
		{"neither is better", Others, []float64{0.1, 0.1}, []float64{0.5, 0.5}, false, 0},
	} {
		got := Compare(fileWith(map[string][]float64{c.unit: c.old}), fileWith(map[string][]float64{c.unit: c.new}), []string{c.unit}, 0.03)
		if (len(got.Changes) == 1) != c.change {
			t.Errorf("%s: %+v", c.desc, got)
			continue
		}
		if c.change && got.Changes[0].Better() != c.better {
			t.Errorf("%s: %s", c.desc, got.Changes[0])
		}
	}
	a, b := fileWith(nil), fileWith(nil)
	b.Meta.Machine.Go = "go9"
	if d := Compare(a, b, nil, 0).Terms; len(d) != 1 || !strings.Contains(d[0], "go9") {
		t.Errorf("differences %q", d)
	}
}

func TestCheckCommits(t *testing.T) {
	for _, c := range []struct {
		result, table string
		good          bool
	}{{"a", "a", true}, {"a", "b", false}, {"a+", "a+", false}, {"a, b", "a, b", false}, {"a", "a, b", false}} {
		err := CheckCommits(New(Meta{Commit: c.result}), map[string]*Table{"x": {Commit: c.table}})
		if (err == nil) != c.good {
			t.Errorf("a result at %q and a table at %q: %v", c.result, c.table, err)
		}
	}
}
