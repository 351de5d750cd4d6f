package sift

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// TestDeleteRangeUnreadable checks that DeleteRange leaves keys that were put after it began even
// if a table within the range cannot be read: with constant writes it might never end otherwise.
func TestDeleteRangeUnreadable(t *testing.T) {
	mem := vfstest.NewMem()
	db := mustOpen(t, "db", uncached(mem))
	fill := func(round int) {
		for i := range 100 {
			if err := db.Put(fmt.Appendf(nil, "key%03d", i), fmt.Append(nil, round), NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	fill(1)
	fill(2)
	mustClose(t, db)
	all, newest := oldFiles(t, mem), ""
	for name := range all {
		if kind, _, _ := manifest.ParseName(name); kind == manifest.KindTable && name > newest {
			newest = name
		}
	}
	b := []byte(all[newest])
	b[len(b)-1] ^= 1
	writeFile(t, mem, "db/"+newest, b)

	o := uncached(mem)
	o.DisableAutoCompaction = true
	db = mustOpen(t, "db", o)
	began := db.visible.Load()
	if err := errors.Join(db.Put([]byte("key050+"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	r := rangeDeletion{db: db, from: []byte("key"), to: []byte("kez"), at: []byte("key"), began: began, seq: db.visible.Load()}
	version := db.state.Load().version
	dropped := r.droppable(version)
	if found, _, err := r.find(context.Background(), version, dropped); found || err != nil || len(dropped) == 0 {
		t.Errorf("%d tables are to be dropped; keys found in the rest: %t, %v", len(dropped), found, err)
	}
	if err := db.DeleteRange(context.Background(), r.from, r.to); err != nil {
		t.Error(err)
	}
	if has, err := db.HasRange(nil, nil); has || err != nil {
		t.Errorf("there are keys left: %t, %v", has, err)
	}
	if err := db.Close(); err != nil && !errors.Is(err, ErrCorruption) {
		t.Error(err)
	}
}

// TestDeleteRangeReadsBeforeLock checks that DeleteRange does not read tables while it keeps others
// from creating snapshots, even if the first attempt to read them has failed.
func TestDeleteRangeReadsBeforeLock(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	manyTables(t, "db", faulty, 500)
	o := uncached(faulty)
	o.loadLate, o.DisableAutoCompaction = true, true
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	var reads, locked atomic.Int64
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind != vfstest.OpReadAt || !onTable(op) {
			return nil
		}
		reads.Add(1)
		if db.snapshots.mu.TryLock() {
			db.snapshots.mu.Unlock()
		} else {
			locked.Add(1)
		}
		return syscall.EIO
	})
	err := db.DeleteRange(context.Background(), nil, nil)
	faulty.SetHook(nil)
	if err != nil || reads.Load() == 0 || locked.Load() > 0 {
		t.Errorf("DeleteRange: %v; %d of %d reads while snapshots cannot be created", err, locked.Load(), reads.Load())
	}
	if has, err := db.HasRange(nil, nil); has || err != nil {
		t.Errorf("there are keys left: %t, %v", has, err)
	}
}

// TestDeleteRangeSteps checks that a step of DeleteRange reads a bounded number of bytes, and that
// it does not read the range once more if it drops no table, which a snapshot prevents here.
func TestDeleteRangeSteps(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	const values = 40
	value := make([]byte, 1<<20)
	for i := range values {
		if err := db.Put(fmt.Appendf(nil, "key%03d", i), value, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	s := db.Snapshot()
	defer s.Close()
	r := rangeDeletion{db: db, began: db.visible.Load()}
	total, steps := 0, 0
	for ctx := context.Background(); !r.done; steps++ {
		r.seq = db.visible.Load()
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		r.keys.Reset()
		if err := db.do(ctx, r.step); err != nil {
			t.Fatal(err)
		}
		n := r.keys.Len()
		if n > maxSearchBytes/len(value)+1 {
			t.Errorf("a step found %d keys", n)
		}
		total += n
		if err := r.deleteKeys(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if total != values || r.whole || steps > 4 {
		t.Errorf("%d keys deleted of %d, in %d steps; the whole range was read again: %t", total, values, steps, r.whole)
	}
	if has, err := db.HasRange(nil, nil); has || err != nil {
		t.Errorf("there are keys left: %t, %v", has, err)
	}
}

// TestDeleteRangePassesLargeValue checks that a step gets past a key whose newer value alone is
// more than a step reads.
func TestDeleteRangePassesLargeValue(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	key := []byte("key")
	put := func(n int) {
		if err := errors.Join(db.Put(key, make([]byte, n), NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	put(1)
	seq := db.visible.Load()
	put(maxSearchBytes + 1)
	r := rangeDeletion{db: db, from: key, at: key, began: seq, seq: seq}
	if found, more, err := r.find(context.Background(), db.state.Load().version, nil); !found || more || err != nil {
		t.Errorf("found %t, more %t, %v", found, more, err)
	}
}

// TestDeleteRangeSearchesAgain checks when a search that took several steps is repeated as one: if
// it has left out tables that were to be dropped, and only then.
func TestDeleteRangeSearchesAgain(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	if err := errors.Join(db.Put([]byte("a"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	s := db.Snapshot() // the table cannot be dropped
	defer s.Close()
	from, to := []byte("a"), []byte("z")
	for _, excluded := range []bool{true, false} {
		seq := db.visible.Load()
		r := rangeDeletion{db: db, from: from, to: to, at: []byte("m"), excluded: excluded, began: seq, seq: seq, tables: tableSearch{from: from, to: to}}
		last, err := r.step(context.Background())
		if err != nil || last == excluded || r.done == excluded || r.whole != excluded || string(r.at) != map[bool]string{true: "a", false: "m"}[excluded] {
			t.Errorf("tables left out: %t; the search has ended: %t, %t; it continues at %q, in one step: %t; %v", excluded, last, r.done, r.at, r.whole, err)
		}
	}
}
