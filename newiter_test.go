package sift_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/siftdb/sift"
)

// TestNewIterMoves checks that a new iterator is before the first key, as in goleveldb, and that
// Next and Prev return from past an end.
func TestNewIterMoves(t *testing.T) {
	db := mustOpen(t, t.TempDir(), nil)
	defer mustClose(t, db)
	walk := func(what string, o *sift.IterOptions, start, move, back func(*sift.Iter) bool, want string) {
		t.Helper()
		it, err := db.NewIter(o)
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, it)
		if it.Prev() {
			t.Errorf("%s: before the first key there is %q", what, it.Key())
		}
		got := ""
		for ok := start(it); ok; ok = move(it) {
			got += string(it.Key())
		}
		if got != want || it.Err() != nil {
			t.Errorf("%s: %q, %v; want %q", what, got, it.Err(), want)
		}
		if move(it) {
			t.Errorf("%s: past the end it is at %q again", what, it.Key())
		}
		for i := len(want) - 1; i >= 0; i-- {
			if !back(it) || it.Key()[0] != want[i] {
				t.Errorf("%s, and back: at %q; want %q", what, it.Key(), want[i])
			}
		}
		for range 2 {
			if back(it) {
				t.Errorf("%s, and back: past the end it is at %q", what, it.Key())
			}
		}
		if move(it) != (want != "") {
			t.Errorf("%s, and back to the end it began at: at %q", what, it.Key())
		}
	}
	both := func(where string, o *sift.IterOptions, forward, backward string) {
		t.Helper()
		walk(where+", Next", o, (*sift.Iter).Next, (*sift.Iter).Next, (*sift.Iter).Prev, forward)
		walk(where+", Prev", o, (*sift.Iter).Last, (*sift.Iter).Prev, (*sift.Iter).Next, backward)
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
	if it.SeekGE([]byte("z")) || it.Next() || !it.Prev() || string(it.Key()) != "f" {
		t.Errorf("after a seek past the end: at %q; want f", it.Key())
	}
	if it.SeekLT([]byte("a")) || it.Prev() || !it.Next() || string(it.Key()) != "a" {
		t.Errorf("after a seek before the beginning: at %q; want a", it.Key())
	}
	mustClose(t, it)
	if it.Err() != nil {
		t.Errorf("Err of a closed iterator: %v", it.Err())
	}
	if it.Next() || it.Prev() || it.Err() != sift.ErrClosed {
		t.Errorf("a closed iterator moves, or has another error than ErrClosed: %v", it.Err())
	}
}

// TestFailedIterStays checks that a failed iterator is at neither end: Next and Prev must not skip
// damage.
func TestFailedIterStays(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, nil)
	for i := range 2000 {
		if err := db.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 100), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	tables, err := filepath.Glob(filepath.Join(dir, "*.ldb"))
	if err != nil || len(tables) != 1 {
		t.Fatalf("table files %v, %v", tables, err)
	}
	data, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/3] ^= 1 // in a block of entries
	if err := os.WriteFile(tables[0], data, 0o644); err != nil {
		t.Fatal(err)
	}
	db = mustOpen(t, dir, nil)
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for name, move := range map[string]func() bool{"forward": it.Next, "backward": it.Prev} {
		ok := it.First()
		if name == "backward" {
			ok = it.Last()
		}
		n := 0
		for ; ok; n++ {
			ok = move()
		}
		if n == 0 || n == 2000 || !errors.As(it.Err(), new(*sift.CorruptionError)) {
			t.Fatalf("%s: %d keys, %v", name, n, it.Err())
		}
		if it.Next() || it.Prev() || it.Next() || !errors.As(it.Err(), new(*sift.CorruptionError)) {
			t.Errorf("%s: after the failure it is at %q, %v", name, it.Key(), it.Err())
		}
	}
	mustClose(t, db)
	if !errors.As(it.Err(), new(*sift.CorruptionError)) {
		t.Errorf("after Close of the database: %v", it.Err())
	}
}
