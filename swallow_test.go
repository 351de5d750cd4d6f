package sift

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestNoErrorIsSwallowed fails each disk operation of a call in turn: the call must return the
// error, except for the operations listed here.
func TestNoErrorIsSwallowed(t *testing.T) {
	// Open ignores tables that cannot be opened; lookups report them.
	tables := map[string]int{"size .ldb": anyNumber, "open .ldb": anyNumber, "read .ldb": anyNumber}
	// The next Open removes orphans that cannot be removed now.
	old := func(names ...string) map[string]int {
		m := map[string]int{"list db": 1}
		for _, name := range names {
			m["remove "+name] = 1
		}
		return m
	}
	// Errors of Close do not matter for files that were only read, or synced before.
	rewritten := map[string]int{"close .ldb": anyNumber, "remove .ldb": anyNumber}
	// Reading ahead loads a table; if that fails, the read itself tries again.
	prefetched := func(reads int) map[string]int {
		return map[string]int{"size .ldb": 1, "open .ldb": 1, "read .ldb": reads}
	}
	read := map[string]int{"close .ldb": anyNumber}
	repaired := map[string]int{"close .ldb": anyNumber, "close .log": 2}
	for _, name := range []string{".ldb", ".log", "MANIFEST-"} {
		repaired["link "+name] = anyNumber   // the file is copied instead
		repaired["remove "+name] = anyNumber // the next Open removes the file
	}
	for _, c := range []struct {
		name   string
		before func(t *testing.T, mem *vfstest.Mem) *vfstest.Mem // returns the disk
		open   bool                                              // the call is made on an open database
		o      func(o *Options)
		call   func(db *DB, o *Options) error
		least  int            // operations that the call makes
		silent map[string]int // how many operations of a kind and name may fail without an error
	}{
		{name: "Open of nothing", before: emptyDisk, call: openAndLeave, least: 40, silent: old("MANIFEST-")},
		{name: "Open", before: closedDisk, call: openAndLeave, least: 40, silent: union(tables, old("MANIFEST-", ".log"))},
		{name: "Open after a crash", before: crashedDisk, call: openAndLeave, least: 40, silent: union(tables, old("MANIFEST-", ".log"))},
		{name: "Open for reading", before: crashedDisk, o: readOnly, call: openAndLeave, least: 30, silent: tables},
		{name: "Open with keyed filters", before: closedDisk, o: keyed, call: openAndLeave, least: 40, silent: union(tables, old("MANIFEST-", ".log"))},
		{name: "Open of keyed filters", before: keyedDisk, call: openAndLeave, least: 40, silent: union(tables, old("MANIFEST-", ".log"))},
		{name: "Open of too many levels", before: deepDisk, call: openAndLeave, least: 40, silent: union(tables, map[string]int{"list db": 1, "remove .log": 1, "remove MANIFEST-": 2, "close .ldb": 2, "remove .ldb": 2})},
		{name: "Flush", before: closedDisk, open: true, call: putAndFlush, least: 20, silent: union(old(".log"), map[string]int{"close .log": 1})},
		{name: "Close", before: closedDisk, open: true, call: putAndClose, least: 20, silent: union(old(".log"), map[string]int{"close .log": 1})},
		{name: "Compact", before: closedDisk, open: true, o: otherFilter, call: compactAll, least: 10, silent: rewritten},
		{name: "Compact when compacted", before: compactedDisk, open: true, o: otherFilter, call: compactAll, least: 10, silent: rewritten},
		{name: "BuildFilters", before: closedDisk, open: true, o: otherFilter, call: buildFilters, least: 10, silent: rewritten},
		{name: "Checkpoint", before: closedDisk, open: true, o: keyed, call: checkpoint, least: 20},
		{name: "Check", before: closedDisk, call: checkAll, least: 200, silent: read},
		{name: "Check after a crash", before: crashedDisk, call: checkAll, least: 200, silent: read},
		{name: "Check of a damaged database", before: damagedDisk, call: checkDamaged, least: 10, silent: read},
		{name: "Repair", before: closedDisk, call: repairAll, least: 50, silent: repaired},
		{name: "Repair after a crash", before: crashedDisk, o: keyed, call: repairAll, least: 50, silent: repaired},
		{name: "Repair without links", before: closedDisk, call: repairWithoutLinks, least: 60, silent: repaired},
		{name: "a scan", before: closedDisk, open: true, call: scanAll, least: 2},
		{name: "Scan", before: closedDisk, open: true, call: scanLoop, least: 2},
		{name: "Scan of tables that are not loaded", before: closedDisk, open: true, o: late, call: scanLoop, least: 10, silent: prefetched(5)},
		{name: "Reset", before: closedDisk, open: true, o: late, call: resetIter, least: 5},
		{name: "HasRanges", before: closedDisk, open: true, o: late, call: hasRanges, least: 5},
		{name: "Ingest", before: closedDisk, open: true, call: putAndIngest, least: 30, silent: map[string]int{"list db": 2, "close .log": 2, "remove .log": 2}},
		{name: "DeleteRange", before: closedDisk, open: true, o: late, call: deleteKeys, least: 30, silent: union(prefetched(8), union(old(".log"), map[string]int{"close .log": 1}))},
		{name: "Compact that moves a table", before: compactedDisk, open: true, o: otherFilter, call: putAndCompact, least: 20, silent: union(old(".log"), map[string]int{"close .log": 1})},
		{name: "Flush with a new MANIFEST", before: closedDisk, open: true, o: newManifests, call: flushTwice, least: 40, silent: map[string]int{
			"list db": 2, "close .log": 2, "remove .log": 2, "close MANIFEST-": 1, "remove MANIFEST-": 1,
			"create MANIFEST-": 1, "write MANIFEST-": 1, "sync MANIFEST-": 1, "sync-dir db": 1, // the old one continues
			"create .dbtmp": 1, "write .dbtmp": 1, "sync .dbtmp": 1, "close .dbtmp": 1,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := c.before(t, vfstest.NewMem())
			ops := disk.NumOps()
			silent := map[string]int{}
			for at := 0; ; at++ {
				img := disk.CrashImage(ops, vfstest.KeepUnsynced)
				faulty := vfstest.Inject(img)
				o := uncached(faulty)
				if c.o != nil {
					c.o(o)
				}
				var db *DB
				if c.open {
					db = mustOpen(t, "db", o)
				}
				faulty.SetFaults(vfstest.Fault{Index: faulty.NumOps() + at})
				err := c.call(db, o)
				failed := faulty.Failed()
				faulty.SetFaults()
				if c.open {
					if cerr := db.Close(); cerr != nil && !errors.Is(cerr, ErrClosed) && len(failed) == 0 {
						t.Errorf("Close: %v", cerr)
					}
				}
				if open := faulty.OpenFiles(); len(open) > 0 {
					t.Errorf("%v fails: left open: %v", failed, open)
				}
				if len(failed) == 0 {
					if err != nil {
						t.Error(err)
					}
					if at < c.least {
						t.Errorf("the call made only %d operations", at)
					}
					break
				}
				op := failed[0]
				what := fmt.Sprintf("%v %s", op.Kind, strings.Map(func(r rune) rune {
					if '0' <= r && r <= '9' {
						return -1
					}
					return r
				}, filepath.Base(op.Name)))
				switch {
				case err == nil:
					silent[what]++
				case !errors.Is(err, syscall.EIO):
					t.Errorf("%v fails: %v", op, err)
				}
			}
			for what, n := range c.silent {
				if n == anyNumber {
					silent[what] = anyNumber
				}
			}
			if !maps.Equal(silent, c.silent) {
				t.Errorf("operations that failed without an error: %v, want %v", silent, c.silent)
			}
		})
	}
}

func union(a, b map[string]int) map[string]int {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

func late(o *Options)         { o.loadLate = true }
func newManifests(o *Options) { o.manifestBytes = 1 }
func readOnly(o *Options)     { o.ReadOnly = true }
func keyed(o *Options)        { o.KeyedFilters = true }
func otherFilter(o *Options)  { o.Filter = filter.Bloom(4) }

func putAndFlush(db *DB, _ *Options) error {
	return errors.Join(db.Put([]byte("a"), nil, Sync), db.Put([]byte("b"), nil, NoSync), db.Flush())
}

// flushTwice makes the MANIFEST more than twice as long as its first record.
func flushTwice(db *DB, _ *Options) error {
	var err error
	for range 2 {
		err = errors.Join(err, db.Put(bytes.Repeat([]byte("k"), 500), nil, NoSync), db.Flush())
	}
	return err
}

func putAndClose(db *DB, _ *Options) error {
	return errors.Join(db.Put([]byte("a"), nil, NoSync), db.Close())
}

// putAndIngest ingests keys around and between those of the database.
func putAndIngest(db *DB, _ *Options) error {
	ops := func(yield func(Op, error) bool) {
		for _, key := range []string{"a", "key000100x", "z"} {
			if !yield(Op{Key: []byte(key)}, nil) {
				return
			}
		}
	}
	return errors.Join(db.Put([]byte("b"), nil, NoSync), db.Ingest(context.Background(), ops))
}

// deleteKeys deletes a range that begins and ends within tables.
func deleteKeys(db *DB, _ *Options) error {
	return db.DeleteRange(context.Background(), []byte("key000050"), []byte("key000150"))
}

// putAndCompact compacts a table that overlaps no other, so that it is moved.
func putAndCompact(db *DB, _ *Options) error {
	return errors.Join(db.Put([]byte("z"), nil, NoSync), db.Compact(context.Background(), []byte("z"), nil))
}

func compactAll(db *DB, _ *Options) error { return db.Compact(context.Background(), nil, nil) }

func buildFilters(db *DB, _ *Options) error {
	_, err := db.BuildFilters(context.Background())
	return err
}

func checkpoint(db *DB, _ *Options) error { return db.Checkpoint("copy") }

func checkAll(_ *DB, o *Options) error {
	var faults []error
	_, err := Check(context.Background(), "db", o, func(fault error) { faults = append(faults, fault) })
	return errors.Join(err, errors.Join(faults...))
}

// checkDamaged returns only the disk's errors.
func checkDamaged(_ *DB, o *Options) error {
	var eio []error
	_, err := Check(context.Background(), "db", o, func(fault error) {
		if errors.Is(fault, syscall.EIO) {
			eio = append(eio, fault)
		}
	})
	return errors.Join(err, errors.Join(eio...))
}

func repairAll(_ *DB, o *Options) error {
	report, err := Repair("db", o)
	return errors.Join(err, errors.Join(report.Dropped...))
}

func repairWithoutLinks(_ *DB, o *Options) error {
	o.FS = noLinks(o.FS)
	return repairAll(nil, o)
}

func scanAll(db *DB, _ *Options) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	if err = it.Close(); err == nil && n != swallowKeys {
		err = fmt.Errorf("the iterator finds %d keys", n)
	}
	return err
}

func scanLoop(db *DB, _ *Options) error {
	n := 0
	for _, err := range db.Scan(nil) {
		if err != nil {
			return err
		}
		n++
	}
	if n != swallowKeys {
		return fmt.Errorf("the scan finds %d keys", n)
	}
	return nil
}

// resetIter resets an iterator over an empty range to all keys, in a memtable and in tables.
func resetIter(db *DB, _ *Options) error {
	if err := db.Put([]byte("other"), nil, NoSync); err != nil {
		return err
	}
	it, err := db.NewIter(&IterOptions{Prefix: []byte("none")})
	if err != nil {
		return err
	}
	if err := it.Reset(nil); err != nil {
		it.Close()
		return err
	}
	it.Last()
	return it.Close()
}

func hasRanges(db *DB, _ *Options) error {
	ranges := make([]KeyRange, 5)
	for i := range ranges {
		ranges[i] = KeyRange{fmt.Appendf(nil, "key%06d", i*30), fmt.Appendf(nil, "key%06d", i*30+1)}
	}
	has, err := db.HasRanges(ranges)
	if err != nil && has != nil || err == nil && slices.Contains(has, false) {
		return fmt.Errorf("HasRanges: %v, %w", has, err)
	}
	return err
}

const (
	swallowKeys = 200
	anyNumber   = -1
)

func emptyDisk(_ *testing.T, mem *vfstest.Mem) *vfstest.Mem { return mem }

// closedDisk returns a disk with a closed database that has tables in two levels.
func closedDisk(t *testing.T, mem *vfstest.Mem) *vfstest.Mem {
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, swallowKeys)
	mustClose(t, db)
	return mem
}

// deepDisk returns a disk with a database of more levels than LevelDB's.
func deepDisk(t *testing.T, mem *vfstest.Mem) *vfstest.Mem {
	deepDatabase(t, mem, []int{7, 6, 5, 4, 3, 2, 1})
	return mem
}

// keyedDisk returns a disk with a database that has keyed filters.
func keyedDisk(t *testing.T, mem *vfstest.Mem) *vfstest.Mem {
	db := mustOpen(t, "db", keyedOptions(mem))
	loadKeys(t, db, swallowKeys)
	mustClose(t, db)
	return mem
}

// compactedDisk returns a disk with a database whose tables are all in one level.
func compactedDisk(t *testing.T, mem *vfstest.Mem) *vfstest.Mem {
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, swallowKeys)
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	return mem
}

// damagedDisk returns a disk with a database whose MANIFEST is damaged at its beginning.
func damagedDisk(t *testing.T, mem *vfstest.Mem) *vfstest.Mem {
	closedDisk(t, mem)
	names, err := mem.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST-") {
			b := readFile(t, mem, filepath.Join("db", name))
			b[10] ^= 1
			writeFile(t, mem, filepath.Join("db", name), b)
		}
	}
	return mem
}

// crashedDisk returns a disk with a database whose log has entries that are in no table.
func crashedDisk(t *testing.T, mem *vfstest.Mem) *vfstest.Mem {
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, swallowKeys)
	for i := range 20 {
		if err := db.Put(fmt.Appendf(nil, "key%06d", i), fmt.Appendf(nil, "value%d", i), Sync); err != nil {
			t.Fatal(err)
		}
	}
	img := mem.CrashImage(mem.NumOps(), vfstest.KeepUnsynced)
	mustClose(t, db)
	return img
}

// openAndLeave opens a database, and closes it without faults.
func openAndLeave(_ *DB, o *Options) error {
	db, err := Open("db", o)
	if err != nil {
		return err
	}
	o.FS.(*vfstest.Faulty).SetFaults()
	return db.Close()
}
