package filtermem

import (
	"sync/atomic"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/plan"
	"github.com/siftdb/sift/sstable"
)

// Traffic counts the lookups and scans that found nothing in a table, and holds the access rates.
// Its address identifies the table.
type Traffic struct {
	AbsentKeys   atomic.Uint64 // lookups of keys that the table does not hold, estimated from a sample
	AbsentRanges atomic.Uint64 // scans of ranges in which the table holds no key, estimated from a sample

	keyRate, rangeRate plan.AccessRate // guarded by Manager.mu
}

// Table is a table of a version.
type Table struct {
	*Traffic
	Reader *sstable.Reader // nil if the table is not open
	Path   string
	// Share is the expected number of times that a lookup probes the table, 0 to 1, if all keys
	// are looked up equally often.
	Share float64
}

// managedFilter is a filter that is loaded in steps: a table's key filter, or its range filter.
type managedFilter struct {
	Table
	ranges bool // the range filter
}

type managedKey struct {
	table  *Traffic
	ranges bool
}

func (f managedFilter) key() managedKey { return managedKey{f.Traffic, f.ranges} }

// rangeLength is the length of the ranges for which plans compute the false positive rate of range
// filters.
const rangeLength = 16

// unknownFPR is the false positive rate that plans assume for a filter whose rate is unknown.
const unknownFPR = 0.01

// traffic returns the filter's access rate, and the count of absent keys or ranges that it follows.
func (f managedFilter) traffic() (*plan.AccessRate, *atomic.Uint64) {
	if f.ranges {
		return &f.rangeRate, &f.AbsentRanges
	}
	return &f.keyRate, &f.AbsentKeys
}

// load loads the first steps of the filter and drops the others.
func (f managedFilter) load(steps int) error {
	if !f.ranges {
		return f.Reader.LoadFilterSteps(steps)
	}
	bits := 0
	if sizes := f.Reader.RangeSteps(rangeLength); steps > 0 && steps <= len(sizes) {
		bits = sizes[steps-1].BitsPerKey
	}
	return f.Reader.LoadRangeBits(bits)
}

// follow sets the access rates in inputs, the plan's inputs for filters. REQUIRES: the manager's mu
// is held.
func follow(filters []managedFilter, inputs []plan.Table) {
	rates := make([]float64, len(filters))
	for i, f := range filters {
		rate, _ := f.traffic()
		rates[i] = rate.PerSecond
	}
	plan.Follow(inputs, rates)
}

// planInputs returns the filters of tables, with or without range filters, and the plan's input
// for each. The access rate of both kinds of filters is the table's Share: that assumes that all
// keys are looked up equally often, and that there are as many scans of empty ranges as lookups of
// absent keys. planInputs blocks while a filter is being loaded.
func planInputs(tables []Table, ranges bool) ([]managedFilter, []plan.Table) {
	var filters []managedFilter
	var inputs []plan.Table
	for _, t := range tables {
		r := t.Reader
		if r == nil {
			continue
		}
		if steps := r.FilterSteps(); len(steps) > 0 {
			filters = append(filters, managedFilter{t, false})
			inputs = append(inputs, plan.Table{AccessRate: t.Share, FPR: fprOf(r), Steps: steps, Held: min(r.HeldFilterSteps(), len(steps))})
		}
		if steps := r.RangeSteps(rangeLength); ranges && len(steps) > 0 {
			filters = append(filters, managedFilter{t, true})
			inputs = append(inputs, planRange(steps, r.HeldRangeBits(), t.Share))
		}
	}
	return filters, inputs
}

// planRange returns the plan's input for a range filter with the given steps, of which those of up
// to heldBits bits per key are in memory.
func planRange(steps []filter.RangeStep, heldBits int, accessRate float64) plan.Table {
	in := plan.Table{AccessRate: accessRate}
	var before int64
	for i, s := range steps {
		in.Steps = append(in.Steps, s.Bytes-before)
		in.Rates = append(in.Rates, s.FPR)
		if before = s.Bytes; s.BitsPerKey <= heldBits {
			in.Held = i + 1
		}
	}
	return in
}

// fprOf returns the false positive rate of a table's filter with all its units: as the properties
// state it, else as the filter does if it is loaded.
func fprOf(r *sstable.Reader) float64 {
	if p := r.Properties(); p != nil && p.FilterFPR > 0 && p.FilterFPR < 1 {
		return p.FilterFPR
	}
	if f := r.Filter(); f != nil && r.HeldFilterSteps() == len(r.FilterSteps()) {
		return f.FPR()
	}
	return unknownFPR
}
