package sift

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Running transactions concurrently is futile if they conflict again and again. While many do,
// Transact runs them one after another, each on top of the writes of those before it, and commits
// several as one joint transaction. The conflict check and the log see a single transaction, so it
// is serializable like any other, and the order within it is the order in which its members ran.
//
// Each member runs on its caller's goroutine in a separate Tx, a copy of the joint transaction
// so far. So a member that panics or takes too long has no effect, and one that fails adds only its
// reads, since its error may depend on them. No call waits for the function of another longer
// than maxBackoff or three times the duration of the last commit, whichever is longer, and never
// longer than maxPatience.
//
// A member must see all writes that were acknowledged before its call, so its copy reads at the
// current sequence number. That is as if the joint transaction had begun there, since nothing
// that it has read has changed; otherwise the joint transaction conflicts, and is closed.

// jointQueue is a queue of calls of Transact whose transactions conflict.
type jointQueue struct {
	contention atomic.Int32  // rises with conflicts of first attempts, falls with their success
	calls      atomic.Uint32 // number of first attempts while contention is at least contended

	mu          sync.Mutex
	joint       *joint // the joint transaction that is being assembled or committed, or nil
	waiting     []*waiter
	lastWaiters int           // number of waiters of the last joint transaction, if that was synced
	took        time.Duration // duration of its commit
}

const (
	maxContention = 64
	contended     = 32 // from this level of contention on, first attempts join the queue
	conflictCost  = 8  // increase of contention by a conflict
	probeEvery    = 16 // one first attempt in this many does not join, to detect when conflicts have ended

	maxWaiters    = 64
	maxJointBytes = 64 << 10 // maximum memory of a joint transaction, which each member copies
	maxPatience   = time.Second
	// gatherYields is the maximum number of times that advance yields to other goroutines, so that
	// the waiters of the last joint transaction can join the next one.
	gatherYields = 16
)

// joint is a joint transaction. jointQueue.mu guards its fields. *tx is not modified before the
// commit.
type joint struct {
	tx      *Tx       // the reads and writes of its members; nil: it has none yet
	sync    bool      // the commit must sync, since NoSync is not set for some member
	waiters []*waiter // the calls that wait for the commit
	writers int       // number of waiters that have added writes
	turn    time.Time // when a call last got its turn
	closed  bool      // the commit has begun: no members are added
}

// waiter is a call of Transact in the queue, or one that waits for the commit.
type waiter struct {
	turn chan *joint // gets the joint transaction when it is the call's turn; buffered
	done chan error  // gets the result of the commit; buffered
}

// joins reports whether a first attempt should join the queue.
func (q *jointQueue) joins() bool {
	return q.contention.Load() >= contended && q.calls.Add(1)%probeEvery != 0
}

// tried updates contention after a first attempt outside the queue.
func (q *jointQueue) tried(conflict bool) {
	switch contention := q.contention.Load(); {
	case conflict:
		q.contention.Store(min(contention+conflictCost, maxContention)) // concurrent updates may be lost
	case contention > 0:
		q.contention.Store(contention - 1)
	}
}

// transact runs fn as a member of a joint transaction, or in a separate transaction if its turn
// does not come soon.
func (q *jointQueue) transact(ctx context.Context, d *DB, o *TxOptions, fn func(tx *Tx) error) (again bool, err error) {
	r := &waiter{turn: make(chan *joint, 1), done: make(chan error, 1)}
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
	if errors.Is(err, ErrConflict) {
		q.end(j)
		return d.transactOnce(o, fn)
	}
	if err != nil {
		q.advance(j)
		return false, err
	}
	if tx == nil {
		return d.transactOnce(o, fn)
	}
	ran := false
	release := sync.OnceFunc(tx.finish) // fn may have called Discard, which keeps what it has read
	defer func() {
		release()
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
		// There is nothing to commit, and fn has not seen uncommitted writes.
		q.advance(j)
		return false, err
	}
	if !q.add(j, r, tx, err == nil) {
		release()
		return d.transactOnce(o, fn) // it took too long for the others: they do not wait for it alone
	}
	release()
	q.advance(j)
	switch cerr := q.result(j, r); {
	case cerr == nil:
		return false, err
	case errors.Is(cerr, ErrTxLimit): // the joint transaction was too old for its commit
		return d.transactOnce(o, fn)
	default:
		return errors.Is(cerr, ErrConflict), cerr
	}
}

// wait waits for r's turn, and returns nil if that does not come in time.
func (q *jointQueue) wait(ctx context.Context, r *waiter) *joint {
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
		return <-r.turn // does not block: next removes r from the queue and sends, under mu
	}
	return nil
}

// leaveOut commits the joint transaction without the call whose turn it is, if that takes too
// long.
func (q *jointQueue) leaveOut() {
	q.mu.Lock()
	j := q.joint
	commits := j != nil && time.Since(j.turn) >= q.patience() && j.close()
	q.mu.Unlock()
	if commits {
		q.commit(j)
	}
}

// close closes j, and reports whether the caller must commit it: another call may have closed it.
// REQUIRES: jointQueue.mu.
func (j *joint) close() (first bool) {
	first = !j.closed
	j.closed = true
	return first
}

// patience returns the maximum time that calls wait for the function of another. REQUIRES: mu.
func (q *jointQueue) patience() time.Duration {
	return min(max(maxBackoff, 3*q.took), maxPatience)
}

// begin begins a transaction for a member of j, or returns nil if j is closed. It returns
// ErrConflict if the commit of j will fail with it. first reports whether j has no members yet.
func (q *jointQueue) begin(d *DB, j *joint, o *TxOptions) (tx *Tx, first bool, err error) {
	q.mu.Lock()
	switch {
	case j.closed:
		q.mu.Unlock()
		return nil, false, nil
	case j.tx == nil:
		first = true
	default:
		tx = j.tx.fork()
	}
	q.mu.Unlock()
	if first {
		tx, err = d.Begin(o)
	} else {
		tx, err = tx.renew()
	}
	if err != nil {
		return nil, first, err
	}
	tx.joint, tx.noSync = true, o != nil && o.NoSync
	return tx, first, nil
}

// add makes tx a member of j. If written is false, it adds only what tx has read: the function's
// error holds if j commits. add returns false if j is closed.
func (q *jointQueue) add(j *joint, r *waiter, tx *Tx, written bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.closed {
		return false
	}
	j.waiters = append(j.waiters, r)
	before := j.tx
	if written {
		j.writers++
		j.sync = j.sync || !tx.noSync
	} else {
		tx.batch = before.batch // the first member has written
	}
	tx.reads.finish()
	j.tx = tx.fork()
	if before != nil {
		before.Discard()
	}
	return true
}

// advance gives the turn to the next call in the queue, or commits j.
func (q *jointQueue) advance(j *joint) {
	q.mu.Lock()
	for range gatherYields {
		if !j.sync || len(q.waiting) > 0 || len(j.waiters) >= q.lastWaiters {
			break
		}
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
	if !j.closed && len(q.waiting) > 0 && len(j.waiters) < maxWaiters && j.takesMore() {
		j.turn = time.Now()
		q.next(j)
		q.mu.Unlock()
		return
	}
	commits := j.close()
	q.mu.Unlock()
	if commits {
		q.commit(j)
	}
}

// end closes and commits j, unless another call has.
func (q *jointQueue) end(j *joint) {
	q.mu.Lock()
	commits := j.close()
	q.mu.Unlock()
	if commits {
		q.commit(j)
	}
}

// takesMore reports whether more members may join: j is not too large and not too old. REQUIRES:
// jointQueue.mu.
func (j *joint) takesMore() bool {
	tx := j.tx
	return tx == nil || tx.charged < maxJointBytes && !tx.expired.Load() && !tx.tooOld(time.Now())
}

// next gives the turn to the next call in the queue. REQUIRES: mu; the queue is not empty.
func (q *jointQueue) next(j *joint) {
	r := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	r.turn <- j
}

// result waits for the commit of j, and returns its result for r. It calls leaveOut if the call
// whose turn it is takes too long.
func (q *jointQueue) result(j *joint, r *waiter) error {
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
		case err := <-r.done: // the goroutine that closes j commits it, and sends the result to all waiters
			return err
		case <-t.C:
			q.leaveOut()
		}
	}
}

// commit commits j. REQUIRES: the caller has closed j.
func (q *jointQueue) commit(j *joint) {
	err := errUnwound // unless Commit returns: user code may panic in it
	begin := time.Now()
	tx := j.tx
	defer func() {
		if err == errUnwound && tx.db.commit.failed.Load() {
			err = fmt.Errorf("%w: the log: %w", ErrReopen, errUnwound)
		}
		q.committed(j, err, time.Since(begin))
	}()
	if tx == nil {
		err = nil
		return
	}
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

// committed returns the result of j's commit, which took some time, to its waiters, and begins the
// next joint transaction.
func (q *jointQueue) committed(j *joint, err error, took time.Duration) {
	if len(j.waiters) < 2 {
		q.tried(false) // without other calls in the queue, count it as a success
	}
	q.mu.Lock()
	q.took, q.lastWaiters = 0, 0
	if j.sync {
		q.took, q.lastWaiters = took, len(j.waiters)
	}
	if len(q.waiting) > 0 {
		q.joint = &joint{turn: time.Now()}
		q.next(q.joint)
	} else {
		q.joint = nil
	}
	q.mu.Unlock()
	for _, r := range j.waiters {
		r.done <- err
	}
}

// fork returns a copy of t with the same sequence number, reads and writes. REQUIRES: no iterator
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

// renew ends t, and returns a transaction with its reads and writes that reads at the current
// sequence number. It returns ErrConflict if what t has read has changed. REQUIRES: t is a fork.
func (t *Tx) renew() (*Tx, error) {
	if t.seq == t.db.visible.Load() {
		return t, nil
	}
	n, err := t.db.Begin(nil)
	if err != nil {
		t.Discard()
		return nil, err
	}
	changed, err := t.changed(t.seq) // up to a sequence number that is not below that of n
	if changed {
		err = ErrConflict
	}
	switch {
	case err != nil:
		t.Discard()
		n.Discard()
		return nil, err
	case t.usable() != nil: // its methods return the reason
		n.Discard()
		return t, nil
	}
	n.batch, n.reads = t.batch, t.reads
	n.charge()
	t.Discard()
	return n, nil
}

// clone returns a copy without the tracks of open iterators.
func (s *readSet) clone() readSet {
	return readSet{
		off: s.off, lost: s.lost, merge: s.merge, bytes: s.bytes,
		keys: slices.Clone(s.keys), buf: slices.Clone(s.buf), byHash: maps.Clone(s.byHash), ranges: slices.Clone(s.ranges),
	}
}
