// Package result holds the results of a benchmark run: the file format, summaries, and
// the comparison of two results.
package result

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/siftdb/sift/bench/engine"
	"github.com/siftdb/sift/bench/measure"
)

// schema is the version of the file format.
const schema = 1

// File is the result of one run.
type File struct {
	Schema int    `json:"schema"`
	Meta   Meta   `json:"meta"`
	Rows   []*Row `json:"rows"`

	index map[Key]*Row
}

// Meta describes the origin of the figures.
type Meta struct {
	When     string          `json:"when"`
	Took     string          `json:"took"`
	Command  string          `json:"command"`
	Commit   string          `json:"commit"`
	Machine  measure.Machine `json:"machine"`
	Versions []Named         `json:"versions"`
	// Terms are the terms common to all stores; Deviations say in which respects a
	// store differs.
	Terms      []string `json:"terms"`
	Deviations []Named  `json:"deviations"`
	Skipped    []string `json:"skipped,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
}

// Named is a text with the name of its subject.
type Named struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Key identifies a measurement.
type Key struct {
	// Section is the part of the run: stores, sweep, growth, or a Section constant of
	// alone or budget.
	Section string `json:"section"`
	// Store is an engine with its filter, or a filter alone.
	Store string `json:"store"`
	// Mode is the lookup mode, "" for the usual one.
	Mode string `json:"mode,omitempty"`
	// Benchmark is the workload.
	Benchmark string `json:"benchmark"`
	// State is the state of the store (quiesced, compacted, ...), the kind of keys, or
	// the filter memory.
	State string `json:"state,omitempty"`
	// Num is the number of keys stored.
	Num int `json:"num"`
}

// Name returns the store with its mode.
func (k Key) Name() string {
	if k.Mode == "" {
		return k.Store
	}
	return k.Store + " " + k.Mode
}

// Row holds the values measured for a Key: one per unit and round.
type Row struct {
	Key
	Values map[string][]float64 `json:"values"`
	// Bars is the distribution of latencies over all rounds.
	Bars []measure.Bar `json:"bars,omitempty"`
	// Levels describes the filters of each level in the last round.
	Levels []engine.LevelFilter `json:"levels,omitempty"`
}

// New returns an empty File.
func New(meta Meta) *File { return &File{Schema: schema, Meta: meta} }

// Row returns the row of a key, and adds one if there is none.
func (f *File) Row(k Key) *Row {
	if f.index == nil {
		f.index = make(map[Key]*Row, len(f.Rows))
		for _, r := range f.Rows {
			f.index[r.Key] = r
		}
	}
	r := f.index[k]
	if r == nil {
		r = &Row{Key: k, Values: map[string][]float64{}}
		f.index[k] = r
		f.Rows = append(f.Rows, r)
	}
	return r
}

// Merge adds the rows of before that f does not have, and their origin to Meta.
func (f *File) Merge(before *File) {
	taken := false
	rows := make([]*Row, 0, len(before.Rows)+len(f.Rows))
	own := make(map[Key]bool, len(f.Rows))
	for _, r := range f.Rows {
		own[r.Key] = true
	}
	for _, r := range before.Rows {
		if !own[r.Key] {
			rows = append(rows, r)
			taken = true
		}
	}
	if !taken {
		return
	}
	f.Rows, f.index = append(rows, f.Rows...), nil
	m, old := &f.Meta, &before.Meta
	if !slices.Contains(strings.Split(old.Command, CommandSeparator), m.Command) {
		m.Command = old.Command + CommandSeparator + m.Command
	} else {
		m.Command = old.Command
	}
	m.Took = sumOf(old.Took, m.Took)
	if old.When != m.When {
		m.When = old.When + ", " + m.When
	}
	if !slices.Contains(strings.Split(old.Commit, ", "), m.Commit) {
		m.Commit = old.Commit + ", " + m.Commit
	} else {
		m.Commit = old.Commit
	}
	m.Versions = union(old.Versions, m.Versions, func(n Named) string { return n.Name })
	m.Deviations = union(old.Deviations, m.Deviations, func(n Named) string { return n.Name })
	same := func(s string) string { return s }
	m.Terms = union(old.Terms, m.Terms, same)
	m.Warnings = union(old.Warnings, m.Warnings, same)
	m.Skipped = slices.DeleteFunc(union(old.Skipped, m.Skipped, same), func(s string) bool {
		// Nothing is skipped that either run has measured.
		name, _, _ := strings.Cut(s, ":")
		return slices.ContainsFunc(m.Versions, func(n Named) bool { return n.Name == name })
	})
}

// CommandSeparator separates the commands of merged runs in Meta.Command.
const CommandSeparator = "; "

// sumOf adds two durations; if one cannot be parsed, it lists both.
func sumOf(a, b string) string {
	x, errX := time.ParseDuration(a)
	y, errY := time.ParseDuration(b)
	if errX != nil || errY != nil {
		return a + ", " + b
	}
	return (x + y).String()
}

// union returns the elements of old whose names are not in new, followed by new.
func union[T any](old, new []T, name func(T) string) []T {
	var kept []T
	for _, o := range old {
		if !slices.ContainsFunc(new, func(n T) bool { return name(n) == name(o) }) {
			kept = append(kept, o)
		}
	}
	return append(kept, new...)
}

// Select returns the rows for which keep is true.
func (f *File) Select(keep func(*Row) bool) []*Row {
	var rows []*Row
	for _, r := range f.Rows {
		if keep(r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// Add adds a value, rounded to five significant digits. NaN and infinities are
// ignored.
func (r *Row) Add(unit string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	r.Values[unit] = append(r.Values[unit], v)
}

// AddBars adds a round's latencies.
func (r *Row) AddBars(bars []measure.Bar) {
	for _, b := range bars {
		i, found := slices.BinarySearchFunc(r.Bars, b, func(x, y measure.Bar) int { return int(x.From - y.From) })
		if found {
			r.Bars[i].Count += b.Count
		} else {
			r.Bars = slices.Insert(r.Bars, i, b)
		}
	}
}

// Summary is the median of some values and their spread.
type Summary struct {
	Median, Min, Max float64
	N                int
}

// Of summarizes a unit; N is 0 if it was not measured.
func (r *Row) Of(unit string) Summary {
	v := r.Values[unit]
	if len(v) == 0 {
		return Summary{Median: math.NaN(), Min: math.NaN(), Max: math.NaN()}
	}
	return Summary{Median: measure.Median(v), Min: slices.Min(v), Max: slices.Max(v), N: len(v)}
}

// BusyShare is the share of the machine's CPU time that other processes may use before a
// measurement is in doubt.
const BusyShare = 0.05

// Busy returns the number of measurements during which other processes used more than BusyShare,
// and the number of those for which this is known.
func (f *File) Busy() (busy, all int) {
	for _, r := range f.Rows {
		for _, share := range r.Values[Others] {
			all++
			if share > BusyShare {
				busy++
			}
		}
	}
	return busy, all
}

// Units returns the units that any row has, in the order of the variable Units.
func (f *File) Units() []string {
	have := map[string]bool{}
	for _, r := range f.Rows {
		for u := range r.Values {
			have[u] = true
		}
	}
	var units []string
	for _, u := range Units {
		if have[u.Name] {
			units = append(units, u.Name)
		}
	}
	return units
}

// Write writes the file as JSON with one row per line, so that diffs are readable.
func (f *File) Write(path string) error {
	meta, err := json.MarshalIndent(f.Meta, " ", " ")
	if err != nil {
		return err
	}
	out := fmt.Appendf(nil, "{\n \"schema\": %d,\n \"meta\": %s,\n \"rows\": [", f.Schema, meta)
	for i, r := range f.Rows {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, "\n  "...), line...)
	}
	return os.WriteFile(path, append(out, "\n ]\n}\n"...), 0o644)
}

// Read reads a file written by Write.
func Read(path string) (*File, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &File{}
	if err := json.Unmarshal(content, f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Schema != schema {
		return nil, fmt.Errorf("%s: schema %d, but this program reads schema %d", path, f.Schema, schema)
	}
	return f, nil
}
