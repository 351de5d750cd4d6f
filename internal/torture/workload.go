package torture

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// Workload is what a database does while its disk is recorded. It depends only on its Env,
// whose random numbers come from a seed; only the timing of background work differs from run
// to run.
type Workload struct {
	Name string
	// Writes is the approximate number of writes of one run.
	Writes int
	// Run executes it. It need not close the database.
	Run func(e *Env, n int)
}

// Workloads lists all workloads.
var Workloads = []Workload{
	{"fill", 90, runFill},
	{"overwrite", 140, runOverwrite},
	{"delete", 140, runDelete},
	{"large", 26, runLarge},
	{"batch", 50, runBatch},
	{"snapshots", 100, runSnapshots},
	{"iterators", 100, runIterators},
	{"logs", 90, runLogs},
	{"manifests", 90, runManifests},
	{"reopen", 70, runReopen},
	{"recovery", 90, runRecovery},
	{"create", 12, runCreate},
	{"ranges", 80, runRanges},
	{"delete range", 90, runDeleteRange},
	{"ingest", 90, runIngest},
	{"checkpoint", 60, runCheckpoint},
	{"filters", 60, runFilters},
	{"families", 80, runFamilies},
	{"keyed", 70, runKeyed},
	{"check", 60, runCheck},
	{"repair", 80, runRepair},
	{"mixed", 110, runMixed},
	{"group", 120, runGroup},
}

// runFill writes ascending keys, with occasional syncs.
func runFill(e *Env, n int) {
	e.Open()
	for i := range n {
		e.Put(fmt.Sprintf("key%05d", i), 20+e.Rng.IntN(200), e.Sync(5))
	}
	e.Check()
	e.Close()
}

// runOverwrite overwrites a few keys again and again, so that compactions drop most entries.
func runOverwrite(e *Env, n int) {
	e.Open()
	for range n {
		e.Put(e.key(12), 50+e.Rng.IntN(100), e.Sync(6))
	}
	e.Check()
	e.Compact("", "")
	e.Check()
	e.Close()
}

// runDelete writes and deletes, and lets compactions drop the tombstones.
func runDelete(e *Env, n int) {
	e.Open()
	for i := range n {
		if e.Rng.IntN(5) < 2 {
			e.Delete(e.key(40), e.Sync(6))
		} else {
			e.Put(e.key(40), 40+e.Rng.IntN(100), e.Sync(6))
		}
		if i == n/2 {
			e.Compact("", "")
		}
	}
	for i := range 40 {
		e.Delete(fmt.Sprintf("key%03d", i), false)
	}
	e.Compact("", "")
	e.Check()
	e.Put("last", 10, true)
	e.Close()
}

// runLarge writes values of all sizes, including some larger than a block of the log, than
// a memtable and than a table.
func runLarge(e *Env, n int) {
	e.Open()
	for i := range n {
		size := 1 << e.Rng.IntN(13)
		if i%9 == 4 {
			size = 30<<10 + e.Rng.IntN(40<<10)
		}
		e.Put(e.key(15), size, e.Sync(4))
	}
	e.Check()
	e.Flush()
	e.Close()
}

// runBatch writes batches, which must stay atomic.
func runBatch(e *Env, n int) {
	e.Open()
	for range n {
		edits := make([]Edit, 1+e.Rng.IntN(12))
		for i := range edits {
			edits[i] = e.Set(e.key(60), 10+e.Rng.IntN(80))
			if e.Rng.IntN(4) == 0 {
				edits[i] = Edit{Key: edits[i].Key, Delete: true}
			}
		}
		e.Write(e.Sync(4), edits...)
	}
	e.Check()
	e.Close()
}

// runSnapshots holds snapshots across flushes and compactions, with a hot key whose
// versions fill more than one table.
func runSnapshots(e *Env, n int) {
	e.Open()
	var views []*View
	for i := range n {
		key := "hot"
		if i%3 == 0 {
			key = e.key(20)
		}
		e.Put(key, 60+e.Rng.IntN(60), e.Sync(8))
		if i%7 == 0 {
			views = append(views, e.Snapshot())
		}
		if i%31 == 30 {
			e.Compact("", "")
		}
		if len(views) > 8 {
			at := e.Rng.IntN(len(views))
			e.Release(views[at])
			views = slices.Delete(views, at, at+1)
		}
	}
	for _, v := range views {
		e.Release(v)
	}
	e.Compact("", "")
	e.Check()
	e.Close()
}

// runIterators keeps iterators open while the tables that they read become
// obsolete.
func runIterators(e *Env, n int) {
	e.Open()
	var views []*View
	for i := range n {
		e.Put(e.key(30), 60+e.Rng.IntN(80), e.Sync(8))
		if i%9 == 8 {
			views = append(views, e.Iterator())
		}
		switch i % 28 {
		case 13:
			e.Flush()
		case 27:
			e.Compact("", "")
		}
		if len(views) > 4 {
			e.Release(views[0])
			views = views[1:]
		}
	}
	e.Compact("", "")
	for _, v := range views {
		e.Release(v)
	}
	e.Check()
	e.Close()
}

// runLogs rotates logs, with synced and unsynced writes before and after.
func runLogs(e *Env, n int) {
	e.Options.MemtableBytes = 1 << 10
	e.Options.L0Tables = 8
	e.Open()
	for i := range n {
		e.Put(fmt.Sprintf("key%05d", i), 100+e.Rng.IntN(200), e.Sync(3))
		if i%17 == 5 {
			e.Flush()
			e.Put("after flush", 10, i%2 == 0)
		}
	}
	e.Check()
	e.Close()
}

// runManifests makes many edits, so that the MANIFEST rotates.
func runManifests(e *Env, n int) {
	e.Options.TableBytes = 1 << 10
	e.Options.LevelBaseBytes = 2 << 10
	e.Open()
	for i := range n {
		e.Put(e.key(80), 20+e.Rng.IntN(60), e.Sync(4))
		if i%6 == 5 {
			e.Flush()
		}
	}
	e.Compact("", "key040")
	e.Compact("", "")
	e.Check()
	e.Close()
}

// runReopen closes and opens repeatedly, with much or little in the log.
func runReopen(e *Env, n int) {
	e.Open()
	for range n {
		e.Put(e.key(30), 20+e.Rng.IntN(150), e.Sync(4))
		if e.Rng.IntN(9) == 0 {
			e.Reopen()
			e.Check()
		}
		if e.Rng.IntN(20) == 0 {
			e.Reopen()
			e.Reopen()
		}
	}
	e.Close()
}

// runRecovery loses power repeatedly and continues with what is left. The disk that is
// recorded, and that may fail, is the last one: it begins with a crash.
func runRecovery(e *Env, n int) {
	faults := e.Faults
	e.FS, e.Faults = e.Mem, false
	for round := range 2 {
		e.Open()
		for i := range n / 3 {
			if e.Rng.IntN(6) == 0 {
				e.Delete(e.key(25), false)
			} else {
				e.Put(e.key(25), 30+e.Rng.IntN(300), e.Sync(9))
			}
			if i == n/7 {
				e.Checkpoint(fmt.Sprintf("%s-copy%d", dbDir, round))
			}
		}
		e.PowerCut()
	}
	if e.Err != nil {
		return
	}
	e.FS, e.Faults = e.Wrap(e.Mem), faults
	e.Open()
	e.Check()
	for range n / 3 {
		e.Put(e.key(25), 30+e.Rng.IntN(100), e.Sync(4))
	}
	e.Check()
	e.Close()
}

// runCreate opens an empty directory several times, and writes little.
func runCreate(e *Env, n int) {
	e.Open()
	e.Close()
	e.Open()
	for range n {
		e.Put(e.key(9), 30, true)
		if e.Rng.IntN(3) == 0 {
			e.Reopen()
		}
	}
	e.Close()
}

// runRanges compacts key ranges manually, and cancels some of the compactions.
func runRanges(e *Env, n int) {
	e.Options.DisableAutoCompaction = true
	e.Open()
	for i := range n {
		e.Put(e.key(50), 40+e.Rng.IntN(100), e.Sync(6))
		if i%16 == 15 {
			from, to := e.key(50), e.key(50)
			e.Compact(min(from, to), max(from, to))
		}
		if i%40 == 39 && !e.dead() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(e.Rng.IntN(300))*time.Microsecond)
			_ = e.DB.Compact(ctx, nil, nil) // what it has completed remains
			cancel()
			e.Check()
		}
	}
	e.Compact("", "")
	e.Check()
	e.Close()
}

// runDeleteRange deletes ranges, some of which contain whole tables, while other tables
// hold older versions of their keys and views are open.
func runDeleteRange(e *Env, n int) {
	e.Open()
	var views []*View
	release := func() {
		for _, v := range views {
			e.Release(v)
		}
		views = nil
	}
	deleteRange := func(from, to string) {
		if !e.DeleteRange(from, to) {
			release()
			e.Reopen()
		}
		e.Check()
	}
	for i := range n {
		switch e.Rng.IntN(8) {
		case 0:
			e.Delete(e.key(60), e.Sync(6))
		case 1:
			e.Put(e.key(200), 30+e.Rng.IntN(60), e.Sync(6))
		default:
			e.Put(e.key(60), 60+e.Rng.IntN(100), e.Sync(6))
		}
		switch i % 18 {
		case 5:
			from, to := e.key(60), e.key(60)
			e.Compact(min(from, to), max(from, to))
		case 8:
			e.Flush()
		case 11:
			if e.Rng.IntN(2) == 0 {
				views = append(views, e.Snapshot(), e.Iterator())
			}
		case 14:
			from, to := e.key(60), e.key(200)
			deleteRange(min(from, to), max(from, to))
		case 17:
			release()
		}
	}
	release()
	deleteRange("key010", "key050")
	e.Close()
}

// runIngest ingests keys over, between and after others, some of them tombstones, while
// views are open and compactions run.
func runIngest(e *Env, n int) {
	e.Open()
	var views []*View
	for i := range n {
		if e.Rng.IntN(5) == 0 {
			e.Delete(e.key(60), e.Sync(6))
		} else {
			e.Put(e.key(60), 60+e.Rng.IntN(100), e.Sync(6))
		}
		switch i % 15 {
		case 4, 12:
			var edits []Edit
			from := e.Rng.IntN(120)
			for j := range 1 + e.Rng.IntN(40) {
				key := fmt.Sprintf("key%03d", from+j*(1+i%2))
				if e.Rng.IntN(4) == 0 {
					edits = append(edits, Edit{Key: key, Delete: true})
				} else {
					edits = append(edits, e.Set(key, 30+e.Rng.IntN(100)))
				}
			}
			e.Ingest(edits...)
			e.Check()
		case 6:
			from, to := e.key(60), e.key(60)
			e.Compact(min(from, to), max(from, to))
		case 8:
			views = append(views, e.Snapshot(), e.Iterator())
		case 10:
			if e.Rng.IntN(3) == 0 {
				e.Flush()
			}
		case 14:
			for _, v := range views {
				e.Release(v)
			}
			views = nil
			if e.Rng.IntN(4) == 0 {
				e.Reopen()
			}
		}
	}
	for _, v := range views {
		e.Release(v)
	}
	e.Check()
	e.Close()
}

// runCheckpoint makes checkpoints while the database is written.
func runCheckpoint(e *Env, n int) {
	e.Open()
	for i := range n {
		e.Put(e.key(30), 30+e.Rng.IntN(100), e.Sync(6))
		if i%20 == 10 {
			e.Checkpoint(fmt.Sprintf("%s-copy%d", dbDir, i))
		}
	}
	e.Compact("", "")
	e.Check()
	e.Close()
}

// runFilters reopens with other filter policies and builds the filters.
func runFilters(e *Env, n int) {
	for _, p := range []filter.Policy{filter.None(), filter.RocksDBBloom(10), filter.Bloom(8)} {
		e.Options.Filter = p
		e.Open()
		for range n / 3 {
			e.Put(e.key(40), 30+e.Rng.IntN(100), e.Sync(6))
		}
		e.Flush()
		e.BuildFilters()
		e.Check()
		e.Close()
	}
}

// runCheck checks the files while the database is open, which must fail, and after Close.
func runCheck(e *Env, n int) {
	e.Options.LevelFilters = families()
	e.Open()
	for range n {
		e.Put(e.key(40), 40+e.Rng.IntN(100), e.Sync(6))
	}
	e.CheckFiles()
	e.Close()
	e.CheckFiles()
	e.Open()
	e.Put("last", 10, true)
	e.Close()
}

// runFamilies uses another filter family on each level.
func runFamilies(e *Env, n int) {
	e.Options.LevelFilters = families()
	e.Open()
	for range n {
		e.Put(e.key(60), 40+e.Rng.IntN(80), e.Sync(6))
	}
	e.Check()
	e.Compact("", "")
	e.Check()
	e.Close()
}

// families returns a policy of each family.
func families() []filter.Policy {
	return []filter.Policy{filter.Bloom(10), filter.Ribbon(10), filter.Fuse(8), filter.RocksDBBloom(10), filter.None()}
}

// runKeyed turns on keyed filters for a database that has unkeyed ones, copies it, and
// continues without the option; the filters are still keyed then.
func runKeyed(e *Env, n int) {
	for round := range 3 {
		e.Options.KeyedFilters = round == 1
		e.Open()
		for range n / 3 {
			e.Put(e.key(40), 30+e.Rng.IntN(100), e.Sync(6))
		}
		e.Flush()
		if round == 1 {
			e.BuildFilters()
			e.Checkpoint(dbDir + "-copy")
		}
		e.Check()
		e.Close()
	}
}

// runMixed mixes writes, flushes, compactions, views and reopenings.
func runMixed(e *Env, n int) {
	e.Open()
	var views []*View
	for range n {
		switch k := e.Rng.IntN(100); {
		case k < 60:
			e.Put(e.key(40), 20+e.Rng.IntN(200), e.Sync(6))
		case k < 75:
			e.Delete(e.key(40), e.Sync(6))
		case k < 82:
			e.Write(e.Sync(3), e.Set(e.key(40), 30), e.Set(e.key(40), 40), Edit{Key: e.key(40), Delete: true})
		case k < 86:
			e.Flush()
		case k < 88:
			from, to := e.pick(), e.pick()
			e.Compact(min(from, to), max(from, to))
		case k < 91:
			views = append(views, e.Snapshot())
		case k < 94:
			views = append(views, e.Iterator())
		case k < 97:
			if len(views) > 0 {
				e.Release(views[0])
				views = views[1:]
			}
		case k < 98:
			e.Check()
		default:
			for _, v := range views {
				e.Release(v)
			}
			views = nil
			e.Reopen()
		}
	}
	for _, v := range views {
		e.Release(v)
	}
	e.Check()
	e.Close()
}

// PowerCut cuts the power at a random moment, and continues with a disk that holds what
// was left, all of it durable.
func (e *Env) PowerCut() {
	if e.dead() {
		return
	}
	e.DB.Close()
	e.DB = nil
	n := e.Rng.IntN(e.ops() + 1)
	img := e.Mem.CrashImage(n, vfstest.TearUnsynced(e.Rng.Uint64()))
	contents, err := e.readImage(img)
	if err == nil {
		_, err = e.H.Found(contents, n)
	}
	if err != nil {
		e.broken("after a power cut: %w", err)
		return
	}
	e.Mem, e.FS = img, img
	e.H = NewHistory(contents)
	e.extras = nil
}

// readImage opens a disk image and returns the contents of its database, which are empty
// if there is none.
func (e *Env) readImage(img *vfstest.Mem) (map[string]string, error) {
	o := e.options(img)
	o.ReadOnly = true
	db, err := sift.Open(e.Dir, o)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	contents, err := contentsOf(db)
	if err != nil {
		db.Close()
		return nil, err
	}
	return contents, db.Close()
}
