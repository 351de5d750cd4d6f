package sift

import (
	"math"
	"sync"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/plan"
)

// filterKeeper keeps the filters of the tables within Options.FilterMemory. Its units
// are the steps in which a table can hold its filter: a bit per key each, for Ribbon. On a
// slow clock, and after each change of the version, it chooses which units to
// hold from how often each table is asked for keys that it does not hold.
type filterKeeper struct {
	db      *DB
	stop    chan struct{}
	changed chan struct{} // has room for one: the version is another
	wg      sync.WaitGroup

	moving sync.Mutex // one rebalance at a time; it reads from the disk, and who installs a version does not wait for it

	mu   sync.Mutex // guards what follows and the tables' heat; held for no reading
	held []*table   // tables that may hold units
	last time.Time
}

// unknownFPR stands for the rate of a filter that does not tell.
const unknownFPR = 0.01

// startFilterKeeper begins to hold filters within the budget, if there is one.
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
		case <-d.loader.done: // until then the plan would be for a part of the tables
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

// close ends the keeper. A nil keeper is fine.
func (k *filterKeeper) close() {
	if k != nil {
		close(k.stop)
		k.wg.Wait()
	}
}

// versionChanged has new tables given their units, and those of tables that have left
// taken: iterators that still use them do without. It does not wait for the disk.
func (k *filterKeeper) versionChanged() {
	if k == nil {
		return
	}
	select {
	case k.changed <- struct{}{}:
	default: // the keeper has yet to look, and finds this version when it does
	}
}

// inherit gives the tables that a compaction wrote the heat of those that it
// read, by size. A lookup that asked a table on either level asks one now.
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

// cool brings the tables' heat up to date.
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

// rebalance moves from what is held towards the plan, reading at most limit bytes.
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
	for _, step := range plan.Steps(inputs, want, limit) {
		k.hold(tables[step.Table], step.Units)
	}
}

// replace makes tables those that may hold units, and returns those before that are not
// among them. Inputs, which are theirs, get their heat.
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

// follow gives the inputs of a plan their tables' heat. REQUIRES: the keeper's mu.
func follow(tables []*table, inputs []plan.Table) {
	heat := make([]float64, len(tables))
	for i, t := range tables {
		heat[i] = t.heat.Rate
	}
	plan.Follow(inputs, heat)
}

// expected returns the block reads a second that lookups of absent keys cost, as
// they were lately, and by how many fewer they would be with another MiB.
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

// hold loads or drops steps of a table.
func (k *filterKeeper) hold(t *table, units int) {
	if err := t.reader.Load().LoadFilterSteps(units); err != nil {
		k.db.opts.Logger.Warn("a filter could not be loaded", "path", t.path, "err", err)
	}
}

// planInputs returns the tables of a version that have filters, and what the
// plan needs to know of each. Traffic is taken to be even: every lookup asks each
// level once, and each table as often as its share of the level. While a filter is
// read from the disk it waits.
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
			in := plan.Table{Asked: 1, FPR: t.filterFPR(), Units: r.FilterSteps(), Held: r.HeldFilterSteps()}
			if level > 0 {
				in.Asked = float64(meta.Size) / float64(version.Size(level))
			}
			if len(in.Units) == 0 {
				continue
			}
			in.Held = min(in.Held, len(in.Units))
			tables, inputs = append(tables, t), append(inputs, in)
		}
	}
	return tables, inputs
}

// unitsOf turns steps of the table's filter into units.
func (t *table) unitsOf(steps int) float64 {
	return float64(steps) / float64(filter.Parts(t.reader.Load().FilterFamily()))
}

// filterFPR is the false positive rate of the table's filter with all its units.
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

// FilterPlan is how a budget for filter memory would be spent.
type FilterPlan struct {
	Budget int64 // bytes
	Bytes  int64 // of them used
	Tables []PlannedTable
	// WastedReads is the expected number of block reads per lookup of an absent key under
	// uniform traffic. Without filters, every level costs one.
	WastedReads float64
	// NextMiBSaves is how much another MiB would lower WastedReads.
	NextMiBSaves float64
}

// PlannedTable is a table's part in a FilterPlan.
type PlannedTable struct {
	TableMetrics
	Units       float64 // planned to be held, of FilterUnits, where the last one may be held in part
	Bytes       int64   // of memory that they take
	WastedReads float64 // expected for each lookup of an absent key
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
				one, units := inputs[i:i+1], held[i:i+1]
				pt.Units, pt.Bytes = t.unitsOf(held[i]), plan.Bytes(one, units)
				pt.WastedReads = plan.Wasted(one, units)
			}
			p.WastedReads += pt.WastedReads
			p.Tables = append(p.Tables, pt)
		}
	}
	return p, nil
}

// moveFilters moves the filters of a version together, which have become few in the
// memory that they keep.
func (d *DB) moveFilters(version *manifest.Version) {
	for _, metas := range version.Levels {
		for _, meta := range metas {
			t := meta.Handle.(*table)
			r := t.reader.Load()
			if r == nil {
				continue
			}
			if err := r.MoveFilter(); err != nil {
				d.opts.Logger.Error("a filter has changed in memory", "path", t.path, "err", err)
			}
		}
	}
}
