package report

import (
	"math"

	"github.com/siftdb/sift/bench/result"
)

// goal is a limit for one measure of a benchmark: sift must be at least limit times as good as
// another store or, if other is empty, its own figure must be at most limit.
type goal struct {
	benchmark, state string // every state if state is empty
	unit             string
	other            reader
	limit            float64
}

var goals = []goal{
	{"readmissing", "", result.CPU, reader{store: "rocksdb"}, 3},
	{"readmissing", "", result.CPU, reader{store: "pebble", mode: "prefix"}, 4},
	{"readmissing", "", result.CPU, reader{store: "pebble"}, 25},
	{"readmissing", "", result.CPU, reader{store: "goleveldb"}, 10},
	{"readmissing", settled, result.BlockReads, reader{}, 2},
	{"readmissing", compacted, result.BlockReads, reader{}, 1.2},
	{"readrandom", "", result.CPU, reader{store: "leveldb"}, 1.3},
	{"seekrandom", "", result.CPU, reader{store: "leveldb"}, 1},
	{"readseq", "", result.CPU, reader{store: "leveldb"}, 1},
	{"readreverse", "", result.CPU, reader{store: "leveldb"}, 1},
	{"fillrandom", "", result.OpsPerSec, reader{store: "pebble"}, 1.2},
	{"fillrandom", "", result.CPU, reader{store: "pebble"}, 1.2},
	{"fillrandom", "", result.WriteAmp, reader{store: "pebble"}, 1},
	{"fillseq", "", result.OpsPerSec, reader{store: "pebble"}, 1.2},
	{"fillseq", "", result.CPU, reader{store: "pebble"}, 1.2},
	{"fillsync", "", result.OpsPerSec, reader{store: "pebble"}, 1.2},
	{"overwrite", "", result.OpsPerSec, reader{store: "pebble"}, 1.2},
	{"overwrite", "", result.WriteAmp, reader{store: "pebble"}, 1},
}

// goals shows which goals were met.
func (s source) goals() *Table {
	t := &Table{
		Name:   "goals",
		Title:  "Goals: how many times as good as another store sift is",
		Header: []string{"benchmark", "measure", "compared with", "goal", "reached"},
	}
	for _, g := range goals {
		for _, own := range s.f.Rows {
			if own.Section != "stores" || own.Store != ours || own.Mode != "" || own.Benchmark != g.benchmark ||
				own.State == "fresh" || g.state != "" && own.State != g.state {
				continue
			}
			if cells := s.reached(g, own); cells != nil {
				t.Rows = append(t.Rows, cells)
			}
		}
	}
	return t
}

// reached returns the table's row for a goal, nil if one of the figures was not measured.
func (s source) reached(g goal, own *result.Row) []string {
	mine := median(own, g.unit)
	cells := []string{titleOf(own), measureTitles[g.unit], none, "at most " + Figure(g.limit), Figure(mine)}
	value, met := mine, mine <= g.limit
	if g.other.store != "" {
		k := own.Key
		k.Store, k.Mode = g.other.store, g.other.mode
		value = timesAsGood(mine, median(s.row(k), g.unit), g.unit)
		met = value >= g.limit
		cells[2], cells[3], cells[4] = label(k), Figure(g.limit)+"×", Figure(value)+"×"
		if math.Abs(value-1) <= ahead {
			cells[4] += ", level"
			met = met || g.limit <= 1
		}
	}
	if math.IsNaN(value) {
		return nil
	}
	if !met {
		cells[4] += ", missed"
	}
	return cells
}

// titleOf returns the name of a row's benchmark, with the state of the stores.
func titleOf(r *result.Row) string {
	if r.State == "" {
		return r.Benchmark
	}
	return r.Benchmark + ", " + r.State
}

// timesAsGood returns how many times as good as theirs mine is.
func timesAsGood(mine, theirs float64, unit string) float64 {
	if result.UnitOf(unit).Better > 0 {
		return mine / theirs
	}
	return theirs / mine
}
