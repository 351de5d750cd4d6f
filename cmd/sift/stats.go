package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/siftdb/sift"
)

type statsCmd struct {
	asJSON
	Tables bool   `help:"Print a line for each table as well."`
	Dir    string `arg:"" help:"The database."`
}

func (statsCmd) Help() string {
	return `Prints for each level the number and size of its tables, their keys and tombstones (a
question mark if a table does not record them), and the size, bits per key and expected false
positive rate of their filters.

Example:

    sift stats db`
}

func (c *statsCmd) Run(e *env) error {
	return e.readOnly(c.Dir, func(db *sift.DB) error {
		tables := db.Tables()
		m := db.Metrics()
		levels := make([]tableSum, len(m.Levels))
		var total tableSum
		for i := range tables {
			levels[tables[i].Level].add(&tables[i])
			total.add(&tables[i])
		}
		if c.JSON {
			return orDamage(c.json(e, &m, tables, levels, &total), tables)
		}
		t := columns{}
		t.add("level", "tables", "size", "keys", "tombstones", "filters", "filter size", "bits/key", "FPR")
		for level := range levels {
			if levels[level].tables > 0 {
				t.add(levels[level].cells(strconv.Itoa(level))...)
			}
		}
		t.add(total.cells("total")...)
		if err := t.write(e.out); err != nil {
			return orDamage(err, tables)
		}
		fmt.Fprintf(e.out, "\nlast sequence number  %s\n", count(m.LastSequence))
		fmt.Fprintf(e.out, "not in tables yet     %s in %s\n", amount(m.Recovery.Batches, "batch"), amount(m.Recovery.Logs, "log"))
		if total.unusable > 0 {
			fmt.Fprintf(e.out, "filters not in use    %s (see sift filter stats)\n", count(total.unusable))
		}
		if total.partial > 0 {
			fmt.Fprintf(e.out, "filters partly in use %s (see sift filter stats)\n", count(total.partial))
		}
		fmt.Fprintf(e.out, "memory when open      %s: filters %s, indexes %s, memtables %s\n",
			size(m.Memory.Total()), size(m.Memory.Filters), size(m.Memory.Indexes), size(m.Memory.Memtables))
		if c.Tables {
			fmt.Fprintln(e.out)
			err := writeTables(e, tables, false)
			return orDamage(err, tables)
		}
		return damage(tables)
	})
}

// orDamage returns err if it is a failure, which a broken pipe is not; otherwise the damage of the
// tables or, if there is none, err.
func orDamage(err error, tables []sift.TableMetrics) error {
	if err != nil && !isBrokenPipe(err) {
		return err
	}
	return cmp.Or(damage(tables), err)
}

// damage returns an error that names tables that cannot be read or whose filter is damaged, nil if
// there are none.
func damage(tables []sift.TableMetrics) error {
	const most = 10
	var errs []error
	onlyFilters := true
	for i := range tables {
		err := tables[i].Err
		if err != nil {
			onlyFilters = false
		} else if errors.Is(tables[i].FilterErr, sift.ErrCorruption) {
			err = tables[i].FilterErr
		}
		switch {
		case err == nil || len(errs) > most:
		case len(errs) == most:
			errs = append(errs, errors.New("and more"))
		default:
			errs = append(errs, err)
		}
	}
	if onlyFilters && len(errs) > 0 {
		return &filterDamage{errors.Join(errs...)}
	}
	return errors.Join(errs...)
}

// filterDamage is damage of filters only: the tables' entries can be read.
type filterDamage struct{ error }

func (d *filterDamage) Unwrap() error { return d.error }

// json prints the statistics as JSON.
func (c *statsCmd) json(e *env, m *sift.Metrics, tables []sift.TableMetrics, levels []tableSum, total *tableSum) error {
	type memory struct {
		Total     uint64 `json:"total"`
		Filters   uint64 `json:"filters"`
		Indexes   uint64 `json:"indexes"`
		Memtables uint64 `json:"memtables"`
	}
	stats := struct {
		Levels           []sumJSON   `json:"levels"`
		Total            sumJSON     `json:"total"`
		Tables           []tableJSON `json:"tables,omitzero"` // with --tables
		LastSequence     uint64      `json:"lastSequence"`
		UnflushedBatches uint64      `json:"unflushedBatches"`
		UnflushedLogs    int         `json:"unflushedLogs"`
		Memory           memory      `json:"memory"` // in bytes, when open
	}{
		Levels: []sumJSON{}, Total: total.json(), LastSequence: m.LastSequence,
		UnflushedBatches: uint64(m.Recovery.Batches), UnflushedLogs: int(m.Recovery.Logs),
		Memory: memory{m.Memory.Total(), m.Memory.Filters, m.Memory.Indexes, m.Memory.Memtables},
	}
	for i := range levels {
		if levels[i].tables > 0 {
			level := levels[i].json()
			level.Level = &i
			stats.Levels = append(stats.Levels, level)
		}
	}
	if c.Tables {
		stats.Tables = []tableJSON{}
		for i := range tables {
			stats.Tables = append(stats.Tables, newTableJSON(&tables[i]))
		}
	}
	return e.writeJSON(stats)
}

// known formats a number, or a question mark if it is unknown.
func known(n uint64, ok bool) string {
	if !ok {
		return "?"
	}
	return count(n)
}

// filterName returns the filter of a table, or why it has none.
func filterName(m *sift.TableMetrics) string {
	switch {
	case m.Err != nil:
		return "unreadable"
	case partlyInUse(m):
		return "partly in use"
	case m.FilterErr != nil:
		return "not in use"
	}
	return m.FilterPolicy
}

// partlyInUse reports whether a part of the table's filter is damaged, so that only the units
// before it are in use.
func partlyInUse(m *sift.TableMetrics) bool { return m.FilterErr != nil && m.FilterBytes > 0 }

// filterUnits writes how many of the table's filter units are in use.
func filterUnits(m *sift.TableMetrics) string {
	if partlyInUse(m) { // FilterUnits counts the intact ones only
		return fmt.Sprintf("%g/?", m.HeldUnits)
	}
	return fmt.Sprintf("%g/%d", m.HeldUnits, m.FilterUnits)
}

// tableSum adds up tables.
type tableSum struct {
	tables, filters               int
	unusable, partial             int // filters not in use, and those partly in use
	bytes, filterBytes            uint64
	keys, deletions, filteredKeys uint64
	unknownKeys, unknownDeletions bool    // a table does not record its number
	unknownFiltered               bool    // a table with a filter does not record its keys
	weightedFPR, weight           float64 // weighted by size
}

func (s *tableSum) add(m *sift.TableMetrics) {
	s.tables++
	s.bytes += m.Size
	s.keys += m.Keys
	s.deletions += m.Deletions
	s.unknownKeys = s.unknownKeys || m.Keys == 0
	s.unknownDeletions = s.unknownDeletions || m.Entries == 0
	switch {
	case partlyInUse(m):
		s.partial++
	case m.FilterErr != nil:
		s.unusable++
	}
	if m.FilterBytes == 0 {
		return
	}
	s.filters++
	s.filterBytes += uint64(m.FilterBytes)
	s.filteredKeys += m.Keys
	s.unknownFiltered = s.unknownFiltered || m.Keys == 0
	s.weightedFPR += m.ExpectedFPR * float64(m.Size)
	s.weight += float64(m.Size)
}

func (s *tableSum) cells(name string) []string {
	fpr := math.NaN()
	if s.weight > 0 {
		fpr = s.weightedFPR / s.weight
	}
	return []string{name, count(s.tables), size(s.bytes),
		known(s.keys, !s.unknownKeys), known(s.deletions, !s.unknownDeletions),
		count(s.filters), size(s.filterBytes), bitsPerKey(s.filterBytes, s.filteredKeys, s.unknownFiltered), rate(fpr)}
}

// bitsPerKey formats the filter bits per key, or a dash if they are unknown.
func bitsPerKey(bytes, keys uint64, unknown bool) string {
	if bytes == 0 || keys == 0 || unknown {
		return "-"
	}
	return strconv.FormatFloat(float64(bytes)*8/float64(keys), 'f', 2, 64)
}
