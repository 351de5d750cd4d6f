package report

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/siftdb/sift/bench/result"
)

// Heading returns the first lines of every output: command, machine, versions,
// terms and warnings.
func Heading(m *result.Meta) []string {
	var versions []string
	for _, v := range m.Versions {
		if v.Text != "" {
			versions = append(versions, v.Name+" "+v.Text)
		}
	}
	machine := fmt.Sprintf("%s, %d cores", m.Machine.CPU, m.Machine.Cores)
	if m.Machine.CacheBytes > 0 {
		machine += fmt.Sprintf(", %d MB of cache", (m.Machine.CacheBytes+1<<19)>>20)
	}
	if m.Machine.MemoryBytes > 0 {
		machine += fmt.Sprintf(", %d GB", (m.Machine.MemoryBytes+1<<29)>>30)
	}
	lines := []string{
		"command: " + m.Command,
		"when: " + m.When + ", took " + m.Took,
		"machine: " + machine,
		"system: " + strings.Join(nonEmpty(m.Machine.System, m.Machine.Arch, m.Machine.FileSystem, m.Machine.Go), ", "),
		"commit: " + m.Commit,
		"versions: " + strings.Join(versions, ", "),
	}
	for _, t := range m.Terms {
		lines = append(lines, "terms: "+t)
	}
	for _, d := range m.Deviations {
		lines = append(lines, "terms of "+d.Name+": "+d.Text)
	}
	for _, s := range m.Skipped {
		lines = append(lines, "skipped: "+s)
	}
	for _, w := range m.Warnings {
		lines = append(lines, "warning: "+w)
	}
	return lines
}

func nonEmpty(list ...string) []string {
	kept := list[:0]
	for _, s := range list {
		if s != "" {
			kept = append(kept, s)
		}
	}
	return kept
}

// WriteBenchstat writes Go's benchmark format
// (https://go.dev/design/14313-benchmark-format), which benchstat reads, with a
// line per row and round.
func WriteBenchstat(w io.Writer, f *result.File) error {
	b := bufio.NewWriter(w)
	m := &f.Meta
	fmt.Fprintf(b, "goos: %s\ngoarch: %s\npkg: github.com/siftdb/sift/bench\ncpu: %s\n",
		strings.Split(m.Machine.Arch, "/")[0], m.Machine.Arch[strings.IndexByte(m.Machine.Arch, '/')+1:], m.Machine.CPU)
	fmt.Fprintf(b, "commit: %s\ncommand: %s\n", m.Commit, m.Command)
	for _, u := range f.Units() {
		switch better := result.UnitOf(u).Better; {
		case better > 0:
			fmt.Fprintf(b, "Unit %s better=higher\n", u)
		case better < 0:
			fmt.Fprintf(b, "Unit %s better=lower\n", u)
		}
	}
	units := f.Units()
	for _, r := range f.Rows {
		rounds := 0
		for _, v := range r.Values {
			rounds = max(rounds, len(v))
		}
		for round := range rounds {
			fmt.Fprintf(b, "Benchmark%s\t1", benchName(r.Key))
			for _, u := range units {
				if v := r.Values[u]; round < len(v) {
					fmt.Fprintf(b, "\t%s %s", strconv.FormatFloat(v[round], 'g', -1, 64), u)
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.Flush()
}

// benchName returns a benchmark name of key=value parts that benchstat can group
// by.
func benchName(k result.Key) string {
	clean := func(s string) string {
		return strings.NewReplacer(" ", "_", "/", "-", "=", "-").Replace(s)
	}
	name := strings.ToUpper(k.Section[:1]) + k.Section[1:] + "/bench=" + clean(k.Benchmark)
	if k.State != "" {
		name += "/state=" + clean(k.State)
	}
	name += "/store=" + clean(k.Store)
	if k.Mode != "" {
		name += "/mode=" + clean(k.Mode)
	}
	return fmt.Sprintf("%s/num=%d", name, k.Num)
}

// WriteCSV writes a line for each row and unit with median, minimum and maximum.
func WriteCSV(w io.Writer, f *result.File) error {
	c := csv.NewWriter(w)
	for _, line := range Heading(&f.Meta) {
		c.Write([]string{"# " + line})
	}
	c.Write([]string{"section", "store", "mode", "benchmark", "state", "num", "unit", "median", "min", "max", "rounds"})
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for _, r := range f.Rows {
		for _, u := range f.Units() {
			if s := r.Of(u); s.N > 0 {
				c.Write([]string{r.Section, r.Store, r.Mode, r.Benchmark, r.State, strconv.Itoa(r.Num), u,
					number(s.Median), number(s.Min), number(s.Max), strconv.Itoa(s.N)})
			}
		}
	}
	c.Flush()
	return c.Error()
}

// WriteText writes the heading and all tables for a terminal.
func WriteText(w io.Writer, f *result.File) error {
	b := bufio.NewWriter(w)
	for _, line := range Heading(&f.Meta) {
		b.WriteString(line + "\n")
	}
	for _, t := range Tables(f) {
		b.WriteString(t.Text())
	}
	return b.Flush()
}

// Histogram returns the distribution of a row's latencies as db_bench prints it,
// or "" if there are none.
func Histogram(r *result.Row) string {
	var total, seen int64
	for _, b := range r.Bars {
		total += b.Count
	}
	if total == 0 {
		return ""
	}
	name := r.Benchmark
	if r.State != "" {
		name += "/" + r.State
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s %s, nanoseconds per operation, count: %d\n", label(r.Key), name, total)
	for _, bar := range r.Bars {
		seen += bar.Count
		share := float64(bar.Count) / float64(total)
		fmt.Fprintf(&b, "[ %9d, %9d ) %8d %8.3f%% %8.3f%% %s\n", bar.From, bar.To, bar.Count,
			100*share, 100*float64(seen)/float64(total), strings.Repeat("#", int(20*share+0.5)))
	}
	return b.String()
}
