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
	"github.com/siftdb/sift/bench/measure"
	"github.com/siftdb/sift/bench/memory"
	"github.com/siftdb/sift/bench/result"
)

// Plot is a line or bar chart, for the page and for an SVG file.
type Plot struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Note  string `json:"note,omitempty"`
	X     string `json:"x"`
	Y     string `json:"y"`
	XLog  bool   `json:"xlog,omitempty"`
	YLog  bool   `json:"ylog,omitempty"`
	// Bars are the names of the bars from top to bottom in a bar chart; each series
	// then has a point per bar.
	Bars   []string `json:"bars,omitempty"`
	Series []Series `json:"series"`
}

// Series is a line, or the bars of one color.
type Series struct {
	Name   string  `json:"name"`
	Color  string  `json:"color"`
	Dashed bool    `json:"dashed,omitempty"`
	Plain  bool    `json:"plain,omitempty"` // a line without markers
	Points []Point `json:"points"`
}

// Point is a value with its spread. Bar charts ignore X.
type Point struct {
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	Text string  `json:"text,omitempty"`
}

// Plots returns the plots for which a file has figures.
func Plots(f *result.File) []*Plot {
	s := source{f}
	all := []*Plot{
		s.fprPlot(), s.wastePlot(), s.costPlot(), s.ratePlot(), s.growthPlot(), s.latencyPlot("readmissing", "absent"), s.latencyPlot("readrandom", "present"),
		s.writePlot(), s.probePlot(), s.probeSizePlot(),
	}
	for _, kind := range budget.Traffics() {
		all = append(all, s.planPlot(kind))
	}
	var plots []*Plot
	for _, p := range all {
		if len(p.Series) > 0 && (len(p.Bars) > 0 || len(p.Series[0].Points) > 0) {
			plots = append(plots, p)
		}
	}
	return plots
}

// palette gives each library its color in all plots.
var palette = map[string]string{
	"sift": "#c2185b", "pebble": "#1976d2", "goleveldb": "#ef6c00", "leveldb": "#8d6e63", "rocksdb": "#6a1b9a",
	"badger": "#546e7a", "bbolt": "#2e7d32", "xorfilter": "#00838f", "bits-and-blooms": "#9e9d24", "holiman": "#00695c", "seiflotfy": "#455a64",
}

// shades distinguish the variants of a library.
var shades = []float64{0, 0.35, 0.6, -0.35, 0.2, 0.5, -0.2}

// colors assigns a color to each name: that of its library, in a new shade for each
// variant.
type colors struct{ used map[string]int }

func newColors() *colors { return &colors{map[string]int{}} }

func (c *colors) of(name string) string {
	library := name
	if i := strings.IndexAny(name, ":,/ "); i >= 0 {
		library = name[:i]
	}
	base, ok := palette[library]
	if !ok {
		return "#777777"
	}
	n := c.used[library]
	c.used[library]++
	return shade(base, shades[n%len(shades)])
}

// shade mixes a color with white, or with black if share is negative.
func shade(color string, share float64) string {
	var rgb [3]int
	fmt.Sscanf(color, "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2])
	to := 255.0
	if share < 0 {
		to, share = 0, -share
	}
	for i, v := range rgb {
		rgb[i] = int(float64(v) + (to-float64(v))*share)
	}
	return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2])
}

func point(x float64, s result.Summary) Point {
	return Point{X: x, Y: s.Median, Low: s.Min, High: s.Max}
}

// lines collects the points of lines by name, in order of first use.
type lines struct {
	colors *colors
	series []Series
}

func (l *lines) add(name string, p Point) {
	if math.IsNaN(p.Y) || math.IsNaN(p.X) {
		return
	}
	i := slices.IndexFunc(l.series, func(s Series) bool { return s.Name == name })
	if i < 0 {
		l.series = append(l.series, Series{Name: name, Color: l.colors.of(name)})
		i = len(l.series) - 1
	}
	l.series[i].Points = append(l.series[i].Points, p)
}

func (l *lines) sorted() []Series {
	for _, s := range l.series {
		slices.SortStableFunc(s.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	}
	return l.series
}

func (s source) fprPlot() *Plot {
	p := &Plot{
		Name: "fpr", Title: "False positive rate over bits per key", X: "bits per key", Y: "false positive rate", YLog: true,
		Note: "The dashed line is the lower bound for any filter, log2(1/rate) bits per key.",
	}
	l := &lines{colors: newColors()}
	least, most := math.Inf(1), 0.0
	for _, r := range s.f.Rows {
		if r.Section != alone.CurveSection {
			continue
		}
		bits, rate := figure(r, result.BitsPerKey), figure(r, result.FPR)
		if rate > 0 {
			l.add(r.Benchmark, Point{X: bits, Y: rate, Text: r.Store})
			least, most = min(least, bits), max(most, bits)
		}
		p.Title = fmt.Sprintf("False positive rate over bits per key, %s keys", thousands(float64(r.Num)))
	}
	if p.Series = l.sorted(); len(p.Series) == 0 {
		return p
	}
	limit := Series{Name: "information limit", Color: "#777777", Dashed: true, Plain: true}
	for b := math.Floor(least); b <= math.Ceil(most); b++ {
		limit.Points = append(limit.Points, Point{X: b, Y: math.Pow(2, -b)})
	}
	p.Series = append(p.Series, limit)
	return p
}

func (s source) wastePlot() *Plot {
	p := &Plot{
		Name: "waste", Title: "Wasted reads over filter memory", X: "filter bits per key", Y: "block reads per 1,000 absent lookups", YLog: true,
		Note: "A store without filters is at 0 bits.",
	}
	l := &lines{colors: newColors()}
	for _, r := range s.f.Rows {
		if r.Section != "sweep" || r.Benchmark != "readmissing" {
			continue
		}
		reads := r.Of(result.BlockReads)
		if reads.N == 0 || reads.Median <= 0 {
			continue
		}
		store, filter, _ := strings.Cut(r.Store, ":")
		family, _, _ := strings.Cut(filter, "(")
		if family == "none" {
			family = "bloom"
		}
		q := point(figure(r, result.FilterBytes)*8/float64(r.Num), reads)
		q.Text = label(r.Key)
		l.add(label(result.Key{Store: store + ":" + family, Mode: r.Mode}), q)
		p.Title = fmt.Sprintf("Wasted reads over filter memory, %s keys, quiesced", thousands(float64(r.Num)))
	}
	p.Series = l.sorted()
	return p
}

// bars adds a unit of some benchmarks to p, with a bar per reader and column.
func (s source) bars(p *Plot, whos []reader, unit string, scale float64, columns []column) *Plot {
	for _, who := range whos {
		p.Bars = append(p.Bars, label(result.Key{Store: who.store, Mode: who.mode}))
	}
	for i, c := range columns {
		series := Series{Name: c.title, Color: []string{"#c2185b", "#1976d2", "#ef6c00", "#2e7d32"}[i%4]}
		some := false
		for _, who := range whos {
			v := Point{Y: math.NaN()}
			if r := s.of(who, c.benchmark, c.state); r != nil {
				v = point(0, r.Of(unit))
			}
			if math.IsNaN(v.Y) {
				v = Point{}
			} else {
				some = true
			}
			v.Y, v.Low, v.High = v.Y*scale, v.Low*scale, v.High*scale
			series.Points = append(series.Points, v)
		}
		if some {
			p.Series = append(p.Series, series)
		}
	}
	return p
}

type column struct{ title, benchmark, state string }

func (s source) costPlot() *Plot {
	p := &Plot{Name: "absent-cpu", Title: fmt.Sprintf("Processor time of a lookup of an absent key, %s keys", thousands(float64(s.num()))), X: "CPU µs, less is better"}
	return s.bars(p, s.readers("readmissing", result.CPU, compacted, quiesced), result.CPU, 1,
		[]column{{quiesced, "readmissing", quiesced}, {compacted, "readmissing", compacted}})
}

func (s source) ratePlot() *Plot {
	p := &Plot{Name: "throughput", Title: fmt.Sprintf("Lookups a second, %s keys, compacted", thousands(float64(s.num()))), X: "thousand operations a second, more is better"}
	return s.bars(p, s.readers("readmissing", result.OpsPerSec, compacted, quiesced), result.OpsPerSec, 1e-3,
		[]column{{"absent keys", "readmissing", compacted}, {"present keys", "readrandom", compacted}})
}

func (s source) writePlot() *Plot {
	p := &Plot{Name: "writes", Title: fmt.Sprintf("Writes a second, %s keys", thousands(float64(s.num()))), X: "thousand operations a second, more is better"}
	return s.bars(p, s.readers("fillrandom", result.OpsPerSec, ""), result.OpsPerSec, 1e-3,
		[]column{{"random order", "fillrandom", ""}, {"in order", "fillseq", ""}, {"overwrite", "overwrite", compacted}})
}

func (s source) growthPlot() *Plot {
	p := &Plot{Name: "growth", Title: "Processor time of a lookup of an absent key as the store grows", X: "keys", Y: "CPU µs", XLog: true, YLog: true, Note: "Random keys, quiesced."}
	l := &lines{colors: newColors()}
	for _, r := range s.f.Rows {
		if r.Section == "growth" && r.Benchmark == "readmissing" {
			l.add(label(r.Key), point(float64(r.Num), r.Of(result.CPU)))
		}
	}
	p.Series = l.sorted()
	return p
}

// MemoryPlots returns, for each workload, a plot of the operations a second over the memory limit.
func MemoryPlots(results []memory.Result) []*Plot {
	var plots []*Plot
	for _, workload := range memory.Workloads {
		p := &Plot{Name: "memory-" + workload, X: "memory limit, MiB", Y: "operations a second", XLog: true, YLog: true}
		l := &lines{colors: newColors()}
		for _, r := range results {
			if r.Workload == workload && !r.Killed {
				p.Title = fmt.Sprintf("Short of memory, %s, %s keys", workload, thousands(float64(r.Keys)))
				l.add(r.Engine, Point{X: float64(r.Limit) / (1 << 20), Y: r.PerSecond()})
			}
		}
		if p.Series = l.sorted(); len(p.Series) > 0 {
			plots = append(plots, p)
		}
	}
	return plots
}

// latencyPlot shows the share of lookups that took longer than a given time.
func (s source) latencyPlot(benchmark, what string) *Plot {
	state := compacted
	p := &Plot{
		Name: "latency-" + what, X: "ns", Y: "share of lookups that took longer", XLog: true, YLog: true,
		Title: fmt.Sprintf("Latency of lookups of %s keys, compacted", what),
	}
	l := &lines{colors: newColors()}
	for _, r := range s.f.Rows {
		if r.Section == "stores" && r.Benchmark == benchmark && r.State == state && r.Mode == "" {
			for _, q := range exceeding(r.Bars) {
				l.add(label(r.Key), q)
			}
		}
	}
	p.Series = l.sorted()
	return p
}

// exceeding returns the share of values above each bound of a histogram, down to
// 0.1%; below that there are too few values.
func exceeding(bars []measure.Bar) []Point {
	var total, seen int64
	for _, b := range bars {
		total += b.Count
	}
	var points []Point
	for _, b := range bars {
		if seen == 0 {
			points = append(points, Point{X: float64(b.From), Y: 1})
		}
		seen += b.Count
		share := float64(total-seen) / float64(total)
		if share < 1e-3 {
			break
		}
		points = append(points, Point{X: float64(b.To), Y: share})
	}
	return points
}

func (s source) probePlot() *Plot {
	p := &Plot{
		Name: "probes", Title: "A probe of a filter for an absent key, hashing included", X: "ns, less is better",
		Note: "In cache: one filter. Out of cache: a random one of many. One at a time: each probe starts after the previous one has returned. Filters without batched probes have no bar for them.",
	}
	units := []struct{ unit, title string }{
		{result.HotAbsent, "in cache"}, {result.ColdAbsent, "out of cache"}, {result.ColdIsolated, "one at a time"}, {result.ColdBatch, "in batches"},
	}
	rows := s.f.Select(func(r *result.Row) bool {
		return r.Section == alone.Section && r.State == data.Random && r.Of(result.HotAbsent).N > 0
	})
	slices.SortStableFunc(rows, func(a, b *result.Row) int {
		return cmp.Compare(figure(a, result.ColdAbsent), figure(b, result.ColdAbsent))
	})
	for _, r := range rows {
		p.Bars = append(p.Bars, r.Store)
	}
	for i, u := range units {
		series := Series{Name: u.title, Color: []string{"#c2185b", "#1976d2", "#ef6c00", "#2e7d32"}[i]}
		for _, r := range rows {
			q := point(0, r.Of(u.unit))
			if math.IsNaN(q.Y) {
				q = Point{}
			}
			series.Points = append(series.Points, q)
		}
		if len(rows) > 0 {
			p.Series = append(p.Series, series)
		}
	}
	return p
}

// probeSizePlot shows how the cost of a probe rises as a filter outgrows the CPU
// caches.
func (s source) probeSizePlot() *Plot {
	p := &Plot{
		Name: "probe-size", Title: "A probe of one filter for an absent key, in a loop, hashing included", X: "keys", Y: "ns", XLog: true, YLog: true,
		Note: "The dashed line is the minimal work of a probe on this machine: hash the key, and read one cache line from a memory area of the size of a filter of 10 bits per key.",
	}
	l := &lines{colors: newColors()}
	rows, _ := s.filterRows(data.Random)
	for _, r := range rows {
		l.add(r.Store, point(float64(r.Num), r.Of(result.Single)))
	}
	p.Series = l.sorted()
	for i := range p.Series {
		if p.Series[i].Name == alone.FloorName {
			p.Series[i].Dashed, p.Series[i].Plain = true, true
		}
	}
	return p
}

// planPlot shows the wasted reads of each way to divide filter memory under one
// kind of traffic.
func (s source) planPlot(kind string) *Plot {
	p := &Plot{
		Name: "plan-" + strings.ReplaceAll(kind, " ", "-"), X: "filter memory, bits per key of the store", Y: "wasted reads per 1,000 absent lookups", YLog: true,
		Note: "Simulated; see the terms. Uniform, Monkey and the optimum from hindsight may use fractions of bits, the plan whole bits per key of a filter.",
	}
	strokes := map[string]Series{
		budget.Uniform: {Color: "#78909c"}, budget.Monkey: {Color: "#1976d2"}, budget.Hindsight: {Color: "#777777", Dashed: true, Plain: true},
	}
	l := &lines{colors: newColors()}
	for _, r := range s.f.Rows {
		if r.Section != budget.Section || r.Benchmark != kind {
			continue
		}
		if wasted := r.Of(result.BlockReads); wasted.Median > 0 {
			l.add(r.Store, point(figure(r, result.FilterBytes)*8/float64(r.Num), wasted))
		}
		p.Title = fmt.Sprintf("Wasted reads over filter memory: %s traffic, %s keys", kind, thousands(float64(r.Num)))
	}
	p.Series = l.sorted()
	ours := newColors()
	for i := range p.Series {
		q := &p.Series[i]
		if stroke, ok := strokes[q.Name]; ok {
			q.Color, q.Dashed, q.Plain = stroke.Color, stroke.Dashed, stroke.Plain
			continue
		}
		if strings.HasPrefix(q.Name, budget.Planned) {
			q.Color = ours.of("sift:" + q.Name)
		} else if i > 0 { // the optimum with whole steps, in the color of the plan before it
			q.Color, q.Dashed, q.Plain = p.Series[i-1].Color, true, true
		}
	}
	return p
}
