package filtermem

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/plan"
	"github.com/siftdb/sift/sstable"
)

// numKeys is the number of keys in the tables of these tests.
const numKeys = 1000

// newTable returns a table with a Ribbon filter of 10 bits per key, none of which is loaded.
func newTable(t *testing.T, pool *sstable.FilterPool) Table {
	t.Helper()
	var file bytes.Buffer
	w := sstable.NewWriter(&file, &sstable.WriterOptions{Filter: filter.Ribbon(10)})
	for i := range uint64(numKeys) {
		if err := w.Add(binary.BigEndian.AppendUint64(nil, i), i+1, base.KindSet, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	r, err := sstable.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()), &sstable.ReaderOptions{FilterPool: pool, MaxFilterUnits: -1})
	if err != nil {
		t.Fatal(err)
	}
	return Table{Traffic: new(Traffic), Reader: r, Share: 1}
}

// newManager returns a manager of these tables that only does what the test calls.
func newManager(pool *sstable.FilterPool, budget int64, tables ...Table) *Manager {
	pool.SetLimit(budget)
	return &Manager{config: Config{
		Pool: pool, Logger: slog.Default(), Capped: true,
		Tables: func() ([]Table, func()) { return tables, func() {} },
		Budget: func() int64 { return budget },
	}}
}

// TestAccessRate checks that of two filters that do not both fit, more steps are loaded of the one
// whose table gets the lookups, also when the lookups move to the other table.
func TestAccessRate(t *testing.T) {
	var pool sstable.FilterPool
	a, b := newTable(t, &pool), newTable(t, &pool)
	var all int64
	for _, n := range a.Reader.FilterSteps() {
		all += n
	}
	m := newManager(&pool, all*5/4, a, b)
	now := time.Now()
	for _, tc := range []struct{ probed, other Table }{{a, b}, {b, a}} {
		for range 60 {
			now = now.Add(plan.Tick)
			tc.probed.AbsentKeys.Add(1000)
			m.updateRates(now)
			m.Rebalance(math.MaxInt64)
		}
		if probed, other := tc.probed.Reader.HeldFilterSteps(), tc.other.Reader.HeldFilterSteps(); probed < 3 || other > 1 {
			t.Errorf("the table that gets the lookups has %d steps of its filter, the other one %d", probed, other)
		}
		if held := pool.HeldBytes(); held > all*5/4 {
			t.Errorf("%d bytes are held of %d", held, all*5/4)
		}
	}
	wasted, saves := m.Expected(func() []Table { return []Table{a, b} })
	if wasted <= 0 || wasted > 200 || saves <= 0 {
		t.Errorf("1,000 lookups per second waste %v reads; another MiB saves %v", wasted, saves)
	}
}

// TestLimitFalls checks that filters that had fitted are dropped in part once the limit is lower.
func TestLimitFalls(t *testing.T) {
	var pool sstable.FilterPool
	a, b := newTable(t, &pool), newTable(t, &pool)
	m := newManager(&pool, 1<<20, a, b)
	m.config.Capped = false
	for _, r := range []*sstable.Reader{a.Reader, b.Reader} {
		if err := r.LoadFilterSteps(len(r.FilterSteps())); err != nil {
			t.Fatal(err)
		}
	}
	all := pool.HeldBytes()
	if m.Rebalance(math.MaxInt64) || pool.HeldBytes() != all {
		t.Errorf("all filters fit, and %d of %d bytes are held", pool.HeldBytes(), all)
	}
	for _, limit := range []int64{all / 2, -1} {
		m.config.Budget = func() int64 { pool.SetLimit(limit); return limit }
		if again, held := m.Rebalance(math.MaxInt64), pool.HeldBytes(); !again || held > max(limit, 0) || limit > 0 && held == 0 {
			t.Errorf("with a limit of %d bytes %d are held; the manager runs again: %t", limit, held, again)
		}
	}
}

// TestChanged checks that a manager that has nothing to do, since all filters fit, acts when it is
// notified that they no longer do.
func TestChanged(t *testing.T) {
	var pool sstable.FilterPool
	a := newTable(t, &pool)
	if err := a.Reader.LoadFilterSteps(len(a.Reader.FilterSteps())); err != nil {
		t.Fatal(err)
	}
	all := pool.HeldBytes()
	config := newManager(&pool, all, a).config
	config.Capped = false
	var limit atomic.Int64
	limit.Store(all)
	ran := make(chan bool, 1)
	config.Budget = func() int64 {
		pool.SetLimit(limit.Load())
		select {
		case ran <- true:
		default:
		}
		return limit.Load()
	}
	loaded := make(chan struct{})
	close(loaded)
	config.Loaded = loaded
	m := Start(config)
	defer m.Close()
	<-ran
	if held := pool.HeldBytes(); held != all {
		t.Fatalf("all filters fit, and %d of %d bytes are held", held, all)
	}
	limit.Store(all / 2)
	m.Changed()
	for end := time.Now().Add(time.Minute); pool.HeldBytes() > all/2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are held, %d fit", pool.HeldBytes(), all/2)
		}
	}
}

// TestForgets checks that a table that has left the version loses its filter, and that the manager
// keeps no table when all filters fit again.
func TestForgets(t *testing.T) {
	var pool sstable.FilterPool
	a, b := newTable(t, &pool), newTable(t, &pool)
	m := newManager(&pool, 1<<20, a, b)
	m.Rebalance(math.MaxInt64)
	if len(m.held) != 2 || a.Reader.HeldFilterSteps() == 0 {
		t.Fatalf("%d filters are managed, with %d steps of the first", len(m.held), a.Reader.HeldFilterSteps())
	}
	m.config.Tables = func() ([]Table, func()) { return []Table{b}, func() {} }
	m.Rebalance(math.MaxInt64)
	if n := a.Reader.HeldFilterSteps(); n != 0 || len(m.held) != 1 {
		t.Errorf("a removed table has %d steps; %d filters are managed", n, len(m.held))
	}
	m.config.Capped = false
	if m.Rebalance(math.MaxInt64) || len(m.held) > 0 {
		t.Errorf("%d filters are managed, and all fit", len(m.held))
	}
}

// TestInherit checks that the outputs of a compaction share the access rate of the busier of the
// two levels.
func TestInherit(t *testing.T) {
	var in [3]Traffic
	in[0].keyRate.PerSecond, in[1].keyRate.PerSecond, in[2].keyRate.PerSecond = 10, 20, 40
	in[0].rangeRate.PerSecond = 8
	var out [2]Traffic
	m := new(Manager)
	m.Inherit([2][]*Traffic{{&in[0], &in[1]}, {&in[2]}}, []*Traffic{&out[0], &out[1]}, []uint64{300, 100})
	if out[0].keyRate.PerSecond != 30 || out[1].keyRate.PerSecond != 10 || out[0].rangeRate.PerSecond != 6 || out[1].rangeRate.PerSecond != 2 {
		t.Errorf("the outputs inherit %v and %v, and for ranges %v and %v",
			out[0].keyRate.PerSecond, out[1].keyRate.PerSecond, out[0].rangeRate.PerSecond, out[1].rangeRate.PerSecond)
	}
}

// TestPlan checks that a plan takes no more than its budget, and changes nothing.
func TestPlan(t *testing.T) {
	var pool sstable.FilterPool
	open, closed := newTable(t, &pool), Table{Traffic: new(Traffic), Share: 0.5}
	p := NewPlan([]Table{closed, open}, true, 700)
	if p.Bytes == 0 || p.Bytes > 700 || p.Tables[1].Bytes != p.Bytes || p.Tables[1].Steps == 0 {
		t.Errorf("a plan for 700 bytes: %+v", p)
	}
	if p.Tables[0].WastedReads != 0.5 || p.Tables[1].WastedReads >= 0.2 || p.NextMiBSaves <= 0 {
		t.Errorf("a plan for 700 bytes expects %+v", p)
	}
	if open.Reader.HeldFilterSteps() != 0 {
		t.Error("the plan loads the filter")
	}
}

// TestBesideReaders lets the race detector check that lookups, Inherit, Expected, NewPlan, and
// rebalances of other goroutines may run concurrently with the manager.
func TestBesideReaders(t *testing.T) {
	var pool sstable.FilterPool
	a := newTable(t, &pool)
	m := newManager(&pool, 1000, a)
	var wg sync.WaitGroup
	var done atomic.Bool
	others := []func(){
		func() { m.Rebalance(math.MaxInt64) },
		func() { m.Inherit([2][]*Traffic{{a.Traffic}, nil}, []*Traffic{new(Traffic)}, []uint64{1}) },
		func() { m.Expected(func() []Table { return []Table{a} }) },
		func() { a.AbsentKeys.Add(16); NewPlan([]Table{a}, true, 500) },
	}
	for _, other := range others {
		wg.Go(func() {
			for !done.Load() {
				other()
				runtime.Gosched()
			}
		})
	}
	now := time.Now()
	for range 2000 {
		now = now.Add(plan.Tick)
		m.updateRates(now)
		m.Rebalance(math.MaxInt64)
	}
	done.Store(true)
	wg.Wait()
}

// TestClosedDuringRebalance checks that a rebalance loads no more filters once the manager is
// closed.
func TestClosedDuringRebalance(t *testing.T) {
	var pool sstable.FilterPool
	tables := make([]Table, 20)
	for i := range tables {
		tables[i] = newTable(t, &pool)
	}
	m := newManager(&pool, 1<<20, tables...)
	m.stop = make(chan struct{})
	close(m.stop)
	if again := m.Rebalance(math.MaxInt64); again || pool.HeldBytes() > 0 {
		t.Errorf("%d bytes are held; the manager runs again: %t", pool.HeldBytes(), again)
	}
	m.stop = make(chan struct{})
	if m.Rebalance(math.MaxInt64); pool.HeldBytes() == 0 {
		t.Error("no filter is loaded")
	}
}

// TestRateBeginsWhenManaged checks that lookups from before a filter was managed are not counted as
// recent ones.
func TestRateBeginsWhenManaged(t *testing.T) {
	var pool sstable.FilterPool
	a := newTable(t, &pool)
	m := newManager(&pool, 1<<20, a)
	now := time.Now()
	m.last = now
	a.AbsentKeys.Add(1_000_000_000) // in the hours in which all filters fitted
	m.Rebalance(math.MaxInt64)
	a.AbsentKeys.Add(1000)
	m.updateRates(now.Add(plan.Tick))
	if rate := a.keyRate.PerSecond; rate <= 0 || rate > 1000 {
		t.Errorf("after a second with 1,000 lookups the rate is %v", rate)
	}
}
