package sift_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// keysOf returns the keys that Next moves to until the end, each followed by a space.
func keysOf(t *testing.T, it *sift.Iter) (keys string) {
	t.Helper()
	for it.Next() {
		keys += string(it.Key()) + " "
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func putKeys(t *testing.T, db *sift.DB, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if err := db.Put([]byte(k), []byte("of "+k), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReset checks that an iterator that was reset is like a new one, whether its range was empty
// before or is now, and whatever has happened to tables and memtables meanwhile.
func TestReset(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{Prefix: sift.FixedPrefix(1)})
	defer mustClose(t, db)
	it, err := db.NewIter(&sift.IterOptions{Prefix: []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	check := func(o *sift.IterOptions, want string) {
		t.Helper()
		if err := it.Reset(o); err != nil {
			t.Fatal(err)
		}
		if it.Valid() || it.Key() != nil || it.Value() != nil || it.Prev() {
			t.Errorf("after Reset it is at %q", it.Key())
		}
		if got := keysOf(t, it); got != want {
			t.Errorf("keys %q, want %q", got, want)
		}
		if it.Next() || it.Prev() != (want != "") {
			t.Errorf("past the end and back it is at %q", it.Key())
		}
	}
	a, b := &sift.IterOptions{Prefix: []byte("a")}, &sift.IterOptions{Prefix: []byte("b")}
	check(a, "")
	putKeys(t, db, "a1", "a2", "c1")
	check(a, "a1 a2 ")
	check(b, "")
	check(nil, "a1 a2 c1 ")
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	check(b, "")
	putKeys(t, db, "b1")
	check(b, "b1 ")
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	check(b, "b1 ")
	check(&sift.IterOptions{LowerBound: []byte("a2"), UpperBound: []byte("c")}, "a2 b1 ")
	long := bytes.Repeat([]byte("x"), 100)
	check(&sift.IterOptions{LowerBound: long}, "")
	putKeys(t, db, string(long))
	check(&sift.IterOptions{LowerBound: []byte("d"), UpperBound: append(long, 0)}, string(long)+" ")

	// From the current key, in either direction, in a table and in a memtable.
	for range 2 {
		check(nil, "a1 a2 b1 c1 "+string(long)+" ")
		it.SeekGE([]byte("b"))
		if err := it.Reset(&sift.IterOptions{LowerBound: it.Key()}); err != nil {
			t.Fatal(err)
		}
		if got := keysOf(t, it); got != "b1 c1 "+string(long)+" " {
			t.Errorf("after Reset to start at b1: %q", got)
		}
		it.Last()
		it.Prev()
		if err := it.Reset(&sift.IterOptions{UpperBound: it.Key()}); err != nil {
			t.Fatal(err)
		}
		if got := keysOf(t, it); got != "a1 a2 b1 " {
			t.Errorf("after Reset to end before c1: %q", got)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, it)
	if err := it.Reset(nil); !errors.Is(err, sift.ErrClosed) {
		t.Errorf("Reset of a closed iterator: %v", err)
	}
}

// TestResetHoldsNoTables checks that an iterator that is reset after a compaction no longer keeps
// older tables.
func TestResetHoldsNoTables(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	putKeys(t, db, "a", "b")
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, it)
	first := db.Tables()[0].Path
	putKeys(t, db, "a")
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := keysOf(t, it); got != "a b " {
		t.Errorf("before Reset: %q", got)
	}
	if !exists(first) {
		t.Error("a table that an iterator reads was removed")
	}
	if err := it.Reset(nil); err != nil {
		t.Fatal(err)
	}
	for i := 0; exists(first); i++ {
		if i == 1000 {
			t.Fatal("an old table is still there after Reset")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := keysOf(t, it); got != "a b " {
		t.Errorf("after Reset: %q", got)
	}
}

// TestResetOfViews checks that Reset uses the snapshot or transaction that the iterator belongs to,
// and fails when that has ended.
func TestResetOfViews(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	putKeys(t, db, "a")
	s := db.Snapshot()
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	over := func(r interface {
		NewIter(*sift.IterOptions) (*sift.Iter, error)
	}, prefix string) *sift.Iter {
		it, err := r.NewIter(&sift.IterOptions{Prefix: []byte(prefix)})
		if err != nil {
			t.Fatal(err)
		}
		return it
	}
	of, none, in := over(s, "a"), over(s, "no"), over(tx, "no")
	putKeys(t, db, "b")
	if err := db.Delete([]byte("a"), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := tx.Put([]byte("c"), nil); err != nil {
		t.Fatal(err)
	}
	for i, it := range []*sift.Iter{of, none, in} {
		if err := it.Reset(nil); err != nil {
			t.Fatal(err)
		}
		want := "a "
		if it == in {
			want = "a c "
		}
		if got := keysOf(t, it); got != want {
			t.Errorf("iterator %d: %q, want %q", i, got, want)
		}
	}
	if err := in.Reset(&sift.IterOptions{Prefix: []byte("b")}); err != nil || in.First() {
		t.Errorf("a reset iterator of a transaction is at %q, %v", in.Key(), err)
	}
	// Before Reset, the iterator passed over a key that has been deleted since.
	if err := tx.Commit(); !errors.Is(err, sift.ErrConflict) {
		t.Errorf("Commit: %v", err)
	}
	s.Close()
	for i, it := range []*sift.Iter{of, none, in} {
		if err := it.Reset(nil); !errors.Is(err, sift.ErrClosed) || it.First() || !errors.Is(it.Err(), sift.ErrClosed) {
			t.Errorf("iterator %d, of a closed view: %v, at %q, %v", i, err, it.Key(), it.Err())
		}
		it.Close()
	}
	open := over(db, "b")
	mustClose(t, db)
	if err := open.Reset(nil); !errors.Is(err, sift.ErrClosed) {
		t.Errorf("Reset of an iterator of a closed database: %v", err)
	}
	open.Close()
}

// TestResetAllocates checks that a loop of Reset over absent prefixes allocates nothing.
func TestResetAllocates(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{Prefix: sift.FixedPrefix(4)})
	defer mustClose(t, db)
	for i := range 1000 {
		putKeys(t, db, fmt.Sprintf("%04d", 2*i))
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, it)
	var absent *sift.IterOptions
	for i := 0; absent == nil; i++ { // not a false positive
		o := &sift.IterOptions{Prefix: fmt.Appendf(nil, "%04d", 2*i+1)}
		before := db.Metrics().PrefixUseful
		if err := it.Reset(o); err != nil {
			t.Fatal(err)
		}
		if db.Metrics().PrefixUseful > before {
			absent = o
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		if it.Reset(absent) != nil || it.First() {
			t.Error("an absent prefix is found")
		}
	}); n != 0 {
		t.Errorf("Reset: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if has, err := db.HasPrefix(absent.Prefix); has || err != nil {
			t.Error("an absent prefix is found")
		}
	}); n != 0 {
		t.Errorf("HasPrefix: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		it, _ := db.NewIter(absent)
		it.Close()
	}); n > 1 {
		t.Errorf("NewIter: %v allocations", n)
	}
}
