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

// Transactions that conflict again and again gain nothing by running side by side. While
// many do, Transact has them run one after another, each seeing what those before it have
// written, and commits several as one: a joint transaction. For the check and for the log
// it is one, so it is serializable as any other; those in it stand in the order in which
// they ran.
//
// Each runs on its caller's goroutine in a Tx of its own, a copy of what the joint
// transaction is so far. So one that fails, panics or takes long leaves no trace in it, and
// the others are committed without it: nobody waits for another's function longer than
// maxBackoff, or three times as long as the last commit took.

// jointQueue has Transact's calls wait for their turn.
type jointQueue struct {
	heat  atomic.Int32  // rises with conflicts of first tries, falls with their successes
	calls atomic.Uint32 // first tries while it is hot

	mu      sync.Mutex
	joint   *joint // the one that is put together or committed; nil: none is
	waiting []*rider
	riders  int           // of the last joint transaction, if it was synced
	took    time.Duration // its commit
}

const (
	maxHeat      = 64
	hot          = 32 // from here on first tries join the queue
	conflictHeat = 8
	probeEvery   = 16 // but for one in so many, which shows whether there still are conflicts

	maxRiders     = 64
	maxJointBytes = 64 << 10 // what a joint transaction reads and writes, as each copies it
	maxPatience   = time.Second
)

// joint is a joint transaction. All of it is guarded by jointQueue.mu, but for what tx
// points to, which does not change.
type joint struct {
	tx      *Tx       // what has run
	sync    bool      // one of them wants to be durable
	riders  []*rider  // who wait for the commit
	writers int       // those of them who are in tx
	turn    time.Time // when the turn was last given
	closed  bool      // it is being committed: nothing is added any more
}

// rider is a call of Transact in the queue.
type rider struct {
	turn chan *joint // has room for one
	done chan error  // how the commit ended; has room for one
}

// joins reports whether a first try is to join the queue.
func (q *jointQueue) joins() bool {
	return q.heat.Load() >= hot && q.calls.Add(1)%probeEvery != 0
}

// tried notes how a first try outside the queue ended.
func (q *jointQueue) tried(conflict bool) {
	switch heat := q.heat.Load(); {
	case conflict:
		q.heat.Store(min(heat+conflictHeat, maxHeat)) // what is lost to others does not matter
	case heat > 0:
		q.heat.Store(heat - 1)
	}
}

// transact runs fn in a joint transaction; if its turn does not come soon, in one of its
// own.
func (q *jointQueue) transact(ctx context.Context, d *DB, o *TxOptions, fn func(tx *Tx) error) (again bool, err error) {
	r := &rider{turn: make(chan *joint, 1), done: make(chan error, 1)}
	j := q.wait(ctx, r)
	if j == nil {
		return d.transactOnce(o, fn)
	}
	if err := ctx.Err(); err != nil {
		q.advance(j)
		return false, err
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
	switch unusable := tx.err != nil || tx.expired.Load(); {
	case unusable && !first: // alone it may be small enough
		q.advance(j)
		return d.transactOnce(o, fn)
	case err == nil:
		err = tx.usable()
	}
	if first && err != nil || !tx.closed && tx.batch.count == 0 {
		// Nothing is to be committed, and nothing was seen that is not committed yet.
		q.advance(j)
		return false, err
	}
	if !q.add(j, r, tx, err == nil) {
		return true, ErrConflict
	}
	tx.Discard()
	q.advance(j)
	if cerr := q.result(j, r); cerr != nil {
		return errors.Is(cerr, ErrConflict), cerr
	}
	return false, err
}

// wait waits for r's turn; nil if that does not come.
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
		return <-r.turn // who took it out of the queue has sent it
	}
	return nil
}

// leaveOut commits the joint transaction without whoever has the turn, if that takes long.
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

// patience is how long anybody waits for others. REQUIRES: mu.
func (q *jointQueue) patience() time.Duration {
	return min(max(maxBackoff, 3*q.took), maxPatience)
}

// begin begins a transaction in j; nil if that is closed. first is whether there is
// nothing in j yet.
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

// add makes what tx is a part of j, or with written false only has r wait for j: what
// fn has seen is not there before j is committed. It reports false if j is closed.
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
		tx.reads.settle()
		j.tx = tx.fork()
		if before != nil {
			before.Discard()
		}
	}
	return true
}

// advance gives the turn to the next in the queue, or commits j.
func (q *jointQueue) advance(j *joint) {
	q.mu.Lock()
	for range gatherYields {
		// Those of the last joint transaction have only just been woken.
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
	if len(q.waiting) > 0 && len(j.riders) < maxRiders && (j.tx == nil || j.tx.charged < maxJointBytes) {
		j.turn = time.Now()
		q.next(j)
		q.mu.Unlock()
		return
	}
	j.closed = true
	q.mu.Unlock()
	q.commit(j)
}

// next gives the turn to the next in the queue. REQUIRES: mu, and that there is one.
func (q *jointQueue) next(j *joint) {
	r := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	r.turn <- j
}

// result returns how j's commit ended.
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
		case err := <-r.done: // who closes a joint transaction commits it, and tells all riders
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
		q.tried(false) // nobody was there to conflict with
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

// fork returns a transaction that reads what t reads, and has read and written what t
// has. t stays as it is. REQUIRES: no iterator of t is open, or t.reads is settled.
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

// clone returns a copy, without iterators.
func (s *readSet) clone() readSet {
	return readSet{
		off: s.off, lost: s.lost, merge: s.merge, bytes: s.bytes,
		keys: slices.Clone(s.keys), buf: slices.Clone(s.buf), byHash: maps.Clone(s.byHash), ranges: slices.Clone(s.ranges),
	}
}
