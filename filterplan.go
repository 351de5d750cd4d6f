package sift

import (
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/filtermem"
	"github.com/siftdb/sift/internal/manifest"
)

// FilterPlan describes how a filter memory budget would be spent.
type FilterPlan struct {
	Budget int64          // bytes
	Bytes  int64          // bytes that would be used, with Options.RangeFilter also for range filters; at most Budget
	Tables []PlannedTable // all tables, in the order of DB.Tables
	// WastedReads is the expected number of block reads per lookup of an absent key under
	// uniform traffic. Without filters it is the number of levels with tables, where each table
	// of level 0 counts as a level.
	WastedReads float64
	// NextMiBSaves is the number of block reads that another MiB would save per lookup of an
	// absent key; with Options.RangeFilter, if there is also one scan of an empty range for each
	// such lookup.
	NextMiBSaves float64
}

// PlannedTable is a table in a FilterPlan.
type PlannedTable struct {
	TableMetrics
	Units       float64 // units that would be in memory, of FilterUnits; may be fractional
	Bytes       int64   // their memory, without RangeBytes
	RangeBytes  int64   // memory of the range filter, which needs Options.RangeFilter
	WastedReads float64 // expected number of block reads per lookup of an absent key
}

// planFilters implements PlanFilters.
func (d *DB) planFilters(budget int64) (FilterPlan, error) {
	p := FilterPlan{Budget: budget}
	d.loadAll()
	g := d.epoch.Enter()
	defer g.Exit()
	s := d.state.Load()
	if s == nil {
		return p, ErrClosed
	}
	ranges := d.opts.RangeFilter != nil // otherwise nothing probes them
	plan := filtermem.NewPlan(filterTables(s.version), ranges, budget)
	p.Bytes, p.NextMiBSaves = plan.Bytes, plan.NextMiBSaves
	for level, metas := range s.version.Levels {
		for _, meta := range metas {
			t, of := meta.Handle.(*table), plan.Tables[len(p.Tables)]
			pt := PlannedTable{TableMetrics: t.metrics(level, meta), Bytes: of.Bytes, RangeBytes: of.RangeBytes, WastedReads: of.WastedReads}
			if of.Steps > 0 {
				pt.Units = t.unitsOf(of.Steps)
			}
			p.WastedReads += pt.WastedReads
			p.Tables = append(p.Tables, pt)
		}
	}
	return p, nil
}

// startFilterManager starts the filter memory manager.
func (d *DB) startFilterManager() {
	d.filterManager = filtermem.Start(filtermem.Config{
		Pool: &d.filters, Logger: d.opts.Logger, Budget: d.divideMemory,
		Capped: d.opts.FilterMemory != 0, Loaded: d.loader.done,
		Ranges: d.opts.FilterMemory != 0 && d.opts.RangeFilter != nil, // otherwise nothing probes them
		Tables: func() ([]filtermem.Table, func()) {
			version := d.refVersion()
			if version == nil {
				return nil, nil
			}
			return filterTables(version), func() { d.releaseVersion(version) }
		},
	})
}

// filterTables returns the tables of a version, level by level, for the filter memory manager. It
// assumes that a lookup probes each table of level 0, and one table of each further level, which it
// hits in proportion to its size.
func filterTables(version *manifest.Version) []filtermem.Table {
	var tables []filtermem.Table
	for level, metas := range version.Levels {
		for _, meta := range metas {
			t := meta.Handle.(*table)
			share := 1.0
			if level > 0 {
				share = float64(meta.Size) / float64(version.Size(level))
			}
			tables = append(tables, filtermem.Table{Traffic: &t.traffic, Reader: t.reader.Load(), Path: t.path, Share: share})
		}
	}
	return tables
}

// inheritAccessRates gives the outputs of a compaction the access rates of its inputs.
func (d *DB) inheritAccessRates(inputs [2][]*manifest.TableMeta, outputs []*manifest.TableMeta) {
	var from [2][]*filtermem.Traffic
	for i, metas := range inputs {
		for _, meta := range metas {
			from[i] = append(from[i], &meta.Handle.(*table).traffic)
		}
	}
	to := make([]*filtermem.Traffic, len(outputs))
	sizes := make([]uint64, len(outputs))
	for i, meta := range outputs {
		to[i], sizes[i] = &meta.Handle.(*table).traffic, meta.Size
	}
	d.filterManager.Inherit(from, to, sizes)
}

// unitsOf converts steps of the table's filter to units. REQUIRES: the table is open.
func (t *table) unitsOf(steps int) float64 {
	return float64(steps) / float64(filter.StepsPerUnit(t.reader.Load().FilterFamily()))
}
