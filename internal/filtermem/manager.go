// Package filtermem is the filter memory manager: it keeps the filters of tables within a memory
// budget, and chooses which parts of which filters save the most reads.
package filtermem

import (
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/siftdb/sift/internal/plan"
	"github.com/siftdb/sift/sstable"
)

// movedTogether is how many filters are loaded or dropped before sparsely used slabs are emptied
// and freed.
const movedTogether = 32

// Config configures a Manager.
type Config struct {
	Pool   *sstable.FilterPool
	Logger *slog.Logger

	// Tables returns the tables of the current version, which stay open until done is called. It
	// returns nil and nil once the database is closed.
	Tables func() (tables []Table, done func())
	// Budget divides the memory again, and returns how many bytes filters may take.
	Budget func() int64
	// Capped is set if filters are always loaded in steps, range filters included. Otherwise a
	// table loads its whole filter when it is opened, if it fits, and filters are loaded in steps
	// only once one did not fit.
	Capped bool
	// Loaded is closed when the tables have been loaded after Open. Before that a plan would miss
	// tables.
	Loaded <-chan struct{}
}

// Manager loads and drops filters in steps of one bit per key, for Ribbon and for Range. Once per
// plan.Tick, and after each change of the version, it chooses the steps to keep by the tables'
// access rates. It has nothing to do while all filters fit, unless Config.Capped is set. On a nil
// Manager, Changed, Inherit and Move do nothing.
type Manager struct {
	config  Config
	stop    chan struct{}
	changed chan struct{} // capacity 1: the version has changed
	wg      sync.WaitGroup

	moving sync.Mutex // held during a rebalance, which reads from the disk
	short  bool       // some filters do not fit; guarded by moving

	mu   sync.Mutex // guards the fields below and the tables' heat; never held during I/O
	held []part     // filters that may be loaded
	last time.Time
}

// Start starts a manager.
func Start(c Config) *Manager {
	m := &Manager{config: c, stop: make(chan struct{}), changed: make(chan struct{}, 1), last: time.Now()}
	m.wg.Go(m.run)
	return m
}

func (m *Manager) run() {
	select {
	case <-m.stop:
		return
	case <-m.config.Loaded:
	}
	limit := int64(math.MaxInt64)
	for {
		var tick <-chan time.Time
		if m.Rebalance(limit) {
			tick = time.After(plan.Tick)
		}
		select {
		case <-m.stop:
			return
		case <-m.changed:
			limit = math.MaxInt64
		case <-tick:
			limit = plan.MovedBytes(m.config.Pool.Limit())
		}
		m.cool(time.Now())
	}
}

// Close stops the manager.
func (m *Manager) Close() {
	close(m.stop)
	m.wg.Wait()
}

// Changed makes the manager load the filters of new tables and drop those of removed ones;
// iterators that still read removed tables go without. It does not wait for the disk.
func (m *Manager) Changed() {
	if m == nil {
		return
	}
	select {
	case m.changed <- struct{}{}:
	default: // a notice is pending; the manager will see this version
	}
}

// cool updates the tables' heat.
func (m *Manager) cool(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	elapsed := now.Sub(m.last)
	if elapsed < plan.Tick/2 {
		return
	}
	m.last = now
	for _, p := range m.held {
		heat, seen := p.traffic()
		heat.Cool(seen.Load(), elapsed)
	}
}

// Rebalance divides the memory again, and loads and drops steps according to the plan, if there
// are filters that did not fit. It reads at most limit bytes, or a single step if that is larger.
// It reports whether memory is short.
func (m *Manager) Rebalance(limit int64) (short bool) {
	m.moving.Lock()
	defer m.moving.Unlock()
	budget := m.config.Budget()
	if !m.config.Pool.Refused() && !m.short && !m.config.Capped {
		m.replace(nil, nil) // nothing to plan; keep no reference to tables that may be removed
		return false
	}
	tables, done := m.config.Tables()
	if done == nil {
		return false
	}
	defer done()
	parts, inputs := planInputs(tables, m.config.Capped)
	for _, p := range m.replace(parts, inputs) {
		m.hold(p, 0)
	}
	want := plan.Choose(inputs, budget)
	for i, c := range plan.Changes(inputs, want, limit) {
		m.hold(parts[c.Table], c.Steps)
		if i%movedTogether == 0 {
			m.move(tables)
		}
	}
	m.move(tables)
	m.short = false
	for i, n := range want {
		m.short = m.short || n < len(inputs[i].Steps) || inputs[i].Held < n
	}
	return m.short || m.config.Capped
}

// replace replaces the set of managed filters, and returns those that left it. It sets the
// heat in inputs, which belong to parts.
func (m *Manager) replace(parts []part, inputs []plan.Table) (gone []part) {
	present := make(map[partKey]bool, len(parts))
	for _, p := range parts {
		present[p.key()] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.held {
		if !present[p.key()] {
			gone = append(gone, p)
		}
	}
	m.held = parts
	follow(parts, inputs)
	return gone
}

// hold keeps the first steps of a filter in memory, and no others.
func (m *Manager) hold(p part, steps int) {
	if err := p.load(steps); err != nil && !errors.Is(err, sstable.ErrNoRoom) {
		m.config.Logger.Warn("a filter could not be loaded", "path", p.Path, "err", err)
	}
}

// Move moves filters out of sparsely used slabs, so that these can be freed.
func (m *Manager) Move() {
	if m == nil || !m.config.Pool.Sparse() {
		return
	}
	if tables, done := m.config.Tables(); done != nil {
		defer done()
		m.move(tables)
	}
}

func (m *Manager) move(tables []Table) {
	if !m.config.Pool.Sparse() {
		return
	}
	for _, t := range tables {
		if t.Reader == nil {
			continue
		}
		if err := t.Reader.MoveFilter(); err != nil {
			m.config.Logger.Error("a filter was corrupted in memory", "path", t.Path, "err", err)
		}
	}
}

// Expected returns the block reads per second that lookups of absent keys cost at recent traffic,
// and how many of them, and of those for empty ranges, another MiB would save. tables is called
// only if there was traffic.
func (m *Manager) Expected(tables func() []Table) (wasted, nextMiBSaves float64) {
	var traffic float64
	m.mu.Lock()
	for _, p := range m.held {
		heat, _ := p.traffic()
		traffic += heat.Rate
	}
	m.mu.Unlock()
	if traffic == 0 {
		return 0, 0
	}
	parts, inputs := planInputs(tables(), m.config.Capped)
	m.mu.Lock()
	defer m.mu.Unlock()
	follow(parts, inputs)
	for i, p := range parts {
		if !p.ranges {
			wasted += plan.Wasted(inputs[i:i+1], []int{inputs[i].Held})
		}
	}
	return wasted, plan.NextSaves(inputs, m.config.Pool.Limit(), 1<<20)
}

// Inherit distributes the heat of a compaction's inputs, two levels, over its outputs, by their
// sizes. A lookup that used to probe a table on each of two levels now probes one.
func (m *Manager) Inherit(inputs [2][]*Traffic, outputs []*Traffic, sizes []uint64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys, ranges [2]float64
	for i, traffic := range inputs {
		for _, t := range traffic {
			keys[i] += t.keyHeat.Rate
			ranges[i] += t.rangeHeat.Rate
		}
	}
	var bytes float64
	for _, n := range sizes {
		bytes += float64(n)
	}
	for i, t := range outputs {
		share := float64(sizes[i]) / bytes
		t.keyHeat.Rate, t.rangeHeat.Rate = max(keys[0], keys[1])*share, max(ranges[0], ranges[1])*share
	}
}
