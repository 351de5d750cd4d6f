package sift

import (
	"math"
	"sync"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/plan"
)

// filterKeeper is the filter memory manager: it keeps the filters of the tables within
// Options.FilterMemory. It loads and drops them in steps: one bit per key each, for Ribbon.
// Once per plan.Tick, and after each change of the version, it chooses the steps to keep by
// how often each table is asked for keys that it does not hold.
type filterKeeper struct {
	db      *DB
	stop    chan struct{}
	changed chan struct{} // capacity 1: the version has changed
	wg      sync.WaitGroup

	moving sync.Mutex // held during a rebalance, which reads from the disk

	mu   sync.Mutex // guards the fields below and the tables' heat; never held during I/O
	held []*table   // tables whose filters may be loaded
	last time.Time
}

// unknownFPR is the assumed rate of a filter that does not state its own.
const unknownFPR = 0.01

// startFilterKeeper starts the filter memory manager, if there is a budget.
func (d *DB) startFilterKeeper() {
	if d.opts.FilterMemory == 0 {
		return
	}
	k := &filterKeeper{db: d, stop: make(chan struct{}), changed: make(chan struct{}, 1), last: time.Now()}
	d.keeper = k
	k.wg.Go(func() {
		select {
		case <-k.stop:
			return
		case <-d.loader.done: // before that, the plan would miss tables
		}
		k.rebalance(math.MaxInt64)
		ticker := time.NewTicker(plan.Tick)
		defer ticker.Stop()
		for {
			select {
			case <-k.stop:
				return
			case <-k.changed:
				k.rebalance(math.MaxInt64)
			case <-ticker.C:
				k.cool()
				k.rebalance(plan.MovedBytes(d.opts.FilterMemory))
			}
		}
	})
}

// close stops the manager. A nil receiver is allowed.
func (k *filterKeeper) close() {
	if k != nil {
		close(k.stop)
		k.wg.Wait()
	}
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
	var rates [2]float64
	for i, metas := range inputs {
		for _, m := range metas {
			rates[i] += m.Handle.(*table).heat.Rate
		}
	}
	var bytes float64
	for _, m := range outputs {
		bytes += float64(m.Size)
	}
	for _, m := range outputs {
		m.Handle.(*table).heat.Rate = max(rates[0], rates[1]) * float64(m.Size) / bytes
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
	for _, t := range k.held {
		t.heat.Cool(t.absent.Load(), elapsed)
	}
}

// rebalance loads and drops steps according to the plan. It reads at most limit bytes.
func (k *filterKeeper) rebalance(limit int64) {
	k.moving.Lock()
	defer k.moving.Unlock()
	version := k.db.refVersion()
	if version == nil {
		return
	}
	defer k.db.releaseVersion(version)

	tables, inputs := planInputs(version)
	for _, t := range k.replace(tables, inputs) {
		k.hold(t, 0)
	}
	want := plan.Choose(inputs, k.db.opts.FilterMemory)
	for _, c := range plan.Changes(inputs, want, limit) {
		k.hold(tables[c.Table], c.Steps)
	}
}

// replace replaces the set of managed tables, and returns the tables that left it. It sets
// the heat in inputs, which belong to tables.
func (k *filterKeeper) replace(tables []*table, inputs []plan.Table) (gone []*table) {
	present := make(map[*table]bool, len(tables))
	for _, t := range tables {
		present[t] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.held {
		if !present[t] {
			gone = append(gone, t)
		}
	}
	k.held = tables
	follow(tables, inputs)
	return gone
}

// follow sets the heat in the inputs of a plan. REQUIRES: the manager's mu is held.
func follow(tables []*table, inputs []plan.Table) {
	heat := make([]float64, len(tables))
	for i, t := range tables {
		heat[i] = t.heat.Rate
	}
	plan.Follow(inputs, heat)
}

// expected returns the block reads per second that lookups of absent keys cost at recent
// traffic, and how many of them another MiB would save.
func (k *filterKeeper) expected(version *manifest.Version) (wasted, nextMiBSaves float64) {
	if k == nil {
		return 0, 0
	}
	tables, inputs := planInputs(version)
	k.mu.Lock()
	defer k.mu.Unlock()
	follow(tables, inputs)
	held := make([]int, len(inputs))
	var traffic float64
	for i := range inputs {
		held[i] = inputs[i].Held
	}
	for _, t := range k.held {
		traffic += t.heat.Rate
	}
	if traffic == 0 {
		return 0, 0
	}
	return plan.Wasted(inputs, held), plan.NextSaves(inputs, k.db.opts.FilterMemory, 1<<20)
}

// hold keeps the first steps of a table's filter in memory, and no others.
func (k *filterKeeper) hold(t *table, steps int) {
	if err := t.reader.Load().LoadFilterSteps(steps); err != nil {
		k.db.opts.Logger.Warn("a filter could not be loaded", "path", t.path, "err", err)
	}
}

// planInputs returns the tables of a version that have filters, and the plan's input for
// each. It assumes uniform traffic: a lookup probes each level once, and each table of a
// level in proportion to its size. It blocks while a filter is being read.
func planInputs(version *manifest.Version) ([]*table, []plan.Table) {
	var tables []*table
	var inputs []plan.Table
	for level, metas := range version.Levels {
		for _, meta := range metas {
			t := meta.Handle.(*table)
			r := t.reader.Load()
			if r == nil {
				continue
			}
			in := plan.Table{Asked: 1, FPR: t.filterFPR(), Steps: r.FilterSteps(), Held: r.HeldFilterSteps()}
			if level > 0 {
				in.Asked = float64(meta.Size) / float64(version.Size(level))
			}
			if len(in.Steps) == 0 {
				continue
			}
			in.Held = min(in.Held, len(in.Steps))
			tables, inputs = append(tables, t), append(inputs, in)
		}
	}
	return tables, inputs
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
	// NextMiBSaves is how much another MiB would lower WastedReads.
	NextMiBSaves float64
}

// PlannedTable is a table in a FilterPlan.
type PlannedTable struct {
	TableMetrics
	Units       float64 // to be kept in memory, of FilterUnits; the last one may be fractional
	Bytes       int64   // their memory
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
	tables, inputs := planInputs(s.version)
	for i := range inputs {
		inputs[i].Held = 0
	}
	held := plan.Choose(inputs, budget)
	p.Bytes = plan.Bytes(inputs, held)
	p.NextMiBSaves = plan.NextSaves(inputs, budget, 1<<20)
	at := map[*table]int{}
	for i, t := range tables {
		at[t] = i
	}
	for level, metas := range s.version.Levels {
		for _, meta := range metas {
			t := meta.Handle.(*table)
			pt := PlannedTable{TableMetrics: t.metrics(level, meta)}
			pt.WastedReads = 1
			if level > 0 {
				pt.WastedReads = float64(meta.Size) / float64(s.version.Size(level))
			}
			if i, ok := at[t]; ok {
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
