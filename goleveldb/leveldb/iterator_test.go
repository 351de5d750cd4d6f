package leveldb

import (
	"runtime"
	"testing"
	"time"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

type closes chan struct{}

func (c closes) Release() { close(c) }

// TestDroppedIterators guards that iterators that a program drops are released in the
// end, and that those that were released can be used by nobody any more.
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
	next := db.NewIterator(nil, nil) // takes what old has released
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
