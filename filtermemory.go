package sift

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/plan"
	"github.com/siftdb/sift/sstable"
)

// filterKeeper is the filter memory manager: it keeps the filters of the tables within what
// divideMemory gives them. A table that is opened loads its filter if there is room. As long
// as that is so, the manager has nothing to do. From the first filter on that does not fit, and
// with Options.FilterMemory from the beginning and range filters included, it loads and drops
// them in steps: one bit per key each, for Ribbon and for Range. Once per plan.Tick, and after
// each change of the version, it chooses the steps to keep by how often each table is asked for
// keys that it does not hold.
type filterKeeper struct {
	db      *DB
	stop    chan struct{}
	changed chan struct{} // capacity 1: the version has changed
	wg      sync.WaitGroup

	moving sync.Mutex // held during a rebalance, which reads from the disk
	short  bool       // some filters do not fit; guarded by moving

	mu   sync.Mutex // guards the fields below and the tables' heat; never held during I/O
	held []planned  // filters that may be loaded
	last time.Time
}

// planned is a filter that the manager loads in steps: that of a table's keys, or its range
// filter.
type planned struct {
	*table
	ranges bool
}

// rangeLength is the length of ranges for which the plan takes the rate of range filters.
const rangeLength = 16

// unknownFPR is the assumed rate of a filter that does not state its own.
const unknownFPR = 0.01

// movedTogether is how many filters are loaded or dropped before what they leave of their slabs is
// given up.
const movedTogether = 32

// startFilterKeeper starts the filter memory manager.
func (d *DB) startFilterKeeper() {
	k := &filterKeeper{db: d, stop: make(chan struct{}), changed: make(chan struct{}, 1), last: time.Now()}
	d.keeper = k
	k.wg.Go(func() {
		select {
		case <-k.stop:
			return
		case <-d.loader.done: // before that, the plan would miss tables
		}
		limit := int64(math.MaxInt64)
		for {
			var tick <-chan time.Time
			if k.rebalance(limit) {
				tick = time.After(plan.Tick)
			}
			select {
			case <-k.stop:
				return
			case <-k.changed:
				limit = math.MaxInt64
			case <-tick:
				limit = plan.MovedBytes(d.filters.Limit())
			}
			k.cool()
		}
	})
}

// close stops the manager.
func (k *filterKeeper) close() {
	close(k.stop)
	k.wg.Wait()
}

// versionChanged makes the manager load the filters of new tables and drop those of removed
// ones; iterators that still read these do without. It does not wait for the disk.
func (k *filterKeeper) versionChanged() {
	if k == nil {
		return
	}
	select {
	case k.changed <- struct{}{}:
	default: // a notice is pending; the manager will see this version
	}
}

// inherit distributes the heat of a compaction's inputs over its outputs, by size. A lookup
// that used to probe a table on each of two levels now probes one.
func (k *filterKeeper) inherit(inputs [2][]*manifest.TableMeta, outputs []*manifest.TableMeta) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var rates, ranges [2]float64
	for i, metas := range inputs {
		for _, m := range metas {
			rates[i] += m.Handle.(*table).heat.Rate
			ranges[i] += m.Handle.(*table).rangeHeat.Rate
		}
	}
	var bytes float64
	for _, m := range outputs {
		bytes += float64(m.Size)
	}
	for _, m := range outputs {
		t, share := m.Handle.(*table), float64(m.Size)/bytes
		t.heat.Rate, t.rangeHeat.Rate = max(rates[0], rates[1])*share, max(ranges[0], ranges[1])*share
	}
}

// cool updates the tables' heat.
func (k *filterKeeper) cool() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(k.last)
	if elapsed < plan.Tick/2 {
		return
	}
	k.last = now
	for _, p := range k.held {
		heat, seen := p.traffic()
		heat.Cool(seen.Load(), elapsed)
	}
}

// rebalance divides the memory again, and loads and drops steps according to the plan, if there
// are filters that did not fit. It reads at most limit bytes. It reports whether memory is short.
func (k *filterKeeper) rebalance(limit int64) (short bool) {
	k.moving.Lock()
	defer k.moving.Unlock()
	version := k.db.refVersion()
	if version == nil {
		return false
	}
	defer k.db.releaseVersion(version)

	budget := k.db.divideMemory()
	if refused := k.db.filters.Refused(); !refused && !k.short && k.db.opts.FilterMemory == 0 {
		k.replace(nil, nil) // nothing is to be planned: do not keep tables that go
		return false
	}
	filters, inputs := planInputs(version, k.db.opts.FilterMemory != 0)
	for _, p := range k.replace(filters, inputs) {
		k.hold(p, 0)
	}
	want := plan.Choose(inputs, budget)
	for i, c := range plan.Changes(inputs, want, limit) {
		k.hold(filters[c.Table], c.Steps)
		if i%movedTogether == 0 && k.db.filters.Sparse() {
			k.db.moveFilters(version)
		}
	}
	if k.db.filters.Sparse() {
		k.db.moveFilters(version)
	}
	k.short = false
	for i, n := range want {
		k.short = k.short || n < len(inputs[i].Steps) || inputs[i].Held < n
	}
	return k.short || k.db.opts.FilterMemory != 0
}

// replace replaces the set of managed filters, and returns those that left it. It sets the
// heat in inputs, which belong to filters.
func (k *filterKeeper) replace(filters []planned, inputs []plan.Table) (gone []planned) {
	present := make(map[planned]bool, len(filters))
	for _, p := range filters {
		present[p] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.held {
		if !present[p] {
			gone = append(gone, p)
		}
	}
	k.held = filters
	follow(filters, inputs)
	return gone
}

// traffic returns the recent rate of what the filter could have excluded, and its count.
func (p planned) traffic() (*plan.Heat, *atomic.Uint64) {
	if p.ranges {
		return &p.rangeHeat, &p.absentRanges
	}
	return &p.heat, &p.absent
}

// follow sets the heat in the inputs of a plan. REQUIRES: the manager's mu is held.
func follow(filters []planned, inputs []plan.Table) {
	rates := make([]float64, len(filters))
	for i, p := range filters {
		heat, _ := p.traffic()
		rates[i] = heat.Rate
	}
	plan.Follow(inputs, rates)
}

// expected returns the block reads per second that lookups of absent keys cost at recent
// traffic, and how many of them, and of those for ranges without keys, another MiB would
// save.
func (k *filterKeeper) expected(version *manifest.Version) (wasted, nextMiBSaves float64) {
	var traffic float64
	k.mu.Lock()
	for _, p := range k.held {
		heat, _ := p.traffic()
		traffic += heat.Rate
	}
	k.mu.Unlock()
	if traffic == 0 {
		return 0, 0
	}
	filters, inputs := planInputs(version, k.db.opts.FilterMemory != 0)
	k.mu.Lock()
	defer k.mu.Unlock()
	follow(filters, inputs)
	for i, p := range filters {
		if !p.ranges {
			wasted += plan.Wasted(inputs[i:i+1], []int{inputs[i].Held})
		}
	}
	return wasted, plan.NextSaves(inputs, k.db.filters.Limit(), 1<<20)
}

// hold keeps the first steps of a filter in memory, and no others.
func (k *filterKeeper) hold(p planned, steps int) {
	r := p.reader.Load()
	load, n := r.LoadFilterSteps, steps
	if p.ranges {
		load, n = r.LoadRangeBits, 0
		if sizes := r.RangeSteps(rangeLength); steps > 0 && steps <= len(sizes) {
			n = sizes[steps-1].BitsPerKey
		}
	}
	if err := load(n); err != nil && err != sstable.ErrNoRoom {
		k.db.opts.Logger.Warn("a filter could not be loaded", "path", p.path, "err", err)
	}
}

// planInputs returns the filters of a version's tables, with or without range filters, and the
// plan's input for each. It assumes uniform traffic: a lookup probes each level once, and each
// table of a level in proportion to its size, and there are as many scans of ranges without keys
// as lookups. It blocks while a filter is being read.
func planInputs(version *manifest.Version, ranges bool) ([]planned, []plan.Table) {
	var filters []planned
	var inputs []plan.Table
	for level, metas := range version.Levels {
		for _, meta := range metas {
			t := meta.Handle.(*table)
			r := t.reader.Load()
			if r == nil {
				continue
			}
			asked := 1.0
			if level > 0 {
				asked = float64(meta.Size) / float64(version.Size(level))
			}
			if steps := r.FilterSteps(); len(steps) > 0 {
				filters = append(filters, planned{t, false})
				inputs = append(inputs, plan.Table{Asked: asked, FPR: t.filterFPR(), Steps: steps, Held: min(r.HeldFilterSteps(), len(steps))})
			}
			if steps := r.RangeSteps(rangeLength); ranges && len(steps) > 0 {
				filters = append(filters, planned{t, true})
				inputs = append(inputs, planRange(steps, r.HeldRangeBits(), asked))
			}
		}
	}
	return filters, inputs
}

// planRange returns the plan's input for a range filter.
func planRange(steps []filter.RangeStep, heldBits int, asked float64) plan.Table {
	in := plan.Table{Asked: asked}
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

// unitsOf converts steps of the table's filter to units.
func (t *table) unitsOf(steps int) float64 {
	return float64(steps) / float64(filter.StepsPerUnit(t.reader.Load().FilterFamily()))
}

// filterFPR returns the false positive rate of the table's filter with all its units.
func (t *table) filterFPR() float64 {
	r := t.reader.Load()
	if p := r.Properties(); p != nil && p.FilterFPR > 0 && p.FilterFPR < 1 {
		return p.FilterFPR
	}
	if f := r.Filter(); f != nil && r.HeldFilterSteps() == len(r.FilterSteps()) {
		return f.FPR()
	}
	return unknownFPR
}

// FilterPlan says how a filter memory budget would be spent.
type FilterPlan struct {
	Budget int64 // bytes
	Bytes  int64 // used of the budget
	Tables []PlannedTable
	// WastedReads is the expected number of block reads per lookup of an absent key under
	// uniform traffic. Without filters, every level costs one.
	WastedReads float64
	// NextMiBSaves is how much another MiB would lower WastedReads and, with as many scans
	// of ranges without keys, the reads of those.
	NextMiBSaves float64
}

// PlannedTable is a table in a FilterPlan.
type PlannedTable struct {
	TableMetrics
	Units       float64 // to be kept in memory, of FilterUnits; the last one may be fractional
	Bytes       int64   // their memory
	RangeBytes  int64   // memory of the range filter
	WastedReads float64 // expected per lookup of an absent key
}

// PlanFilters returns how a filter memory budget, in bytes, would be spent if lookups of
// absent keys were spread evenly. It loads tables that have not been loaded since Open, and
// changes nothing.
func (d *DB) PlanFilters(budget int64) (FilterPlan, error) {
	p := FilterPlan{Budget: budget}
	d.loadAll()
	g := d.epoch.Enter()
	defer g.Exit()
	s := d.state.Load()
	if s == nil {
		return p, ErrClosed
	}
	filters, inputs := planInputs(s.version, true)
	for i := range inputs {
		inputs[i].Held = 0
	}
	held := plan.Choose(inputs, budget)
	p.Bytes = plan.Bytes(inputs, held)
	p.NextMiBSaves = plan.NextSaves(inputs, budget, 1<<20)
	at := map[planned]int{}
	for i, f := range filters {
		at[f] = i
	}
	for level, metas := range s.version.Levels {
		for _, meta := range metas {
			t := meta.Handle.(*table)
			pt := PlannedTable{TableMetrics: t.metrics(level, meta)}
			pt.WastedReads = 1
			if level > 0 {
				pt.WastedReads = float64(meta.Size) / float64(s.version.Size(level))
			}
			if i, ok := at[planned{t, true}]; ok {
				pt.RangeBytes = plan.Bytes(inputs[i:i+1], held[i:i+1])
			}
			if i, ok := at[planned{t, false}]; ok {
				one, steps := inputs[i:i+1], held[i:i+1]
				pt.Units, pt.Bytes = t.unitsOf(held[i]), plan.Bytes(one, steps)
				pt.WastedReads = plan.Wasted(one, steps)
			}
			p.WastedReads += pt.WastedReads
			p.Tables = append(p.Tables, pt)
		}
	}
	return p, nil
}

// moveFilters moves filters out of sparsely used slabs, so that these can be freed.
func (d *DB) moveFilters(version *manifest.Version) {
	for _, metas := range version.Levels {
		for _, meta := range metas {
			t := meta.Handle.(*table)
			r := t.reader.Load()
			if r == nil {
				continue
			}
			if err := r.MoveFilter(); err != nil {
				d.opts.Logger.Error("a filter was corrupted in memory", "path", t.path, "err", err)
			}
		}
	}
}
