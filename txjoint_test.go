package sift

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// add adds n to a counter.
func add(tx *Tx, key string, n int) error {
	v, err := tx.Get([]byte(key))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	was, _ := strconv.Atoi(string(v))
	return tx.Put([]byte(key), strconv.AppendInt(nil, int64(was+n), 10))
}

func counter(t *testing.T, db *DB, key string) int {
	t.Helper()
	v, err := db.Get([]byte(key))
	if errors.Is(err, ErrNotFound) {
		return 0
	}
	n, aerr := strconv.Atoi(string(v))
	if err != nil || aerr != nil {
		t.Fatal(err, aerr)
	}
	return n
}

// nothingLeft checks that no transactions, snapshots, or waiting calls are left.
func nothingLeft(t *testing.T, db *DB) {
	t.Helper()
	q := &db.joints
	if m := db.Metrics(); m.Transactions != 0 || m.Snapshots != 0 || db.stats.txBytes.Load() != 0 || db.commit.watchers.Load() != 0 {
		t.Errorf("left: %d transactions, %d snapshots, %d bytes, %d watchers", m.Transactions, m.Snapshots, db.stats.txBytes.Load(), db.commit.watchers.Load())
	}
	if q.joint != nil || len(q.waiting) != 0 {
		t.Errorf("the queue is not empty: %v, %d", q.joint, len(q.waiting))
	}
}

func mustPutUnsynced(t *testing.T, db *DB, key, value string) {
	t.Helper()
	if err := db.Put([]byte(key), []byte(value), NoSync); err != nil {
		t.Fatal(err)
	}
}

// jointScript runs fns in one joint transaction: the others are queued while the first one runs,
// and then run in turn.
func jointScript(t *testing.T, db *DB, during func(), fns ...func(tx *Tx) error) []error {
	t.Helper()
	q := &db.joints
	q.took = time.Hour // no call is left out
	q.contention.Store(maxContention)
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	started, all := make(chan struct{}), make(chan struct{})
	start := sync.OnceFunc(func() { close(started) }) // the first one may run again
	run := func(i int, fn func(tx *Tx) error) {
		wg.Go(func() {
			q.calls.Store(0) // no probe
			errs[i] = db.TransactWith(context.Background(), &TxOptions{NoSync: true, Tries: 1}, fn)
		})
	}
	run(0, func(tx *Tx) error {
		start()
		<-all
		return fns[0](tx)
	})
	<-started
	for i, fn := range fns[1:] {
		run(i+1, fn)
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			q.mu.Lock()
			n := len(q.waiting)
			q.mu.Unlock()
			if n == i+1 {
				break
			}
			if time.Since(begin) > 30*time.Second {
				t.Fatal("a transaction does not join the queue")
			}
		}
	}
	during()
	close(all)
	wg.Wait()
	return errs
}

func TestJoint(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	own := errors.New("own")
	var kept *Tx
	logged := db.Metrics().LastSequence
	errs := jointScript(t, db, func() {},
		func(tx *Tx) error { kept = tx; return add(tx, "n", 1) },
		func(tx *Tx) error { // sees the writes of the one before
			if v, err := tx.Get([]byte("n")); string(v) != "1" {
				t.Errorf("the second sees %s, %v", v, err)
			}
			if err := kept.Put([]byte("n"), []byte("100")); !errors.Is(err, ErrClosed) {
				t.Errorf("Put to a transaction that has ended: %v", err)
			}
			return add(tx, "n", 2)
		},
		func(tx *Tx) error { // must have no effect
			if err := add(tx, "n", 1000); err != nil {
				t.Error(err)
			}
			return own
		},
		func(tx *Tx) error { // must not commit the others
			return errors.Join(add(tx, "n", 1000), tx.Commit())
		},
		func(tx *Tx) error { tx.Discard(); return nil },
		func(tx *Tx) error {
			found := 0
			for e, err := range tx.Scan(nil) {
				if found++; err != nil || string(e.Key) != "n" || string(e.Value) != "3" {
					t.Errorf("a scan finds %s=%s, %v", e.Key, e.Value, err)
				}
			}
			if found != 1 {
				t.Errorf("a scan finds %d keys", found)
			}
			return add(tx, "n", 4)
		},
	)
	if got, want := fmt.Sprint(errs), fmt.Sprint([]error{nil, nil, own, ErrClosed, ErrClosed, nil}); got != want {
		t.Errorf("the calls return %s, want %s", got, want)
	}
	if n := counter(t, db, "n"); n != 7 {
		t.Errorf("the counter is %d, want 7", n)
	}
	// One group of three operations.
	if m := db.Metrics(); m.LastSequence != logged+3 || m.TxCommits != 3 || m.TxConflicts != 0 {
		t.Errorf("%d operations, %d commits, %d conflicts", m.LastSequence-logged, m.TxCommits, m.TxConflicts)
	}
	nothingLeft(t, db)
}

// TestJointReadsTooMuch checks that a member that has read too much, and so cannot write, does not
// prevent others from writing.
func TestJointReadsTooMuch(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.TxBytes = 16 << 10
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	errs := jointScript(t, db, func() {},
		func(tx *Tx) error {
			for i := range 2000 {
				if _, err := tx.Has(fmt.Appendf(nil, "key%d", i)); err != nil {
					return err
				}
			}
			return nil
		},
		func(tx *Tx) error { return add(tx, "n", 1) },
		func(tx *Tx) error { return add(tx, "n", 1) },
	)
	if err := errors.Join(errs...); err != nil || counter(t, db, "n") != 2 {
		t.Errorf("%v, and the counter is %d", err, counter(t, db, "n"))
	}
	nothingLeft(t, db)
}

// TestJointConflict checks that no member commits if others write what one member has read, that a
// call whose turn it is runs by itself then, and that the next one begins another joint
// transaction.
func TestJointConflict(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	errs := jointScript(t, db, func() { mustPutUnsynced(t, db, "m", "50") }, // the first member has begun
		func(tx *Tx) error { return add(tx, "m", 1) },
		func(tx *Tx) error {
			if tx.joint {
				t.Error("a call joins")
			}
			return add(tx, "m", 1)
		},
		func(tx *Tx) error { return add(tx, "n", 1) },
	)
	if !errors.Is(errs[0], ErrConflict) || errs[1] != nil || errs[2] != nil {
		t.Errorf("the calls return %v", errs)
	}
	if n, m := counter(t, db, "n"), counter(t, db, "m"); n != 1 || m != 51 {
		t.Errorf("the counters are %d and %d", n, m)
	}
	if m := db.Metrics(); m.TxCommits != 2 || m.TxConflicts != 1 {
		t.Errorf("%d commits, %d conflicts", m.TxCommits, m.TxConflicts)
	}
	nothingLeft(t, db)
}

// TestJointSeesEarlierWrites checks that a member sees what was written after the joint transaction
// had begun, but before the call.
func TestJointSeesEarlierWrites(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	own := errors.New("own")
	errs := jointScript(t, db, func() { mustPutUnsynced(t, db, "n", "50") },
		func(tx *Tx) error { return add(tx, "m", 1) },
		func(tx *Tx) error {
			if v, err := tx.Get([]byte("n")); string(v) != "50" {
				t.Errorf("a member sees %q, %v", v, err)
			}
			return own
		},
		func(tx *Tx) error { return add(tx, "n", 1) },
		func(tx *Tx) error { return errors.Join(add(tx, "m", 1), add(tx, "n", 1)) },
	)
	if got, want := fmt.Sprint(errs), fmt.Sprint([]error{nil, own, nil, nil}); got != want {
		t.Errorf("the calls return %s, want %s", got, want)
	}
	if n, m := counter(t, db, "n"), counter(t, db, "m"); n != 52 || m != 2 {
		t.Errorf("the counters are %d and %d", n, m)
	}
	nothingLeft(t, db)
}

// TestJointFailureConflicts checks that a member that fails, or discards itself, returns
// ErrConflict if what it has read changes before the commit: its error may depend on that.
func TestJointFailureConflicts(t *testing.T) {
	jointFailureConflicts(t, func(tx *Tx) error { return tx.Put([]byte("n"), nil) })
	jointFailureConflicts(t, func(tx *Tx) error { return tx.Commit() })
	jointFailureConflicts(t, func(tx *Tx) error {
		tx.Discard()
		return nil
	})
}

func jointFailureConflicts(t *testing.T, fail func(tx *Tx) error) {
	t.Helper()
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	errs := jointScript(t, db, func() {},
		func(tx *Tx) error { return add(tx, "m", 1) },
		func(tx *Tx) error {
			_, err := tx.Get([]byte("n"))
			return errors.Join(fail(tx), err)
		},
		func(tx *Tx) error { mustPutUnsynced(t, db, "n", "50"); return add(tx, "l", 1) },
	)
	for i, err := range errs {
		if !errors.Is(err, ErrConflict) {
			t.Errorf("call %d returns %v", i, err)
		}
	}
	if l, n, m := counter(t, db, "l"), counter(t, db, "n"), counter(t, db, "m"); l != 0 || n != 50 || m != 0 {
		t.Errorf("the counters are %d, %d and %d", l, n, m)
	}
	if m := db.Metrics(); m.TxCommits != 0 || m.TxConflicts != 2 {
		t.Errorf("%d commits, %d conflicts", m.TxCommits, m.TxConflicts)
	}
	nothingLeft(t, db)
}

// TestJointLeavesOut checks that a transaction that takes long is left out, and that those before
// it and after it commit.
func TestJointLeavesOut(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	q := &db.joints
	release := make(chan struct{})
	inSlow := make(chan struct{})
	var runs atomic.Int64
	slow := func(tx *Tx) error {
		if runs.Add(1) == 1 {
			close(inSlow)
			<-release
		}
		return add(tx, "n", 10)
	}
	q.contention.Store(maxContention)
	q.calls.Store(0)
	slowly := inBackground(func() error { return db.Transact(context.Background(), slow) })
	<-inSlow
	for range 50 {
		err := ended(t, "a transaction beside a slow one", inBackground(func() error {
			return db.Transact(context.Background(), func(tx *Tx) error { return add(tx, "n", 1) })
		}))
		if err != nil {
			t.Error(err)
		}
	}
	close(release)
	if err := ended(t, "the slow one", slowly); err != nil {
		t.Error(err)
	}
	if n := counter(t, db, "n"); n != 60 || runs.Load() != 2 {
		t.Errorf("the counter is %d, and the slow one ran %d times", n, runs.Load())
	}
	nothingLeft(t, db)
}

// TestJointStress runs concurrent transactions that end in all possible ways, with plain writes
// between: each that returned nil must count once, and the others not at all.
func TestJointStress(t *testing.T) {
	o := uncached(vfstest.NewMem())
	o.TxBytes = 256 << 10
	db := mustOpen(t, "db", o)
	defer mustClose(t, db)
	var want [3]atomic.Int64
	own := errors.New("own")
	var wg sync.WaitGroup
	for w := range 12 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			for range 150 {
				if rng.IntN(4) == 0 {
					db.joints.contention.Store(maxContention)
				}
				key := rng.IntN(len(want))
				end, ctx := rng.IntN(12), context.Background()
				fn := func(tx *Tx) error {
					if err := add(tx, fmt.Sprint(key), 1); err != nil {
						return err
					}
					switch end {
					case 0:
						return own
					case 1:
						tx.Discard()
					case 2:
						panic(own)
					case 3:
						runtime.Goexit()
					case 4:
						return tx.Put([]byte("large"), make([]byte, 300<<10))
					case 5:
						return tx.Put([]byte("medium"), make([]byte, 100<<10))
					case 6:
						if _, err := tx.NewIter(nil); err != nil { // the iterator is not closed
							return err
						}
					}
					return nil
				}
				var err error
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() {
						if r := recover(); r != nil {
							err = r.(error)
						} else if end == 3 {
							err = own
						}
					}()
					err = db.TransactWith(ctx, &TxOptions{NoSync: rng.IntN(2) == 0, Tries: 1 << 20}, fn)
				}()
				<-done
				switch {
				case err == nil && end > 4:
					want[key].Add(1)
				case end == 0 && errors.Is(err, own), end == 1 && errors.Is(err, ErrClosed),
					(end == 2 || end == 3) && errors.Is(err, own), end == 4 && errors.Is(err, ErrTxLimit):
				default:
					t.Errorf("end %d: %v", end, err)
				}
				if rng.IntN(30) == 0 { // a plain write between
					if err := db.Put([]byte("plain"), nil, NoSync); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for key := range want {
		if n := counter(t, db, fmt.Sprint(key)); int64(n) != want[key].Load() {
			t.Errorf("counter %d is %d, want %d", key, n, want[key].Load())
		}
	}
	nothingLeft(t, db)
}

// TestJointSync checks that a joint transaction is synced if one of its members does not have
// NoSync.
func TestJointSync(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	q := &db.joints
	no, yes := &TxOptions{NoSync: true}, &TxOptions{}
	for _, members := range [][]*TxOptions{{no, no}, {no, yes}, {yes, no}, {yes, yes}, {no, nil}} {
		j := &joint{turn: time.Now()}
		want := false
		for i, o := range members {
			tx, first, err := q.begin(db, j, o)
			if err != nil || first != (i == 0) {
				t.Fatalf("member %d: first %v, %v", i, first, err)
			}
			if tx.noSync != (o == no) {
				t.Errorf("member %d of %v has noSync %v", i, members, tx.noSync)
			}
			want = want || o != no
			if err := add(tx, "n", 1); err != nil {
				t.Fatal(err)
			}
			if !q.add(j, &waiter{done: make(chan error, 1)}, tx, true) {
				t.Fatal("a member is not added")
			}
			tx.finish()
		}
		if j.sync != want {
			t.Errorf("with members %v, the joint transaction is synced: %v", members, j.sync)
		}
		j.closed = true
		q.commit(j)
		for _, r := range j.waiters {
			if err := <-r.done; err != nil {
				t.Error(err)
			}
		}
	}
	if n := counter(t, db, "n"); n != 10 {
		t.Errorf("the counter is %d", n)
	}
	nothingLeft(t, db)
}

// TestJointContention checks that each conflict of a first try outside the queue raises the
// contention, and that each success lowers it, down to zero; while it is contended, all first tries
// but one in probeEvery join it.
func TestJointContention(t *testing.T) {
	var q jointQueue
	q.tried(false)
	for n := range int32(maxContention/conflictCost + 2) {
		if got, want := q.contention.Load(), min(n*conflictCost, maxContention); got != want {
			t.Fatalf("contention after %d conflicts: %d, want %d", n, got, want)
		}
		joined := 0
		for range 10 * probeEvery {
			if q.joins() {
				joined++
			}
		}
		want := 0
		if q.contention.Load() >= contended {
			want = 10 * (probeEvery - 1)
		}
		if joined != want {
			t.Errorf("with contention %d, %d of %d join; want %d", q.contention.Load(), joined, 10*probeEvery, want)
		}
		q.tried(true)
	}
	for contention := q.contention.Load(); contention > 0; contention-- {
		if got := q.contention.Load(); got != contention {
			t.Fatalf("contention is %d, want %d", got, contention)
		}
		q.tried(false)
	}
}

// TestJointGivesUp checks that a call that stops waiting for its turn leaves the queue.
func TestJointGivesUp(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for before := range 3 {
		q := jointQueue{joint: &joint{turn: time.Now()}, took: time.Hour}
		for range before {
			q.waiting = append(q.waiting, new(waiter))
		}
		others := slices.Clone(q.waiting)
		gaveUp := inBackground(func() error {
			if j := q.wait(over, &waiter{turn: make(chan *joint, 1)}); j != nil {
				return errors.New("the call gets a turn")
			}
			return nil
		})
		if err := ended(t, "a call that gives up", gaveUp); err != nil || !slices.Equal(q.waiting, others) {
			t.Errorf("behind %d others: %v, and then %d wait", before, err, len(q.waiting))
		}
	}
}

// TestJointCanceled checks that a transaction does not run if its context is canceled while it
// waits for its turn or as it gets it.
func TestJointCanceled(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	q := &db.joints
	for what, j := range map[string]*joint{"it waits": {turn: time.Now()}, "it is its turn": nil} {
		q.joint, q.took = j, time.Hour
		again, err := q.transact(over, db, nil, func(*Tx) error { return errors.New("it runs") })
		if again || err != context.Canceled {
			t.Errorf("%s: %t, %v", what, again, err)
		}
		if q.joint != j || len(q.waiting) != 0 {
			t.Errorf("%s: the queue is left with %v, and %d wait", what, q.joint, len(q.waiting))
		}
	}
	q.joint = nil
	nothingLeft(t, db)
}

// TestJointLeaveOut checks that a joint transaction is committed, and only once, without the call
// whose turn it is when that call takes too long, and not before.
func TestJointLeaveOut(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name   string
		j      *joint
		commit bool
	}{
		{"there is none", nil, false},
		{"its turn has just begun", &joint{turn: time.Now().Add(time.Hour)}, false},
		{"it is being committed", &joint{turn: long, closed: true}, false},
		{"it takes too long", &joint{turn: long}, true},
	} {
		r := &waiter{done: make(chan error, 2)}
		q := jointQueue{joint: c.j}
		if c.j != nil {
			c.j.waiters = []*waiter{r}
		}
		q.leaveOut()
		if got := len(r.done) > 0; got != c.commit {
			t.Errorf("%s: committed %t", c.name, got)
		}
	}
}

// TestJointPatience checks that a call whose turn does not come in time runs by itself, and that a
// member commits the joint transaction when another call takes too long.
func TestJointPatience(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	q := &db.joints
	busy := &joint{turn: time.Now().Add(time.Hour)}
	q.joint = busy
	again, err := q.transact(context.Background(), db, nil, func(tx *Tx) error { return add(tx, "n", 1) })
	if again || err != nil || counter(t, db, "n") != 1 || q.joint != busy || len(q.waiting) != 0 {
		t.Errorf("transact returns %t, %v; the counter is %d, and %d wait", again, err, counter(t, db, "n"), len(q.waiting))
	}
	r := &waiter{done: make(chan error, 1)}
	busy.turn, busy.waiters = time.Now().Add(-time.Hour), []*waiter{r}
	if err := q.result(busy, r); err != nil || !busy.closed || q.joint != nil {
		t.Errorf("result returns %v; committed %t", err, busy.closed)
	}
	nothingLeft(t, db)
}

// TestJointCounts checks that the commit of a joint transaction counts once for each of its
// members, and not for calls that only wait for it. If it had a single call, it cools the queue.
func TestJointCounts(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	q := &db.joints
	for _, c := range []struct{ members, waiters, cools int }{{1, 1, 1}, {1, 2, 0}, {2, 2, 0}, {3, 4, 0}} {
		j := &joint{turn: time.Now()}
		for i := range c.waiters {
			tx, _, err := q.begin(db, j, &TxOptions{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := add(tx, "n", 1); err != nil {
				t.Fatal(err)
			}
			q.add(j, &waiter{done: make(chan error, 1)}, tx, i < c.members)
			tx.finish()
		}
		q.contention.Store(10)
		before := db.Metrics().TxCommits
		j.closed = true
		q.commit(j)
		if got := db.Metrics().TxCommits - before; got != uint64(c.members) {
			t.Errorf("%d commits of %d members", got, c.members)
		}
		if got := 10 - int(q.contention.Load()); got != c.cools {
			t.Errorf("%d waiters cool the queue by %d, want %d", c.waiters, got, c.cools)
		}
	}
	nothingLeft(t, db)
}

// TestJointFull checks that a joint transaction takes at most maxWaiters calls, and no further ones
// once it has maxJointBytes; the next call in the queue then begins another.
func TestJointFull(t *testing.T) {
	for _, c := range []struct {
		waiters, bytes int
		full           bool
	}{
		{1, 0, false}, {maxWaiters - 1, 0, false}, {maxWaiters, 0, true},
		{1, maxJointBytes - 1, false}, {1, maxJointBytes, true},
	} {
		db := mustOpen(t, "db", uncached(vfstest.NewMem()))
		j := &joint{turn: time.Now()}
		for range c.waiters {
			j.waiters = append(j.waiters, &waiter{done: make(chan error, 1)})
		}
		if c.bytes > 0 {
			tx, _, err := db.joints.begin(db, j, &TxOptions{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			j.tx, j.writers = tx, 1
			db.stats.txBytes.Add(int64(c.bytes) - int64(tx.charged))
			tx.charged = c.bytes
		}
		next := &waiter{turn: make(chan *joint, 1)}
		q := &db.joints
		q.joint, q.waiting = j, []*waiter{next}
		q.advance(j)
		if got := <-next.turn; (got != j) != c.full {
			t.Errorf("%d waiters and %d bytes: full %t", c.waiters, c.bytes, got != j)
		}
		if j.tx != nil {
			j.tx.Discard()
		}
		mustClose(t, db)
	}
}

// TestJointExpires checks that, when a joint transaction is too old, its members and the call that
// is running run again, each alone, and those that wait join another one. Only a first member that
// is too old by itself fails.
func TestJointExpires(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	var runs [3]int
	run := func(i int, expires bool) func(tx *Tx) error {
		return func(tx *Tx) error {
			err := add(tx, fmt.Sprint(i), 1)
			if runs[i]++; expires && runs[i] == 1 {
				db.snapshots.mu.Lock()
				db.snapshots.expire(time.Now().Add(db.opts.TxLifetime + time.Second))
				db.snapshots.mu.Unlock()
			}
			return err
		}
	}
	for at, want := range [][3]int{{1, 1, 1}, {2, 2, 1}, {2, 2, 2}} { // at: the call during which it expires
		runs = [3]int{}
		errs := jointScript(t, db, func() {}, run(0, at == 0), run(1, at == 1), run(2, at == 2))
		if errors.Is(errs[0], ErrTxLimit) != (at == 0) || at > 0 && errs[0] != nil || errs[1] != nil || errs[2] != nil || runs != want {
			t.Errorf("it expires in call %d: errors %v, runs %v", at, errs, runs)
		}
	}
	if a, b, c := counter(t, db, "0"), counter(t, db, "1"), counter(t, db, "2"); a != 2 || b != 3 || c != 3 {
		t.Errorf("the counters are %d, %d and %d", a, b, c)
	}
	nothingLeft(t, db)
}

// TestJointOutlivesMembers checks that a joint transaction that has become older than
// Options.TxLifetime while its members ran does not make them fail if none of them took that long.
func TestJointOutlivesMembers(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	var runs [3]int
	q, own := &db.joints, errors.New("own")
	errs := jointScript(t, db, func() {},
		func(tx *Tx) error { runs[0]++; return add(tx, "0", 1) },
		func(tx *Tx) error { runs[1]++; return add(tx, "1", 1) },
		func(tx *Tx) error {
			if runs[2]++; runs[2] == 1 {
				q.mu.Lock()
				q.joint.tx.begun = q.joint.tx.begun.Add(-db.opts.TxLifetime - time.Second)
				tx.begun = q.joint.tx.begun
				q.mu.Unlock()
			}
			return own
		},
	)
	if errs[0] != nil || errs[1] != nil || errs[2] != own || runs != [3]int{2, 2, 2} {
		t.Errorf("errors %v, runs %v", errs, runs)
	}
	if a, b := counter(t, db, "0"), counter(t, db, "1"); a != 1 || b != 1 {
		t.Errorf("the counters are %d and %d", a, b)
	}
	nothingLeft(t, db)
}

// TestJointLeftOutRunsAlone checks that a call that is left out because it takes long, and that
// conflicts with nothing, does not fail.
func TestJointLeftOutRunsAlone(t *testing.T) {
	db := mustOpen(t, "db", uncached(vfstest.NewMem()))
	defer mustClose(t, db)
	q := &db.joints
	q.contention.Store(maxContention)
	q.calls.Store(0)
	runs := 0
	err := db.TransactWith(context.Background(), &TxOptions{Tries: 1}, func(tx *Tx) error {
		if runs++; runs == 1 {
			if err := ended(t, "a call beside a slow one", inBackground(func() error {
				return db.Transact(context.Background(), func(tx *Tx) error { return add(tx, "other", 1) })
			})); err != nil {
				return err
			}
		}
		return add(tx, "slow", 1)
	})
	if err != nil || runs != 2 || counter(t, db, "slow") != 1 {
		t.Errorf("%v; it ran %d times, and the counter is %d", err, runs, counter(t, db, "slow"))
	}
	nothingLeft(t, db)
}
