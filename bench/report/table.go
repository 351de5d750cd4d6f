// Package report shows results: as text, in benchstat's format, as CSV, as an
// HTML page, as SVG plots, and as the tables of docs/benchmarks.md.
package report

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/siftdb/sift/bench/result"
)

// Table is a table of figures.
type Table struct {
	// Name is the table's name in the markers of a document.
	Name   string
	Title  string
	Header []string
	Rows   [][]string
	Notes  []string
}

// Markdown returns the table in Markdown.
func (t *Table) Markdown() string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	line(t.Header)
	rule := make([]string, len(t.Header))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = ":---"
	line(rule)
	for _, r := range t.Rows {
		line(r)
	}
	for _, n := range t.Notes {
		b.WriteString("\n" + n + "\n")
	}
	return b.String()
}

// Text returns the table for a terminal.
func (t *Table) Text() string {
	width := make([]int, len(t.Header))
	for _, r := range append([][]string{t.Header}, t.Rows...) {
		for i, c := range r {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	b.WriteString("\n" + t.Title + "\n")
	for _, r := range append([][]string{t.Header}, t.Rows...) {
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-len([]rune(c)))
			if i == 0 {
				b.WriteString(c + pad)
			} else {
				b.WriteString("  " + pad + c)
			}
		}
		b.WriteByte('\n')
	}
	for _, n := range t.Notes {
		b.WriteString(n + "\n")
	}
	return b.String()
}

// HTML returns the table for a page.
func (t *Table) HTML() string {
	var b strings.Builder
	b.WriteString("<div class=\"wide\"><table><thead><tr>")
	for _, h := range t.Header {
		b.WriteString("<th>" + html.EscapeString(h) + "</th>")
	}
	b.WriteString("</tr></thead><tbody>\n")
	for _, r := range t.Rows {
		b.WriteString("<tr>")
		for i, c := range r {
			tag := "td"
			if i == 0 {
				tag = "th"
			}
			fmt.Fprintf(&b, "<%s>%s</%s>", tag, html.EscapeString(c), tag)
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody></table></div>\n")
	for _, n := range t.Notes {
		b.WriteString("<p class=\"note\">" + html.EscapeString(n) + "</p>\n")
	}
	return b.String()
}

const none = "–"

// Figure formats v with three significant digits, two below 0.1.
func Figure(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return none
	case a == 0:
		return "0"
	case a < 0.0995:
		return fmt.Sprintf("%.2g", v)
	case a < 9.995:
		return fmt.Sprintf("%.2f", v)
	case a < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return thousands(v)
}

// Count formats n with commas between thousands.
func Count(n int64) string { return thousands(float64(n)) }

func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

func percent(v float64) string {
	if math.IsNaN(v) {
		return none
	}
	switch p := 100 * v; {
	case p >= 0.01:
		return Figure(p) + "%"
	case p > 0:
		return fmt.Sprintf("%.2g%%", p)
	}
	return "0%"
}

// kilo formats v in thousands.
func kilo(v float64) string {
	if math.IsNaN(v) {
		return none
	}
	return Figure(v/1000) + "k"
}

// label names a store and its lookup mode.
func label(k result.Key) string {
	name := strings.Replace(k.Store, ":", ", ", 1)
	name = strings.Replace(name, ", none", ", no filter", 1)
	switch k.Mode {
	case "":
		return name
	case "prefix":
		return name + ", SeekPrefixGE"
	case "txn":
		return name + ", one transaction"
	}
	return name + ", " + k.Mode
}

// source finds rows in a result.
type source struct{ f *result.File }

// row returns a row, or nil.
func (s source) row(k result.Key) *result.Row {
	for _, r := range s.f.Rows {
		if r.Key == k {
			return r
		}
	}
	return nil
}

// figure returns the median of a unit, NaN if r is nil. Of a peak of memory it is the maximum:
// memory that malloc keeps from an earlier pass does not raise the peak of a later one.
func figure(r *result.Row, unit string) float64 {
	if r == nil {
		return math.NaN()
	}
	v := r.Of(unit)
	if unit == result.Peak {
		return v.Max
	}
	return v.Median
}

// reader is a store with a lookup mode.
type reader struct{ store, mode string }

// readers returns the readers that ran a benchmark, best first by unit; of the
// given states, the first that has a value counts.
func (s source) readers(benchmark, unit string, states ...string) []reader {
	best := map[reader]float64{}
	for _, r := range s.f.Rows {
		if r.Section != "stores" || r.Benchmark != benchmark {
			continue
		}
		who := reader{r.Store, r.Mode}
		for _, state := range states {
			v := figure(s.row(result.Key{Section: r.Section, Store: r.Store, Mode: r.Mode, Benchmark: benchmark, State: state, Num: r.Num}), unit)
			if !math.IsNaN(v) {
				best[who] = v
				break
			}
		}
	}
	list := make([]reader, 0, len(best))
	for who := range best {
		list = append(list, who)
	}
	better := result.UnitOf(unit).Better
	slices.SortFunc(list, func(a, b reader) int {
		return cmp.Or(-better*cmp.Compare(best[a], best[b]), cmp.Compare(a.store, b.store), cmp.Compare(a.mode, b.mode))
	})
	return list
}

// num returns the number of keys in the stores.
func (s source) num() int {
	n := 0
	for _, r := range s.f.Rows {
		if r.Section == "stores" {
			n = max(n, r.Num)
		}
	}
	return n
}

// of returns the row of a reader for a benchmark in a state, or nil.
func (s source) of(who reader, benchmark, state string) *result.Row {
	return s.row(result.Key{Section: "stores", Store: who.store, Mode: who.mode, Benchmark: benchmark, State: state, Num: s.num()})
}
