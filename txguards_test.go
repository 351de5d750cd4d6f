package sift

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// expireNow expires a transaction, as a flush does that begins when it is too old.
func expireNow(db *DB, tx *Tx) {
	db.snapshots.mu.Lock()
	defer db.snapshots.mu.Unlock()
	tx.begun = time.Now().Add(-24 * time.Hour)
	db.snapshots.expire(time.Now())
}

// TestTxExpiresWhileReading checks that a read of a transaction that expires meanwhile fails: it
// might have missed what a compaction has dropped since.
func TestTxExpiresWhileReading(t *testing.T) {
	faulty := vfstest.Inject(vfstest.NewMem())
	prefix := &hookedPrefix{Prefixer: FixedPrefix(1)}
	o := uncached(faulty)
	o.Prefix = prefix
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	key := []byte("key")
	if err := errors.Join(db.Put(key, []byte("value"), NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	within := &IterOptions{Prefix: []byte("k")}
	for _, c := range []struct {
		name   string
		prefix bool // expires while the Prefixer is called for the range, else while a table is read
		read   func(tx *Tx, it *Iter) error
	}{
		{"Get", false, func(tx *Tx, _ *Iter) error { _, err := tx.Get(key); return err }},
		{"Has", false, func(tx *Tx, _ *Iter) error { _, err := tx.Has(key); return err }},
		{"View", false, func(tx *Tx, _ *Iter) error { return tx.View(key, func([]byte) error { return nil }) }},
		{"GetMany", false, func(tx *Tx, _ *Iter) error { _, err := tx.GetMany([][]byte{key}); return err }},
		{"NewIter", true, func(tx *Tx, _ *Iter) error { _, err := tx.NewIter(within); return err }},
		{"Reset", true, func(_ *Tx, it *Iter) error { return it.Reset(within) }},
	} {
		tx, err := db.Begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		it, err := tx.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		expire := func() { expireNow(db, tx) }
		if c.prefix {
			prefix.hook.Store(&expire)
		} else {
			faulty.SetHook(func(op vfstest.Op) error {
				if onTable(op) && op.Kind == vfstest.OpReadAt {
					faulty.SetHook(nil)
					expire()
				}
				return nil
			})
		}
		err = c.read(tx, it)
		if !tx.expired.Load() {
			t.Fatalf("%s: the transaction has not expired", c.name)
		}
		if !errors.Is(err, ErrTxLimit) {
			t.Errorf("%s: %v", c.name, err)
		}
		if it.Close(); len(tx.reads.tracks) != 0 {
			t.Errorf("%s: %d iterators are left", c.name, len(tx.reads.tracks))
		}
		tx.Discard()
	}
	nothingLeft(t, db)
}

// TestTxForgets checks that iterators of a transaction that has read too much continue, in both
// directions, and that nothing more is recorded.
func TestTxForgets(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.TxBytes = 16 << 10
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	loadKeys(t, db, 300)
	for _, readOnly := range []bool{false, true} {
		tx, err := db.Begin(&TxOptions{ReadOnly: readOnly})
		if err != nil {
			t.Fatal(err)
		}
		it, err := tx.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !it.SeekGE([]byte("key000100")) || !it.Next() {
			t.Fatal("no keys")
		}
		for i := range 300 {
			if _, err := tx.Has(fmt.Appendf(nil, "key%06d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if tx.reads.lost == readOnly {
			t.Fatalf("read-only %t: the read set is lost: %t", readOnly, tx.reads.lost)
		}
		for _, want := range []string{"key000100", "key000099"} {
			if !it.Prev() || string(it.Key()) != want {
				t.Errorf("Prev is at %q, want %q", it.Key(), want)
			}
		}
		if !it.Last() || string(it.Key()) != "key000299" || !it.First() || string(it.Key()) != "key000000" {
			t.Errorf("Last or First is at %q", it.Key())
		}
		if err := it.Close(); err != nil {
			t.Error(err)
		}
		if len(tx.reads.keys)+len(tx.reads.ranges) != 0 || tx.reads.bytes != 0 {
			t.Errorf("%d keys and %d ranges are recorded, %d bytes", len(tx.reads.keys), len(tx.reads.ranges), tx.reads.bytes)
		}
		tx.Discard()
	}
	nothingLeft(t, db)
}

// TestTxTooLarge checks that a transaction whose reads or writes take too much memory fails, and
// that all its methods fail after that.
func TestTxTooLarge(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.TxBytes = 16 << 10
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	var keys [][]byte
	for i := range 400 {
		keys = append(keys, fmt.Appendf(nil, "key%06d", i))
	}
	for name, fail := range map[string]func(tx *Tx) error{
		"GetMany of too many keys": func(tx *Tx) error { _, err := tx.GetMany(keys); return err },
		"a batch that is full": func(tx *Tx) error {
			tx.batch.err = ErrBatchTooLarge
			return tx.Put([]byte("other"), nil)
		},
	} {
		tx, err := db.Begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Put([]byte("key"), nil); err != nil {
			t.Fatal(err)
		}
		err = fail(tx)
		_, getErr := tx.Get([]byte("key"))
		_, manyErr := tx.GetMany(nil)
		_, iterErr := tx.NewIter(nil)
		for what, err := range map[string]error{
			"itself": err, "Get": getErr, "GetMany": manyErr, "NewIter": iterErr,
			"Put": tx.Put([]byte("key"), nil), "Commit": tx.Commit(),
		} {
			if !errors.Is(err, ErrTxLimit) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	if ok, err := db.Has([]byte("key")); ok || err != nil {
		t.Errorf("a transaction that failed was written: %t, %v", ok, err)
	}
	nothingLeft(t, db)
}

// TestCheckOfClosed checks that looking for conflicts in a database that has been closed fails.
func TestCheckOfClosed(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	if changed, err := tx.changed(tx.seq); changed || err != ErrClosed {
		t.Errorf("changed returns %t, %v", changed, err)
	}
}

// TestConflictInFullMemtable checks that a transaction finds a conflict in a memtable that is being
// flushed.
func TestConflictInFullMemtable(t *testing.T) {
	_, o, blocked, release, _ := blockTables(t)
	db := mustOpen(t, "db", o)
	for _, key := range []string{"read", "other"} {
		tx, err := db.Begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Has([]byte("read")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tx.Put([]byte("by "+key), nil), db.Put([]byte(key), nil, NoSync), db.commit.write(nil, false)); err != nil {
			t.Fatal(err)
		}
		if key == "read" {
			<-blocked
		}
		if n := len(db.state.Load().imms); n == 0 {
			t.Error("no memtable waits to be flushed")
		}
		err = tx.Commit()
		if key == "read" && err != ErrConflict || key != "read" && err != nil {
			t.Errorf("after %q was written: %v", key, err)
		}
	}
	release(nil)
	mustClose(t, db)
}

// TestLeaderDecides checks that the leader itself checks a transaction that was sent back too
// often, and refuses it if what it has read has changed, cannot be read, or is no longer kept.
func TestLeaderDecides(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(db *DB, faulty *vfstest.Faulty, tx *Tx) error
		want  error
	}{
		{"nothing", func(*DB, *vfstest.Faulty, *Tx) error { return nil }, nil},
		{"another key", func(db *DB, _ *vfstest.Faulty, _ *Tx) error { return db.Put([]byte("b"), nil, NoSync) }, nil},
		{"the key that was read", func(db *DB, _ *vfstest.Faulty, _ *Tx) error { return db.Put([]byte("a"), nil, NoSync) }, ErrConflict},
		{"it expires", func(db *DB, _ *vfstest.Faulty, tx *Tx) error {
			expireNow(db, tx)
			return db.Put([]byte("b"), nil, NoSync)
		}, ErrTxLimit},
		{"a table cannot be read", func(db *DB, faulty *vfstest.Faulty, _ *Tx) error {
			err := errors.Join(db.Put([]byte("a"), nil, NoSync), db.Flush())
			faulty.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: errUnreadable, Match: func(op vfstest.Op) bool {
				return onTable(op) && op.Kind == vfstest.OpReadAt
			}})
			return err
		}, errUnreadable},
	} {
		db, faulty := memDB(t)
		tx, err := db.Begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Get([]byte("a")); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if err := errors.Join(tx.Put([]byte("z"), nil), c.after(db, faulty, tx)); err != nil {
			t.Fatal(err)
		}
		tx.reads.finish()
		db.commit.recent.stop()
		if again, err := db.commit.writeChecked(tx, tx.seq, true); again || !errors.Is(err, c.want) {
			t.Errorf("%s: %t, %v; want %v", c.name, again, err, c.want)
		}
		faulty.SetFaults()
		if ok, err := db.Has([]byte("z")); err != nil || ok != (c.want == nil) {
			t.Errorf("%s: written: %t, %v", c.name, ok, err)
		}
		tx.Discard()
	}
}

var errUnreadable = errors.New("unreadable")

// TestLargeBatchBesideTx checks that transactions conflict with a batch too large for the list of
// recent writes if they have read one of its keys, and only then.
func TestLargeBatchBesideTx(t *testing.T) {
	db, _ := memDB(t)
	var txs []*Tx
	for _, key := range []string{"large", "other"} {
		tx, err := db.Begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Get([]byte(key)); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if err := tx.Put([]byte("by "+key), nil); err != nil {
			t.Fatal(err)
		}
		txs = append(txs, tx)
	}
	if err := db.Put([]byte("large"), make([]byte, maxGroupBytes+1), NoSync); err != nil {
		t.Fatal(err)
	}
	if db.commit.recent.valid {
		t.Error("recent writes are still valid after a large batch")
	}
	if err := txs[0].Commit(); err != ErrConflict {
		t.Errorf("the transaction that has read a key of the batch: %v", err)
	}
	if err := txs[1].Commit(); err != nil {
		t.Errorf("the transaction that has read another key: %v", err)
	}
	nothingLeft(t, db)
}

// TestCheckedGroup checks that a transaction with more than maxCheckedBytes before it in a commit
// group is left for the next group, which checks it.
func TestCheckedGroup(t *testing.T) {
	for _, more := range []int{0, 1} {
		db, _ := memDB(t)
		tx, err := db.Begin(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Get([]byte("a")); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if err := tx.Put([]byte("z"), nil); err != nil {
			t.Fatal(err)
		}
		tx.reads.finish()
		var b Batch
		b.Put([]byte("b"), make([]byte, maxCheckedBytes))
		over := b.Size() - maxCheckedBytes
		b.Reset()
		b.Put([]byte("b"), make([]byte, maxCheckedBytes-over+more))
		if b.Size() != maxCheckedBytes+more {
			t.Fatalf("the batch has %d bytes", b.Size())
		}
		waiting := []*commit{{batch: &b}, {batch: &tx.batch, tx: tx}}
		if n := db.commit.take(waiting); n != 2-more {
			t.Errorf("%d bytes too many: %d writes are in a group", more, n)
		}
		tx.Discard()
	}
}

// TestTransactReadOnly checks that a transaction that only reads is not queued with those that
// conflict, and that its function may not write.
func TestTransactReadOnly(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	db.joints.contention.Store(maxContention)
	calls := db.joints.calls.Load()
	err := db.TransactWith(context.Background(), &TxOptions{ReadOnly: true}, func(tx *Tx) error {
		if _, err := tx.Get([]byte("key")); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		return tx.Put([]byte("key"), nil)
	})
	if !errors.Is(err, ErrReadOnly) || db.joints.calls.Load() != calls {
		t.Errorf("TransactWith: %v, and %d calls are counted", err, db.joints.calls.Load()-calls)
	}
	nothingLeft(t, db)
}

// TestJointBegins checks that the first member of a joint transaction may be too old or too large
// to commit, and that neither a closed database nor a joint transaction that is being committed
// takes members.
func TestJointBegins(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.TxLifetime, o.TxBytes = time.Nanosecond, 4<<10
	db := mustOpen(t, "db", o)
	q := &db.joints
	put := func(size int) func(tx *Tx) error {
		return func(tx *Tx) error {
			_ = tx.Put([]byte("key"), make([]byte, size))
			for time.Since(tx.begun) <= o.TxLifetime {
				time.Sleep(time.Microsecond)
			}
			return nil
		}
	}
	for what, size := range map[string]int{"too old": 1, "too large": 8 << 10} {
		again, err := q.transact(context.Background(), db, nil, put(size))
		if again || !errors.Is(err, ErrTxLimit) {
			t.Errorf("%s: %t, %v", what, again, err)
		}
	}
	if ok, err := db.Has([]byte("key")); ok || err != nil {
		t.Errorf("a transaction that failed was written: %t, %v", ok, err)
	}
	closed := &joint{closed: true}
	if tx, _, err := q.begin(db, closed, nil); tx != nil || err != nil {
		t.Errorf("a joint transaction that is being committed takes %v, %v", tx, err)
	}
	q.joint = closed
	q.advance(closed) // whoever closed it commits it
	if q.joint != closed {
		t.Error("a joint transaction that is being committed is replaced")
	}
	q.joint = nil
	nothingLeft(t, db)
	mustClose(t, db)
	if again, err := q.transact(context.Background(), db, nil, put(1)); again || err != ErrClosed {
		t.Errorf("a closed database: %t, %v", again, err)
	}
	if q.joint != nil {
		t.Error("the queue of a closed database is not empty")
	}
}

// TestForkOfExpired checks that a copy of an expired transaction has expired, too, and ends without
// touching the list of snapshots.
func TestForkOfExpired(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := db.Begin(nil) // with the same sequence number
	if err != nil {
		t.Fatal(err)
	}
	expireNow(db, tx)
	f := tx.fork()
	if _, err := f.Get([]byte("key")); !errors.Is(err, ErrTxLimit) {
		t.Errorf("the copy: %v", err)
	}
	f.Discard()
	tx.Discard()
	if n := db.Metrics().Transactions; n != 1 {
		t.Errorf("%d transactions are open, want 1", n)
	}
	if _, err := other.Get([]byte("key")); !errors.Is(err, ErrNotFound) {
		t.Errorf("the transaction that has not expired: %v", err)
	}
	other.Discard()
	nothingLeft(t, db)
}

// TestTriesByDefault checks that zero Tries means the default, that the first try is not queued
// while there are few conflicts, and that later ones are; the first of them do not pause.
func TestTriesByDefault(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	tries := 0
	err := db.TransactWith(context.Background(), &TxOptions{NoSync: true}, func(tx *Tx) error {
		if tries++; tx.joint != (tries > 1) {
			t.Errorf("try %d: queued %t", tries, tx.joint)
		}
		if err := add(tx, "n", 1); err != nil || tries > 3 {
			return err
		}
		return db.Put([]byte("n"), []byte("10"), NoSync) // a conflict
	})
	if err != nil || tries != 4 || counter(t, db, "n") != 11 {
		t.Errorf("TransactWith: %v after %d tries; the counter is %d", err, tries, counter(t, db, "n"))
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for try := range firstRetries {
		for range 20 {
			if err := backOff(over, try+1); err != nil { // the context is checked only during a pause
				t.Fatalf("there is a pause after try %d", try+1)
			}
		}
	}
	nothingLeft(t, db)
}

// TestTxLimitInView checks that the read that exceeds the limit reports that.
func TestTxLimitInView(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.TxBytes = 4 << 10
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	tx, err := db.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Discard()
	if err := tx.Put([]byte("a"), nil); err != nil {
		t.Fatal(err)
	}
	for i := 0; tx.err == nil; i++ {
		_, err := tx.Get(fmt.Appendf(nil, "absent%d", i))
		if want := map[bool]error{true: ErrNotFound, false: ErrTxLimit}[tx.err == nil]; !errors.Is(err, want) {
			t.Fatalf("read %d: %v, want %v", i, err, want)
		}
	}
}
