package sift

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Transactions that keep conflicting gain nothing from running concurrently. While many do,
// Transact runs them one after another, each seeing what those before it have written, and
// commits several as one joint transaction. The conflict check and the log see a single
// transaction, so it is serializable like any other, and the order within it is the order in
// which its members ran.
//
// Each member runs on its caller's goroutine in a Tx of its own, a copy of the joint
// transaction so far. One that fails, panics or takes long therefore leaves no trace, and
// the others are committed without it: no call waits for another's function longer than
// maxBackoff or three times as long as the last commit took, whichever is longer, and never
// longer than maxPatience.

// jointQueue queues calls of Transact whose transactions conflict.
type jointQueue struct {
	heat  atomic.Int32  // rises with conflicts of first tries, falls with their success
	calls atomic.Uint32 // first tries while it is hot

	mu      sync.Mutex
	joint   *joint // the one that is being assembled or committed, or nil
	waiting []*rider
	riders  int           // of the last joint transaction, if it was synced
	took    time.Duration // how long its commit took
}

const (
	maxHeat      = 64
	hot          = 32 // from this heat on, first tries join the queue
	conflictHeat = 8
	probeEvery   = 16 // except one in this many, to see whether there still are conflicts

	maxRiders     = 64
	maxJointBytes = 64 << 10 // of a joint transaction's reads and writes, which each member copies
	maxPatience   = time.Second
)

// joint is a joint transaction. jointQueue.mu guards it, except what tx points to, which
// does not change.
type joint struct {
	tx      *Tx       // what its members have read and written
	sync    bool      // a member asked for a sync
	riders  []*rider  // the calls that wait for the commit
	writers int       // how many of them are members; the others only wait
	turn    time.Time // when a call last got its turn
	closed  bool      // it is being committed: no members are added
}

// rider is a call of Transact in the queue.
type rider struct {
	turn chan *joint // buffered
	done chan error  // the result of the commit; buffered
}

// joins reports whether a first attempt should join the queue.
func (q *jointQueue) joins() bool {
	return q.heat.Load() >= hot && q.calls.Add(1)%probeEvery != 0
}

// tried records how a first attempt outside the queue ended.
func (q *jointQueue) tried(conflict bool) {
	switch heat := q.heat.Load(); {
	case conflict:
		q.heat.Store(min(heat+conflictHeat, maxHeat)) // a lost update does not matter
	case heat > 0:
		q.heat.Store(heat - 1)
	}
}

// transact runs fn in a joint transaction, or in its own if its turn does not come soon.
func (q *jointQueue) transact(ctx context.Context, d *DB, o *TxOptions, fn func(tx *Tx) error) (again bool, err error) {
	r := &rider{turn: make(chan *joint, 1), done: make(chan error, 1)}
	j := q.wait(ctx, r)
	if err := ctx.Err(); err != nil {
		if j != nil {
			q.advance(j)
		}
		return false, err
	}
	if j == nil {
		return d.transactOnce(o, fn)
	}
	tx, first, err := q.begin(d, j, o)
	if err != nil {
		q.advance(j)
		return false, err
	}
	if tx == nil {
		return d.transactOnce(o, fn)
	}
	ran := false
	defer func() {
		tx.Discard()
		if !ran { // fn has panicked or ended the goroutine
			q.advance(j)
		}
	}()
	err = fn(tx)
	ran = true
	old := tx.batch.count > 0 && tx.tooOld(time.Now())
	switch unusable := old || tx.err != nil || tx.expired.Load(); {
	case unusable && !first: // alone it may be small enough, and is younger
		q.advance(j)
		return d.transactOnce(o, fn)
	case err != nil:
	default:
		if err = tx.usable(); err == nil && old {
			err = tx.expiredErr()
		}
	}
	if first && err != nil || !tx.closed && tx.batch.count == 0 {
		// There is nothing to commit, and fn has seen nothing that is not committed yet.
		q.advance(j)
		return false, err
	}
	if !q.add(j, r, tx, err == nil) {
		return true, ErrConflict
	}
	tx.Discard()
	q.advance(j)
	switch cerr := q.result(j, r); {
	case cerr == nil:
		return false, err
	case errors.Is(cerr, ErrTxLimit): // it was too old when all members had run
		return d.transactOnce(o, fn)
	default:
		return errors.Is(cerr, ErrConflict), cerr
	}
}

// wait waits for r's turn, and returns nil if it does not come in time.
func (q *jointQueue) wait(ctx context.Context, r *rider) *joint {
	q.mu.Lock()
	if q.joint == nil {
		q.joint = &joint{turn: time.Now()}
		defer q.mu.Unlock()
		return q.joint
	}
	q.waiting = append(q.waiting, r)
	patience := q.patience()
	q.mu.Unlock()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case j := <-r.turn:
		return j
	case <-t.C:
		q.leaveOut()
	case <-ctx.Done():
	}
	q.mu.Lock()
	i := slices.Index(q.waiting, r)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 {
		return <-r.turn // whoever removed it from the queue has sent
	}
	return nil
}

// leaveOut commits the joint transaction without the call whose turn it is, if that call
// takes too long.
func (q *jointQueue) leaveOut() {
	q.mu.Lock()
	j := q.joint
	if j == nil || j.closed || time.Since(j.turn) < q.patience() {
		q.mu.Unlock()
		return
	}
	j.closed = true
	q.mu.Unlock()
	q.commit(j)
}

// patience is how long a call waits for others. REQUIRES: mu.
func (q *jointQueue) patience() time.Duration {
	return min(max(maxBackoff, 3*q.took), maxPatience)
}

// begin begins a transaction in j, and returns nil if j is closed. first reports whether j
// has no members yet.
func (q *jointQueue) begin(d *DB, j *joint, o *TxOptions) (tx *Tx, first bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.closed {
		return nil, false, nil
	}
	if j.tx == nil {
		tx, err = d.Begin(o)
	} else {
		tx = j.tx.fork()
		tx.noSync = o != nil && o.NoSync
	}
	if tx != nil {
		tx.joint = true
	}
	return tx, j.tx == nil, err
}

// add makes tx a member of j. If written is false, r only waits for j, because fn may have
// seen what j has not committed yet. It returns false if j is closed.
func (q *jointQueue) add(j *joint, r *rider, tx *Tx, written bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.closed {
		return false
	}
	j.riders = append(j.riders, r)
	if written {
		before := j.tx
		j.writers++
		j.sync = j.sync || !tx.noSync
		tx.reads.finish()
		j.tx = tx.fork()
		if before != nil {
			before.Discard()
		}
	}
	return true
}

// advance gives the turn to the next call in the queue, or commits j.
func (q *jointQueue) advance(j *joint) {
	q.mu.Lock()
	for range gatherYields {
		// The calls of the last joint transaction have just been woken, and may return.
		if !j.sync || len(q.waiting) > 0 || len(j.riders) >= q.riders {
			break
		}
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
	if j.closed {
		q.mu.Unlock()
		return
	}
	if len(q.waiting) > 0 && len(j.riders) < maxRiders && j.takesMore() {
		j.turn = time.Now()
		q.next(j)
		q.mu.Unlock()
		return
	}
	j.closed = true
	q.mu.Unlock()
	q.commit(j)
}

// takesMore reports whether more members may join: j is small enough, and not too old to be
// committed. REQUIRES: jointQueue.mu.
func (j *joint) takesMore() bool {
	tx := j.tx
	return tx == nil || tx.charged < maxJointBytes && !tx.expired.Load() && !tx.tooOld(time.Now())
}

// next gives the turn to the next call in the queue. REQUIRES: mu, and that there is one.
func (q *jointQueue) next(j *joint) {
	r := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	r.turn <- j
}

// result returns the result of j's commit.
func (q *jointQueue) result(j *joint, r *rider) error {
	select {
	case err := <-r.done:
		return err
	default:
	}
	q.mu.Lock()
	t := time.NewTicker(q.patience())
	q.mu.Unlock()
	defer t.Stop()
	for {
		select {
		case err := <-r.done: // whoever closes a joint transaction commits it, and sends the result to all
			return err
		case <-t.C:
			q.leaveOut()
		}
	}
}

// commit commits j, which the caller has closed.
func (q *jointQueue) commit(j *joint) {
	var err error
	begin := time.Now()
	if tx := j.tx; tx != nil {
		tx.noSync, tx.joint = !j.sync, false
		others := uint64(j.writers - 1)
		stats := &tx.db.stats
		switch err = tx.Commit(); {
		case err == nil:
			stats.txCommits.Add(others)
		case errors.Is(err, ErrConflict):
			stats.txConflicts.Add(others)
		}
	}
	if len(j.riders) < 2 {
		q.tried(false) // there was nothing to conflict with
	}
	q.mu.Lock()
	q.took, q.riders = 0, 0
	if j.sync {
		q.took, q.riders = time.Since(begin), len(j.riders)
	}
	if len(q.waiting) > 0 {
		q.joint = &joint{turn: time.Now()}
		q.next(q.joint)
	} else {
		q.joint = nil
	}
	q.mu.Unlock()
	for _, r := range j.riders {
		r.done <- err
	}
}

// fork returns a copy of t, with the same snapshot, reads and writes. REQUIRES: no iterator
// of t is open, or t.reads is finished.
func (t *Tx) fork() *Tx {
	f := &Tx{db: t.db, seq: t.seq, firstFile: t.firstFile, begun: t.begun, noSync: t.noSync, err: t.err}
	f.batch = t.batch
	f.batch.data = slices.Clone(t.batch.data)
	f.reads = t.reads.clone()
	t.db.commit.watchers.Add(1)
	t.db.snapshots.fork(f, t)
	if f.err == nil {
		f.charge()
	}
	return f
}

// clone returns a copy without the open iterators.
func (s *readSet) clone() readSet {
	return readSet{
		off: s.off, lost: s.lost, merge: s.merge, bytes: s.bytes,
		keys: slices.Clone(s.keys), buf: slices.Clone(s.buf), byHash: maps.Clone(s.byHash), ranges: slices.Clone(s.ranges),
	}
}
