package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/siftdb/sift/bench/result"
)

// ours is the store whose weaknesses are listed.
const ours = "sift"

// ahead is the minimum lead, as a share: below it, two stores are level. For another store to be
// listed, the two stores' ranges of values must not overlap, either.
const ahead = 0.05

// contest is a measure in which the stores are compared.
type contest struct {
	benchmark string // "" for all benchmarks that are not listed by name
	unit      string
	show      func(float64) string
}

// contests lists the measures that are compared for each benchmark: CPU time for lookups and
// iterators, which one thread runs alone, and operations per second for the rest.
var contests = []contest{
	{"fillrandom", result.OpsPerSec, kilo}, {"fillrandom", result.CPU, Figure}, {"fillrandom", result.WriteAmp, Figure},
	{"fillrandom", result.Space, Figure}, {"fillrandom", result.Peak, Figure},
	{"fillseq", result.OpsPerSec, kilo}, {"fillsync", result.OpsPerSec, kilo}, {"overwrite", result.OpsPerSec, kilo},
	{"deleterandom", result.OpsPerSec, kilo},
	{"open", result.OpenTime, Figure}, {"readwhilewriting", result.OpsPerSec, kilo}, {"readrandom", result.Peak, Figure},
	{"ycsb-a", result.OpsPerSec, kilo}, {"ycsb-b", result.OpsPerSec, kilo}, {"ycsb-c", result.OpsPerSec, kilo},
	{"ycsb-d", result.OpsPerSec, kilo}, {"ycsb-e", result.OpsPerSec, kilo}, {"ycsb-f", result.OpsPerSec, kilo},
	{"", result.CPU, Figure},
}

var measureTitles = map[string]string{
	result.OpsPerSec: "ops/s", result.CPU: "CPU µs", result.WriteAmp: "write amplification", result.Space: "bytes a key on disk",
	result.Peak: "peak MB", result.OpenTime: "ms", result.BlockReads: "block reads / 1,000",
}

// behind lists where another store is ahead of sift with its default filters.
func (s source) behind() *Table {
	t := &Table{
		Name:   "behind",
		Title:  "Where sift is behind",
		Header: []string{"benchmark", "measure", "sift", "ahead of it, by how much"},
	}
	all, lost := 0, 0
	for _, r := range s.f.Rows {
		if r.Benchmark == "compact" || r.Benchmark == "freshen" { // the stores do different amounts of work in these
			continue
		}
		if r.Section != "stores" || r.Store != ours || r.Mode != "" || r.Num != s.num() && r.Benchmark != "fillsync" {
			continue
		}
		named := slices.ContainsFunc(contests, func(c contest) bool { return c.benchmark == r.Benchmark && c.unit != result.Peak })
		for _, c := range contests {
			if c.benchmark != r.Benchmark && (named || c.benchmark != "") {
				continue
			}
			if r.Of(c.unit).N == 0 {
				continue
			}
			all++
			if others := s.aheadOf(r, c.unit); len(others) > 0 {
				lost++
				t.Rows = append(t.Rows, []string{titleOf(r), measureTitles[c.unit], c.show(figure(r, c.unit)), strings.Join(others, "; ")})
			}
		}
	}
	if lost > 0 {
		t.Notes = []string{fmt.Sprintf("In the other %d of %d comparisons no store is ahead by more than %.0f%% and by more than the passes differ.", all-lost, all, 100*ahead)}
	}
	return t
}

// aheadOf names the stores that are better than a row, the best first, with the
// best lookup mode of each.
func (s source) aheadOf(own *result.Row, unit string) []string {
	mine := figure(own, unit)
	best := map[string]float64{} // by engine: how many times as good
	var names []string
	for _, r := range s.f.Rows {
		k := r.Key
		k.Store, k.Mode = own.Store, own.Mode
		name, filter, _ := strings.Cut(r.Store, ":")
		if k != own.Key || name == ours || filter != "" {
			continue
		}
		spread, ownSpread := r.Of(unit), own.Of(unit)
		theirs := figure(r, unit)
		if math.IsNaN(theirs) || theirs <= 0 || mine <= 0 {
			continue
		}
		ratio, apart := timesAsGood(theirs, mine, unit), spread.Max < ownSpread.Min
		if result.UnitOf(unit).Better > 0 {
			apart = spread.Min > ownSpread.Max
		}
		if ratio > 1+ahead && apart {
			if _, seen := best[name]; !seen {
				names = append(names, name)
			}
			best[name] = max(best[name], ratio)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if best[a] > best[b] {
			return -1
		}
		return 1
	})
	for i, name := range names {
		names[i] = name + " " + Figure(best[name]) + "×"
	}
	return names
}
