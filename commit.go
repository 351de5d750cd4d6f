package sift

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/gap"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/record"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/memtable"
)

// Group commit. A write joins the queue. If nobody leads, the writer becomes
// the leader: it takes all that is queued, writes it to the log as one record,
// syncs once if any of the writes asks for it, inserts it into the memtable,
// publishes the new sequence number and wakes the others. What has queued up
// meanwhile is led by the first in the queue.
//
// A log begins with an empty batch, its beginning, which is synced before anything
// follows. Each further empty batch is a sync mark and carries a sequence number: all
// entries before that number, in this log or older ones, were on disk when the mark
// was written. So recovery can tell a torn tail, which may be cut off, from damage,
// which may not (I8). There is a mark with the next number after each sync that a
// record follows. LevelDB and goleveldb read over all of them. A beginning proves
// nothing:
//
// When a memtable is full the writer goes on in the next log, which was made ahead,
// while the old one is still on its way to the disk. A crash may keep what is in the
// new log and lose the end of the old one. Recovery sees it by the sequence numbers
// and ends at the gap, so what survives is still a prefix (I4). For that
//   - no mark is written to the new log, and no sync of it is acknowledged, before
//     the old one is on disk,
//   - only then may a log be made after it, and
//   - the next write then puts down a mark that says so, if the new log has not been
//     synced itself: with the number of the old log's last entry.
//
// The beginning of a log that was made ahead has the number that was next then; its
// first record has a higher one.

// maxGroupBytes bounds what one leader takes, so that nobody waits long for
// other writers' bytes.
const maxGroupBytes = 4 << 20

// errNoSequence is told where LevelDB's format has no number for a further entry.
var errNoSequence = errors.New("sift: out of sequence numbers")

// commit is one caller's write in the queue. A nil batch asks only for a new
// memtable and log.
type commit struct {
	batch *Batch
	sync  bool
	err   error
	wake  chan bool // true: lead; false: done

	// Of a transaction that has read something; see recent.go.
	tx      *Tx
	since   uint64 // what it has read has no newer entries up to here
	force   bool   // the leader looks for newer ones, if it has to
	refused error  // why it was not written
}

var commitPool = sync.Pool{New: func() any { return &commit{wake: make(chan bool, 1)} }}

// committer is the write path: the queue, the log and the growing memtable.
type committer struct {
	db *DB

	mu      sync.Mutex
	queue   []*commit
	leading bool
	idle    sync.Cond // on mu: leading has become false
	closed  bool

	watchers atomic.Int64 // open transactions that may write

	// Owned by the leader.
	taken    []*commit
	passed   []*commit // those of taken that are written
	recent   recentWrites
	syncing  int // the writes of the last group, if it was synced
	parts    [][]byte
	header   []byte
	log      *logFile
	sealed   *sealedLog // the log before, while it is not known to be on disk
	spare    *spareLog  // the log after, if it is being made ahead
	lastSeq  uint64     // the last sequence number given out
	poison   error      // a failed log write or sync: nothing is accepted any more (I5)
	throttle throttle
}

// logFile is the live log.
type logFile struct {
	num      uint64
	file     vfs.File
	writer   *record.Writer
	unsynced bool // records were written since the last sync
	marked   bool // the last record is a sync mark

	before uint64 // the last sequence number of the log before, until a mark says that it is on disk
}

// sealedLog is a log that is no longer written to, on its way to the disk.
type sealedLog struct {
	num  uint64
	done chan struct{} // closed when it is there, or err tells why not
	err  error
}

// spareLog is a log that is made ahead.
type spareLog struct {
	done chan struct{} // closed when it is made; if that failed log is nil
	log  *logFile
}

// write queues a batch, or a rotation if batch is nil, and returns when it has
// been carried out.
func (c *committer) write(batch *Batch, sync bool) error {
	r := commitPool.Get().(*commit)
	err := c.enqueue(r, batch, sync)
	commitPool.Put(r)
	return err
}

// enqueue queues r and returns when it has been carried out.
func (c *committer) enqueue(r *commit, batch *Batch, sync bool) error {
	if batch != nil {
		if err := c.db.fits(batch.room); err != nil {
			return err
		}
	}
	r.batch, r.sync, r.err = batch, sync, nil
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		r.batch = nil
		return ErrClosed
	}
	c.queue = append(c.queue, r)
	lead := !c.leading
	c.leading = true
	c.mu.Unlock()
	// A leader wakes all that it took, and makes the first of those that came later
	// the next one, so nobody in the queue is left alone.
	if lead || <-r.wake {
		c.lead(r)
	}
	r.batch = nil
	return r.err
}

// gatherYields bounds how often a leader lets others run before it syncs.
const gatherYields = 16

// gather waits for the writers of the last group to come back, if that was
// synced: they have only just been woken, and one sync can serve them all. It
// gives way and does not sleep, so it costs little if they stay away.
func (c *committer) gather() {
	for range gatherYields {
		c.mu.Lock()
		n := len(c.queue)
		c.mu.Unlock()
		if n >= c.syncing {
			return
		}
		runtime.Gosched()
	}
}

// lead carries out a group that own is the first of, and hands on.
func (c *committer) lead(own *commit) {
	if own.sync {
		c.gather()
	}
	c.mu.Lock()
	n, bytes, room := 0, 0, 0
	for n < len(c.queue) && bytes <= maxGroupBytes {
		if b := c.queue[n].batch; b == nil && n > 0 {
			break // a rotation is a group of its own
		} else if c.queue[n].tx != nil && bytes > maxCheckedBytes {
			break
		} else if b != nil {
			if n > 0 && b.room > c.db.opts.arenaBytes-room {
				break // a group goes into one memtable
			}
			bytes += len(b.data)
			room += b.room
		}
		n++
		if c.queue[n-1].batch == nil {
			break
		}
	}
	c.taken = append(c.taken[:0], c.queue[:n]...)
	c.queue = c.queue[:copy(c.queue, c.queue[n:])]
	c.mu.Unlock()

	var err error
	if c.taken[0].batch == nil {
		err = c.rotate()
	} else {
		err = c.commitGroup(c.admit(c.taken))
		if err != nil {
			c.recent.stop()
		}
	}

	c.mu.Lock()
	if len(c.queue) > 0 {
		c.queue[0].wake <- true
	} else {
		c.leading = false
		c.idle.Broadcast()
	}
	// The next leader may overwrite c.taken as soon as the lock is released.
	for _, r := range c.taken {
		if r.err = r.refused; r.err == nil {
			r.err = err
		}
		if r != own {
			r.wake <- false
		}
	}
	c.mu.Unlock()
}

// commitGroup writes the batches of a group.
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
	logged := c.log.writer.Offset()
	if c.sealed == nil {
		if err := c.log.mark(c.lastSeq + 1); err != nil {
			return c.poisoned(c.log.num, err)
		}
	}
	c.header = appendBatchHeader(c.header[:0], c.lastSeq+1, count)
	c.parts = append(c.parts[:0], c.header)
	for _, r := range group {
		if r.batch.count > 0 {
			c.parts = append(c.parts, r.batch.data[batchHeaderLen:])
		}
	}
	err := c.log.append(c.parts)
	clear(c.parts) // they are the callers' memory
	if err != nil {
		return c.poisoned(c.log.num, err)
	}
	if sync {
		if err := c.log.sync(); err != nil {
			return c.poisoned(c.log.num, err)
		}
		// Without what is in the log before, recovery would not come to this one.
		if err := c.checkSealed(true); err != nil {
			return err
		}
	}
	c.db.stats.logBytes.Add(uint64(c.log.writer.Offset() - logged))
	mem := c.db.state.Load().mem
	seq := c.lastSeq + 1
	for _, r := range group {
		if err := r.batch.insert(mem, c.db.secret, seq); err != nil {
			return c.poisoned(c.log.num, err)
		}
		seq += uint64(r.batch.count)
	}
	c.lastSeq = seq - 1
	if c.db.gaps.Active() {
		for _, r := range group {
			r.batch.cutGaps(c.db.gaps)
		}
	}
	c.db.visible.Store(c.lastSeq)
	return nil
}

// insert puts the operations into a memtable that has room for them.
func (b *Batch) insert(mem *memtable.Memtable, secret *filter.Secret, seq uint64) error {
	if b.count == 0 {
		return nil
	}
	c := base.NewCursor(b.data[batchHeaderLen:])
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

// cutGaps takes the keys that the batch sets out of the gaps. It comes after insert and
// before the entries are visible.
func (b *Batch) cutGaps(gaps *gap.Set) {
	if b.count == 0 {
		return
	}
	for c := base.NewCursor(b.data[batchHeaderLen:]); c.Len() > 0; {
		kind := base.Kind(c.Uint8())
		key := c.LengthPrefixed()
		if kind == base.KindSet {
			c.LengthPrefixed()
			gaps.Cut(key)
		}
	}
}

// poisoned notes that the log can no longer be trusted to take writes: what a
// failed write or sync has left on disk is unknown until it is read again (I5).
func (c *committer) poisoned(log uint64, err error) error {
	if c.poison == nil {
		c.poison = fmt.Errorf("%w: the log: %w", ErrReopen, err)
		c.db.opts.Logger.Error("log write failed, no more writes are accepted", "log", log, "err", err)
		c.db.opts.Events.failed(c.poison)
	}
	return c.poison
}

// checkSealed looks how the sync of the log before has ended, if there is one
// under way, and waits for it to end if it is told to. If it has failed nothing
// is accepted any more (I5).
func (c *committer) checkSealed(wait bool) error {
	if c.sealed == nil {
		return nil
	}
	if wait {
		<-c.sealed.done // who seals a log closes it, whatever comes of it
	} else {
		select {
		case <-c.sealed.done:
		default:
			return nil
		}
	}
	if c.sealed.err != nil {
		return c.poisoned(c.sealed.num, c.sealed.err)
	}
	c.sealed = nil
	return nil
}

// makeRoom returns when the memtable has room for a group, having rotated it
// if need be, and holds writes back while compactions are behind.
func (c *committer) makeRoom(room, bytes int) error {
	if c.poison != nil {
		return c.poison
	}
	if err := c.checkSealed(false); err != nil {
		return err
	}
	if err := c.db.bg.fatal(); err != nil {
		return err
	}
	if err := c.throttle.wait(c.db, bytes); err != nil {
		return err
	}
	if c.db.state.Load().mem.Reserve(room) {
		return nil
	}
	return c.rotateFor(room, true)
}

// rotate begins a new memtable and log, unless the present ones are empty. What
// was written before is on disk then.
func (c *committer) rotate() error {
	if c.poison != nil {
		return c.poison
	}
	if c.db.state.Load().mem.Empty() {
		return nil
	}
	if err := c.log.sync(); err != nil {
		return c.poisoned(c.log.num, err)
	}
	return c.rotateFor(0, false)
}

// rotateFor makes the memtable the immutable one, and begins a new memtable,
// with at least the given room, and a new log. It waits while as many memtables
// are being flushed as may be, and until the log before the old one is on disk.
// ahead says that there will soon be another full memtable: that logs are made
// ahead.
func (c *committer) rotateFor(room int, ahead bool) error {
	d := c.db
	start := time.Now()
	if waited, err := d.bg.waitFullRoom(); err != nil {
		return err
	} else if waited {
		d.stalled(time.Since(start))
	}
	if err := c.checkSealed(true); err != nil {
		return err
	}
	mem, err := d.newMemtable(room)
	if err != nil {
		return err
	}
	if !ahead {
		// It has a lower number than the log that is made now.
		c.dropSpare()
	}
	next := c.takeSpare()
	if next == nil {
		if next, err = d.createLog(c.lastSeq + 1); err != nil {
			// The old log is as it was; a later write may try again.
			return fmt.Errorf("%w: a log could not be made: %w", ErrTryAgain, err)
		}
	}
	c.seal(c.log, ahead)
	c.log = next
	c.log.before = c.lastSeq
	d.installMemtable(mem, c.lastSeq, next.num, c.sealed)
	return nil
}

// seal brings what is in a log to the disk and closes it. With ahead nobody waits
// for it yet, and the log after the next one is made too.
func (c *committer) seal(log *logFile, ahead bool) {
	d, s := c.db, &sealedLog{num: log.num, done: make(chan struct{})}
	c.sealed = s
	finish := func() {
		s.err = log.sync()
		d.cleaner.do(func() { d.closeLog(log) })
		close(s.done)
	}
	if !ahead {
		finish() // it is on disk already
		return
	}
	c.spare = &spareLog{done: make(chan struct{})}
	go func(spare *spareLog) {
		defer close(spare.done)
		finish()
		if s.err == nil {
			spare.make(d)
		}
	}(c.spare)
}

// make makes the log, if that is possible.
func (s *spareLog) make(d *DB) {
	var err error
	if s.log, err = d.createLog(d.visible.Load() + 1); err != nil {
		d.opts.Logger.Warn("a log could not be made ahead", "err", err)
	}
}

// takeSpare returns the log that was made ahead, or nil.
func (c *committer) takeSpare() *logFile {
	s := c.spare
	if s == nil {
		return nil
	}
	<-s.done // closed by who makes the log, whatever comes of it
	c.spare = nil
	return s.log
}

// dropSpare removes the log that was made ahead.
func (c *committer) dropSpare() {
	if log := c.takeSpare(); log != nil {
		d := c.db
		d.cleaner.do(func() {
			d.closeLog(log)
			d.removeObsolete(filepath.Join(d.dir, manifest.MakeName(manifest.KindLog, log.num)))
		})
	}
}

// close refuses further writes and waits for those under way. Their leaders wait
// for nothing but the file system, and for flushes, which end or fail.
func (c *committer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.leading { // the last leader broadcasts under mu; as it is closed there is no other
		c.idle.Wait()
	}
}

// append writes a record made of parts.
func (l *logFile) append(parts [][]byte) error {
	l.unsynced, l.marked = true, false
	return l.writer.AppendParts(parts...)
}

// sync makes all records durable.
func (l *logFile) sync() error {
	if !l.unsynced {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	l.unsynced = false
	return nil
}

// mark adds a sync mark, if there is something to prove that none has proved yet. It
// is written together with the next record. The log before is on disk.
func (l *logFile) mark(nextSeq uint64) error {
	switch {
	case l.marked:
		return nil
	case !l.unsynced:
		l.marked, l.before = true, 0
		return l.writer.AddParts(appendBatchHeader(nil, nextSeq, 0))
	case l.before != 0:
		seq := l.before
		l.before = 0
		return l.writer.AddParts(appendBatchHeader(nil, seq, 0))
	}
	return nil
}

// createLog makes a log that holds its beginning, both durable. What a failure
// leaves is removed if it can be; recovery passes over it if not.
func (d *DB) createLog(nextSeq uint64) (*logFile, error) {
	num := d.nextFile.Add(1) - 1
	path := filepath.Join(d.dir, manifest.MakeName(manifest.KindLog, num))
	f, err := vfs.CreateLog(d.fs, path)
	if err != nil {
		return nil, err
	}
	l := &logFile{num: num, file: f, writer: record.NewWriter(f)}
	err = l.writer.Append(appendBatchHeader(nil, nextSeq, 0))
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.fs.SyncDir(d.dir)
	}
	if err != nil {
		err = errors.Join(err, f.Close())
		if rerr := d.fs.Remove(path); rerr != nil {
			d.opts.Logger.Warn("removing an unfinished log failed", "path", path, "err", rerr)
		}
		return nil, err
	}
	return l, nil
}
