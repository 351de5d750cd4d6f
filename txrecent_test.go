package sift

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// memDB opens a database in memory, with fault injection.
func memDB(t *testing.T) (*DB, *vfstest.Faulty) {
	t.Helper()
	faulty := vfstest.Inject(vfstest.NewMem())
	db, err := Open("/db", &Options{FS: faulty})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, faulty
}

// TestWritesAfter checks that a write counts if its sequence number is above the given one, and not
// if it is equal.
func TestWritesAfter(t *testing.T) {
	var w recentWrites
	var b Batch
	b.Put([]byte("a"), nil)
	b.Put([]byte("b"), nil)
	w.begin(5)
	w.add(&b, nil)
	for key, last := range map[string]uint64{"a": 5, "b": 6} {
		var s readSet
		s.addKey(lookupKey(nil, []byte(key)).Hash, []byte(key))
		for since := uint64(4); since < 9; since++ {
			if got := w.touch(&s, since); got != (since < last) {
				t.Errorf("%s, written at %d, counts as a write after %d: %t", key, last, since, got)
			}
		}
	}
}

// TestFirstNewTable checks that a commit checks a table whose number is the transaction's
// firstFile: if a log was created ahead, the first table written after the transaction began has
// that number.
func TestFirstNewTable(t *testing.T) {
	db, _ := memDB(t)
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	tx.Get([]byte("a"))
	if err := errors.Join(tx.Put([]byte("z"), nil), db.Put([]byte("a"), nil, NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	tx.firstFile = db.Tables()[0].Num
	if err := tx.Commit(); !errors.Is(err, ErrConflict) {
		t.Error(err)
	}
}

// TestReadSet compares a read set with a list of what was added to it.
func TestReadSet(t *testing.T) {
	for _, others := range []int{0, 2 * fewKeys} { // keys with the same hash are distinct
		var s readSet
		for i := range others {
			s.addKey(uint64(i), []byte{byte(i)})
		}
		for _, k := range []string{"a", "b", "a"} {
			s.addKey(1000, []byte(k))
		}
		if n := len(s.keys) - others; n != 2 {
			t.Errorf("with %d others, there are %d of 2 keys", others, n)
		}
	}
	rng := rand.New(rand.NewPCG(18, 1))
	key := func() []byte { return fmt.Appendf(nil, "%02d", rng.IntN(100))[:rng.IntN(3)] }
	for range 500 {
		var s readSet
		var keys [][]byte
		var ranges []keyRange
		for range rng.IntN(20) {
			k := key()
			keys = append(keys, k)
			s.addKey(lookupKey(nil, k).Hash, k)
		}
		for range rng.IntN(4) * rng.IntN(60) {
			r := keyRange{lower: key(), upper: key(), open: rng.IntN(200) == 0}
			ranges = append(ranges, r)
			s.addRange(keyRange{append([]byte(nil), r.lower...), append([]byte(nil), r.upper...), r.open})
		}
		s.finish()
		for range 50 {
			k := key()
			want := false
			for _, other := range keys {
				want = want || string(other) == string(k)
			}
			for _, r := range ranges {
				want = want || string(r.lower) <= string(k) && (r.open || string(k) < string(r.upper))
			}
			if got := s.touches(lookupKey(nil, k).Hash, k); got != want {
				t.Fatalf("touches(%q) = %v with the keys %q and the ranges %+v", k, got, keys, ranges)
			}
		}
	}
}

// TestRecentWrites checks that recent writes miss no write after a covered sequence number, even
// across runs, and that their memory stays bounded.
func TestRecentWrites(t *testing.T) {
	rng := rand.New(rand.NewPCG(18, 2))
	var w recentWrites
	next := uint64(1000)
	written := map[string]uint64{}
	most, touched := int64(0), 0
	for group := range 4000 {
		if rng.IntN(1000) == 0 {
			w.stop()
			if w.covers(next - 1) {
				t.Fatal("the recent writes cover writes that were dropped")
			}
		}
		w.begin(next)
		if !w.covers(next - 1) {
			t.Fatal("the recent writes do not cover an empty suffix")
		}
		var b Batch
		for range rng.IntN(200) {
			k := fmt.Appendf(nil, "key%07d", rng.IntN(1_000_000))
			if rng.IntN(4) == 0 {
				b.Delete(k)
			} else {
				b.Put(k, k)
			}
			written[string(k)] = next
			next++
		}
		w.add(&b, nil)
		w.count()
		most = max(most, w.bytes.Load())
		if group%10 != 0 {
			continue
		}
		since := next - 1 - uint64(rng.IntN(100_000))
		if !w.covers(since) {
			continue
		}
		for range 3 {
			k := fmt.Appendf(nil, "key%07d", rng.IntN(1_000_000))
			var s readSet
			s.addKey(lookupKey(nil, k).Hash, k)
			got := w.touch(&s, since)
			if got != (written[string(k)] > since) {
				t.Fatalf("%q was last written at %d; written after %d: %v", k, written[string(k)], since, got)
			}
			if got {
				touched++
			}
		}
	}
	if most == 0 || most > 8<<20 || touched == 0 {
		t.Errorf("the recent writes took up to %d bytes, and %d keys were found in them", most, touched)
	}
}

// TestRunIsFull checks that a run of recent writes is followed by another one when it has enough
// keys, or enough bytes of keys.
func TestRunIsFull(t *testing.T) {
	for _, c := range []struct {
		keys, bytes int
		full        bool
	}{
		{1, 1, false}, {keyRunKeys - 1, keyRunBytes - 1, false}, {keyRunKeys, 1, true}, {1, keyRunBytes, true},
	} {
		w := recentWrites{valid: true, now: keyRun{first: 5, hashes: make([]uint64, c.keys), keys: make([]byte, c.bytes)}}
		w.begin(100)
		if full := w.now.first == 100; full != c.full || full && w.old.first != 5 || !w.valid {
			t.Errorf("%d keys of %d bytes: another run begins: %t", c.keys, c.bytes, full)
		}
	}
}

// TestLeaderFindsConflicts checks that the leader finds conflicting writes that came after a
// transaction's own check: in earlier groups, and before it in the same group.
func TestLeaderFindsConflicts(t *testing.T) {
	for _, c := range []struct {
		desc  string
		read  func(*Tx)
		write string
		want  error
	}{
		{"the key that was read", func(tx *Tx) { _, _ = tx.Get([]byte("a")) }, "a", ErrConflict},
		{"another key", func(tx *Tx) { _, _ = tx.Get([]byte("a")) }, "b", nil},
		{"a key of the range", func(tx *Tx) { it, _ := tx.NewIter(nil); it.SeekGE([]byte("a")); it.Close() }, "b", ErrConflict},
		{"a key before the range", func(tx *Tx) { it, _ := tx.NewIter(nil); it.SeekGE([]byte("c")); it.Close() }, "b", nil},
	} {
		for _, grouped := range []bool{false, true} {
			for _, force := range []bool{false, true} {
				db, faulty := memDB(t)
				tx, err := db.Begin(nil)
				if err != nil {
					t.Fatal(err)
				}
				c.read(tx)
				if err := tx.Put([]byte("z"), nil); err != nil {
					t.Fatal(err)
				}
				tx.reads.finish()
				if force {
					db.commit.recent.stop() // as after a batch that is too large
				}
				var wg sync.WaitGroup
				var release func()
				if grouped {
					release = holdLog(t, db, faulty, &wg)
				}
				wg.Go(func() {
					if err := db.Put([]byte(c.write), nil, NoSync); err != nil {
						t.Error(err)
					}
				})
				var again bool
				if grouped {
					awaitQueue(t, db, 1)
					wg.Go(func() { again, err = db.commit.writeChecked(tx, tx.seq, force) })
					awaitQueue(t, db, 2)
					release()
				} else {
					wg.Wait()
					again, err = db.commit.writeChecked(tx, tx.seq, force)
				}
				wg.Wait()
				if again || !errors.Is(err, c.want) {
					t.Errorf("%s, grouped %v, force %v: %v, %v", c.desc, grouped, force, again, err)
				}
				tx.Discard()
			}
		}
	}
}

// holdLog makes a synced write wait in the sync of the log until release is called.
func holdLog(t *testing.T, db *DB, faulty *vfstest.Faulty, wg *sync.WaitGroup) (release func()) {
	t.Helper()
	entered, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpSync && strings.HasSuffix(filepath.Base(op.Name), ".log") {
			once.Do(func() { close(entered) })
			<-hold
		}
		return nil
	})
	wg.Go(func() {
		if err := db.Put([]byte("0"), nil, Sync); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-entered:
	case <-time.After(time.Minute):
		t.Fatal("the log is not synced")
	}
	return func() { close(hold) }
}

// awaitQueue waits until n writes are queued.
func awaitQueue(t *testing.T, db *DB, n int) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		queued := db.commit.queue.Len()
		if queued == n {
			return
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("%d writes are queued, want %d", queued, n)
		}
	}
}

// TestLeaderSendsBack checks that a transaction that the leader cannot decide on is not written,
// and is checked again.
func TestLeaderSendsBack(t *testing.T) {
	db, _ := memDB(t)
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = tx.Get([]byte("a"))
	if err := tx.Put([]byte("z"), nil); err != nil {
		t.Fatal(err)
	}
	tx.reads.finish()
	if err := db.Put([]byte("b"), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	db.commit.recent.stop()
	if again, err := db.commit.writeChecked(tx, tx.seq, false); !again {
		t.Errorf("writeChecked returns %v, %v; want the transaction back", again, err)
	}
	if ok, err := db.Has([]byte("z")); ok || err != nil {
		t.Errorf("the transaction was written: %v, %v", ok, err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	if ok, err := db.Has([]byte("z")); !ok || err != nil {
		t.Errorf("the committed transaction was not written: %v, %v", ok, err)
	}
}

// TestNothingIsKeptWithoutTransactions checks that the leader keeps no recent writes while there
// are no transactions that may write.
func TestNothingIsKeptWithoutTransactions(t *testing.T) {
	db, _ := memDB(t)
	ro, err := db.Begin(&TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Discard()
	for range 3 {
		if err := db.Put([]byte("a"), nil, NoSync); err != nil {
			t.Fatal(err)
		}
		if db.commit.recent.valid || db.commit.recent.bytes.Load() != 0 {
			t.Fatal("writes are kept without transactions that may write")
		}
	}
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	for i := range 20_000 {
		b.Put(fmt.Appendf(nil, "key%d", i), nil)
	}
	if err := db.Write(&b, NoSync); err != nil {
		t.Fatal(err)
	}
	if !db.commit.recent.valid || db.commit.recent.bytes.Load() == 0 {
		t.Fatal("writes are not kept during a transaction")
	}
	tx.Discard()
	if err := db.Put([]byte("a"), nil, NoSync); err != nil {
		t.Fatal(err)
	}
	if db.commit.recent.valid || db.commit.recent.bytes.Load() != 0 {
		t.Fatal("writes are kept after the transaction")
	}
}

// TestCheckReportsReadErrors checks that a commit returns the error of a table that it has to check
// and cannot read, and writes nothing.
func TestCheckReportsReadErrors(t *testing.T) {
	for _, ranged := range []bool{false, true} {
		db, faulty := memDB(t)
		tx, err := db.Begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		if ranged {
			it, err := tx.NewIter(&IterOptions{LowerBound: []byte("a"), UpperBound: []byte("b")})
			if err != nil {
				t.Fatal(err)
			}
			it.First()
			it.Close()
		} else if _, err := tx.Get([]byte("a5")); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if err := tx.Put([]byte("z"), nil); err != nil {
			t.Fatal(err)
		}
		for i := range 9 { // around and at what was read
			if err := db.Put(fmt.Appendf(nil, "a%d", i), nil, NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool {
			return op.Kind == vfstest.OpReadAt && strings.HasSuffix(op.Name, ".ldb")
		}})
		if err := tx.Commit(); !errors.Is(err, syscall.EIO) {
			t.Errorf("ranged %v: %v", ranged, err)
		}
		faulty.SetFaults()
		if ok, err := db.Has([]byte("z")); ok || err != nil {
			t.Errorf("ranged %v: the transaction was written: %v, %v", ranged, ok, err)
		}
	}
}

// TestTxWithoutLifetime checks that a negative Options.TxLifetime means that transactions do not
// become too old.
func TestTxWithoutLifetime(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.TxLifetime = -1
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	tx.begun = tx.begun.Add(-1000 * time.Hour)
	if err := errors.Join(db.Put([]byte("other"), nil, NoSync), db.Flush()); err != nil { // a flush ends old ones
		t.Fatal(err)
	}
	if n := db.Metrics().Transactions; n != 1 {
		t.Errorf("%d transactions are open, want 1", n)
	}
	if err := errors.Join(tx.Put([]byte("key"), nil), tx.Commit()); err != nil {
		t.Error(err)
	}
}
