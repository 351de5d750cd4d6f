package sift_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

func mustOpen(t testing.TB, dir string, o *sift.Options) *sift.DB {
	t.Helper()
	db, err := sift.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func mustClose(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func fill(t testing.TB, db *sift.DB, n int, format string) {
	t.Helper()
	for i := range n {
		if err := db.Put(fmt.Appendf(nil, format, i), fmt.Appendf(nil, "value %d", i), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenOptions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if _, err := sift.Open(dir, &sift.Options{ErrorIfMissing: true}); !errors.Is(err, sift.ErrNotExist) {
		t.Errorf("ErrorIfMissing: %v", err)
	}
	if _, err := sift.Open(dir, &sift.Options{ReadOnly: true}); !errors.Is(err, sift.ErrNotExist) {
		t.Errorf("ReadOnly of nothing: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("a failed Open created the directory")
	}
	mustClose(t, mustOpen(t, dir, nil))
	if _, err := sift.Open(dir, &sift.Options{ErrorIfExists: true}); !errors.Is(err, sift.ErrExists) {
		t.Errorf("ErrorIfExists: %v", err)
	}
	for field, o := range map[string]*sift.Options{
		"MemtableBytes":   {MemtableBytes: -1},
		"TableBytes":      {TableBytes: 3},
		"BlockBytes":      {BlockBytes: 1 << 30},
		"LevelMultiplier": {LevelMultiplier: 1},
		"LevelBaseBytes":  {LevelBaseBytes: -5},
		"L0Tables":        {L0Tables: -5},
		"TxBytes":         {TxBytes: 5},
		"Options.Memory":  {Memory: 5},
		"MaxOpenFiles":    {MaxOpenFiles: -5},
		"FilterMemory":    {FilterMemory: -5},
		"LevelFilters":    {LevelFilters: make([]filter.Policy, 8)},
		"ReadOnly":        {ReadOnly: true, ErrorIfExists: true},
	} {
		if _, err := sift.Open(dir, o); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("an invalid %s: Open: %v", field, err)
		}
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, nil)
	fill(t, db, 10, "k%d")
	for _, o := range []*sift.Options{nil, {ReadOnly: true}} {
		_, err := sift.Open(dir, o)
		if !errors.Is(err, sift.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
			t.Errorf("second Open: %v; want ErrLocked with the PID of the holder", err)
		}
	}
	mustClose(t, db)
	// Readers share the lock and keep writers out.
	a, b := mustOpen(t, dir, &sift.Options{ReadOnly: true}), mustOpen(t, dir, &sift.Options{ReadOnly: true})
	if _, err := sift.Open(dir, nil); !errors.Is(err, sift.ErrLocked) {
		t.Errorf("Open beside readers: %v", err)
	}
	for _, db := range []*sift.DB{a, b} {
		if v, err := db.Get([]byte("k3")); err != nil || string(v) != "value 3" {
			t.Errorf("Get: %q, %v", v, err)
		}
		if err := db.Put([]byte("k"), nil, nil); !errors.Is(err, sift.ErrReadOnly) {
			t.Errorf("Put: %v", err)
		}
		_, buildErr := db.BuildFilters(context.Background())
		for name, err := range map[string]error{
			"Delete": db.Delete([]byte("k"), nil), "Write": db.Write(new(sift.Batch), nil), "BuildFilters": buildErr,
			"Flush": db.Flush(), "Compact": db.Compact(context.Background(), nil, nil), "Checkpoint": db.Checkpoint(t.TempDir()),
		} {
			if !errors.Is(err, sift.ErrReadOnly) {
				t.Errorf("%s: %v", name, err)
			}
		}
		mustClose(t, db)
	}
	mustClose(t, mustOpen(t, dir, nil))
}

// TestLockedAndMissing checks that Check and Repair return the errors of Open for a database that
// is open or does not exist, and change nothing.
func TestLockedAndMissing(t *testing.T) {
	check := func(dir string) error {
		_, err := sift.Check(context.Background(), dir, nil, func(err error) { t.Error(err) })
		return err
	}
	repair := func(dir string, o *sift.Options) error {
		_, err := sift.Repair(dir, o)
		return err
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for name, err := range map[string]error{"Check": check(missing), "Repair": repair(missing, nil)} {
		if !errors.Is(err, sift.ErrNotExist) {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
	if exists(missing) {
		t.Error("Check or Repair created the directory")
	}
	dir := t.TempDir()
	_, roErr := sift.Open(dir, &sift.Options{ReadOnly: true})
	_, rwErr := sift.Open(dir, &sift.Options{ErrorIfMissing: true})
	for name, err := range map[string]error{"Check": check(dir), "Repair": repair(dir, nil), "ReadOnly": roErr, "ErrorIfMissing": rwErr} {
		if !errors.Is(err, sift.ErrNotExist) || exists(filepath.Join(dir, "LOCK")) {
			t.Errorf("%s of an empty directory: %v", name, err)
		}
	}
	db := mustOpen(t, dir, nil)
	for name, err := range map[string]error{"Check": check(dir), "Repair": repair(dir, nil)} {
		var locked *sift.LockedError
		if !errors.Is(err, sift.ErrLocked) || !errors.As(err, &locked) || locked.PID != os.Getpid() {
			t.Errorf("%s of an open database: %v", name, err)
		}
	}
	mustClose(t, db)
	if err := repair(dir, &sift.Options{ReadOnly: true}); !errors.Is(err, sift.ErrReadOnly) {
		t.Errorf("Repair with ReadOnly: %v", err)
	}
}

// TestReadOnlyChangesNothing checks that opening a database read-only changes no file, even after a
// crash.
func TestReadOnlyChangesNothing(t *testing.T) {
	from := t.TempDir()
	db := mustOpen(t, from, nil)
	defer db.Close()
	fill(t, db, 100, "k%d")
	dir := copyDir(t, from)
	before := readAll(t, dir)
	ro := mustOpen(t, dir, &sift.Options{ReadOnly: true})
	if v, err := ro.Get([]byte("k99")); err != nil || string(v) != "value 99" {
		t.Errorf("Get: %q, %v", v, err)
	}
	mustClose(t, ro)
	after := readAll(t, dir)
	if len(before) != len(after) {
		t.Errorf("%d files before, %d after", len(before), len(after))
	}
	for name, data := range before {
		if after[name] != data {
			t.Errorf("%s has changed", name)
		}
	}
}

func TestClosed(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	fill(t, db, 10, "k%d")
	snap := db.Snapshot()
	it, err := db.NewIter(nil)
	if err != nil || !it.First() {
		t.Fatal(err)
	}
	if _, err := db.Get([]byte("k1")); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	if err := it.Err(); err != nil {
		t.Errorf("Err of an open iterator: %v", err)
	}
	it.Close()
	_, getErr := db.Get([]byte("k1"))
	_, hasErr := db.Has([]byte("k1"))
	_, manyErr := db.GetMany([][]byte{[]byte("k1")})
	_, iterErr := db.NewIter(nil)
	_, snapErr := snap.Get([]byte("k1"))
	_, rangeErr := db.HasRange(nil, nil)
	_, rangesErr := db.HasRanges([]sift.KeyRange{{}})
	_, prefixErr := db.HasPrefix([]byte("k"))
	_, buildErr := db.BuildFilters(context.Background())
	_, planErr := db.PlanFilters(1 << 20)
	missing := filepath.Join(t.TempDir(), "missing")
	for name, err := range map[string]error{
		"Get": getErr, "Has": hasErr, "GetMany": manyErr, "NewIter": iterErr, "Snapshot.Get": snapErr,
		"HasRange": rangeErr, "HasRanges": rangesErr, "HasPrefix": prefixErr, "BuildFilters": buildErr, "PlanFilters": planErr,
		"View": db.View([]byte("k1"), func([]byte) error { return nil }),
		"Put":  db.Put(nil, nil, nil), "Delete": db.Delete(nil, nil), "Flush": db.Flush(),
		"Compact": db.Compact(context.Background(), nil, nil), "Close": db.Close(),
		"Checkpoint": db.Checkpoint(missing), "DeleteRange": db.DeleteRange(context.Background(), nil, []byte{}),
	} {
		if !errors.Is(err, sift.ErrClosed) {
			t.Errorf("%s on a closed database: %v", name, err)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("Checkpoint of a closed database creates the directory")
	}
	if m := db.Metrics(); m.Gets != 0 || m.LastSequence != 0 || db.Tables() != nil {
		t.Error("a closed database has metrics or tables")
	}
}

func TestValuesAreCopies(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	key, value := []byte("key"), []byte("value")
	if err := db.Put(key, value, nil); err != nil {
		t.Fatal(err)
	}
	key[0], value[0] = 'X', 'X'
	for range 2 {
		v, err := db.Get([]byte("key"))
		if err != nil || string(v) != "value" {
			t.Fatalf("Get: %q, %v", v, err)
		}
		v[0] = 'Y'
		many, err := db.GetMany([][]byte{[]byte("key"), []byte("nokey"), []byte("key")})
		if err != nil || string(many[0]) != "value" || many[1] != nil || string(many[2]) != "value" {
			t.Fatalf("GetMany: %q, %v", many, err)
		}
		_ = append(many[0], "more"...)
		if many[0][0] = 'Z'; string(many[2]) != "value" {
			t.Errorf("GetMany: values of a repeated key share memory: %q", many[2])
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Put([]byte("empty"), nil, nil); err != nil {
		t.Fatal(err)
	}
	many, err := db.GetMany([][]byte{[]byte("empty")})
	if err != nil || many[0] == nil || len(many[0]) != 0 {
		t.Errorf("GetMany of an empty value: %v, %v; want empty and not nil", many[0], err)
	}
	if v, err := db.Get([]byte("empty")); err != nil || v == nil {
		t.Errorf("Get of an empty value: %v, %v; want empty and not nil", v, err)
	}
}

// TestLookup checks that Lookup returns what Get does, with found instead of ErrNotFound.
func TestLookup(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	for _, k := range []string{"a", "b"} {
		if err := db.Put([]byte(k), []byte("of "+k), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Delete([]byte("b"), sift.NoSync); err != nil {
		t.Fatal(err)
	}
	check := func(key, want string, wantFound bool, wantErr error) {
		t.Helper()
		value, found, err := db.Lookup([]byte(key))
		if string(value) != want || found != wantFound || err != wantErr || !found && value != nil {
			t.Errorf("%s: %q, %v, %v", key, value, found, err)
		}
		got, err := db.Get([]byte(key))
		if wantErr == nil && !wantFound {
			wantErr = sift.ErrNotFound
		}
		if string(got) != want || err != wantErr || !found && got != nil {
			t.Errorf("Get of %s: %q, %v", key, got, err)
		}
	}
	for range 2 {
		check("a", "of a", true, nil)
		check("b", "", false, nil)
		check("c", "", false, nil)
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, db)
	check("a", "", false, sift.ErrClosed)
}

func TestView(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	fill(t, db, 3, "k%d")
	mine := errors.New("mine")
	if err := db.View([]byte("k1"), func(v []byte) error {
		if string(v) != "value 1" {
			t.Errorf("View: %q", v)
		}
		return mine
	}); err != mine {
		t.Errorf("View returned %v; want the function's error", err)
	}
	if err := db.View([]byte("k1"), func(v []byte) error {
		err := errors.Join(db.Put([]byte("k1"), []byte("new"), nil), db.Flush())
		if now, gerr := db.Get([]byte("k1")); string(v) != "value 1" || string(now) != "new" || gerr != nil {
			t.Errorf("View: %q; Get of what was put meanwhile: %q, %v", v, now, gerr)
		}
		return err
	}); err != nil {
		t.Errorf("View that writes: %v", err)
	}
	if err := db.View([]byte("none"), func([]byte) error { t.Error("called"); return nil }); !errors.Is(err, sift.ErrNotFound) {
		t.Errorf("View of nothing: %v", err)
	}
}

func TestBatchLimits(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{MemtableBytes: 4 << 10})
	defer mustClose(t, db)
	var b sift.Batch
	if err := db.Write(&b, nil); err != nil {
		t.Errorf("empty batch: %v", err)
	}
	// Larger than a memtable, and than a commit group.
	big := bytes.Repeat([]byte("x"), 3<<20)
	for i := range 3 {
		b.Put(fmt.Appendf(nil, "big%d", i), big)
	}
	if b.Len() != 3 || b.Size() < 9<<20 {
		t.Errorf("a batch of three large values has %d operations and %d bytes", b.Len(), b.Size())
	}
	for range 2 { // a batch may be written again
		if err := db.Write(&b, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if v, err := db.Get(fmt.Appendf(nil, "big%d", i)); err != nil || !bytes.Equal(v, big) {
			t.Errorf("big%d: %d bytes, %v", i, len(v), err)
		}
	}
	b.Reset()
	huge := make([]byte, 600<<20)
	b.Put([]byte("a"), huge)
	b.Put([]byte("b"), huge)
	if err := db.Write(&b, nil); err == nil || !strings.Contains(err.Error(), "batch") {
		t.Errorf("a batch of more than a gigabyte: %v", err)
	}
}

// TestConcurrentBatches checks that readers see each batch whole or not at all while it is written,
// and acknowledged writes at once.
func TestConcurrentBatches(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{MemtableBytes: 64 << 10, TableBytes: 32 << 10, LevelBaseBytes: 128 << 10})
	defer mustClose(t, db)
	const writers, rounds = 4, 300
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				var b sift.Batch
				for j := range 5 {
					b.Put(fmt.Appendf(nil, "w%d-%d", w, j), fmt.Appendf(nil, "%d-%s", i, strings.Repeat("v", 100)))
				}
				o := sift.NoSync
				if i%20 == 0 {
					o = sift.Sync
				}
				if err := db.Write(&b, o); err != nil {
					t.Error(err)
				}
				if v, err := db.Get(fmt.Appendf(nil, "w%d-3", w)); err != nil || !bytes.HasPrefix(v, fmt.Appendf(nil, "%d-", i)) {
					t.Errorf("read after write: %.20q, %v; want %d", v, err, i)
				}
			}
		})
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for over := false; !over; {
				select {
				case <-done:
					over = true // all batches are there
				default:
				}
				snap := db.Snapshot()
				for w := range writers {
					var first []byte
					n := 0
					for e, err := range snap.Scan(&sift.IterOptions{Prefix: fmt.Appendf(nil, "w%d-", w)}) {
						if err != nil {
							t.Error(err)
							return
						}
						if n == 0 {
							first = bytes.Clone(e.Value)
						} else if !bytes.Equal(first, e.Value) {
							t.Errorf("half a batch: %.10q and %.10q", first, e.Value)
						}
						n++
					}
					if n != 5 && (n != 0 || over) {
						t.Errorf("%d of the 5 keys of a batch", n)
					}
				}
				snap.Close()
			}
		})
	}
	wg.Wait()
	close(done)
	readers.Wait()
}

func TestCompactionDropsWhatNobodySees(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, &sift.Options{DisableAutoCompaction: true})
	fill(t, db, 1000, "key%04d")
	snap := db.Snapshot()
	fill(t, db, 1000, "key%04d")
	for i := range 1000 {
		if err := db.Delete(fmt.Appendf(nil, "key%04d", i), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	compact := func() (entries uint64) {
		t.Helper()
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, m := range db.Tables() {
			entries += m.Entries
		}
		return entries
	}
	if n := compact(); n != 2000 { // the snapshot's values, and the tombstones over them
		t.Errorf("%d entries with the snapshot open; want 2000", n)
	}
	if v, err := snap.Get([]byte("key0500")); err != nil || string(v) != "value 500" {
		t.Errorf("snapshot: %q, %v", v, err)
	}
	snap.Close()
	if n := compact(); n != 0 {
		t.Errorf("%d entries after the snapshot was closed; want 0", n)
	}
	mustClose(t, db)
	if files, _ := filepath.Glob(filepath.Join(dir, "*.ldb")); len(files) != 0 {
		t.Errorf("tables left: %v", files)
	}
}

// TestCompactLeavesCompacted checks that Compact does not rewrite tables that hold one entry per
// key and have the filter of their level.
func TestCompactLeavesCompacted(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{DisableAutoCompaction: true})
	defer mustClose(t, db)
	fill(t, db, 1000, "key%04d")
	compacted := func() (nums []uint64) {
		t.Helper()
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, m := range db.Tables() {
			nums = append(nums, m.Num)
		}
		return nums
	}
	first := compacted()
	if again := compacted(); len(first) == 0 || !slices.Equal(first, again) {
		t.Errorf("tables %d are %d after another compaction", first, again)
	}
}

// TestCompactBounds checks that Compact moves the tables that hold keys in its range, both ends
// included, and no others.
func TestCompactBounds(t *testing.T) {
	for _, c := range []struct {
		from, to string // "": no bound
		moved    string // the first keys of the tables that leave level 0
	}{
		{"", "", "bfj"}, {"d", "f", "bf"}, {"d", "e", "b"}, {"e", "e", ""}, {"h", "h", "f"}, {"h", "", "fj"}, {"", "b", "b"}, {"", "a", ""}, {"d", "b", ""}, {"h", "f", ""},
	} {
		db := mustOpen(t, t.TempDir(), &sift.Options{DisableAutoCompaction: true})
		for _, table := range []string{"bcd", "fgh", "jkl"} {
			for _, key := range table {
				if err := db.Put([]byte(string(key)), nil, sift.NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		bound := func(s string) []byte {
			if s == "" {
				return nil
			}
			return []byte(s)
		}
		if err := db.Compact(context.Background(), bound(c.from), bound(c.to)); err != nil {
			t.Fatal(err)
		}
		moved := ""
		for _, key := range []string{"b", "f", "j"} {
			if !slices.ContainsFunc(db.Tables(), func(m sift.TableMetrics) bool { return m.Level == 0 && string(m.Smallest) == key }) {
				moved += key
			}
		}
		if moved != c.moved {
			t.Errorf("from %q to %q: tables %q leave level 0, want %q", c.from, c.to, moved, c.moved)
		}
		mustClose(t, db)
	}
}

func TestObsoleteTablesGoWithTheLastReader(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, nil)
	defer mustClose(t, db)
	tables := func() int {
		files, err := filepath.Glob(filepath.Join(dir, "*.ldb"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	fill(t, db, 1000, "a%d")
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !it.First() {
		t.Fatal(it.Err())
	}
	fill(t, db, 1000, "a%d")
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := tables(); n < 2 {
		t.Errorf("%d tables while an iterator is open; the old one is gone", n)
	}
	n := 1
	for it.Next() {
		n++
	}
	if n != 1000 {
		t.Errorf("iterator saw %d keys", n)
	}
	mustClose(t, it)
	for deadline := time.Now().Add(10 * time.Second); tables() > 1 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // they are removed in the background
	}
	if n := tables(); n != 1 {
		t.Errorf("%d tables after the iterator was closed; want 1: %+v", n, db.Tables())
	}
}

func TestCheckpoint(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, &sift.Options{MemtableBytes: 16 << 10, TableBytes: 8 << 10, LevelBaseBytes: 32 << 10})
	fill(t, db, 3000, "key%05d")
	to := filepath.Join(t.TempDir(), "checkpoint")
	if err := db.Checkpoint(to); err != nil {
		t.Fatal(err)
	}
	if err := db.Checkpoint(to); !errors.Is(err, sift.ErrExists) {
		t.Errorf("a second checkpoint in the same place: %v", err)
	}
	if err := db.Checkpoint(t.TempDir()); err != nil {
		t.Errorf("a checkpoint into an empty directory: %v", err)
	}
	for i := range 3000 {
		if err := db.Delete(fmt.Appendf(nil, "key%05d", i), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	checkClean(t, to, nil)
	waitQuiet(db) // Windows removes no file that is open under its other name
	copied := mustOpen(t, to, &sift.Options{ErrorIfMissing: true})
	want := map[string]string{}
	for i := range 3000 {
		want[fmt.Sprintf("key%05d", i)] = fmt.Sprintf("value %d", i)
	}
	compareDB(t, copied, want)
	fill(t, copied, 10, "more%d")
	mustClose(t, copied)
	mustClose(t, db)
	checkClean(t, to, nil)
	checkClean(t, dir, nil)
}

func TestDamagedFilterIsRebuilt(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, nil)
	fill(t, db, 5000, "key%05d")
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	path := oneTable(t, dir)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(data, []byte("fullfilter."))
	if at < 0 {
		t.Fatal("the table has no filter")
	}
	// The filter lies before the properties, which lie before the metaindex.
	props := bytes.LastIndex(data[:at], []byte("rocksdb.block.based"))
	if props < 0 {
		props = at - 1000
	}
	data[props-2000] ^= 0x10
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, dir, nil)
	var damaged int
	db.Tables() // loads them
	for _, l := range db.Metrics().Levels {
		damaged += l.Filter.Damaged
	}
	if damaged != 1 {
		t.Errorf("%d filters reported damaged; want 1", damaged)
	}
	for i := range 5000 {
		if ok, err := db.Has(fmt.Appendf(nil, "key%05d", i)); !ok || err != nil {
			t.Fatalf("key %d: %v, %v", i, ok, err)
		}
	}
	if n, err := db.BuildFilters(context.Background()); n != 1 || err != nil {
		t.Errorf("BuildFilters: %d, %v", n, err)
	}
	for _, m := range db.Tables() {
		if m.FilterErr != nil || m.FilterBytes == 0 {
			t.Errorf("after BuildFilters: %+v", m)
		}
	}
	mustClose(t, db)
	checkClean(t, dir, nil)
}

// TestFilterReaders checks that filters of another family are used if Options.FilterReaders opens
// them, and ignored otherwise.
func TestFilterReaders(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, &sift.Options{Filter: alwaysYes{}, DisableAutoCompaction: true})
	fill(t, db, 10, "key%d")
	mustClose(t, db)
	for _, readers := range [][]filter.Policy{nil, {alwaysYes{}}} {
		db := mustOpen(t, dir, &sift.Options{FilterReaders: readers, ReadOnly: true})
		tables := db.Tables()
		if len(tables) != 1 {
			t.Fatalf("%d tables", len(tables))
		}
		held, err := tables[0].HeldUnits, tables[0].FilterErr
		if len(readers) == 0 && (held != 0 || !errors.Is(err, filter.ErrUnknownFamily)) || len(readers) > 0 && (held != 1 || err != nil) {
			t.Errorf("with %d readers: %v units of the filter are held, %v", len(readers), held, err)
		}
		if f := db.Metrics().Levels[0].Filter; f.Tables != len(readers) || f.Damaged != 1-len(readers) {
			t.Errorf("with %d readers: %d filters are in use, %d are ignored", len(readers), f.Tables, f.Damaged)
		}
		if v, err := db.Get([]byte("key3")); string(v) != "value 3" || err != nil {
			t.Errorf("with %d readers: %q, %v", len(readers), v, err)
		}
		mustClose(t, db)
	}
}

func oneTable(t *testing.T, dir string) string {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "*.ldb"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("table files %v, %v; want one", tables, err)
	}
	return tables[0]
}

// TestFilterMetrics checks that the counts add up and that every level's filters are probed.
func TestFilterMetrics(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{MemtableBytes: 64 << 10, TableBytes: 32 << 10, LevelBaseBytes: 128 << 10, LevelMultiplier: 4})
	defer mustClose(t, db)
	rng := rand.New(rand.NewPCG(3, 3))
	for range 60000 {
		if err := db.Put(fmt.Appendf(nil, "key%06d", 2*rng.IntN(100000)), bytes.Repeat([]byte("v"), 20), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	waitQuiet(db)
	const lookups = 20000
	before, began, total := db.Metrics(), db.Metrics(), 0
	var want map[int]uint64 // by level: pairs of a lookup and a table whose range includes its key
	for {
		tables := db.Tables()
		want = map[int]uint64{}
		for range lookups {
			key := fmt.Appendf(nil, "key%06d", 2*rng.IntN(100000)+1)
			if ok, err := db.Has(key); ok || err != nil {
				t.Fatal(ok, err)
			}
			for i := range tables {
				if bytes.Compare(tables[i].Smallest, key) <= 0 && bytes.Compare(key, tables[i].Largest) <= 0 {
					want[tables[i].Level]++
				}
			}
		}
		total += lookups
		if slices.EqualFunc(tables, db.Tables(), func(a, b sift.TableMetrics) bool { return a.Num == b.Num && a.Level == b.Level }) {
			break
		}
		began = db.Metrics() // a compaction has moved tables meanwhile
	}
	m := db.Metrics()
	if m.Gets != uint64(total) {
		t.Errorf("%d lookups counted; want %d", m.Gets, total)
	}
	levels, falsePositives := 0, uint64(0)
	for i, l := range m.Levels {
		f := l.Filter
		falsePositives += f.FalsePositive // including those of a level that a compaction has just emptied
		if l.Tables == 0 {
			continue
		}
		levels++
		if f.Tables != l.Tables || f.Unfiltered != 0 || f.TruePositive != 0 || f.Useful+f.FalsePositive != f.Probes {
			t.Errorf("level %d: %+v", i, f)
		}
		// A key between two tables may be looked up in one of them.
		if probes := f.Probes - began.Levels[i].Filter.Probes; probes < want[i] || i > 0 && probes > lookups {
			t.Errorf("level %d: filters probed %d times in %d lookups; want %d or more", i, probes, lookups, want[i])
		}
		if f.ExpectedFPR > 0.02 || f.ObservedFPR() > 0.03 {
			t.Errorf("level %d: FPR expected %v, observed %v", i, f.ExpectedFPR, f.ObservedFPR())
		}
	}
	if levels < 2 {
		t.Errorf("%d levels; want several", levels)
	}
	if reads := m.BlockReads + m.CacheHits - before.BlockReads - before.CacheHits; reads != falsePositives {
		t.Errorf("%d blocks read for %d false positives", reads, falsePositives)
	}
	if m.Memory.Filters == 0 || m.Memory.Indexes == 0 || m.Memory.Memtables == 0 {
		t.Errorf("memory: %+v", m.Memory)
	}
}

// waitQuiet returns when there has been no background work for a while.
func waitQuiet(db *sift.DB) {
	for last := db.Metrics(); ; {
		time.Sleep(200 * time.Millisecond)
		m := db.Metrics()
		if m.Flushes == last.Flushes && m.Compactions == last.Compactions && m.Moves == last.Moves && m.BlockReads == last.BlockReads {
			return
		}
		last = m
	}
}

func TestGetAllocations(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	fill(t, db, 20000, "key%06d")
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	absent, present := []byte("key000777x"), []byte("key000777")
	for key, want := range map[string]bool{string(absent): false, string(present): true} {
		if has, err := db.Has([]byte(key)); has != want || err != nil {
			t.Fatalf("Has(%s): %t, %v", key, has, err)
		}
	}
	if n := testing.AllocsPerRun(1000, func() { db.Get(absent) }); n != 0 {
		t.Errorf("%v allocations in a Get of an absent key", n)
	}
	if n := testing.AllocsPerRun(1000, func() { db.Has(present) }); n != 0 {
		t.Errorf("%v allocations in Has of a present key", n)
	}
	if n := testing.AllocsPerRun(1000, func() { db.Get(present) }); n != 1 {
		t.Errorf("%v allocations in a Get of a present key; want the value's", n)
	}
}

// TestIdle checks that level 0 is compacted when nothing is written, however small it is.
func TestIdle(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	for range 2 {
		fill(t, db, 1000, "key%d")
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	limit := time.Now().Add(20 * time.Second)
	m := db.Metrics()
	for ; m.Levels[0].Tables > 0 || m.Compactions == 0; m = db.Metrics() { // Compactions is counted last
		if time.Now().After(limit) {
			t.Fatalf("%d tables in level 0, %d compactions", m.Levels[0].Tables, m.Compactions)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if m.Compactions != 1 || m.Levels[1].Tables != 1 {
		t.Errorf("%d compactions, %d tables in level 1", m.Compactions, m.Levels[1].Tables)
	}
}

// TestIdleOne checks that a single table of level 0 is compacted when nothing is written, unless it
// overlaps much more data in level 1; other tables, which do not overlap it, are then compacted
// without it.
func TestIdleOne(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	flush := func(n int, format string) {
		fill(t, db, n, format)
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	await := func(level0, level1 int) {
		limit := time.Now().Add(20 * time.Second)
		for m := db.Metrics(); m.Levels[0].Tables != level0 || m.Levels[1].Tables != level1; m = db.Metrics() {
			if time.Now().After(limit) {
				t.Fatalf("%d tables in level 0, %d in level 1; want %d, %d", m.Levels[0].Tables, m.Levels[1].Tables, level0, level1)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	flush(20_000, "a%d")
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	await(0, 1)
	flush(20_000, "a%d")
	await(0, 1)
	flush(10, "a%d") // it stays
	flush(1000, "b%d")
	flush(1000, "b%d")
	await(1, 2)
}

// TestBackPressure checks that writes are slowed down when compactions do not keep up.
func TestBackPressure(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{MemtableBytes: 4 << 10, TableBytes: 2 << 10, LevelBaseBytes: 4 << 10, LevelMultiplier: 2, L0Tables: 1})
	defer mustClose(t, db)
	rng := rand.New(rand.NewPCG(5, 5))
	limit := time.Now().Add(20 * time.Second)
	for i := 0; ; i++ {
		if err := db.Put(fmt.Appendf(nil, "%d", rng.IntN(1e6)), bytes.Repeat([]byte("v"), 100), sift.NoSync); err != nil {
			t.Fatal(err)
		}
		m := db.Metrics()
		if m.Slowdowns > 0 && m.SlowdownTime > 0 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("no slowdown after %d writes: %+v", i, m)
		}
	}
}

func TestCompactCancel(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	fill(t, db, 1000, "key%d")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := db.Compact(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Compact: %v; want context.Canceled", err)
	}
	if n := db.Metrics().Flushes; n != 0 {
		t.Errorf("Compact was canceled before it began, but there are %d flushes", n)
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Error(err)
	}
}

func TestScanStopsAndReportsErrors(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	fill(t, db, 100, "key%03d")
	n := 0
	for _, err := range db.Scan(nil) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 10 {
			break
		}
	}
	if n != 10 {
		t.Errorf("a loop that breaks after 10 keys has seen %d", n)
	}
	mustClose(t, db)
	var got error
	for e, err := range db.Scan(nil) {
		if got = err; e.Key != nil || e.Value != nil {
			t.Errorf("Scan of a closed database gives the entry %q", e.Key)
		}
	}
	if !errors.Is(got, sift.ErrClosed) {
		t.Errorf("Scan of a closed database: %v", got)
	}
}

// TestScanAgain checks that each loop over the result of Scan sees the state at its beginning.
func TestScanAgain(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	all := db.Scan(nil)
	for want := range 3 {
		n := 0
		for _, err := range all {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want {
			t.Errorf("the loop saw %d keys, want %d", n, want)
		}
		if err := db.Put(fmt.Append(nil, want), nil, sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseWhileBusy closes a database under load, again and again.
func TestCloseWhileBusy(t *testing.T) {
	dir := t.TempDir()
	opts := &sift.Options{MemtableBytes: 8 << 10, TableBytes: 4 << 10, LevelBaseBytes: 16 << 10}
	for round := range 10 {
		db := mustOpen(t, dir, opts)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Appendf(nil, "%d-%d", w, i%1000)
					if err := db.Put(key, bytes.Repeat(key, 10), sift.NoSync); err != nil {
						if !errors.Is(err, sift.ErrClosed) {
							t.Error(err)
						}
						return
					}
					if _, err := db.Get(key); err != nil && !errors.Is(err, sift.ErrClosed) {
						t.Error(err)
					}
					if it, err := db.NewIter(nil); err == nil {
						it.SeekGE(key)
						it.Next()
						if err := it.Close(); err != nil && !errors.Is(err, sift.ErrClosed) {
							t.Error(err)
						}
					} else if !errors.Is(err, sift.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * 5 * time.Millisecond)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
	checkClean(t, dir, opts)
}

// Several goroutines may write the same batch.
func TestBatchSharedByWriters(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	var b sift.Batch
	b.Put([]byte("a"), []byte("1"))
	b.Delete([]byte("b"))
	before := bytes.Clone(b.Dump())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if err := db.Write(&b, sift.NoSync); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if m := db.Metrics(); m.LastSequence != 400 || !bytes.Equal(before, b.Dump()) {
		t.Errorf("last sequence number %d, want 400", m.LastSequence)
	}
}
