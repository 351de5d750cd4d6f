package sift

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/gap"
	"github.com/siftdb/sift/internal/groupcommit"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// Group commit. Writes join a queue (internal/groupcommit). The leader takes a group of them,
// writes it to the log as one record, syncs once if any of them requests it, inserts the writes
// into the memtable, and publishes the new sequence number. The log itself is in internal/wal.

// maxGroupBytes is the size at which a group takes no more writes, so that no writer waits long
// for the others in its group.
const maxGroupBytes = 4 << 20

// errNoSequence is returned when the sequence numbers of LevelDB's format are used up.
var errNoSequence = errors.New("sift: out of sequence numbers")

// commit is a write in the queue. If batch is nil, it is a call of alone, or, without alone, a
// rotation: a request for a new memtable and log.
type commit struct {
	groupcommit.Member
	batch   *Batch
	alone   func() error // called while no other write runs; see ingest.go
	sync    bool
	err     error
	deleted deletedRun // the run of deletions that ended with this leader's group

	// For a transaction that has read something; see txrecent.go.
	tx      *Tx
	since   uint64 // up to this sequence number, nothing that it has read has changed
	force   bool   // the leader checks later writes even if recentWrites does not have them
	refused error  // why the transaction was not written
}

var commitPool = sync.Pool{New: func() any { return newCommit() }}

func newCommit() *commit { return &commit{Member: groupcommit.NewMember()} }

// committer is the write path: the queue, the log and the mutable memtable.
type committer struct {
	db    *DB
	queue groupcommit.Queue[*commit]

	watchers atomic.Int64 // number of open transactions that may write

	// Used only by the leader.
	passed   []*commit // the commits of the group that may be written; see admit
	recent   recentWrites
	deleted  deletedRun
	syncing  int      // number of writes in the last group if that was synced, else 0
	parts    [][]byte // scratch: the parts of a log record
	header   []byte   // scratch: the first of parts
	log      *wal.Writer
	lastSeq  uint64      // the last sequence number assigned
	bgErr    error       // background error of the log: no more writes are accepted (I5)
	failed   atomic.Bool // bgErr is set; for others than the leader
	changing bool        // the log or the memtable is being changed
	throttle throttle
}

func (c *committer) init() {
	c.queue.Init(groupcommit.Work[*commit]{Expect: c.expect, Take: c.take, Run: c.run})
}

// write queues a batch, or a rotation if batch is nil, and waits until it is done. REQUIRES: the
// batch is not empty.
func (c *committer) write(batch *Batch, sync bool) error {
	r := commitPool.Get().(*commit)
	err := c.enqueue(r, batch, sync)
	commitPool.Put(r)
	return err
}

// enqueue queues r and waits until it is done.
func (c *committer) enqueue(r *commit, batch *Batch, sync bool) error {
	if batch != nil {
		if err := c.db.fits(batch.room); err != nil {
			return err
		}
	}
	r.batch, r.sync, r.err = batch, sync, nil
	queued := c.queue.Do(r)
	deleted := r.deleted
	r.batch, r.alone, r.deleted = nil, nil, deletedRun{} // the queue refers to r until the next write
	if !queued {
		return ErrClosed
	}
	c.db.walkAhead(deleted)
	return r.err
}

// expect is the queue's Expect. If the last group was synced, its writers have just been
// woken, and one sync can serve them all if they write again.
func (c *committer) expect(leader *commit) int {
	if !leader.sync {
		return 0
	}
	return c.syncing
}

// take is the queue's Take.
func (c *committer) take(waiting []*commit) int {
	n, bytes, room := 0, 0, 0
	for n < len(waiting) && bytes <= maxGroupBytes {
		r := waiting[n]
		if r.batch == nil { // a rotation, or a call of alone, is a group by itself
			return max(n, 1)
		}
		if r.tx != nil && bytes > maxCheckedBytes {
			break
		}
		if n > 0 && r.batch.room > c.db.opts.MemtableBytes-room {
			break // a group must fit into one memtable, and only a single batch may need a larger one
		}
		bytes += len(r.batch.data)
		room += r.batch.room
		n++
	}
	return n
}

// errUnwound is the result of a group if user code (a callback, a logger, a file system, the
// operations of an Ingest) panicked or ended the goroutine.
var errUnwound = fmt.Errorf("%w: a callback panicked", ErrTryAgain)

// run is the queue's Run. Every member of the group gets its result, even if user code
// panics.
func (c *committer) run(group []*commit) {
	err := errUnwound
	defer func() {
		if c.changing { // a panic: the log may hold what the memtable lacks (I5)
			c.bgErr = cmp.Or(c.bgErr, fmt.Errorf("%w: the log: %w", ErrReopen, errUnwound))
			c.failed.Store(true)
			c.changing = false
		}
		if err == errUnwound && c.bgErr != nil {
			err = c.bgErr
		}
		for _, r := range group {
			if r.err = r.refused; r.err == nil {
				r.err = err
			}
		}
	}()
	leader := group[0]
	switch {
	case leader.alone != nil:
		err = leader.alone()
	case leader.batch == nil:
		err = c.rotate()
	default:
		err = c.commitGroup(c.admit(group))
		if err != nil {
			c.recent.stop()
		}
		leader.deleted = c.deleted.take()
	}
}

// commitGroup commits the batches of a group.
func (c *committer) commitGroup(group []*commit) error {
	if len(group) == 0 {
		return nil
	}
	var count uint32
	room, bytes, sync := 0, 0, false
	for _, r := range group {
		count += r.batch.count
		room += r.batch.room
		bytes += len(r.batch.data)
		sync = sync || r.sync
	}
	c.syncing = 0
	if sync {
		c.syncing = len(group)
	}
	if err := c.makeRoom(room, bytes); err != nil {
		return err
	}
	if c.lastSeq+uint64(count) > base.MaxSequence {
		return errNoSequence
	}
	c.header = wal.AppendBatchHeader(c.header[:0], c.lastSeq+1, count)
	c.parts = append(c.parts[:0], c.header)
	for _, r := range group {
		c.parts = append(c.parts, r.batch.data[wal.BatchHeaderLen:])
	}
	c.changing = true
	err := c.writeParts(group, sync)
	c.changing = false
	if err != nil {
		return c.fail(err)
	}
	c.db.visible.Store(c.lastSeq)
	return nil
}

// writeParts writes c.parts, the batches of a group, to the log, and inserts them into the
// memtable.
func (c *committer) writeParts(group []*commit, sync bool) error {
	logged, err := c.log.Write(c.lastSeq, c.parts, sync)
	clear(c.parts) // drop references to the callers' memory
	if err != nil {
		return err
	}
	c.db.stats.logBytes.Add(uint64(logged))
	mem := c.db.state.Load().mem
	mem.KeepUp()
	seq := c.lastSeq + 1
	for _, r := range group {
		if err := r.batch.insert(mem, c.db.secret, seq); err != nil {
			return err
		}
		seq += uint64(r.batch.count)
	}
	c.lastSeq = seq - 1
	if c.db.gaps.Active() {
		for _, r := range group {
			r.batch.cutGaps(c.db.gaps, &c.deleted)
		}
	}
	return nil
}

// insert adds the operations to a memtable, in which space for them has been reserved.
func (b *Batch) insert(mem *memtable.Memtable, secret *filter.Secret, seq uint64) error {
	c := base.NewCursor(b.data[wal.BatchHeaderLen:])
	for c.Len() > 0 {
		kind := base.Kind(c.Uint8())
		key := c.LengthPrefixed()
		var value []byte
		if kind == base.KindSet {
			value = c.LengthPrefixed()
		}
		if err := mem.Add(lookupKey(secret, key).Hash, seq, kind, key, value); err != nil {
			return fmt.Errorf("memtable: %w", err)
		}
		seq++
	}
	return c.Err()
}

// cutGaps removes the keys that the batch sets from the gaps, and adds the keys that it deletes to
// a run. REQUIRES: the entries are in the memtable and not visible yet.
func (b *Batch) cutGaps(gaps *gap.Set, deleted *deletedRun) {
	for c := base.NewCursor(b.data[wal.BatchHeaderLen:]); c.Len() > 0; {
		kind := base.Kind(c.Uint8())
		key := c.LengthPrefixed()
		if kind == base.KindSet {
			c.LengthPrefixed()
			gaps.Cut(key)
		} else {
			deleted.add(key)
		}
	}
}

// fail records and returns the background error: nothing more may be written to the log, since
// the state on disk after a failed write or sync is unknown until it is read again (I5).
func (c *committer) fail(err error) error {
	if c.bgErr == nil {
		c.bgErr = fmt.Errorf("%w: the log: %w", ErrReopen, err)
		c.failed.Store(true)
		c.db.opts.Logger.Error("log write failed, no more writes are accepted", "err", err)
		c.db.opts.Events.failed(c.bgErr)
	}
	return c.bgErr
}

// makeRoom reserves room bytes for a group in the memtable, after a rotation if necessary. It
// delays the group, which has bytes bytes in the log, while compactions are behind.
func (c *committer) makeRoom(room, bytes int) error {
	if c.bgErr != nil {
		return c.bgErr
	}
	if err := c.log.Check(); err != nil {
		return c.fail(err)
	}
	if err := c.db.bg.fatal(); err != nil {
		return err
	}
	if err := c.throttle.wait(c.db, bytes); err != nil {
		return err
	}
	if !c.db.state.Load().mem.Reserve(room) {
		if err := c.rotateFor(room, true); err != nil {
			return err
		}
	}
	if err := c.log.Check(); err != nil { // the sync of an older log may have failed while this waited
		return c.fail(err)
	}
	return nil
}

// rotate starts a new memtable and log, unless the memtable is empty. When it returns nil after a
// rotation, all earlier writes are durable.
func (c *committer) rotate() error {
	if c.bgErr != nil {
		return c.bgErr
	}
	if c.db.state.Load().mem.Empty() {
		return nil
	}
	c.changing = true
	err := c.log.Sync()
	c.changing = false
	if err != nil {
		return c.fail(err)
	}
	return c.rotateFor(0, false)
}

// rotateFor makes the memtable immutable, and starts a new log and a new memtable with room
// bytes reserved. It waits while maxFull memtables are waiting to be flushed. If ahead is set,
// the new memtable will soon be full, so it has the next log created ahead. Otherwise it syncs
// all logs before the current one. REQUIRES: without ahead, the current log is synced.
func (c *committer) rotateFor(room int, ahead bool) error {
	d := c.db
	start := time.Now()
	if waited, err := d.bg.waitFullRoom(); err != nil {
		return err
	} else if waited {
		d.stalled(time.Since(start))
	}
	if !ahead {
		if err := c.log.SyncSealed(); err != nil {
			return c.fail(err)
		}
	}
	c.changing = true
	err := c.nextLog(room, ahead)
	c.changing = false
	return err
}

// nextLog starts the new log and the new memtable of rotateFor.
func (c *committer) nextLog(room int, ahead bool) error {
	d := c.db
	mem, err := d.newMemtable(room)
	if err != nil {
		return err
	}
	mem.Follow(d.state.Load().mem)
	sealed, err := c.log.Rotate(c.lastSeq, ahead)
	if err != nil {
		// A later write may retry.
		return fmt.Errorf("%w: a log could not be created: %w", ErrTryAgain, err)
	}
	d.installMemtable(mem, c.lastSeq, c.log.Num(), sealed)
	return nil
}
