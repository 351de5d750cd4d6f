// Package filtermem is the filter memory manager: it keeps the filters of tables within a memory
// budget, and chooses which steps of which filters save the most reads.
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

// movedTogether is how many filters a rebalance loads or drops between two checks for sparsely
// used slabs, which it then empties and frees.
const movedTogether = 32

// Config configures a Manager.
type Config struct {
	Pool   *sstable.FilterPool
	Logger *slog.Logger

	// Tables returns the tables of the current version; they stay open until the caller calls
	// done. It returns nil and nil once the database is closed.
	Tables func() (tables []Table, done func())
	// Budget redistributes the memory, and returns the number of bytes that filters may take.
	Budget func() int64
	// Capped is set if the manager always loads filters in steps. Otherwise filters are loaded as a
	// whole with their tables if they fit; the manager loads filters in steps only once one did not
	// fit or could not be read.
	Capped bool
	// Ranges is set if the manager loads range filters, too.
	Ranges bool
	// Loaded is closed when Open has loaded the tables. The manager waits for it, since an
	// earlier plan would miss tables.
	Loaded <-chan struct{}
}

// Manager loads and drops filters in steps, of one bit per key for Ribbon and for Range. Once per
// plan.Tick, and after each change of the version, it chooses by the tables' access rates which
// steps to keep. It has nothing to do while all filters fit, unless Config.Capped is set. Changed,
// Inherit and Move do nothing on a nil Manager.
type Manager struct {
	config  Config
	stop    chan struct{}
	changed chan struct{} // capacity 1: the version has changed
	wg      sync.WaitGroup

	moving sync.Mutex // held during a rebalance, which reads from the disk
	short  bool       // the last plan did not fit all filters; guarded by moving

	mu   sync.Mutex      // guards the fields below and the tables' access rates; never held during I/O
	held []managedFilter // the filters of the last plan
	last time.Time
}

// Start starts a manager, which runs in a goroutine until Close.
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
	m.updateRates(time.Now()) // the time until now does not count
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
		m.updateRates(time.Now())
	}
}

// Close stops the manager, and waits for the filter that is being loaded. Filters stay loaded.
func (m *Manager) Close() {
	close(m.stop)
	m.wg.Wait()
}

// Changed notifies the manager of a new version. If the manager has anything to plan, it then loads
// the filters of new tables and drops those of removed ones; iterators that still read removed
// tables do so without their filters. Changed does not block.
func (m *Manager) Changed() {
	if m == nil {
		return
	}
	select {
	case m.changed <- struct{}{}:
	default: // a notice is pending; the manager will see this version
	}
}

// updateRates updates the access rates of the tables of the last plan.
func (m *Manager) updateRates(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	elapsed := now.Sub(m.last)
	if elapsed < plan.Tick/2 {
		return
	}
	m.last = now
	for _, f := range m.held {
		rate, seen := f.traffic()
		rate.Update(seen.Load(), elapsed)
	}
}

// Rebalance redistributes the memory. If some filters do not fit, or Config.Capped is set, it also
// plans which steps to keep, and loads and drops steps accordingly. It reads at most limit bytes,
// or a single step if that is larger. It reports whether traffic may change the plan, so that it
// should run again after a plan.Tick.
func (m *Manager) Rebalance(limit int64) (again bool) {
	m.moving.Lock()
	defer m.moving.Unlock()
	budget := m.config.Budget() // may be less than before: indexes have grown
	if !m.config.Pool.Refused() && !m.config.Pool.Exceeded() && !m.short && !m.config.Capped {
		m.replace(nil, nil) // nothing to plan: retain no tables, which may be removed
		return false
	}
	tables, done := m.config.Tables()
	if done == nil {
		return false
	}
	defer done()
	filters, inputs := planInputs(tables, m.config.Ranges)
	for _, f := range m.replace(filters, inputs) {
		m.hold(f, 0)
	}
	want := plan.Choose(inputs, budget)
	for i, c := range plan.Changes(inputs, want, limit) {
		if m.stopped() {
			return false
		}
		m.hold(filters[c.Table], c.Steps)
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

// stopped reports whether Close has been called.
func (m *Manager) stopped() bool {
	select {
	case <-m.stop:
		return true
	default:
		return false
	}
}

// replace replaces the managed filters, and returns those that are no longer managed. It sets the
// access rates in inputs, the plan's inputs for filters.
func (m *Manager) replace(filters []managedFilter, inputs []plan.Table) (gone []managedFilter) {
	present := make(map[managedKey]bool, len(filters))
	for _, f := range filters {
		present[f.key()] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	managed := make(map[managedKey]bool, len(m.held))
	for _, f := range m.held {
		managed[f.key()] = true
		if !present[f.key()] {
			gone = append(gone, f)
		}
	}
	for _, f := range filters {
		if !managed[f.key()] { // its rate begins now: it has not followed the count
			rate, seen := f.traffic()
			rate.Skip(seen.Load())
		}
	}
	m.held = filters
	follow(filters, inputs)
	return gone
}

// hold loads the first steps of a filter and drops the others. It logs failures other than a lack
// of room.
func (m *Manager) hold(f managedFilter, steps int) {
	if err := f.load(steps); err != nil && !errors.Is(err, sstable.ErrNoRoom) {
		m.config.Logger.Warn("a filter could not be loaded", "path", f.Path, "err", err)
	}
}

// Move moves filters out of sparsely used slabs, so that the slabs can be freed.
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

// Expected returns block reads per second at the recent access rates: those that lookups of absent
// keys waste, and those, including reads of scans of empty ranges, that another MiB of filters
// would save. It calls tables only if there was traffic.
func (m *Manager) Expected(tables func() []Table) (wasted, nextMiBSaves float64) {
	var traffic float64
	m.mu.Lock()
	for _, f := range m.held {
		rate, _ := f.traffic()
		traffic += rate.PerSecond
	}
	m.mu.Unlock()
	if traffic == 0 {
		return 0, 0
	}
	filters, inputs := planInputs(tables(), m.config.Ranges)
	m.mu.Lock()
	defer m.mu.Unlock()
	follow(filters, inputs)
	for i, f := range filters {
		if !f.ranges {
			wasted += plan.Wasted(inputs[i:i+1], []int{inputs[i].Held})
		}
	}
	return wasted, plan.NextSaves(inputs, m.config.Pool.Limit(), 1<<20)
}

// Inherit distributes the access rates of a compaction's inputs, two levels, over its outputs in
// proportion to their sizes. It takes the rates of the level with more traffic, not the sum: a
// lookup that probed a table on each of the two levels will probe one.
func (m *Manager) Inherit(inputs [2][]*Traffic, outputs []*Traffic, sizes []uint64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys, ranges [2]float64
	for i, traffic := range inputs {
		for _, t := range traffic {
			keys[i] += t.keyRate.PerSecond
			ranges[i] += t.rangeRate.PerSecond
		}
	}
	var bytes float64
	for _, n := range sizes {
		bytes += float64(n)
	}
	for i, t := range outputs {
		share := float64(sizes[i]) / bytes
		t.keyRate.PerSecond, t.rangeRate.PerSecond = max(keys[0], keys[1])*share, max(ranges[0], ranges[1])*share
	}
}
