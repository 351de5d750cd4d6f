package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/bytesize"
)

type filterPlanCmd struct {
	asJSON
	Memory bytesize.Size `required:"" placeholder:"BYTES" help:"The budget: 64MiB, 500KB or a number of bytes."`
	Ranges bool          `help:"Count range filters, too, for programs with Options.RangeFilter."`
	Dir    string        `arg:"" help:"The database."`
}

func (filterPlanCmd) Help() string {
	return `Prints how a filter memory budget (Options.FilterMemory in a program) would be spent: for
each table, how many units its filter has, how many of them would be in memory (the last one perhaps
in part), and how many blocks a lookup of an absent key would read from it on average. A lookup may
read from several tables, so the sum can exceed 1. The plan assumes that lookups are spread evenly; a
running program adapts to its lookups.

Example:

    sift filter plan --memory 64MiB db`
}

func (c *filterPlanCmd) Run(e *env) error {
	o := sift.Options{ReadOnly: true}
	if c.Ranges {
		o.RangeFilter = filter.Range(12, 0) // any: the tables record the sizes of theirs
	}
	return e.withDB(c.Dir, o, func(db *sift.DB) error {
		p, err := db.PlanFilters(int64(c.Memory))
		if err != nil {
			return err
		}
		none, err := db.PlanFilters(0)
		if err != nil {
			return err
		}
		tables := make([]sift.TableMetrics, len(p.Tables))
		for i := range p.Tables {
			tables[i] = p.Tables[i].TableMetrics
		}
		if c.JSON {
			return orDamage(writePlanJSON(e, &p, none.WastedReads), tables)
		}
		t := columns{left: map[int]bool{2: true}}
		row := func(cells ...string) {
			if !c.Ranges { // the column of range filters is empty
				cells = slices.Delete(cells, 6, 7)
			}
			t.add(cells...)
		}
		row("level", "table", "filter", "units", "held", "size", "range filter", "reads/absent")
		var keyBytes, rangeBytes int64
		for i := range p.Tables {
			m := &p.Tables[i]
			row(strconv.Itoa(m.Level), fmt.Sprintf("%06d", m.Num), escaped(filterName(&m.TableMetrics)),
				strconv.Itoa(m.FilterUnits), strconv.FormatFloat(m.Units, 'g', -1, 64), size(m.Bytes), size(m.RangeBytes), reads(m.WastedReads))
			keyBytes, rangeBytes = keyBytes+m.Bytes, rangeBytes+m.RangeBytes
		}
		row("total", "", "", "", "", size(keyBytes), size(rangeBytes), reads(p.WastedReads))
		if err := t.write(e.out); err != nil {
			return orDamage(err, tables)
		}
		fmt.Fprintf(e.out, "\nA lookup of an absent key reads %s blocks on average; without filters it would read %s.\n",
			reads(p.WastedReads), reads(none.WastedReads))
		if p.NextMiBSaves > 0 {
			of := "of these reads"
			if c.Ranges {
				of = "block reads per such lookup and scan of an empty range"
			}
			fmt.Fprintf(e.out, "Another MiB of filter memory would save %s %s.\n", reads(p.NextMiBSaves), of)
		}
		return damage(tables)
	})
}

// plannedJSON is a table with what a plan gives it: its HeldUnits and FilterBytes are those of the
// plan.
type plannedJSON struct {
	tableJSON
	RangeBytes  int64    `json:"rangeBytes"`  // memory of the range filter
	WastedReads *float64 `json:"wastedReads"` // block reads for an absent key, on average
}

// writePlanJSON prints a plan as JSON.
func writePlanJSON(e *env, p *sift.FilterPlan, without float64) error {
	plan := struct {
		Bytes          int64         `json:"bytes"`
		WastedReads    float64       `json:"wastedReads"`
		WithoutFilters float64       `json:"wastedReadsWithoutFilters"`
		NextMiBSaves   float64       `json:"nextMiBSaves"`
		Tables         []plannedJSON `json:"tables"`
	}{int64(p.Bytes), p.WastedReads, without, p.NextMiBSaves, []plannedJSON{}}
	for i := range p.Tables {
		m := &p.Tables[i]
		t := plannedJSON{newTableJSON(&m.TableMetrics), m.RangeBytes, ifNumber(m.WastedReads)}
		t.HeldUnits, t.FilterBytes = m.Units, uint64(m.Bytes)
		t.FPR = nil // it is that of the units in memory now, not of the plan
		plan.Tables = append(plan.Tables, t)
	}
	return e.writeJSON(plan)
}

// reads formats an average number of block reads with three digits.
func reads(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0.0001:
		return "< 0.0001"
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(n))))
	return strconv.FormatFloat(n, 'f', min(decimals, 4), 64)
}
