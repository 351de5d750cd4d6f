package sift

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/vfs/vfstest"
	"github.com/siftdb/sift/memtable"
)

// manySmall returns a batch of n operations that take much more space in a memtable
// than in the log.
func manySmall(n int) *Batch {
	b := new(Batch)
	for i := range n {
		b.Put(fmt.Appendf(nil, "%06d", i), nil)
	}
	return b
}

func smallArena(fs vfs.FS) *Options {
	return &Options{FS: fs, MemtableBytes: 4 << 10, arenaBytes: 32 << 10, CacheBytes: -1}
}

const smallArenaFits = 32 << 10 / (6 + 31) // operations of manySmall

// countKeys returns the number of keys, and checks that a lookup finds each.
func countKeys(t *testing.T, db *DB) int {
	t.Helper()
	n := 0
	for e, err := range db.Scan(nil) {
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := db.Has(e.Key); err != nil || !ok {
			t.Errorf("%q is not found: %v", e.Key, err)
		}
		n++
	}
	return n
}

// TestBatchTooLarge checks that a batch that fits into no memtable is rejected, and that no part of
// it is logged.
func TestBatchTooLarge(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", smallArena(mem))
	if err := db.Write(manySmall(smallArenaFits), nil); err != nil {
		t.Fatal(err)
	}
	log := func() string { // the path of the current log, and its contents
		path := filepath.Join("db", manifest.MakeName(manifest.KindLog, db.commit.log.Num()))
		return path + string(readFile(t, mem, path))
	}
	before := log()
	if err := db.Write(manySmall(smallArenaFits+1), nil); !errors.Is(err, ErrBatchTooLarge) {
		t.Errorf("a batch larger than the arena: %v", err)
	}
	if log() != before {
		t.Error("part of a batch that is too large was written")
	}
	if err := db.Put([]byte("after"), nil, nil); err != nil {
		t.Errorf("Put after the rejected batch: %v", err)
	}
	db2 := mustOpen(t, "db", smallArena(mem.CrashImage(mem.NumOps(), vfstest.LoseUnsynced)))
	if n := countKeys(t, db2); n != smallArenaFits+1 {
		t.Errorf("%d keys after a crash, want %d", n, smallArenaFits+1)
	}
	mustClose(t, db2)
	mustClose(t, db)

	b := Batch{room: memtable.MaxCapacity - memtable.EntrySize(3, 0)}
	b.Delete([]byte("fit"))
	if b.err != nil || b.Len() != 1 {
		t.Errorf("an operation that just fits: %v", b.err)
	}
	b.Delete(nil)
	b.Reset()
	b.room = memtable.MaxCapacity
	b.Delete(nil)
	b.room = 0
	b.Delete(nil)
	if !errors.Is(b.Err(), ErrBatchTooLarge) || b.Len() != 0 {
		t.Errorf("operations that do not fit: %v, %d operations", b.err, b.Len())
	}
}

// TestGroupFitsMemtable checks that batches that fit into a memtable one by one, but not together,
// are not committed as one group.
func TestGroupFitsMemtable(t *testing.T) {
	mem := vfstest.NewMem()
	faulty := vfstest.Inject(mem)
	db := mustOpen(t, "db", smallArena(faulty))
	defer mustClose(t, db)
	const n = smallArenaFits * 3 / 5
	syncing, release := make(chan bool), make(chan bool)
	var once sync.Once
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpSync && filepath.Ext(op.Name) == ".log" {
			once.Do(func() {
				syncing <- true
				<-release
			})
		}
		return nil
	})
	var wg sync.WaitGroup
	write := func() {
		wg.Go(func() {
			if err := db.Write(manySmall(n), nil); err != nil {
				t.Error(err)
			}
		})
	}
	write()
	<-syncing
	for range 3 {
		write()
	}
	for queued := 0; queued < 4; { // the leader's write is no longer in the queue
		queued = db.commit.queue.Len() + 1
	}
	close(release)
	wg.Wait()
	if got := countKeys(t, db); got != n {
		t.Errorf("%d keys, want %d", got, n)
	}
}

// TestReplaySplitsBatch checks that Open and Repair recover a batch that fits into no memtable,
// which older versions accepted, and that no power cut during the Open that splits it leaves only a
// part of it.
func TestReplaySplitsBatch(t *testing.T) {
	const n = 3 * smallArenaFits
	mem := vfstest.NewMem()
	before := smallArena(mem)
	before.arenaBytes = 1 << 20
	db := mustOpen(t, "db", before)
	if err := db.Put([]byte("000000"), []byte("old"), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Write(manySmall(n), nil); err != nil {
		t.Fatal(err)
	}
	crashed := func() *vfstest.Mem { return mem.CrashImage(mem.NumOps(), vfstest.LoseUnsynced) }

	check := func(what string, fs vfs.FS, readOnly bool) {
		t.Helper()
		o := smallArena(fs)
		o.ReadOnly = readOnly
		db, err := Open("db", o)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		defer mustClose(t, db)
		if got := countKeys(t, db); got != n {
			t.Errorf("%s: %d keys, want %d", what, got, n)
		}
		if v, err := db.Get([]byte("000000")); err != nil || len(v) > 0 {
			t.Errorf("%s: an overwritten value is back: %q, %v", what, v, err)
		}
	}
	check("read-only", crashed(), true)
	img := crashed()
	begun := img.NumOps()
	check("Open", img, false)
	ended := img.NumOps()
	if ended-begun < 30 {
		t.Errorf("Open made only %d disk operations", ended-begun)
	}
	step := 1
	if testing.Short() {
		step = 29
	}
	for ops := begun; ops <= ended; ops += step {
		for _, s := range []vfstest.Survival{vfstest.LoseUnsynced, vfstest.KeepUnsynced, vfstest.TearUnsynced(uint64(ops))} {
			check(fmt.Sprintf("a power cut after %d operations, survival %d", ops-begun, s), img.CrashImage(ops, s), false)
		}
	}
	img = crashed()
	report, err := Repair("db", smallArena(img))
	if err != nil || len(report.Dropped) > 0 {
		t.Fatalf("Repair: %v, dropped %v", err, report.Dropped)
	}
	check("Repair", img, false)

	// An entry that fits into no memtable by itself is reported.
	if err := db.Put([]byte("large"), []byte(strings.Repeat("x", 64<<10)), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("db", smallArena(crashed())); !errors.Is(err, ErrBatchTooLarge) {
		t.Errorf("an entry larger than the arena: %v", err)
	}
	report, err = Repair("db", smallArena(crashed()))
	if err != nil || len(report.Dropped) != 1 || !errors.Is(report.Dropped[0], ErrBatchTooLarge) {
		t.Errorf("Repair of an entry larger than the arena: %v, dropped %v", err, report.Dropped)
	}
	mustClose(t, db)
}

// TestLoadTooLarge checks that Load limits the size of a batch, as Put and Delete do.
func TestLoadTooLarge(t *testing.T) {
	var b Batch
	if err := b.Load(make([]byte, maxBatchBytes+1)); !errors.Is(err, ErrBatchTooLarge) || b.Len() != 0 {
		t.Errorf("a batch of more than 1 GiB: %v, %d operations", err, b.Len())
	}
}

// TestBatchSize checks that no operation makes a batch larger than Load accepts.
func TestBatchSize(t *testing.T) {
	accepted := 0
	data := make([]byte, maxBatchBytes+400)
	for room := range 400 {
		b := Batch{data: data[:maxBatchBytes-room], count: 1}
		b.Put(make([]byte, 130), make([]byte, 130))
		if b.Err() == nil {
			accepted++
		} else if !errors.Is(b.Err(), ErrBatchTooLarge) {
			t.Fatal(b.Err())
		}
		if b.Size() > maxBatchBytes {
			t.Fatalf("with %d bytes left, a batch grows to %d", room, b.Size())
		}
	}
	if accepted < 100 {
		t.Errorf("only %d batches accept 260 bytes", accepted)
	}
}

// TestGroupWithinMemtable checks that a group of writes that each fit into a memtable of the size
// that Options.Memory provides for does not need a larger one, and that a larger batch is a group
// by itself.
func TestGroupWithinMemtable(t *testing.T) {
	db := mustOpen(t, "db", &Options{FS: vfstest.NewMem(), Memory: 16 << 20})
	defer mustClose(t, db)
	var small, large Batch
	small.Put([]byte("k"), make([]byte, 100<<10))
	large.Put([]byte("k"), make([]byte, 2*db.opts.MemtableBytes))
	waiting := make([]*commit, 100)
	for i := range waiting {
		waiting[i] = &commit{batch: &small}
	}
	if n := db.commit.take(waiting); n < 2 || n*small.room > db.opts.MemtableBytes {
		t.Errorf("a group of %d batches takes %d bytes, and a memtable has %d", n, n*small.room, db.opts.MemtableBytes)
	}
	waiting[0] = &commit{batch: &large}
	if n := db.commit.take(waiting); n != 1 {
		t.Errorf("a large batch is in a group of %d", n)
	}
}
