package sift

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// The disk fails at one operation of a call, for each operation in turn: the call
// returns the error, except for the operations listed here.
func TestNoErrorIsSwallowed(t *testing.T) {
	// Open ignores tables that cannot be opened; lookups report them.
	tables := map[string]int{"size .ldb": anyNumber, "open .ldb": anyNumber, "read .ldb": anyNumber}
	// Orphans that cannot be removed are removed by the next Open.
	old := func(names ...string) map[string]int {
		m := map[string]int{"list db": 1}
		for _, name := range names {
			m["remove "+name] = 1
		}
		return m
	}
	// Errors of closing do not matter for files that were only read, or synced before.
	rewritten := map[string]int{"close .ldb": anyNumber, "remove .ldb": anyNumber}
	read := map[string]int{"close .ldb": anyNumber, "unlock LOCK": 1}
	unopened := map[string]int{"close .ldb": anyNumber}
	repaired := map[string]int{"close .ldb": anyNumber, "close .log": 2}
	for _, name := range []string{".ldb", ".log", "MANIFEST-"} {
		repaired["link "+name] = anyNumber   // it is copied then
		repaired["remove "+name] = anyNumber // the next Open does it
	}
	for _, c := range []struct {
		name   string
		before func(t *testing.T, mem *vfstest.Mem) *vfstest.Mem // what is on the disk
		open   bool                                              // the call is made on an open database
		o      func(o *Options)
		call   func(db *DB, o *Options) error
		least  int            // operations that the call makes
		silent map[string]int // how many operations of a kind and name may fail without an error
	}{
		{name: "Open of nothing", before: emptyDisk, call: openAndLeave, least: 40, silent: old("MANIFEST-")},
		{name: "Open", before: closedDisk, call: openAndLeave, least: 40, silent: more(tables, old("MANIFEST-", ".log"))},
		{name: "Open after a crash", before: crashedDisk, call: openAndLeave, least: 40, silent: more(tables, old("MANIFEST-", ".log"))},
		{name: "Open for reading", before: crashedDisk, o: readOnly, call: openAndLeave, least: 30, silent: tables},
		{name: "Open with keyed filters", before: closedDisk, o: keyed, call: openAndLeave, least: 40, silent: more(tables, old("MANIFEST-", ".log"))},
		{name: "Open of keyed filters", before: keyedDisk, call: openAndLeave, least: 40, silent: more(tables, old("MANIFEST-", ".log"))},
		{name: "Flush", before: closedDisk, open: true, call: putAndFlush, least: 20, silent: more(old(".log"), map[string]int{"close .log": 1})},
		{name: "Close", before: closedDisk, open: true, call: putAndClose, least: 20, silent: more(old(".log"), map[string]int{"close .log": 1})},
		{name: "Compact", before: closedDisk, open: true, o: otherFilter, call: compactAll, least: 10, silent: rewritten},
		{name: "Compact when compacted", before: compactedDisk, open: true, o: otherFilter, call: compactAll, least: 10, silent: rewritten},
		{name: "BuildFilters", before: closedDisk, open: true, o: otherFilter, call: buildFilters, least: 10, silent: rewritten},
		{name: "Checkpoint", before: closedDisk, open: true, o: keyed, call: checkpoint, least: 20},
		{name: "Check", before: closedDisk, call: checkAll, least: 200, silent: read},
		{name: "Check after a crash", before: crashedDisk, call: checkAll, least: 200, silent: read},
		{name: "Check of a damaged database", before: damagedDisk, call: checkDamaged, least: 10, silent: unopened},
		{name: "Repair", before: closedDisk, call: repairAll, least: 50, silent: repaired},
		{name: "Repair after a crash", before: crashedDisk, o: keyed, call: repairAll, least: 50, silent: repaired},
		{name: "a scan", before: closedDisk, open: true, call: scanAll, least: 2},
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
						t.Errorf("only %d operations", at)
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
				t.Errorf("failed without an error: %v, want %v", silent, c.silent)
			}
		})
	}
}

func more(a, b map[string]int) map[string]int {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

func readOnly(o *Options)    { o.ReadOnly = true }
func keyed(o *Options)       { o.KeyedFilters = true }
func otherFilter(o *Options) { o.Filter = filter.Bloom(4) }

func putAndFlush(db *DB, _ *Options) error {
	return errors.Join(db.Put([]byte("a"), nil, Sync), db.Put([]byte("b"), nil, NoSync), db.Flush())
}

func putAndClose(db *DB, _ *Options) error {
	return errors.Join(db.Put([]byte("a"), nil, NoSync), db.Close())
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
		err = fmt.Errorf("%d keys", n)
	}
	return err
}

const (
	swallowKeys = 200
	anyNumber   = -1
)

func emptyDisk(_ *testing.T, mem *vfstest.Mem) *vfstest.Mem { return mem }

// closedDisk has a database with tables in two levels, closed.
func closedDisk(t *testing.T, mem *vfstest.Mem) *vfstest.Mem {
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, swallowKeys)
	mustClose(t, db)
	return mem
}

// keyedDisk has a database with keyed filters.
func keyedDisk(t *testing.T, mem *vfstest.Mem) *vfstest.Mem {
	db := mustOpen(t, "db", keyedOptions(mem))
	loadKeys(t, db, swallowKeys)
	mustClose(t, db)
	return mem
}

// compactedDisk has a database whose tables are all in one level.
func compactedDisk(t *testing.T, mem *vfstest.Mem) *vfstest.Mem {
	db := mustOpen(t, "db", uncached(mem))
	loadKeys(t, db, swallowKeys)
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	return mem
}

// damagedDisk has a database whose MANIFEST is damaged at its beginning.
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

// crashedDisk has a database whose log has entries that are in no table.
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

// openAndLeave opens a database and closes it when nothing fails any more.
func openAndLeave(_ *DB, o *Options) error {
	db, err := Open("db", o)
	if err != nil {
		return err
	}
	o.FS.(*vfstest.Faulty).SetFaults()
	return db.Close()
}
