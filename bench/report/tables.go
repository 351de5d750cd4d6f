package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/siftdb/sift/bench/alone"
	"github.com/siftdb/sift/bench/budget"
	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/result"
	"github.com/siftdb/sift/bench/store"
)

// Tables returns the tables for which f has figures.
func Tables(f *result.File) []*Table {
	s := source{f}
	var tables []*Table
	for _, make := range []func() *Table{
		s.absent, s.versus, s.goals, s.behind, s.present, s.scans, s.writes, s.places, s.mixed, s.memory, s.growth, s.levels,
		of(s.filters, data.Random), of(s.filters, data.Text), of(s.probes, data.Random), of(s.probes, data.Text), s.plan,
	} {
		if t := make(); len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// of returns a function for the table of one kind of keys.
func of(table func(kind string) *Table, kind string) func() *Table {
	return func() *Table { return table(kind) }
}

const (
	quiesced  = "quiesced"
	compacted = "compacted"
)

func (s source) absent() *Table {
	t := &Table{
		Name:  "absent",
		Title: fmt.Sprintf("Lookups of absent keys between present ones, %s keys", thousands(float64(s.num()))),
		Header: []string{"store", "quiesced: ops/s", "CPU µs", "block reads / 1,000",
			"compacted: ops/s", "CPU µs", "block reads / 1,000", "filter bytes", "bits/key"},
	}
	for _, who := range s.readers("readmissing", result.CPU, compacted, quiesced) {
		cells := []string{label(result.Key{Store: who.store, Mode: who.mode})}
		for _, state := range []string{quiesced, compacted} {
			r := s.of(who, "readmissing", state)
			cells = append(cells, kilo(figure(r, result.OpsPerSec)), Figure(figure(r, result.CPU)), Figure(figure(r, result.BlockReads)))
		}
		r := s.of(who, "readmissing", compacted)
		if r == nil {
			r = s.of(who, "readmissing", quiesced)
		}
		bytes := figure(r, result.FilterBytes)
		t.Rows = append(t.Rows, append(cells, Figure(bytes), Figure(bytes*8/float64(s.num()))))
	}
	return t
}

// large is the end of the names of stores that have as much memory as sift, not as large a cache.
const large = "-large"

// versus compares sift with the others at equal memory, each with its own filter, in the way that
// is its fastest in that state.
func (s source) versus() *Table {
	t := &Table{
		Name:   "versus",
		Title:  fmt.Sprintf("CPU time per lookup of an absent key, as a multiple of sift's, %s keys", thousands(float64(s.num()))),
		Header: []string{"CPU time per absent key", "sift"},
		Rows:   [][]string{{quiesced}, {compacted}},
	}
	states := []string{quiesced, compacted}
	own := reader{store: "sift"}
	for i, state := range states {
		t.Rows[i] = append(t.Rows[i], Figure(figure(s.of(own, "readmissing", state), result.CPU))+" µs")
	}
	readers := s.readers("readmissing", result.CPU, quiesced)
	seen := map[string]bool{own.store: true}
	for _, first := range readers {
		name, _, _ := strings.Cut(first.store, "-")
		if seen[name] || strings.Contains(name, ":") {
			continue
		}
		seen[name] = true
		var ways []reader
		larger := slices.ContainsFunc(readers, func(r reader) bool { return r.store == name+large })
		for _, who := range readers {
			if n, _, _ := strings.Cut(who.store, "-"); n == name && (!larger || who.store == name+large) {
				ways = append(ways, who)
			}
		}
		var labels []string
		for i, state := range states {
			cpu := func(who reader) float64 { return figure(s.of(who, "readmissing", state), result.CPU) }
			fastest := slices.MaxFunc(ways, func(a, b reader) int { return cmp.Compare(1/cpu(a), 1/cpu(b)) }) // NaN is the least
			labels = append(labels, label(result.Key{Store: strings.TrimSuffix(fastest.store, large), Mode: fastest.mode}))
			ratio := cpu(fastest) / figure(s.of(own, "readmissing", state), result.CPU)
			cell := fmt.Sprintf("%.1f×", ratio)
			if level(s.of(own, "readmissing", state), s.of(fastest, "readmissing", state), result.CPU) {
				cell = "level"
			}
			t.Rows[i] = append(t.Rows[i], cell)
		}
		if labels[0] != labels[1] {
			labels[0] = name
		}
		t.Header = append(t.Header, labels[0])
	}
	if len(t.Header) == 2 {
		t.Rows = nil // nothing to compare
	}
	return t
}

func (s source) present() *Table {
	t := &Table{
		Name:   "present",
		Title:  fmt.Sprintf("Lookups of present keys, %s keys", thousands(float64(s.num()))),
		Header: []string{"store", "quiesced: ops/s", "CPU µs", "p99 µs", "compacted: ops/s", "CPU µs", "p99 µs", "allocations"},
	}
	for _, who := range s.readers("readrandom", result.CPU, compacted, quiesced) {
		cells := []string{label(result.Key{Store: who.store, Mode: who.mode})}
		for _, state := range []string{quiesced, compacted} {
			r := s.of(who, "readrandom", state)
			cells = append(cells, kilo(figure(r, result.OpsPerSec)), Figure(figure(r, result.CPU)), Figure(figure(r, result.P99)/1000))
		}
		r := s.of(who, "readrandom", quiesced)
		t.Rows = append(t.Rows, append(cells, Figure(figure(r, result.Allocs))))
	}
	return t
}

func (s source) scans() *Table {
	t := &Table{
		Name:   "scans",
		Title:  "Iterators: seek and read ten more entries; full scans",
		Header: []string{"store", "seek, quiesced: CPU µs", "compacted: CPU µs", "scan, compacted: M entries/s", "backward", "scan, quiesced"},
	}
	for _, who := range s.readers("seekrandom", result.CPU, compacted, quiesced) {
		scan := func(benchmark, state string) string {
			return Figure(figure(s.of(who, benchmark, state), result.EntriesPerS) / 1e6)
		}
		t.Rows = append(t.Rows, []string{
			label(result.Key{Store: who.store}),
			Figure(figure(s.of(who, "seekrandom", quiesced), result.CPU)),
			Figure(figure(s.of(who, "seekrandom", compacted), result.CPU)),
			scan("readseq", compacted), scan("readreverse", compacted), scan("readseq", quiesced),
		})
	}
	return t
}

func (s source) writes() *Table {
	t := &Table{
		Name:   "writes",
		Title:  fmt.Sprintf("Writes, %s keys, each once (fillsync: 1,000 keys; sustained: each five times)", thousands(float64(s.num()))),
		Header: []string{"store", "fillrandom: ops/s", "until quiesced: ops/s", "CPU µs", "p99.9 µs", "write amplification", "bytes/key on disk", "fillseq: ops/s", "CPU µs", "overwrite: ops/s", "fillsync: ops/s"},
	}
	sustained := len(s.f.Select(func(r *result.Row) bool { return r.Section == "stores" && r.Benchmark == "sustained" })) > 0
	if sustained {
		t.Header = append(t.Header, "sustained: ops/s", "p99.9 µs", "p99.99 µs", "longest ms")
	}
	for _, who := range s.readers("fillrandom", result.OpsPerSec, "") {
		random, seq := s.of(who, "fillrandom", ""), s.of(who, "fillseq", "")
		row := func(benchmark string) *result.Row {
			rows := s.f.Select(func(r *result.Row) bool {
				return r.Section == "stores" && r.Store == who.store && r.Benchmark == benchmark
			})
			if len(rows) == 0 {
				return nil
			}
			return rows[0]
		}
		rate := func(benchmark string) string {
			if r := row(benchmark); r != nil {
				return kilo(figure(r, result.OpsPerSec))
			}
			return none
		}
		cells := []string{
			label(result.Key{Store: who.store}),
			kilo(figure(random, result.OpsPerSec)), kilo(figure(random, result.QuiescedPerS)), Figure(figure(random, result.CPU)),
			Figure(figure(random, result.P999) / 1000), Figure(figure(random, result.WriteAmp)), Figure(figure(random, result.Space)),
			kilo(figure(seq, result.OpsPerSec)), Figure(figure(seq, result.CPU)), rate("overwrite"), rate("fillsync"),
		}
		if sustained {
			cells = append(cells, rate("sustained"))
			for _, u := range []struct {
				unit string
				ns   float64
			}{{result.P999, 1e3}, {result.P9999, 1e3}, {result.MaxLatency, 1e6}} {
				cell := none
				if r := row("sustained"); r != nil {
					cell = Figure(figure(r, u.unit) / u.ns)
				}
				cells = append(cells, cell)
			}
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// places compares lookups by the place of the absent keys, by skew, and by the share
// of present keys.
func (s source) places() *Table {
	type column struct{ title, benchmark, state string }
	columns := []column{
		{"quiesced", "readmissing", quiesced}, {"fresh tables on top", "readmissing", "fresh"}, {"compacted", "readmissing", compacted},
		{"outside", "absent-outside", compacted}, {"Zipf", "absent-zipf", compacted}, {"in batches", "multimissing", compacted},
		{"10% present", "absent-mix10", compacted}, {"50%", "absent-mix50", compacted}, {"90%", "absent-mix90", compacted},
		{"deleted", "absent-deleted", "deleted"},
	}
	t := &Table{Name: "places", Title: "Absent keys by place, by skew, and by share of present keys: CPU µs per lookup", Header: []string{"store"}}
	columns = slices.DeleteFunc(columns, func(c column) bool {
		return len(s.readers(c.benchmark, result.CPU, c.state)) == 0
	})
	if len(columns) < 3 {
		return t
	}
	for _, c := range columns {
		t.Header = append(t.Header, c.title)
	}
	for _, who := range s.readers("readmissing", result.CPU, compacted, quiesced) {
		cells := []string{label(result.Key{Store: who.store, Mode: who.mode})}
		more := who.mode == "" // than readmissing, which is in another table
		for _, c := range columns {
			r := s.of(who, c.benchmark, c.state)
			more = more || r != nil && c.benchmark != "readmissing"
			cells = append(cells, Figure(figure(r, result.CPU)))
		}
		if !more {
			continue
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

func (s source) mixed() *Table {
	names := []string{"ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"}
	t := &Table{Name: "ycsb", Title: "YCSB, and reading while another thread writes: operations per second", Header: []string{"store", "A", "B", "C", "D", "E", "F", "read while writing", "p99 µs"}}
	for _, who := range s.readers(names[0], result.OpsPerSec, "") {
		cells := []string{label(result.Key{Store: who.store})}
		for _, name := range names {
			cells = append(cells, kilo(figure(s.of(who, name, ""), result.OpsPerSec)))
		}
		var busy *result.Row
		for _, r := range s.f.Rows {
			if r.Section == "stores" && r.Store == who.store && r.Benchmark == "readwhilewriting" {
				busy = r
			}
		}
		t.Rows = append(t.Rows, append(cells, kilo(figure(busy, result.OpsPerSec)), Figure(figure(busy, result.P99)/1000)))
	}
	for i, name := range names {
		t.Notes = append(t.Notes, string(rune('A'+i))+": "+strings.TrimPrefix(store.Title(name), "YCSB "+string(rune('A'+i))+": ")+".")
	}
	t.Notes = []string{strings.Join(t.Notes, " ")}
	return t
}

func (s source) memory() *Table {
	t := &Table{Name: "memory", Title: "Memory, and the time to open", Header: []string{"store", "open ms", "peak MB, writing", "peak MB, reading", "filter MB"}}
	for _, who := range s.readers("readrandom", result.Peak, compacted, quiesced) {
		if who.mode != "" {
			continue
		}
		var open *result.Row
		for _, r := range s.f.Rows {
			if r.Section == "stores" && r.Store == who.store && r.Benchmark == "open" {
				open = r
			}
		}
		state := compacted
		if s.of(who, "readrandom", state) == nil {
			state = quiesced
		}
		t.Rows = append(t.Rows, []string{
			label(result.Key{Store: who.store}), Figure(figure(open, result.OpenTime)),
			Figure(figure(s.of(who, "fillrandom", ""), result.Peak)),
			Figure(figure(s.of(who, "readrandom", state), result.Peak)),
			Figure(figure(s.of(who, "readmissing", state), result.FilterBytes) / 1e6),
		})
	}
	return t
}

func (s source) growth() *Table {
	t := &Table{Name: "growth", Title: "Growing stores: CPU µs per lookup of an absent key", Header: []string{"store"}}
	rows := s.f.Select(func(r *result.Row) bool { return r.Section == "growth" && r.Benchmark == "readmissing" })
	var sizes []int
	var whos []reader
	for _, r := range rows {
		if !slices.Contains(sizes, r.Num) {
			sizes = append(sizes, r.Num)
		}
		if who := (reader{r.Store, r.Mode}); !slices.Contains(whos, who) {
			whos = append(whos, who)
		}
	}
	slices.Sort(sizes)
	for _, n := range sizes {
		t.Header = append(t.Header, thousands(float64(n))+" keys")
	}
	for _, who := range whos {
		cells := []string{label(result.Key{Store: who.store, Mode: who.mode})}
		for _, n := range sizes {
			cells = append(cells, Figure(figure(s.row(result.Key{Section: "growth", Store: who.store, Mode: who.mode, Benchmark: "readmissing", State: quiesced, Num: n}), result.CPU)))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// levels shows the probes and false positives of sift's filters on each level.
func (s source) levels() *Table {
	t := &Table{
		Name:   "levels",
		Title:  "Filter probes per level, per 1,000 lookups of absent keys",
		Header: []string{"store", "state", "level", "tables", "MB", "filter KB", "probes", "negatives", "false positives", "expected FPR", "observed FPR"},
	}
	for _, r := range s.f.Rows {
		if r.Section != "stores" || r.Benchmark != "readmissing" {
			continue
		}
		for _, l := range r.Levels {
			t.Rows = append(t.Rows, levelCells(r, l, figure(r, result.Probes), r.Levels))
		}
	}
	return t
}

func levelCells(r *result.Row, l engine.LevelFilter, probes float64, all []engine.LevelFilter) []string {
	// The counters are those of the last round; the number of lookups follows from
	// the probes of all levels.
	var sum uint64
	for _, x := range all {
		sum += x.Probes
	}
	lookups := float64(sum) / probes
	observed := math.NaN()
	if n := l.Useful + l.FalsePositive; n > 0 {
		observed = float64(l.FalsePositive) / float64(n)
	}
	per := func(n uint64) string { return Figure(1000 * float64(n) / lookups) }
	return []string{
		label(r.Key), r.State, fmt.Sprint(l.Level), fmt.Sprint(l.Tables), Figure(float64(l.Bytes) / 1e6), Figure(float64(l.FilterBytes) / 1e3),
		per(l.Probes), per(l.Useful), per(l.FalsePositive), percent(l.ExpectedFPR), percent(observed),
	}
}

// filterRows returns the rows of filters alone for one kind of keys, and their
// numbers of keys, ascending.
func (s source) filterRows(kind string) (rows []*result.Row, sizes []int) {
	rows = s.f.Select(func(r *result.Row) bool { return r.Section == alone.Section && r.State == kind })
	for _, r := range rows {
		if !slices.Contains(sizes, r.Num) {
			sizes = append(sizes, r.Num)
		}
	}
	slices.Sort(sizes)
	return rows, sizes
}

// filters shows the size, the false positive rate and the build time of filters for
// one kind of keys.
func (s source) filters(kind string) *Table {
	t := &Table{Name: "filters", Title: "Filters alone: size, false positive rate and building"}
	if kind != data.Random {
		t.Name, t.Title = "filters-"+kind, t.Title+", "+kind+" keys"
	}
	rows, sizes := s.filterRows(kind)
	if len(sizes) == 0 {
		return t
	}
	columns := []struct {
		title string
		cell  func(r *result.Row) string
	}{
		{"bits/key, false positives", func(r *result.Row) string {
			return Figure(figure(r, result.BitsPerKey)) + ", " + percent(figure(r, result.FPR))
		}},
		{"× limit", func(r *result.Row) string {
			if v := figure(r, result.OverLimit); !math.IsNaN(v) {
				return fmt.Sprintf("%.3f", v)
			}
			return none
		}},
		{"build ns/key", func(r *result.Row) string { return Figure(figure(r, result.Build)) }},
	}
	t.Header = []string{"filter"}
	for _, c := range columns {
		for _, n := range sizes {
			t.Header = append(t.Header, thousands(float64(n))+" keys: "+c.title)
		}
	}
	for _, r := range rows {
		if r.Num != sizes[len(sizes)-1] || math.IsNaN(figure(r, result.FPR)) {
			continue
		}
		cells := []string{r.Store}
		for _, c := range columns {
			for _, n := range sizes {
				k := r.Key
				k.Num = n
				cells = append(cells, c.cell(s.row(k)))
			}
		}
		t.Rows = append(t.Rows, cells)
	}
	t.Notes = []string{"× limit is bits per key over log2(1/rate): no filter can go below 1.000."}
	return t
}

// probes shows the time of a filter probe for one kind of keys.
func (s source) probes(kind string) *Table {
	t := &Table{Name: "probes", Title: "Filters alone: a probe, ns, hashing included", Header: []string{"filter"}}
	if kind != data.Random {
		t.Name, t.Title = "probes-"+kind, t.Title+", "+kind+" keys"
	}
	rows, sizes := s.filterRows(kind)
	type column struct {
		n    int
		unit string
	}
	var columns []column
	for _, n := range sizes {
		named := false
		for _, c := range []struct{ unit, group, title string }{
			{result.HotAbsent, "in cache", "absent"}, {result.HotPresent, "in cache", "present"}, {result.HotBatch, "in cache", "batch"},
			{result.ColdAbsent, "out of cache", "absent"}, {result.ColdPresent, "out of cache", "present"},
			{result.ColdIsolated, "out of cache", "one at a time"}, {result.ColdBatch, "out of cache", "batch"},
			{result.BigAbsent, "out of cache", "absent"}, {result.BigBatch, "out of cache", "batch"},
		} {
			has := func(r *result.Row) bool { return r.Num == n && r.Of(c.unit).N > 0 }
			if !slices.ContainsFunc(rows, has) {
				continue
			}
			columns = append(columns, column{n, c.unit})
			if !named {
				c.group, named = thousands(float64(n))+" keys, "+c.group, true
			}
			t.Header = append(t.Header, c.group+": "+c.title)
		}
	}
	if len(columns) == 0 {
		return &Table{Name: t.Name, Title: t.Title}
	}
	for _, r := range rows {
		if r.Num != columns[0].n {
			continue
		}
		cells := []string{r.Store}
		for _, c := range columns {
			k := r.Key
			k.Num = c.n
			cells = append(cells, Figure(figure(s.row(k), c.unit)))
		}
		t.Rows = append(t.Rows, cells)
	}
	for _, r := range s.f.Rows {
		if r.Section == alone.FloorSection {
			t.Notes = append(t.Notes, fmt.Sprintf("A random cache line of memory takes %s ns on this machine if each address depends on the previous line, %s ns if the CPU can overlap the accesses.",
				Figure(figure(r, result.Dependent)), Figure(figure(r, result.Independent))))
		}
	}
	return t
}

// plan shows the wasted reads of each way to divide filter memory.
func (s source) plan() *Table {
	t := &Table{Name: "plan", Title: "Filter memory by plan, simulated: wasted reads per 1,000 lookups of absent keys", Header: []string{"traffic", "bits/key"}}
	type place struct{ kind, state string }
	var places []place
	var whos []string
	for _, r := range s.f.Rows {
		if r.Section != budget.Section {
			continue
		}
		if p := (place{r.Benchmark, r.State}); !slices.Contains(places, p) {
			places = append(places, p)
		}
		if !slices.Contains(whos, r.Store) {
			whos = append(whos, r.Store)
		}
		t.Title = fmt.Sprintf("Filter memory by plan, simulated, %s keys: wasted reads per 1,000 lookups of absent keys", thousands(float64(r.Num)))
	}
	t.Header = append(t.Header, whos...)
	shown := []float64{1, 2, 3, 5, 8, 10}
	for _, p := range places {
		var bits float64
		if _, err := fmt.Sscanf(p.state, "%g", &bits); err != nil || !slices.Contains(shown, bits) {
			continue
		}
		cells := []string{p.kind, Figure(bits)}
		for _, who := range whos {
			v := math.NaN()
			for _, r := range s.f.Rows {
				if r.Section == budget.Section && r.Benchmark == p.kind && r.State == p.state && r.Store == who {
					v = figure(r, result.BlockReads)
				}
			}
			cells = append(cells, Figure(v))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}
