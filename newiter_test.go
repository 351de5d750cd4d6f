package sift_test

import (
	"fmt"
	"testing"

	"github.com/siftdb/sift"
)

// TestNewIterMoves guards that Next on a new iterator is First and Prev is Last,
// as in goleveldb and badger, and that an iterator that has run off an end does not
// begin again.
func TestNewIterMoves(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	walk := func(what string, o *sift.IterOptions, move func(*sift.Iter) bool, want string) {
		t.Helper()
		it, err := db.NewIter(o)
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, it)
		got := ""
		for move(it) {
			got += string(it.Key())
		}
		if got != want || it.Err() != nil {
			t.Errorf("%s: %q, %v; want %q", what, got, it.Err(), want)
		}
		for range 2 {
			if it.Next() || it.Prev() {
				t.Errorf("%s: past the end it is at %q again", what, it.Key())
			}
		}
	}
	both := func(where string, o *sift.IterOptions, forward, backward string) {
		t.Helper()
		walk(where+", Next", o, (*sift.Iter).Next, forward)
		walk(where+", Prev", o, (*sift.Iter).Prev, backward)
	}
	both("empty", nil, "", "")
	for i := range 6 {
		if err := db.Put(fmt.Appendf(nil, "%c", 'a'+i), nil, sift.NoSync); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	both("all", nil, "abcdef", "fedcba")
	both("bounds", &sift.IterOptions{LowerBound: []byte("b"), UpperBound: []byte("e")}, "bcd", "dcb")
	both("nothing in bounds", &sift.IterOptions{LowerBound: []byte("x")}, "", "")

	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if it.SeekGE([]byte("z")) || it.Next() || it.Prev() {
		t.Errorf("a seek that found nothing counts as new: at %q", it.Key())
	}
	mustClose(t, it)
	if it.Next() || it.Prev() {
		t.Error("a closed iterator moves")
	}
}
