package sift

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// bareDB returns a DB without files or goroutines, for tests of its background state.
func bareDB() *DB {
	d := &DB{opts: Options{DisableAutoCompaction: true}}
	d.bg.changed.L = &d.bg.mu
	d.loader.done = make(chan struct{})
	d.state.Store(&readState{mem: memtable.New(0), version: new(manifest.Version)})
	return d
}

// TestQuiet checks that quiet returns true after idleDelay without a write or a new version, and
// that more urgent work makes it return false at once.
func TestQuiet(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d *DB)
		want   bool
		took   time.Duration
	}{
		{"nothing", func(d *DB) { d.bg.change(func() {}) }, true, idleDelay},
		{"a write", func(d *DB) { d.visible.Add(1) }, false, idleDelay},
		{"a version", func(d *DB) {
			d.bg.change(func() { d.state.Store(&readState{mem: memtable.New(0), version: new(manifest.Version)}) })
		}, false, idleDelay},
		{"a job", func(d *DB) { d.bg.change(func() { d.bg.jobs = []*job{{}} }) }, false, idleDelay / 2},
		{"a full memtable", func(d *DB) { d.bg.change(func() { d.bg.flushes = []*flushJob{{}} }) }, false, idleDelay / 2},
		{"Close", func(d *DB) { d.bg.change(func() { d.bg.closing = true }) }, false, idleDelay / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := bareDB()
			time.AfterFunc(idleDelay/2, func() { c.change(d) })
			begin := time.Now()
			if got, took := d.quiet(), time.Since(begin); got != c.want || took != c.took {
				t.Errorf("%s: quiet returns %t after %v; want %t after %v", c.name, got, took, c.want, c.took)
			}
		})
	}
}

// TestRetryPauses checks that the pause doubles with each consecutive failure, up to a limit.
func TestRetryPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := bareDB()
		o, err := d.opts.resolve()
		if err != nil {
			t.Fatal(err)
		}
		d.opts = o
		var r retries
		for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
			begin := time.Now()
			d.failure(&r, "a test", errors.New("fails"))
			d.bg.pauseRetry(&r, func() bool { return false })
			if took := time.Since(begin); took != want*retryDelay {
				t.Errorf("the pause after failure %d takes %v, want %v", i+1, took, want*retryDelay)
			}
		}
	})
}

// TestFullRoom checks that a writer waits while maxFull memtables are being flushed. While flushes
// fail, it gets their error, even if only one memtable is full.
func TestFullRoom(t *testing.T) {
	for full := range maxFull + 2 {
		synctest.Test(t, func(t *testing.T) {
			d := bareDB()
			d.bg.flushes = make([]*flushJob, full)
			var returned, waited bool
			go func() {
				var err error
				if waited, err = d.bg.waitFullRoom(); err != nil {
					t.Error(err)
				}
				returned = true
			}()
			synctest.Wait()
			if returned != (full < maxFull) {
				t.Errorf("%d full memtables: returned %t", full, returned)
			}
			for n := full; n > 0; n-- {
				d.bg.change(func() { d.bg.flushes = d.bg.flushes[:n-1] })
				synctest.Wait()
				if returned != (n-1 < maxFull) {
					t.Errorf("%d of %d full memtables are left: returned %t", n-1, full, returned)
				}
			}
			if waited != (full >= maxFull) {
				t.Errorf("%d full memtables: waited %t", full, waited)
			}
		})
	}
	d := bareDB()
	d.bg.flushErr = errors.New("fails")
	for full := range maxFull + 1 {
		d.bg.flushes = make([]*flushJob, full)
		if _, err := d.bg.waitFullRoom(); (err != nil) != (full > 0) {
			t.Errorf("%d full memtables while flushes fail: %v", full, err)
		}
	}
}

// withDeletions returns a database whose only table in level 0 has the given numbers of tombstones
// and values. Each tombstone deletes a value in level 1.
func withDeletions(t *testing.T, deletions, values int) *DB {
	t.Helper()
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	t.Cleanup(func() { db.Close() })
	put := func(key string) {
		if err := db.Put([]byte(key), nil, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	for i := range deletions {
		put(fmt.Sprintf("key%06d", i))
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	for i := range values { // between the tombstones: a run of them would get a separate table
		put(fmt.Sprintf("key%06dx", i))
	}
	for i := range deletions { // the last one has the highest sequence number of the table
		if err := db.Delete(fmt.Appendf(nil, "key%06d", i), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	p := db.state.Load().version.Levels[0][0].Handle.(*table).reader.Load().Properties()
	if p.NumDeletions != uint64(deletions) || p.NumEntries != uint64(deletions+values) {
		t.Fatalf("%d tombstones in %d entries", p.NumDeletions, p.NumEntries)
	}
	return db
}

// automatic returns a DB with the state of db that chooses automatic compactions but runs none.
func automatic(db *DB) *DB {
	d := bareDB()
	d.opts = db.opts
	d.opts.DisableAutoCompaction = false
	d.state.Store(db.state.Load())
	d.visible.Store(db.visible.Load())
	close(d.loader.done)
	return d
}

// TestPickDeletions checks that a table is compacted because of its tombstones if it has enough of
// them, if they are at least half of its entries, and if no snapshot sees what they delete.
func TestPickDeletions(t *testing.T) {
	for _, c := range []struct {
		deletions, values int
		want              bool
	}{
		{minDeletions - 1, 0, false},
		{minDeletions, 0, true},
		{minDeletions, minDeletions, true},
		{minDeletions, minDeletions + 1, false},
	} {
		db := withDeletions(t, c.deletions, c.values)
		version := db.state.Load().version
		d := automatic(db)
		if _, got := d.pickDeletions(version); got != c.want {
			t.Errorf("%d tombstones, %d values: picked %t", c.deletions, c.values, got)
		}
		if d.noDeletions == version == c.want || d.deletionsWait.Load() != c.want {
			t.Errorf("%d tombstones, %d values: noDeletions is set: %t, deletionsWait %t", c.deletions, c.values, d.noDeletions == version, d.deletionsWait.Load())
		}
		d.opts.DisableAutoCompaction = true
		if _, got := d.pickDeletions(version); got {
			t.Errorf("%d tombstones, %d values: picked although automatic compactions are disabled", c.deletions, c.values)
		}
	}

	db := withDeletions(t, minDeletions, 0)
	version := db.state.Load().version
	last := version.Levels[0][0].Handle.(*table).reader.Load().Properties().MaxSeq
	for _, back := range []uint64{0, 1} {
		d := automatic(db)
		d.visible.Store(last + 10)
		d.snapshots.seqs = []uint64{last - back}
		if _, got := d.pickDeletions(version); got != (back == 0) {
			t.Errorf("with a snapshot from %d before the last tombstone: picked %t", back, got)
		}
		if d.noDeletions == version || !d.deletionsWait.Load() {
			t.Error("the tombstones would not be considered again when the snapshot ends")
		}
	}

	// A table that is not loaded yet may have tombstones; one that could not be loaded is ignored.
	for _, loading := range []bool{true, false} {
		d := automatic(db)
		x := version.Levels[0][0].Handle.(*table)
		reader := x.reader.Swap(nil)
		if loading {
			d.loader.done = make(chan struct{})
		}
		if _, got := d.pickDeletions(version); got || (d.noDeletions == version) == loading {
			t.Errorf("a table without properties, loading %t: picked %t; noDeletions is set: %t", loading, got, d.noDeletions == version)
		}
		x.reader.Store(reader)
	}
}

// TestNothingAutomatic checks that DisableAutoCompaction turns off automatic compactions, and that
// a full memtable holds back idle compactions; jobs are chosen in either case.
func TestNothingAutomatic(t *testing.T) {
	db := withDeletions(t, minDeletions, 0)
	if s := db.choose(false); s.some() {
		t.Errorf("chosen with automatic compactions disabled: %+v", s)
	}
	d := automatic(db)
	if s := d.choose(false); !s.some() || !s.idle {
		t.Errorf("chosen with automatic compactions enabled: %+v; want an idle compaction", s)
	}
	d.bg.flushes = []*flushJob{{}}
	if s := d.choose(false); s.some() {
		t.Errorf("chosen while a memtable waits: %+v", s)
	}
	d.bg.jobs = []*job{{}}
	if s := d.choose(false); s.job != d.bg.jobs[0] {
		t.Errorf("chosen while a job waits: %+v; want the job", s)
	}
}

// TestDrops checks that only an edit that removes tables, and adds none, counts in readState.drops.
func TestDrops(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	for _, c := range []struct {
		what   string
		change func() error
	}{
		{"a flush of nothing", func() error { return errors.Join(db.Delete([]byte("none"), NoSync), db.Flush()) }},
		{"a flush", func() error { return errors.Join(db.Put([]byte("key"), nil, NoSync), db.Flush()) }},
		{"a compaction", func() error {
			return errors.Join(db.Put([]byte("key"), nil, NoSync), db.Compact(context.Background(), nil, nil))
		}},
	} {
		if err := c.change(); err != nil || db.state.Load().drops != 0 {
			t.Errorf("%s: %v, %d drops", c.what, err, db.state.Load().drops)
		}
	}
	if err := errors.Join(db.Put([]byte("key"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := db.DeleteRange(context.Background(), nil, nil); err != nil || db.state.Load().drops != 1 {
		t.Errorf("DeleteRange: %v, %d drops", err, db.state.Load().drops)
	}
}

// TestFileNumbers checks that no two files of a database ever have the same number.
func TestFileNumbers(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	o.manifestBytes = 1
	names := map[uint64]string{}
	faulty.SetHook(func(op vfstest.Op) error {
		name := filepath.Base(op.Name)
		if kind, num, ok := manifest.ParseName(name); op.Kind == vfstest.OpCreate && ok && kind != manifest.KindTemp {
			if other, ok := names[num]; ok {
				t.Errorf("%s has the number of %s", name, other)
			}
			names[num] = name
		}
		return nil
	})
	for range 2 {
		db := mustOpen(t, "db", o)
		loadKeys(t, db, 200)
		if err := errors.Join(flushTwice(db, nil), flushTwice(db, nil), putAndIngest(db, nil), compactAll(db, nil)); err != nil {
			t.Error(err)
		}
		mustClose(t, db)
	}
	kinds := map[string]int{}
	for _, name := range names {
		kinds[strings.TrimLeft(filepath.Ext(name)+name[:1], "0")]++
	}
	if len(kinds) < 3 || len(names) < 20 {
		t.Errorf("%d kinds of files: %v", len(kinds), names)
	}
}

// TestSecondTableFails checks that a compaction fails if one of several tables that it writes
// fails, and that it removes what it has written.
func TestSecondTableFails(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	o.TableBytes = 4 << 10
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	loadKeys(t, db, 6000)
	before := tableNames(t, faulty)
	created := 0
	faulty.SetFaults(vfstest.Fault{Index: -1, Match: func(op vfstest.Op) bool {
		if op.Kind == vfstest.OpCreate && onTable(op) {
			created++
		}
		return created == 2
	}})
	version := db.state.Load().version
	err := db.Compact(context.Background(), nil, nil)
	faulty.SetFaults()
	if created < 2 || !errors.Is(err, syscall.EIO) || db.state.Load().version != version {
		t.Errorf("Compact: %v, after %d tables were created", err, created)
	}
	if after := tableNames(t, faulty); !slices.Equal(before, after) {
		t.Errorf("the tables %q are now %q", before, after)
	}
	wantKeys(t, db, 6000)
}

// TestEmptyIngest checks that an Ingest without operations changes nothing.
func TestEmptyIngest(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	defer mustClose(t, db)
	ops, before := mem.NumOps(), db.Metrics().LastSequence
	if err := db.Ingest(context.Background(), func(func(Op, error) bool) {}); err != nil {
		t.Fatal(err)
	}
	if now := db.Metrics().LastSequence; now != before || mem.NumOps() != ops {
		t.Errorf("the last sequence number is %d, was %d; %d disk operations", now, before, mem.NumOps()-ops)
	}
}

// TestCloseBehindIngest checks that an Ingest that is already syncing the MANIFEST when Close is
// called succeeds. One that is still writing tables, and whose context is canceled as well, returns
// the context's error.
func TestCloseBehindIngest(t *testing.T) {
	for _, canceled := range []bool{false, true} {
		faulty := vfstest.Inject(vfstest.NewMem())
		db := mustOpen(t, "db", uncached(faulty))
		ctx, cancel := context.WithCancel(context.Background())
		closed := make(chan error, 1)
		begun := false
		faulty.SetHook(func(op vfstest.Op) error {
			at := op.Kind == vfstest.OpSync && strings.HasPrefix(filepath.Base(op.Name), "MANIFEST-")
			if canceled {
				at = op.Kind == vfstest.OpCreate && onTable(op)
			}
			if at && !begun {
				begun = true
				if canceled {
					cancel()
				}
				go func() { closed <- db.Close() }()
				<-db.bg.closed.Done()
			}
			return nil
		})
		err := db.Ingest(ctx, func(yield func(Op, error) bool) {
			for i := range 5000 {
				if !yield(Op{Key: fmt.Appendf(nil, "key%06d", i)}, nil) {
					return
				}
			}
		})
		want := error(nil)
		if canceled {
			want = context.Canceled
		}
		if err != want || !begun {
			t.Errorf("canceled %t: Ingest: %v; Close was called: %t", canceled, err, begun)
		}
		if err := ended(t, "Close", closed); err != nil {
			t.Error(err)
		}
		cancel()
		faulty.SetHook(nil)
		db = mustOpen(t, "db", uncached(faulty))
		if ok, err := db.Has([]byte("key004999")); ok == canceled || err != nil {
			t.Errorf("canceled %t: after a reopen, the last key is present: %t, %v", canceled, ok, err)
		}
		mustClose(t, db)
	}
}

// TestPlanOfUnreadable checks that PlanFilters plans nothing for a table that cannot be read.
func TestPlanOfUnreadable(t *testing.T) {
	mem := closedDisk(t, vfstest.NewMem())
	damageFooter(t, mem, "db")
	db := mustOpen(t, "db", uncached(mem))
	defer mustClose(t, db)
	plan, err := db.PlanFilters(1 << 20)
	if err != nil || len(plan.Tables) == 0 || plan.Bytes != 0 {
		t.Errorf("PlanFilters: %+v, %v", plan, err)
	}
	for _, p := range plan.Tables {
		if p.Units != 0 || !errors.Is(p.Err, ErrCorruption) {
			t.Errorf("the plan for an unreadable table has %v units, %v", p.Units, p.Err)
		}
	}
}

// TestOtherPrefixer checks that a filter is probed for prefixes only if it contains those of the
// database's Prefixer.
func TestOtherPrefixer(t *testing.T) {
	mem := vfstest.NewMem()
	for _, c := range []struct {
		prefix Prefixer
		want   bool
	}{{nil, false}, {FixedPrefix(5), true}, {FixedPrefix(4), false}, {nil, false}, {FixedPrefix(5), true}} {
		o := uncached(mem)
		o.Prefix, o.Filter = c.prefix, filter.Bloom(10)
		written := FixedPrefix(5)
		db := mustOpen(t, "db", o)
		if db.state.Load().version.NumTables() == 0 {
			mustClose(t, db)
			o.Prefix = written
			db = mustOpen(t, "db", o)
			loadKeys(t, db, 100)
			mustClose(t, db)
			o.Prefix = c.prefix
			db = mustOpen(t, "db", o)
		}
		for _, metas := range db.state.Load().version.Levels {
			for _, meta := range metas {
				x := meta.Handle.(*table)
				if _, err := x.load(); err != nil || x.prefixes != c.want {
					t.Errorf("%v: the filter is probed for prefixes: %t, %v", c.prefix, x.prefixes, err)
				}
			}
		}
		if ok, err := db.HasPrefix([]byte("key0")); !ok || err != nil {
			t.Errorf("%v: HasPrefix: %t, %v", c.prefix, ok, err)
		}
		mustClose(t, db)
	}
}

// TestDeletionsFirst checks that a table of tombstones below level 0 is compacted after level 0 and
// before everything else.
func TestDeletionsFirst(t *testing.T) {
	db := withDeletions(t, minDeletions, 0)
	version := db.state.Load().version
	tombstones, values := version.Levels[0][0], version.Levels[version.Deepest][0]
	if err := errors.Join(db.Put([]byte("other"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	other := db.state.Load().version.Levels[0][0]
	for _, c := range []struct {
		l0Tables  int
		baseBytes int64
		tables    []*manifest.TableMeta // of level 0
		want      *manifest.TableMeta
	}{
		{8, 1 << 20, nil, tombstones},                          // nothing is due
		{8, 1 << 20, []*manifest.TableMeta{other}, tombstones}, // level 0 is not due
		{1, 1 << 20, []*manifest.TableMeta{other}, other},
	} {
		edit := &manifest.Edit{Added: []manifest.AddedTable{{Level: 1, Table: tombstones}, {Level: 2, Table: values}}}
		for _, meta := range c.tables {
			edit.Added = append(edit.Added, manifest.AddedTable{Level: 0, Table: meta})
		}
		v, err := (*manifest.Version)(nil).Apply(edit)
		if err != nil {
			t.Fatal(err)
		}
		d := automatic(db)
		d.opts.L0Tables, d.opts.LevelBaseBytes = c.l0Tables, c.baseBytes
		d.state.Store(&readState{mem: memtable.New(0), version: v})
		if s := d.choose(false); !s.some() || s.idle || s.plan.Inputs[0][0] != c.want {
			t.Errorf("L0Tables %d, %d tables in level 0: chosen: %+v", c.l0Tables, len(c.tables), s)
		}
	}
}

// TestDeletionsBesideDamage checks that a table of tombstones whose compaction has failed keeps
// neither tables of tombstones in other levels nor level 0 from being compacted until its retry is
// due.
func TestDeletionsBesideDamage(t *testing.T) {
	db := withDeletions(t, minDeletions, 0)
	version := db.state.Load().version
	first, values := version.Levels[0][0], version.Levels[version.Deepest][0]
	for i := range minDeletions {
		if err := db.Delete(fmt.Appendf(nil, "key%06d", i), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	second := first
	first = db.state.Load().version.Levels[0][0]
	if err := flushTwice(db, nil); err != nil {
		t.Fatal(err)
	}
	level0 := db.state.Load().version.Levels[0][:2]
	for _, c := range []struct {
		first, second int // levels
		tables        []*manifest.TableMeta
		failed        int // level
		early         bool
		want          *manifest.TableMeta
		idle, waits   bool
	}{
		{1, 2, nil, 6, false, first, false, false},
		{1, 2, nil, 1, false, first, false, false},
		{1, 2, nil, 1, true, second, false, false},
		{1, 2, nil, 2, true, first, false, false},
		{1, -1, nil, 1, false, first, false, false},
		{1, -1, nil, 1, true, first, false, true},
		{1, -1, level0, 1, true, level0[1], true, false},
		{1, -1, level0, 1, false, first, false, false},
		{0, 2, nil, 2, true, first, true, false},
	} {
		edit := &manifest.Edit{Added: []manifest.AddedTable{{Level: c.first, Table: first}, {Level: 3, Table: values}}}
		if c.second > 0 {
			edit.Added = append(edit.Added, manifest.AddedTable{Level: c.second, Table: second})
		}
		for _, meta := range c.tables {
			edit.Added = append(edit.Added, manifest.AddedTable{Level: 0, Table: meta})
		}
		v, err := (*manifest.Version)(nil).Apply(edit)
		if err != nil {
			t.Fatal(err)
		}
		d := automatic(db)
		d.state.Store(&readState{mem: memtable.New(0), version: v})
		d.failedLevels[c.failed] = true
		if c.early {
			d.bg.compacting.due = time.Now().Add(time.Hour)
		}
		s := d.choose(false)
		if !s.some() || s.idle != c.idle || s.waits != c.waits || !slices.Contains(s.plan.Inputs[0], c.want) {
			t.Errorf("%+v: chosen: %+v", c, s)
		}
	}
}

// TestFailedLevelWaits checks that a compaction of a level that has failed waits until its retry is
// due, or early if a caller requests it, and that jobs do not wait for it.
func TestFailedLevelWaits(t *testing.T) {
	db := withDeletions(t, minDeletions, 0)
	for _, c := range []struct {
		early, due time.Duration // from now
		soon       bool
		waits      bool
	}{
		{-2, -1, false, false},
		{-1, 1, false, true},
		{-1, 1, true, false},
		{1, 2, false, true},
		{1, 2, true, true},
	} {
		for _, l0Tables := range []int{1, 8} { // a compaction that is due, and an idle one
			d := automatic(db)
			d.opts.L0Tables = l0Tables
			d.failedLevels[0] = true
			r := &d.bg.compacting
			r.early, r.due, r.soon = time.Now().Add(c.early*time.Hour), time.Now().Add(c.due*time.Hour), c.soon
			if s := d.choose(false); !s.some() || s.job != nil || s.waits != c.waits || s.idle != (l0Tables > 1) {
				t.Errorf("%+v: chosen: %+v", c, s)
			}
			d.bg.jobs = []*job{{}}
			if s := d.choose(false); s.job == nil {
				t.Errorf("%+v, before a job: chosen: %+v", c, s)
			}
			if s := d.choose(true); (s.job == nil) != (l0Tables == 1 && !c.waits) {
				t.Errorf("%+v, after a step of a job: chosen: %+v", c, s)
			}
		}
	}
}

// TestTableWithoutProperties checks what is assumed of a table that another program has written: it
// may have tombstones and several entries per key, and its filter is not probed to drop a
// tombstone.
func TestTableWithoutProperties(t *testing.T) {
	foreign := new(table)
	foreign.reader.Store(new(sstable.Reader))
	if foreign.compacted() {
		t.Error("a table without properties counts as compacted")
	}
	var d DB
	if !d.mayContain(&manifest.TableMeta{Handle: foreign}, []byte("key")) {
		t.Error("a table without properties excludes a key")
	}
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	loadKeys(t, db, 100)
	own := db.state.Load().version.Levels[0][0]
	x := own.Handle.(*table)
	p := x.reader.Load().Properties()
	if !x.compacted() || d.mayContain(own, []byte("key000099x")) {
		t.Error("a table of values does not count as compacted, or does not exclude an absent key")
	}
	p.FilterPolicy = ""
	if !d.mayContain(own, []byte("key000099x")) {
		t.Error("the filter of an unknown policy is probed")
	}
	if p.Smallest = nil; x.compacted() {
		t.Error("a table whose properties lack its keys counts as compacted")
	}
}

// TestFilterShares checks that filterTables assumes that a lookup probes every table of level 0,
// and one table of each other level.
func TestFilterShares(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.TableBytes = 4 << 10
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	loadKeys(t, db, 6000)
	if err := errors.Join(db.Put([]byte("a"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	version := db.state.Load().version
	tables := filterTables(version)
	for level, metas := range version.Levels {
		sum := 0.0
		for range metas {
			if tables[0].Share > 1 || level == 0 && tables[0].Share != 1 {
				t.Errorf("a table of level %d has a share of %v", level, tables[0].Share)
			}
			sum += tables[0].Share
			tables = tables[1:]
		}
		if level > 0 && len(metas) > 0 && (sum < 0.999 || sum > 1.001) {
			t.Errorf("the shares of the %d tables of level %d add up to %v", len(metas), level, sum)
		}
	}
	if len(version.Levels[0]) < 2 || len(version.Levels[version.Deepest]) < 2 {
		t.Errorf("%d tables in level 0 and %d in level %d; want at least 2 in each", len(version.Levels[0]), len(version.Levels[version.Deepest]), version.Deepest)
	}
}

// TestNoDeletionsKeepsNoOldVersion checks that no old version, and so no filter of its tables,
// stays in memory while tombstones wait for the end of a snapshot.
func TestNoDeletionsKeepsNoOldVersion(t *testing.T) {
	db := withDeletions(t, minDeletions, 0)
	version := db.state.Load().version
	last := version.Levels[0][0].Handle.(*table).reader.Load().Properties().MaxSeq
	d := automatic(db)
	d.noDeletions = new(manifest.Version) // an earlier one
	d.visible.Store(last + 10)
	d.snapshots.seqs = []uint64{last - 1}
	if _, picked := d.pickDeletions(version); picked || d.noDeletions != nil {
		t.Errorf("picked %t; an old version is kept: %t", picked, d.noDeletions != nil)
	}
}
