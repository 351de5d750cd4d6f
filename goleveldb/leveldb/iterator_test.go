package leveldb

import (
	"bytes"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

type closes chan struct{}

func (c closes) Release() { close(c) }

type marks struct{ *atomic.Bool }

func (m marks) Release() { m.Store(true) }

// TestDroppedMoving: an iterator that a program drops is not released before its last move has
// returned. The moves skip many keys, so that the garbage collector runs meanwhile.
func TestDroppedMoving(t *testing.T) {
	db, err := Open(storage.NewMemStorage(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("last"), nil, nil); err != nil {
		t.Fatal(err)
	}
	snap, err := db.GetSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	const hidden = 20_000
	fill(t, db, hidden) // not visible to the snapshot
	tr, err := db.OpenTransaction()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Discard()
	for i := range hidden {
		if err := tr.Delete(fmt.Appendf(nil, "key%05d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	var done atomic.Bool
	collector := make(chan bool)
	go func() {
		defer close(collector)
		for !done.Load() {
			runtime.GC()
		}
	}()
	defer func() { done.Store(true); <-collector }()
	moves := map[string]func(it iterator.Iterator) bool{
		"Next":  func(it iterator.Iterator) bool { return it.Next() },
		"First": func(it iterator.Iterator) bool { return it.First() },
		"Seek":  func(it iterator.Iterator) bool { return it.Seek([]byte("k")) },
		"Last":  func(it iterator.Iterator) bool { return it.Last() },
		"Prev":  func(it iterator.Iterator) bool { it.Seek([]byte("z")); return it.Prev() },
	}
	for of, open := range map[string]func() iterator.Iterator{
		"a snapshot":    func() iterator.Iterator { return snap.NewIterator(nil, nil) },
		"a transaction": func() iterator.Iterator { return tr.NewIterator(nil, nil) },
	} {
		for name, move := range moves {
			for range 20 {
				released := marks{new(atomic.Bool)}
				it := open()
				it.SetReleaser(released)
				ok := move(it)
				if released.Load() {
					t.Errorf("an iterator over %s is released while %s moves it, which returns %t", of, name, ok)
					break
				}
			}
		}
	}
}

// TestDroppedIterators checks that iterators that a program drops are released eventually, and
// that a released iterator does not affect others that reuse its memory.
func TestDroppedIterators(t *testing.T) {
	db, err := Open(storage.NewMemStorage(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	fill(t, db, 10)
	dropped := make(closes)
	func() {
		it := db.NewIterator(nil, nil)
		it.SetReleaser(dropped)
		it.Next()
	}()
	used := db.NewIterator(nil, nil)
	defer used.Release()
	for deadline := time.After(time.Minute); ; {
		runtime.GC()
		select {
		case <-dropped:
		case <-deadline:
			t.Fatal("the iterator was not released")
		case <-time.After(time.Millisecond):
			continue
		}
		break
	}
	old := db.NewIterator(nil, nil)
	old.Release()
	next := db.NewIterator(nil, nil) // reuses what old has released
	defer next.Release()
	old.Release()
	if old.Next() || old.Error() != ErrIterReleased || old.Key() != nil {
		t.Errorf("a released iterator: %q, %v", old.Key(), old.Error())
	}
	if !next.Next() || string(next.Key()) != "key00000" || !used.Last() || string(used.Key()) != "key00009" {
		t.Errorf("other iterators: %q, %q", next.Key(), used.Key())
	}
	if got, err := db.GetProperty("leveldb.aliveiters"); got != "2" && got != "3" || err != nil {
		t.Errorf("%s iterators, %v", got, err) // the releaser is called before the count
	}
}

// TestSlicesAfterRelease checks that other iterators do not change what Key and Value have
// returned.
func TestSlicesAfterRelease(t *testing.T) {
	db, err := Open(storage.NewMemStorage(), &opt.Options{WriteBuffer: 64 << 10, DisableBlockCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const keys = 5000
	fill(t, db, keys)
	if err := db.CompactRange(util.Range{}); err != nil {
		t.Fatal(err)
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }
	moves := map[string]func(it iterator.Iterator, i int) bool{
		"Seek": func(it iterator.Iterator, i int) bool { return it.Seek(key(i)) },
		"Next": func(it iterator.Iterator, i int) bool { return it.Seek(key(i-1)) && it.Next() },
		"Prev": func(it iterator.Iterator, i int) bool { return it.Seek(key(i+1)) && it.Prev() },
	}
	for name, move := range moves {
		for i := 10; i < 110; i++ {
			it := db.NewIterator(nil, nil)
			if !move(it, i) {
				t.Fatalf("%s to key %d: %v", name, i, it.Error())
			}
			gotKey, gotValue := it.Key(), it.Value()
			it.Release()
			other := db.NewIterator(nil, nil)
			other.Seek(key(keys - i))
			other.Release()
			if value := bytes.Repeat([]byte{byte(i)}, 100); !bytes.Equal(gotKey, key(i)) || !bytes.Equal(gotValue, value) {
				t.Fatalf("%s to key %d: after Release the key is %q, the value %x", name, i, gotKey, gotValue)
			}
		}
	}
}

// TestSlicesOfMoves checks that Key and Value return the current pair, however often they have been
// called before and after the move.
func TestSlicesOfMoves(t *testing.T) {
	db, err := Open(storage.NewMemStorage(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	pairs := []string{"", "v", "a", "", "b", "longer", "c", "w"} // keys and values
	for i := 0; i < len(pairs); i += 2 {
		if err := db.Put([]byte(pairs[i]), []byte(pairs[i+1]), nil); err != nil {
			t.Fatal(err)
		}
	}
	it := db.NewIterator(nil, nil)
	defer it.Release()
	seek := func(key string) func() bool { return func() bool { return it.Seek([]byte(key)) } }
	for i, c := range []struct {
		move func() bool
		pair int
	}{
		{it.First, 0}, {it.Next, 1}, {it.Next, 2}, {it.Prev, 1}, {it.Last, 3}, {it.First, 0}, {seek("c"), 3}, {seek("a"), 1},
		{it.Prev, 0}, {it.Next, 1}, {it.Next, 2}, {seek("b"), 2},
	} {
		if !c.move() {
			t.Fatalf("move %d: %v", i, it.Error())
		}
		for range 2 {
			key, value := it.Key(), it.Value()
			if key == nil || string(key) != pairs[2*c.pair] || string(value) != pairs[2*c.pair+1] {
				t.Fatalf("move %d: %q = %q, want pair %d", i, key, value, c.pair)
			}
		}
	}
	if it.Seek([]byte("d")) || it.Key() != nil || it.Value() != nil {
		t.Errorf("after the last pair: %q = %q", it.Key(), it.Value())
	}
}
