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
	{"readmissing", "", result.CPU, reader{store: "rocksdb-mmap"}, 3},
	{"readmissing", "", result.CPU, reader{store: "pebble", mode: "prefix"}, 4},
	{"readmissing", "", result.CPU, reader{store: "pebble"}, 25},
	{"readmissing", "", result.CPU, reader{store: "goleveldb"}, 10},
	{"readmissing", quiesced, result.BlockReads, reader{}, 2},
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
	mine := figure(own, g.unit)
	cells := []string{titleOf(own), measureTitles[g.unit], none, "at most " + Figure(g.limit), Figure(mine)}
	reached, met, unclear := mine, mine <= g.limit, false
	if g.other.store != "" {
		k := own.Key
		k.Store, k.Mode = g.other.store, g.other.mode
		other := s.row(k)
		reached = timesAsGood(mine, figure(other, g.unit), g.unit)
		met = reached >= g.limit
		cells[2], cells[3], cells[4] = label(k), Figure(g.limit)+"×", Figure(reached)+"×"
		if level(own, other, g.unit) {
			cells[4] += ", level"
			met = met || g.limit <= 1
		} else if other != nil {
			low, high := extremes(own.Of(g.unit), other.Of(g.unit), g.unit)
			unclear = (low >= g.limit) != (high >= g.limit)
		}
	}
	if math.IsNaN(reached) {
		return nil
	}
	if !met {
		cells[4] += ", missed"
	}
	if unclear {
		cells[4] += " (the passes differ)"
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

// level reports whether two stores are level: they differ by no more than ahead, or by less than
// the passes do.
func level(own, other *result.Row, unit string) bool {
	ratio := timesAsGood(figure(own, unit), figure(other, unit), unit)
	if math.IsNaN(ratio) {
		return false
	}
	low, high := extremes(own.Of(unit), other.Of(unit), unit)
	return math.Abs(ratio-1) <= ahead || low < 1 && high > 1
}

// extremes returns how many times as good own is as other, if the passes differ as much as
// possible.
func extremes(own, other result.Summary, unit string) (low, high float64) {
	return timesAsGood(worstPass(own, unit), bestPass(other, unit), unit), timesAsGood(bestPass(own, unit), worstPass(other, unit), unit)
}

func bestPass(s result.Summary, unit string) float64 {
	if result.UnitOf(unit).Better > 0 {
		return s.Max
	}
	return s.Min
}

func worstPass(s result.Summary, unit string) float64 { return s.Max + s.Min - bestPass(s, unit) }
