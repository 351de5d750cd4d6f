package sift_test

import (
	"context"
	"testing"

	"github.com/siftdb/sift"
)

// TestTxReadsTheNewest checks that reading the last write before a transaction is no conflict, even
// if others write meanwhile.
func TestTxReadsTheNewest(t *testing.T) {
	for _, flush := range []bool{false, true} {
		x := newTxs(t, &sift.Options{DisableAutoCompaction: true})
		x.set("a", "1")
		tx := x.begin()
		x.get(tx, "a")
		x.scan(tx, "a", "b")
		x.put(tx, "result", "")
		x.set("other", "1")
		if flush {
			if err := x.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		x.commit(tx, false)
	}
}

// TestTxRangesInTables checks that a commit finds a newer entry in a table whose last key is where
// the range begins, and in one within an unbounded range; a table next to the range is no conflict.
func TestTxRangesInTables(t *testing.T) {
	for _, c := range []struct {
		key      string
		upper    []byte
		conflict bool
	}{{"l", nil, false}, {"m", nil, true}, {"z", nil, true}, {"l", []byte("q"), false}, {"m", []byte("q"), true}, {"q", []byte("q"), false}} {
		x := newTxs(t, &sift.Options{DisableAutoCompaction: true})
		tx := x.begin()
		it, err := tx.NewIter(&sift.IterOptions{UpperBound: c.upper})
		if err != nil {
			t.Fatal(err)
		}
		if it.SeekGE([]byte("m")) {
			t.Fatalf("a seek past all keys is at %q", it.Key())
		}
		mustClose(t, it)
		x.put(tx, "result", "")
		x.set(c.key, "1")
		if err := x.db.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := x.db.Compact(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		x.commit(tx, c.conflict)
	}
}

// TestTxWalks checks that the keys that an iterator has passed over since its seek, forward and
// backward, count as read, and no others.
func TestTxWalks(t *testing.T) {
	walks := map[string]func(it *sift.Iter){
		"seek b":       func(it *sift.Iter) { it.SeekGE([]byte("b")) },
		"seek b, 2 on": func(it *sift.Iter) { it.SeekGE([]byte("b")); it.Next(); it.Next() },
		"seek b, 2 on, back, 1 on": func(it *sift.Iter) {
			it.SeekGE([]byte("b"))
			it.Next()
			it.Next()
			it.Prev()
			it.Prev()
			it.Next()
		},
		"seek before d, 1 back":      func(it *sift.Iter) { it.SeekLT([]byte("d")); it.Prev() },
		"seek before d, back and on": func(it *sift.Iter) { it.SeekLT([]byte("d")); it.Prev(); it.Next() },
	}
	reads := map[string]string{
		"seek b":                     "b",
		"seek b, 2 on":               "bcd",
		"seek b, 2 on, back, 1 on":   "bcd",
		"seek before d, 1 back":      "bc",
		"seek before d, back and on": "bc",
	}
	for name, walk := range walks {
		for _, key := range "abcdef" {
			x := newTxs(t, nil)
			for _, k := range "abcdef" {
				x.set(string(k), "1")
			}
			tx := x.begin()
			it, err := tx.NewIter(&sift.IterOptions{UpperBound: []byte("f")})
			if err != nil {
				t.Fatal(err)
			}
			walk(it)
			mustClose(t, it)
			x.put(tx, "result", "")
			x.set(string(key), "2")
			want := false
			for _, k := range reads[name] {
				want = want || k == key
			}
			if err := tx.Commit(); (err != nil) != want {
				t.Errorf("%s: after a write of %c: %v", name, key, err)
			}
		}
	}
}
