package sift_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// deletions waits until the tables hold at most atMost tombstones, but no longer than a
// minute, and returns their number and the bytes of all tables.
func deletions(t *testing.T, db *sift.DB, atMost uint64) (n, bytes uint64) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		n, bytes = 0, 0
		for _, table := range db.Tables() {
			n += table.Deletions
			bytes += table.Size
		}
		if n <= atMost || time.Now().After(end) {
			return n, bytes
		}
	}
}

// TestFlushDropsUselessTombstones checks that a flush drops the tombstones of keys that no table
// holds.
func TestFlushDropsUselessTombstones(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{DisableAutoCompaction: true})
	defer mustClose(t, db)
	put := func(i int) {
		if err := db.Put(fmt.Appendf(nil, "key%05d", i), []byte("value"), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	del := func(i int) {
		if err := db.Delete(fmt.Appendf(nil, "key%05d", i), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	flush := func() {
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		put(2 * i)
	}
	flush()
	for i := range 1000 {
		put(2*i + 1) // within the range of the table, which its filter excludes
		del(2*i + 1)
	}
	flush()
	if n, _ := deletions(t, db, 20); n > 20 {
		t.Errorf("%d tombstones of keys that no table holds were flushed", n)
	}
	for i := range 1000 {
		del(2 * i)
	}
	snap := db.Snapshot()
	flush()
	if n, _ := deletions(t, db, 1100); n < 1000 {
		t.Errorf("%d tombstones were flushed, and 1000 of their keys are in a table", n)
	}
	for i := range 1000 {
		if has, err := db.Has(fmt.Appendf(nil, "key%05d", i)); has || err != nil {
			t.Fatalf("key %d: %v, %v", i, has, err)
		}
	}
	// A snapshot does not see later deletions.
	put(5001)
	between := db.Snapshot()
	del(5001)
	flush()
	if has, err := between.Has([]byte("key05001")); !has || err != nil {
		t.Errorf("a key in a snapshot from before its deletion: %v, %v", has, err)
	}
	snap.Close()
	between.Close()
	flush()
}

// TestTombstonesAreCompacted checks that automatic compactions drop tombstones although no level is
// too large; those that a snapshot or transaction needs are dropped when it ends.
func TestTombstonesAreCompacted(t *testing.T) {
	t.Run("snapshot", func(t *testing.T) {
		testTombstonesDropped(t, func(db *sift.DB) (func(key []byte) (bool, error), func() error) {
			s := db.Snapshot()
			return s.Has, s.Close
		})
	})
	t.Run("transaction", func(t *testing.T) {
		testTombstonesDropped(t, func(db *sift.DB) (func(key []byte) (bool, error), func() error) {
			tx, err := db.Begin(nil)
			if err != nil {
				t.Fatal(err)
			}
			return tx.Has, func() error { tx.Discard(); return nil }
		})
	})
}

func testTombstonesDropped(t *testing.T, view func(db *sift.DB) (has func(key []byte) (bool, error), end func() error)) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	key := func(i int) []byte { return fmt.Appendf(nil, "key%06d", i) }
	const keys = 20_000
	for i := range keys {
		if err := db.Put(key(i), make([]byte, 50), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	_, before := deletions(t, db, 0)
	has, end := view(db)
	for i := range keys - 100 {
		if err := db.Delete(key(i), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if has, err := has(key(3)); !has || err != nil {
		t.Errorf("a key in a view from before its deletion: %v, %v", has, err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if n, bytes := deletions(t, db, 0); n != 0 || bytes > before/10 {
		t.Errorf("%d tombstones are left, and %d bytes of %d", n, bytes, before)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !it.First() || string(it.Key()) != string(key(keys-100)) {
		t.Errorf("the first key is %q", it.Key())
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
}
