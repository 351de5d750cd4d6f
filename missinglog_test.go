package sift

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// logOf returns a log. A positive number is a batch that sets one key at that sequence
// number, a negative one an empty batch.
func logOf(t *testing.T, seqs ...int) []byte {
	t.Helper()
	var out strings.Builder
	w := record.NewWriter(&out)
	for _, seq := range seqs {
		b := wal.AppendBatchHeader(nil, uint64(max(seq, -seq)), 0)
		if seq > 0 {
			b = wal.AppendBatchHeader(nil, uint64(seq), 1)
			b = append(b, 1, 6)
			b = fmt.Appendf(b, "key%03d", seq)
			b = append(b, 1, 'v')
		}
		if err := w.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	return []byte(out.String())
}

// TestGapBetweenLogs checks that recovery ends where a log does not continue the previous one, and
// that it reports damage if something proves that the missing part was on disk.
func TestGapBetweenLogs(t *testing.T) {
	torn := func(log []byte) []byte { return log[:len(log)-3] }
	padded := func(log []byte) []byte { return append(log, make([]byte, 5000)...) }
	garbled := func(log []byte) []byte {
		log[len(log)-30]++ // in the second-to-last record, a batch
		return log
	}
	for _, tc := range []struct {
		desc   string
		logs   [][]byte
		keys   int // the keys from 1 to this one are recovered
		torn   int // number of reports
		damage bool
	}{
		{"no gap", [][]byte{logOf(t, -1, 1, 2, 3), logOf(t, -4, 4, 5)}, 5, 0, false},
		{"no gap, created ahead", [][]byte{logOf(t, -1, 1, 2, 3), logOf(t, -2, 4, 5), logOf(t, -4)}, 5, 0, false},
		{"no gap, zeros after both", [][]byte{padded(logOf(t, -1, 1, 2)), padded(logOf(t, -2, 3))}, 3, 0, false},
		{"the end is missing", [][]byte{logOf(t, -1, 1, 2), logOf(t, -4, 4, 5)}, 2, 1, false},
		{"the end is missing, created ahead", [][]byte{logOf(t, -1, 1, 2), logOf(t, -2, 4, 5)}, 2, 1, false},
		{"the end is zeros", [][]byte{padded(logOf(t, -1, 1, 2)), padded(logOf(t, -2, 4, 5))}, 2, 1, false},
		{"the end is torn", [][]byte{torn(logOf(t, -1, 1, 2, 3)), logOf(t, -2, 4, 5)}, 2, 1, false},
		{"all but the beginning is missing", [][]byte{logOf(t, -1), logOf(t, -2, 4, 5)}, 0, 1, false},
		{"both are torn", [][]byte{torn(logOf(t, -1, 1, 2, 3)), torn(logOf(t, -2, 4, 5))}, 2, 1, false},
		{"the second holds nothing", [][]byte{torn(logOf(t, -1, 1, 2, 3)), padded(logOf(t, -2))}, 2, 1, false},
		{"the second is unused", [][]byte{torn(logOf(t, -1, 1, 2, 3)), logOf(t, -2)}, 2, 1, false},
		{"the second is unused and begins where the first ends", [][]byte{logOf(t, -1, 1, 2), logOf(t, -3)}, 2, 0, false},
		{"the second is unused and begins after a gap", [][]byte{logOf(t, -1, 1, 2), logOf(t, -4)}, 2, 1, false},
		{"no gap, and a marker for the log before", [][]byte{logOf(t, -1, 1, 2, 3), logOf(t, -2, 4, 5, -3, 6)}, 6, 0, false},
		{"torn before a marker for the log before", [][]byte{logOf(t, -1, 1, 2, 3), torn(logOf(t, -2, 4, 5, -3))}, 5, 1, false},
		{"damaged before a marker for the log before", [][]byte{logOf(t, -1, 1, 2, 3), garbled(logOf(t, -2, 4, -3))}, 3, 1, false},
		{"an unused one between", [][]byte{logOf(t, -1, 1, 2), logOf(t, -2), logOf(t, -2, 4, 5)}, 2, 1, false},
		{"both are LevelDB's, and the second begins with an empty batch", [][]byte{logOf(t, 1, 2), logOf(t, -3, 3, 4)}, 4, 0, false},
		{"two logs after it", [][]byte{logOf(t, -1, 1, 2), logOf(t, -4, 4), logOf(t, -5, 5)}, 2, 1, false},
		{"two logs after it, created ahead", [][]byte{logOf(t, -1, 1, 2), logOf(t, -2, 4), logOf(t, -4, 5), logOf(t, -5)}, 2, 1, false},
		{"all three torn", [][]byte{torn(logOf(t, -1, 1, 2, 3)), torn(logOf(t, -2, 4, 5)), torn(logOf(t, -4, 6, 7))}, 2, 1, false},
		{"the second is unused, and one after it", [][]byte{torn(logOf(t, -1, 1, 2)), logOf(t, -2), logOf(t, -4, 5)}, 1, 1, false},
		{"the first whole, the second not", [][]byte{logOf(t, -1, 1, 2), padded(logOf(t, -2, 3)), logOf(t, -4, 5), logOf(t, -6, 6)}, 3, 1, false},
		{"and one created ahead after it", [][]byte{logOf(t, -1, 1, 2), logOf(t, -2, 4, 5), logOf(t, -5)}, 2, 1, false},

		{"a marker after it", [][]byte{logOf(t, -1, 1, 2), logOf(t, -2, 4, -5, 5)}, 0, 0, true},
		{"a marker at once", [][]byte{logOf(t, -1, 1, 2), logOf(t, -2, -4, 4, 5)}, 0, 0, true},
		{"a marker after it, the end torn", [][]byte{torn(logOf(t, -1, 1, 2, 3)), logOf(t, -4, 4, -5, 5)}, 0, 0, true},
		{"a marker for the log before", [][]byte{logOf(t, -1, 1, 2), logOf(t, -2, 4, -3, 5)}, 0, 0, true},
		{"a marker for the log before, the end torn", [][]byte{torn(logOf(t, -1, 1, 2, 3)), logOf(t, -2, 4, -3, 5)}, 0, 0, true},
		{"a marker for the log before, after damage", [][]byte{logOf(t, -1, 1, 2), garbled(logOf(t, -2, 4, 5, -3))}, 0, 0, true},
		{"a marker after damage", [][]byte{logOf(t, -1, 1, 2), garbled(logOf(t, -4, 4, 5, -6))}, 0, 0, true},
		{"two logs after it, a marker in the second", [][]byte{logOf(t, -1, 1, 2), logOf(t, -4, 4), logOf(t, -5, 5, -6)}, 0, 0, true},
		{"two logs after it, a marker for both before", [][]byte{logOf(t, -1, 1, 2), logOf(t, -4, 4), logOf(t, -4, 5, -4, 6)}, 0, 0, true},
		{"the first whole, a gap, and a marker", [][]byte{logOf(t, -1, 1, 2), logOf(t, -3, 3), logOf(t, -5, 5, -6)}, 0, 0, true},
		{"torn, and the next continues", [][]byte{append(logOf(t, -1, 1, 2), 1), logOf(t, -3, 3)}, 0, 0, true},
		{"torn, and the next goes back", [][]byte{torn(logOf(t, -1, 1, 2)), logOf(t, -1, 1)}, 0, 0, true},
		{"the next goes back", [][]byte{logOf(t, -1, 1, 2), logOf(t, -2, 2)}, 0, 0, true},
		{"the first begins late", [][]byte{logOf(t, -1, 2)}, 0, 0, true},
		{"a gap within a log", [][]byte{logOf(t, -1, 1, 3)}, 0, 0, true},
		{"the next is another engine's", [][]byte{torn(logOf(t, -1, 1, 2)), logOf(t, 2, 3)}, 0, 0, true},
		{"the first is another engine's", [][]byte{torn(logOf(t, 1, 2)), logOf(t, -3, 3)}, 0, 0, true},
	} {
		t.Run(tc.desc, func(t *testing.T) {
			mem := vfstest.NewMem()
			mustClose(t, mustOpen(t, "db", uncached(mem)))
			named := oneFile(t, mem, ".log")
			_, num, _ := manifest.ParseName(filepath.Base(named))
			for i, log := range tc.logs {
				writeFile(t, mem, filepath.Join("db", manifest.MakeName(manifest.KindLog, num+10*uint64(i))), log)
			}
			for _, readOnly := range []bool{true, false} {
				o := uncached(mem)
				o.ReadOnly = readOnly
				db, err := Open("db", o)
				if tc.damage {
					if !errors.Is(err, ErrCorruption) {
						t.Errorf("read-only %v: %v; want ErrCorruption", readOnly, err)
					}
					if err == nil {
						mustClose(t, db)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				checkKeys(t, db, tc.keys)
				if r := db.Metrics().Recovery; len(r.Torn) != tc.torn {
					t.Errorf("torn logs: %v; want %d", r.Torn, tc.torn)
				}
				mustClose(t, db)
			}
			if tc.damage {
				return
			}
			db := mustOpen(t, "db", uncached(mem))
			checkKeys(t, db, tc.keys)
			mustClose(t, db)
			oneFile(t, mem, ".log")
		})
	}
}

// TestLogsAfterMissingOne checks recovery when the log that the MANIFEST names is missing.
// goleveldb removes a log without entries for a newer one while the MANIFEST still names it. If it
// is killed after the newer one has become full as well, there are two logs: the first must begin
// where the MANIFEST ends, and the second where the first ends. sift removes no log that the
// MANIFEST names, so a newer log of sift's without entries does not show that nothing is missing.
func TestLogsAfterMissingOne(t *testing.T) {
	for _, tc := range []struct {
		desc   string
		logs   [][]byte
		keys   int // the keys from 1 to this one are recovered
		damage bool
	}{
		{"one log", [][]byte{logOf(t, 1, 2)}, 2, false},
		{"two logs", [][]byte{logOf(t, 1, 2), logOf(t, 3, 4)}, 4, false},
		{"two logs, the second empty", [][]byte{logOf(t, 1, 2), nil}, 2, false},
		{"two logs, the first empty", [][]byte{nil, logOf(t, 1, 2)}, 2, false},
		{"three logs", [][]byte{logOf(t, 1, 2), logOf(t, 3), logOf(t, 4, 5)}, 5, false},
		{"the first begins late", [][]byte{logOf(t, 2, 3), logOf(t, 4)}, 0, true},
		{"the second begins late", [][]byte{logOf(t, 1, 2), logOf(t, 4, 5)}, 0, true},
		{"one log of sift's", [][]byte{logOf(t, -1, 1, 2)}, 2, false},
		{"the second is sift's, of an Open that was killed", [][]byte{logOf(t, 1, 2), logOf(t, -3)}, 2, false},
		{"one log of sift's, created ahead", [][]byte{logOf(t, -1)}, 0, true},
		{"one log of sift's without entries", [][]byte{append(logOf(t, -1), make([]byte, 5000)...)}, 0, true},
		{"two logs of sift's, both created ahead", [][]byte{logOf(t, -1), logOf(t, -1)}, 0, true},
	} {
		t.Run(tc.desc, func(t *testing.T) {
			mem := vfstest.NewMem()
			mustClose(t, mustOpen(t, "db", uncached(mem)))
			named := oneFile(t, mem, ".log")
			_, num, _ := manifest.ParseName(filepath.Base(named))
			if err := mem.Remove(named); err != nil {
				t.Fatal(err)
			}
			for i, log := range tc.logs {
				writeFile(t, mem, filepath.Join("db", manifest.MakeName(manifest.KindLog, num+10*uint64(i+1))), log)
			}
			for _, readOnly := range []bool{true, false} {
				o := uncached(mem)
				o.ReadOnly = readOnly
				db, err := Open("db", o)
				if errors.Is(err, ErrCorruption) != tc.damage || err != nil && !tc.damage {
					t.Errorf("read-only %v: %v; want damage: %v", readOnly, err, tc.damage)
				}
				if err != nil {
					continue
				}
				if !tc.damage {
					checkKeys(t, db, tc.keys)
				}
				mustClose(t, db)
			}
			if !tc.damage {
				return
			}
			report, err := Repair("db", uncached(mem))
			if err != nil || len(report.Dropped) != 1 || !strings.Contains(report.Dropped[0].Error(), named) {
				t.Errorf("Repair: %+v, %v; want one report, of %s", report, err, named)
			}
		})
	}
}

// checkKeys checks that the database holds the keys 1 to n and no others.
func checkKeys(t *testing.T, db *DB, n int) {
	t.Helper()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for ok := it.First(); ok; ok = it.Next() {
		if i++; string(it.Key()) != fmt.Sprintf("key%03d", i) {
			t.Errorf("key %d is %q", i, it.Key())
		}
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if i != n {
		t.Errorf("%d keys; want %d", i, n)
	}
}

// slowLogs returns a file system on which, once begin has been called, the sync of the current log
// and the creation of tables block until release is closed. begin first does a synced write,
// without which the full log would not be synced.
func slowLogs(t *testing.T) (mem *vfstest.Mem, o *Options, begin func(db *DB, err error), began, release chan struct{}) {
	mem = vfstest.NewMem()
	faulty := vfstest.Inject(mem)
	o = uncached(faulty)
	o.MemtableBytes, o.DisableAutoCompaction = 4<<10, true
	began, release = make(chan struct{}), make(chan struct{})
	begin = func(db *DB, err error) {
		if err := db.Delete([]byte("none"), Sync); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join("db", manifest.MakeName(manifest.KindLog, db.commit.log.Num()))
		faulty.SetHook(func(op vfstest.Op) error {
			switch {
			case op.Kind == vfstest.OpSync && op.Name == name:
				close(began)
				<-release
				return err
			case op.Kind == vfstest.OpCreate && onTable(op):
				<-release
			}
			return nil
		})
	}
	return mem, o, begin, began, release
}

// awaitLogAfter waits for a log with a higher number.
func awaitLogAfter(t *testing.T, mem *vfstest.Mem, num uint64) {
	t.Helper()
	for {
		names, err := mem.List("db")
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(names, func(name string) bool {
			kind, n, ok := manifest.ParseName(name)
			return ok && kind == manifest.KindLog && n > num
		}) {
			return
		}
		runtime.Gosched()
	}
}

// fillLog writes keys without Sync until there is a new log and the sync of the old one has begun,
// and returns the number of keys.
func fillLog(t *testing.T, db *DB, began chan struct{}) (n int) {
	t.Helper()
	for old := db.commit.log.Num(); db.commit.log.Num() == old; {
		n++
		if err := db.Put(fmt.Appendf(nil, "key%03d", n), make([]byte, 100), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	<-began
	return n
}

// TestPowerCutBetweenLogs checks that writers continue while the full log is being synced. A power
// cut may then lose its end and keep later writes; what is recovered must be a prefix of the
// writes.
func TestPowerCutBetweenLogs(t *testing.T) {
	mem, o, begin, began, release := slowLogs(t)
	db := mustOpen(t, "db", o)
	begin(db, nil)
	n := fillLog(t, db, began)
	for range 10 {
		n++
		if err := db.Put(fmt.Appendf(nil, "key%03d", n), []byte("value"), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	ops := mem.NumOps()
	gaps := 0
	for seed := range uint64(200) {
		img := mem.CrashImage(ops, vfstest.TearUnsynced(seed))
		re := mustOpen(t, "db", uncached(img))
		it, err := re.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for ok := it.First(); ok; ok = it.Next() {
			if found++; string(it.Key()) != fmt.Sprintf("key%03d", found) {
				t.Fatalf("seed %d: key %d is %q", seed, found, it.Key())
			}
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		for _, e := range re.Metrics().Recovery.Torn {
			if strings.Contains(e.Error(), "is next") {
				gaps++
			}
		}
		mustClose(t, re)
	}
	if gaps == 0 {
		t.Error("no power cut left a gap")
	}
	close(release)
	checkKeys(t, db, n)
	mustClose(t, db)
}

// TestMarkerForOldLog checks that, once the old log is on disk, the next write adds a durability
// marker, even if nothing is synced: from then on, a missing end of the old log is damage.
func TestMarkerForOldLog(t *testing.T) {
	mem, o, begin, began, release := slowLogs(t)
	db := mustOpen(t, "db", o)
	begin(db, nil)
	old := db.commit.log.Num()
	n := fillLog(t, db, began)
	logName := func(num uint64) string { return filepath.Join("db", manifest.MakeName(manifest.KindLog, num)) }
	oldLog := readFile(t, mem, logName(old))
	oldLog = oldLog[:len(oldLog)-20]
	put := func() (newLog []byte) {
		n++
		if err := db.Put(fmt.Appendf(nil, "key%03d", n), []byte("value"), NoSync); err != nil {
			t.Fatal(err)
		}
		return readFile(t, mem, logName(db.commit.log.Num()))
	}
	put()
	before := put()
	close(release)
	awaitLogAfter(t, mem, db.commit.log.Num()) // it is created once the old log is on disk
	after := put()
	mustClose(t, db)
	for _, tc := range []struct {
		newLog []byte
		damage bool
	}{{before, false}, {after, true}} {
		mem := vfstest.NewMem()
		mustClose(t, mustOpen(t, "db", uncached(mem)))
		writeFile(t, mem, logName(100), oldLog)
		writeFile(t, mem, logName(101), tc.newLog)
		db, err := Open("db", uncached(mem))
		if errors.Is(err, ErrCorruption) != tc.damage {
			t.Errorf("%d bytes of the new log: %v; want damage: %v", len(tc.newLog), err, tc.damage)
		}
		if err == nil {
			mustClose(t, db)
		}
	}
}

// TestSyncWaitsForOldLog checks that a write with Sync to the new log waits until the old one is on
// disk.
func TestSyncWaitsForOldLog(t *testing.T) {
	mem, o, begin, began, release := slowLogs(t)
	db := mustOpen(t, "db", o)
	begin(db, nil)
	n := fillLog(t, db, began) + 1
	done := make(chan error, 1)
	go func() { done <- db.Put(fmt.Appendf(nil, "key%03d", n), nil, Sync) }()
	select {
	case err := <-done:
		t.Errorf("a synced write does not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	re := mustOpen(t, "db", uncached(mem.CrashImage(mem.NumOps(), vfstest.LoseUnsynced)))
	checkKeys(t, re, n)
	mustClose(t, re)
	mustClose(t, db)
}

// TestOldLogFails checks that, if the sync of the old log fails, no write is accepted after it
// (I5), including one with Sync that was waiting for it, and that Flush returns an error.
func TestOldLogFails(t *testing.T) {
	for name, wait := range map[string]func(db *DB) error{
		"a synced write": func(db *DB) error { return db.Put([]byte("waits"), nil, Sync) },
		"Flush":          func(db *DB) error { return db.Flush() },
		"a write": func(db *DB) (err error) { // none waits for the old log, but one comes after its sync
			for begin := time.Now(); err == nil && time.Since(begin) < 30*time.Second; {
				err = db.Put([]byte("key001"), []byte("value"), NoSync)
			}
			return err
		},
	} {
		_, o, begin, began, release := slowLogs(t)
		db := mustOpen(t, "db", o)
		begin(db, syscall.EIO)
		n := fillLog(t, db, began)
		done := make(chan error, 1)
		go func() { done <- wait(db) }()
		close(release)
		if err := <-done; !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrReopen) {
			t.Errorf("%s after the sync has failed: %v", name, err)
		}
		for _, err := range []error{db.Put([]byte("later"), nil, NoSync), db.Put([]byte("later"), nil, Sync), db.Flush()} {
			if !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrReopen) {
				t.Errorf("%s, and a later call: %v", name, err)
			}
		}
		checkKeys(t, db, n)
		if err := db.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: Close: %v", name, err)
		}
	}
}

// blockTables blocks the creation of the first table until release is called, which may make it
// fail, and counts the syncs of each log.
func blockTables(t *testing.T) (mem *vfstest.Mem, o *Options, blocked chan struct{}, release func(error), syncs func() map[string]int) {
	mem = vfstest.NewMem()
	faulty := vfstest.Inject(mem)
	o = uncached(faulty)
	o.MemtableBytes, o.DisableAutoCompaction, o.retryDelay = 4<<10, true, time.Millisecond
	var mu sync.Mutex
	count := map[string]int{}
	blocked = make(chan struct{})
	released, first, result := make(chan struct{}), true, error(nil)
	faulty.SetHook(func(op vfstest.Op) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case op.Kind == vfstest.OpSync && strings.HasSuffix(op.Name, ".log"):
			count[op.Name]++
		case op.Kind == vfstest.OpCreate && onTable(op) && first:
			first = false
			mu.Unlock()
			close(blocked)
			<-released
			mu.Lock()
			return result
		}
		return nil
	})
	return mem, o, blocked, func(err error) { result = err; close(released) }, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(count)
	}
}

// fillMemtables writes keys without Sync until n memtables are full, and counts the keys.
func fillMemtables(t *testing.T, db *DB, n int) (keys int) {
	t.Helper()
	for ; n > 0; n-- {
		for old := db.commit.log.Num(); db.commit.log.Num() == old; {
			keys++
			if err := db.Put(fmt.Appendf(nil, "key%03d", keys), make([]byte, 100), NoSync); err != nil {
				t.Fatal(err)
			}
		}
	}
	return keys
}

// TestUnsyncedLogs checks that, without writes with Sync, no log is synced after its header: its
// memtable is soon in a table.
func TestUnsyncedLogs(t *testing.T) {
	_, o, blocked, release, syncs := blockTables(t)
	db := mustOpen(t, "db", o)
	n := fillMemtables(t, db, 1)
	<-blocked
	release(nil)
	n = max(n, fillMemtables(t, db, 5))
	if err := db.bg.waitFlushed(); err != nil {
		t.Fatal(err)
	}
	for name, n := range syncs() {
		if n > 1 {
			t.Errorf("%s: %d syncs", name, n)
		}
	}
	checkKeys(t, db, n)
	mustClose(t, db)
}

// TestSyncReachesAllLogs checks that a write with Sync makes all earlier ones durable, however many
// logs they are in.
func TestSyncReachesAllLogs(t *testing.T) {
	mem, o, blocked, release, _ := blockTables(t)
	db := mustOpen(t, "db", o)
	n := fillMemtables(t, db, 2) + 1
	<-blocked
	if err := db.Put(fmt.Appendf(nil, "key%03d", n), nil, Sync); err != nil {
		t.Fatal(err)
	}
	re := mustOpen(t, "db", uncached(mem.CrashImage(mem.NumOps(), vfstest.LoseUnsynced)))
	if logs := re.Metrics().Recovery.Logs; logs < 3 {
		t.Errorf("recovery read only %d logs", logs)
	}
	checkKeys(t, re, n)
	mustClose(t, re)
	release(nil)
	mustClose(t, db)
}

// TestPowerCutAmongLogs checks that a power cut leaves a prefix of the writes, however many logs
// had not been synced.
func TestPowerCutAmongLogs(t *testing.T) {
	mem, o, blocked, release, _ := blockTables(t)
	db := mustOpen(t, "db", o)
	n := fillMemtables(t, db, 2)
	<-blocked
	for range 10 {
		n++
		if err := db.Put(fmt.Appendf(nil, "key%03d", n), []byte("value"), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	ends := map[int]bool{}
	for seed := range uint64(60) {
		re := mustOpen(t, "db", uncached(mem.CrashImage(mem.NumOps(), vfstest.TearUnsynced(seed))))
		found := scanned(t, re)
		checkKeys(t, re, found)
		ends[found] = true
		mustClose(t, re)
	}
	if len(ends) < 10 {
		t.Errorf("the cuts left only %d different prefixes", len(ends))
	}
	release(nil)
	checkKeys(t, db, n)
	mustClose(t, db)
}

// TestPowerCutDuringFlush: a power cut while Flush waits for tables leaves all earlier writes,
// since the header of the new log proves that the logs before it are on disk.
func TestPowerCutDuringFlush(t *testing.T) {
	mem, o, blocked, release, _ := blockTables(t)
	db := mustOpen(t, "db", o)
	n := fillMemtables(t, db, 1) + 1
	<-blocked
	if err := db.Put(fmt.Appendf(nil, "key%03d", n), []byte("value"), NoSync); err != nil {
		t.Fatal(err)
	}
	flushed := make(chan error, 1)
	go func() { flushed <- db.Flush() }()
	for end := time.Now().Add(time.Minute); !db.state.Load().mem.Empty(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("Flush does not begin a new log")
		}
	}
	for seed := range uint64(30) {
		re := mustOpen(t, "db", uncached(mem.CrashImage(mem.NumOps(), vfstest.TearUnsynced(seed))))
		if found := scanned(t, re); found != n {
			t.Errorf("%d of %d keys are left", found, n)
		}
		mustClose(t, re)
	}
	release(nil)
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	mustClose(t, db)
}

func scanned(t *testing.T, db *DB) (n int) {
	t.Helper()
	for _, err := range db.Scan(nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestMemtablesFlushedTogether checks that memtables that wait together become one table, in which
// newer entries hide older ones and snapshots see what they saw.
func TestMemtablesFlushedTogether(t *testing.T) {
	_, o, blocked, release, _ := blockTables(t)
	db := mustOpen(t, "db", o)
	put := func(key, value string) {
		t.Helper()
		if err := db.Put([]byte(key), []byte(value), NoSync); err != nil {
			t.Fatal(err)
		}
	}
	put("changed", "old")
	put("gone", "old")
	fillMemtables(t, db, 1)
	<-blocked
	snap := db.Snapshot()
	put("changed", "new")
	if err := db.Delete([]byte("gone"), NoSync); err != nil {
		t.Fatal(err)
	}
	n := fillMemtables(t, db, 1)
	release(syscall.EIO) // the flush is retried, with both memtables
	for db.bg.waitFlushed() != nil {
	}
	if m := db.Metrics(); m.Flushes != 1 || m.Levels[0].Tables != 1 || m.Memory.Memtables > 3*uint64(o.MemtableBytes) {
		t.Errorf("%d flushes, %d tables, memtables of %d bytes", m.Flushes, m.Levels[0].Tables, m.Memory.Memtables)
	}
	if v, err := db.Get([]byte("changed")); string(v) != "new" || err != nil {
		t.Errorf("changed: %q, %v", v, err)
	}
	if v, err := db.Get([]byte("gone")); err != ErrNotFound {
		t.Errorf("gone: %q, %v", v, err)
	}
	for _, key := range []string{"changed", "gone"} {
		if v, err := snap.Get([]byte(key)); string(v) != "old" || err != nil {
			t.Errorf("%s in the snapshot: %q, %v", key, v, err)
		}
	}
	if got := scanned(t, db); got < n {
		t.Errorf("%d keys, want at least %d", got, n)
	}
	snap.Close()
	mustClose(t, db)
}

// TestRotationAfterOldLogFails checks that a write without Sync is not accepted if it has waited
// for the failing sync of the old log because it needs the next one (I5).
func TestRotationAfterOldLogFails(t *testing.T) {
	_, o, begin, began, release := slowLogs(t)
	db := mustOpen(t, "db", o)
	begin(db, syscall.EIO)
	n := fillLog(t, db, began)
	put := func() error {
		n++
		return db.Put(fmt.Appendf(nil, "key%03d", n), make([]byte, 100), NoSync)
	}
	for range o.MemtableBytes/memtable.EntrySize(len("key000"), 100) - 1 { // it has one entry
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	write := inBackground(put)        // the next log is created once the old one is synced
	time.Sleep(20 * time.Millisecond) // if that is too short, the write finds the error earlier
	close(release)
	if err := ended(t, "a write", write); !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrReopen) {
		t.Errorf("a write that has waited for a failing sync: %v", err)
	}
	if err := db.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("Close: %v", err)
	}
}

// TestStoppedWriteAfterOldLogFails checks that a write without Sync is not accepted if the sync of
// the old log has failed while the write waited for a compaction of level 0 (I5).
func TestStoppedWriteAfterOldLogFails(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	o := uncached(faulty)
	o.MemtableBytes, o.L0Tables = 4<<10, 1
	db := mustOpen(t, "db", o)
	for range stopFactor - 1 { // one more table stops writes
		if err := errors.Join(db.Put([]byte("key001"), nil, NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, db)
	var log atomic.Value // the path of the old log
	log.Store("")
	var compacting atomic.Bool
	began, release := make(chan struct{}), make(chan struct{})
	removed, compact := make(chan struct{}), make(chan struct{})
	faulty.SetHook(func(op vfstest.Op) error {
		switch {
		case op.Kind == vfstest.OpCreate && onTable(op) && !compacting.Swap(true):
			<-compact
		case op.Kind == vfstest.OpSync && op.Name == log.Load():
			close(began)
			<-release
			return syscall.EIO
		case op.Kind == vfstest.OpRemove && op.Name == log.Load():
			close(removed)
		}
		return nil
	})
	o.DisableAutoCompaction = false
	db = mustOpen(t, "db", o)
	for !compacting.Load() {
		runtime.Gosched()
	}
	if err := db.Delete([]byte("none"), Sync); err != nil { // else the full log would not be synced
		t.Fatal(err)
	}
	log.Store(filepath.Join("db", manifest.MakeName(manifest.KindLog, db.commit.log.Num())))
	fillLog(t, db, began)
	for level0Runs(db.state.Load().version) < stopFactor {
		runtime.Gosched()
	}
	write := inBackground(func() error { return db.Put([]byte("last"), nil, NoSync) })
	time.Sleep(20 * time.Millisecond) // if that is too short, the write finds the error earlier
	close(release)
	<-removed // after the failed sync
	close(compact)
	if err := ended(t, "a write", write); !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrReopen) {
		t.Errorf("a write that has waited while a sync failed: %v", err)
	}
	if err := db.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("Close: %v", err)
	}
}
