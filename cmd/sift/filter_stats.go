package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/siftdb/sift"
)

type filterStatsCmd struct {
	asJSON
	Probes int    `default:"20000" help:"Probe each filter with up to this many keys that its table does not hold (${default})."`
	Seed   uint64 `default:"1" help:"Seed of the random choice of these keys."`
	Dir    string `arg:"" help:"The database."`
}

func (filterStatsCmd) Help() string {
	return `Prints a line for each table: its filter, the filter's size and bits per key, and the
expected and the observed false positive rate (FPR). To observe it, the filter is probed with
absent keys that look like those of the table: near the end of a key, digits become other digits and
letters other letters, or the key is made longer. The last column is how many blocks a lookup of an
absent key reads from the table on average if lookups are spread evenly; without a filter it is 1 for
each table that a lookup reaches.

Example:

    sift filter stats db`
}

func (c *filterStatsCmd) Run(e *env) error {
	if c.Probes < 0 {
		return usage(fmt.Errorf("--probes %d: must not be negative", c.Probes))
	}
	return e.readOnly(c.Dir, func(db *sift.DB) error {
		tables := db.Tables()
		var sum tableSum
		for i := range tables {
			sum.add(&tables[i])
		}
		plan, err := db.PlanFilters(math.MaxInt64)
		if err != nil {
			return err
		}
		if err := countDamage(db, &plan, tables); err != nil {
			return err
		}
		rows, described, all, err := c.probe(e, tables, int64(sum.bytes), plan)
		if err != nil {
			return err
		}
		if c.JSON {
			return orDamage(e.writeJSON(struct {
				Tables      []probedJSON `json:"tables"`
				Total       sumJSON      `json:"total"`
				WastedReads float64      `json:"wastedReads"`
			}{described, sum.json(), plan.WastedReads}), tables)
		}
		if len(tables) > 1 {
			fpr := math.NaN()
			if sum.weight > 0 {
				fpr = sum.weightedFPR / sum.weight
			}
			rows.add("total", "", "", "", size(sum.filterBytes), bitsPerKey(sum.filterBytes, sum.filteredKeys, sum.unknownFiltered),
				rate(fpr), rate(all.fpr()), reads(plan.WastedReads))
		}
		if err := rows.write(e.out); err != nil {
			return orDamage(err, tables)
		}
		if sum.partial == 0 {
			if err := c.lessMemory(e, db, plan); err != nil {
				return err
			}
		}
		for i := range tables {
			for _, err := range []error{tables[i].Err, tables[i].FilterErr} {
				if err != nil {
					fmt.Fprintf(e.out, "%06d: %v\n", tables[i].Num, err)
				}
			}
		}
		return damage(tables)
	})
}

// countDamage corrects the wasted reads of a plan for the tables whose filter is only partly in
// use: the plan expects of it the false positive rate of the whole filter. So it does for those
// with a filter of another engine, which are not planned.
func countDamage(db *sift.DB, plan *sift.FilterPlan, tables []sift.TableMetrics) error {
	none, err := db.PlanFilters(0)
	if err != nil {
		return err
	}
	for i := range plan.Tables {
		m := &tables[i]
		foreign := m.FilterBytes > 0 && m.FilterUnits == 0 // a filter of LevelDB or goleveldb
		if !partlyInUse(m) && !foreign {
			continue
		}
		wasted := none.Tables[i].WastedReads * m.ExpectedFPR
		plan.WastedReads += wasted - plan.Tables[i].WastedReads
		plan.Tables[i].WastedReads = wasted
	}
	return nil
}

// probedJSON is a table, with what probing its filter, if it has one, has shown.
type probedJSON struct {
	tableJSON
	ObservedFPR *float64 `json:"observedFPR"`
	WastedReads *float64 `json:"wastedReads"` // block reads for an absent key, on average
}

// probe probes the filter of each table. It returns a row for each table, as text and for --json,
// and the total of all probes.
func (c *filterStatsCmd) probe(e *env, tables []sift.TableMetrics, bytes int64, plan sift.FilterPlan) (rows *columns, described []probedJSON, all tally, err error) {
	progress := e.progress("probing filters", bytes)
	defer progress.done()
	var done int64
	rows = &columns{left: map[int]bool{2: true}}
	rows.add("level", "table", "filter", "units", "size", "bits/key", "FPR", "observed", "reads/absent")
	described = make([]probedJSON, len(tables))
	for i := range tables {
		m := &tables[i]
		done += int64(m.Size)
		wasted := plan.Tables[i].WastedReads
		row := []string{strconv.Itoa(m.Level), fmt.Sprintf("%06d", m.Num), escaped(filterName(m))}
		j := &described[i]
		j.tableJSON, j.WastedReads = newTableJSON(m), ifNumber(wasted)
		if m.FilterBytes == 0 {
			rows.add(append(row, "-", "-", "-", "-", "-", reads(wasted))...)
			continue
		}
		family, observed, err := probeTable(e.ctx, m.Path, c.Probes, c.Seed)
		if err != nil {
			return nil, nil, tally{}, err
		}
		if m.FilterPolicy == "unknown" { // written by another engine
			row[2], j.Filter = escaped(family), family
		}
		all.add(observed)
		j.ObservedFPR = ifNumber(observed.fpr())
		progress.set(done)
		rows.add(append(row, filterUnits(m), size(m.FilterBytes), bitsPerKey(uint64(m.FilterBytes), m.Keys, m.Keys == 0),
			rate(m.ExpectedFPR), rate(observed.fpr()), reads(wasted))...)
	}
	return rows, described, all, nil
}

// lessMemory prints what the last MiB of filter memory saves.
func (c *filterStatsCmd) lessMemory(e *env, db *sift.DB, all sift.FilterPlan) error {
	if all.Bytes <= 1<<20 {
		return nil
	}
	less, err := db.PlanFilters(all.Bytes - 1<<20)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "\nWith 1MiB less of filter memory a lookup of an absent key would read %s blocks on average.\n", reads(less.WastedReads))
	return nil
}
