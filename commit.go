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

// Group commit. A write joins the queue. If there is no leader, the writer becomes the
// leader: it takes everything in the queue, writes it to the log as one record, syncs once if
// any of the writes asks for it, inserts it into the memtable, publishes the new sequence
// number and wakes the others. The first of the writes that have queued up meanwhile becomes
// the next leader.
//
// A log begins with an empty batch, its header, which is synced before anything follows. Each
// further empty batch is a sync mark, a WAL durability marker. It carries a sequence number:
// all entries before that number, in this log or older ones, were on disk when the mark was
// written. That lets recovery tell a torn tail, which may be cut off, from damage, which may
// not (I8). After each sync, the next record is preceded by a mark with the next sequence
// number. LevelDB and goleveldb skip all of these. The header proves nothing, for this reason:
//
// When a memtable is full, writes go on in the next log, which was created ahead. The old log
// is synced in the background if a write to it has asked for a sync. Otherwise it is synced
// when a later write does; usually its memtable is in a table before that, and its end is never
// written to the disk at all. A crash may keep a new log and lose the end of an old one.
// Recovery detects the gap in the sequence numbers and ends there, so what survives is still a
// prefix (I4). A log is settled when it is on disk or no longer needed. Therefore
//   - no mark is written to a log, and no sync of it is acknowledged, before all older logs are
//     settled, and
//   - the next write then adds a mark with the number of the previous log's last entry, unless
//     the log has itself been synced.
//
// The header of a log that was created ahead has the sequence number that was next at that
// time; the log's first record has a higher one.

// maxGroupBytes bounds what one leader takes, so that no writer waits long for other writers'
// bytes.
const maxGroupBytes = 4 << 20

// errNoSequence reports that the sequence numbers of LevelDB's format are used up.
var errNoSequence = errors.New("sift: out of sequence numbers")

// commit is a write in the queue. A nil batch only requests a new memtable and log, unless alone
// is set.
type commit struct {
	batch *Batch
	alone func() error // runs while nobody else writes; see ingest.go
	sync  bool
	err   error
	wake  chan bool // true: become the leader; false: done

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

	watchers atomic.Int64 // number of open transactions that may write

	// Used only by the leader.
	taken    []*commit
	passed   []*commit // those of taken that are to be written
	recent   recentWrites
	deleted  deletedRun
	syncing  int // number of writes in the last group, if it was synced
	parts    [][]byte
	header   []byte
	log      *logFile
	sealed   []*sealedLog // earlier logs that are not known to be settled, oldest first
	spare    *spareLog    // the next log, if it is being created ahead
	lastSeq  uint64       // the last sequence number assigned
	poison   error        // the error of a failed log write or sync: no more writes are accepted (I5)
	throttle throttle
}

// logFile is the live log.
type logFile struct {
	num      uint64
	file     vfs.File
	writer   *record.Writer
	unsynced bool // records were written since the last sync
	marked   bool // the last record is a sync mark
	asked    bool // a write has asked for a sync

	before uint64 // last sequence number of the previous log, until a mark says that it is on disk
}

// sealedLog is a full log. It is settled once: by a sync, or when its memtable is in a table.
// That closes the file.
type sealedLog struct {
	log     *logFile
	once    sync.Once
	settled atomic.Bool // err is set
	err     error       // of the sync
}

// spareLog is a log created ahead.
type spareLog struct {
	done chan struct{} // closed when it exists; log is nil if that failed
	log  *logFile
}

// write queues a batch, or a rotation if batch is nil, and returns when it is done.
func (c *committer) write(batch *Batch, sync bool) error {
	r := commitPool.Get().(*commit)
	err := c.enqueue(r, batch, sync)
	commitPool.Put(r)
	return err
}

// enqueue queues r and returns when it is done.
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
	// A leader wakes all writers that it took, and makes the first of the later ones the next
	// leader, so that every writer is woken.
	if lead || <-r.wake {
		c.lead(r)
	}
	r.batch = nil
	return r.err
}

// gatherYields bounds how often a leader yields to other goroutines before it syncs.
const gatherYields = 16

// gather waits for the writers of the last group to return, if that was synced: they have just
// been woken, and one sync can serve them all. It yields instead of sleeping, so it costs
// little if they do not return.
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

// lead commits a group, of which own is the first, and appoints the next leader.
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
	switch {
	case own.alone != nil:
		c.leadAlone(own)
		return
	case own.batch == nil:
		err = c.rotate()
	default:
		err = c.commitGroup(c.admit(c.taken))
		if err != nil {
			c.recent.stop()
		}
	}
	deleted := c.deleted.take()
	c.handOn(own, err)
	c.db.walkAhead(deleted)
}

// leadAlone runs what a caller wants to do alone. It runs the caller's code, which may
// panic or end its goroutine: others can lead then, too.
func (c *committer) leadAlone(own *commit) {
	var err error
	defer func() { c.handOn(own, err) }()
	err = own.alone()
}

// handOn ends the group that was taken: it makes the first of those that came later the
// leader, and wakes the others.
func (c *committer) handOn(own *commit, err error) {
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
	logged := c.log.writer.Offset()
	if len(c.sealed) == 0 {
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
	clear(c.parts) // drop references to the callers' memory
	if err != nil {
		return c.poisoned(c.log.num, err)
	}
	if sync {
		c.log.asked = true
		if err := c.log.sync(); err != nil {
			return c.poisoned(c.log.num, err)
		}
		// Without the ends of the earlier logs, recovery would not reach this one.
		if err := c.settleSealed(); err != nil {
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
			r.batch.cutGaps(c.db.gaps, &c.deleted)
		}
	}
	c.db.visible.Store(c.lastSeq)
	return nil
}

// insert adds the operations to a memtable that has room for them.
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

// cutGaps removes the keys that the batch sets from the gaps, and adds those that it deletes to
// a run. It is called after insert and before the entries become visible.
func (b *Batch) cutGaps(gaps *gap.Set, deleted *deletedRun) {
	if b.count == 0 {
		return
	}
	for c := base.NewCursor(b.data[batchHeaderLen:]); c.Len() > 0; {
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

// poisoned records that the log must not be written to any more: what a failed write or sync
// has left on disk is unknown until it is read again (I5).
func (c *committer) poisoned(log uint64, err error) error {
	if c.poison == nil {
		c.poison = fmt.Errorf("%w: the log: %w", ErrReopen, err)
		c.db.opts.Logger.Error("log write failed, no more writes are accepted", "log", log, "err", err)
		c.db.opts.Events.failed(c.poison)
	}
	return c.poison
}

// checkSealed forgets the earlier logs that are settled. If the sync of one failed, no more
// writes are accepted (I5).
func (c *committer) checkSealed() error {
	for len(c.sealed) > 0 && c.sealed[0].settled.Load() {
		s := c.sealed[0]
		if s.err != nil {
			return c.poisoned(s.log.num, s.err)
		}
		c.sealed = c.sealed[1:]
	}
	return nil
}

// settleSealed syncs the earlier logs, as far as they are not settled.
func (c *committer) settleSealed() error {
	for _, s := range c.sealed {
		s.sync(c.db)
	}
	return c.checkSealed()
}

// makeRoom ensures that the memtable has room for a group, rotating it if necessary, and delays
// writes while compactions are behind.
func (c *committer) makeRoom(room, bytes int) error {
	if c.poison != nil {
		return c.poison
	}
	if err := c.checkSealed(); err != nil {
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

// rotate starts a new memtable and log, unless the present ones are empty. When it returns, all
// earlier writes are on disk.
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

// rotateFor makes the memtable immutable, and starts a new memtable with at least the given
// room, and a new log. It waits while maxFull memtables are being flushed. ahead says that
// another memtable will soon be full, so that logs should be created ahead; without it, all
// earlier logs are on disk when it returns, if the old one is.
func (c *committer) rotateFor(room int, ahead bool) error {
	d := c.db
	start := time.Now()
	if waited, err := d.bg.waitFullRoom(); err != nil {
		return err
	} else if waited {
		d.stalled(time.Since(start))
	}
	if !ahead {
		if err := c.settleSealed(); err != nil {
			return err
		}
	}
	mem, err := d.newMemtable(room)
	if err != nil {
		return err
	}
	mem.Follow(d.state.Load().mem)
	if !ahead {
		// The new log needs a higher number than the spare one.
		c.dropSpare()
	}
	next := c.takeSpare()
	if next == nil {
		if next, err = d.createLog(c.lastSeq + 1); err != nil {
			// The old log is unchanged; a later write may retry.
			return fmt.Errorf("%w: a log could not be created: %w", ErrTryAgain, err)
		}
	}
	sealed := &sealedLog{log: c.log}
	c.sealed = append(c.sealed, sealed)
	c.log = next
	c.log.before = c.lastSeq
	d.installMemtable(mem, c.lastSeq, next.num, sealed)
	if ahead {
		c.createAhead(sealed)
	} else {
		sealed.sync(d) // everything is on disk already
	}
	return nil
}

// createAhead creates the log after the present one in the background. Before that it syncs the
// one that was sealed, if a write to it has asked for a sync.
func (c *committer) createAhead(sealed *sealedLog) {
	d := c.db
	c.spare = &spareLog{done: make(chan struct{})}
	go func(spare *spareLog) {
		defer close(spare.done)
		if sealed.log.asked && sealed.sync(d) != nil {
			return
		}
		spare.make(d)
	}(c.spare)
}

// sync settles the log by a sync, unless it is settled, and returns the error of that.
func (s *sealedLog) sync(d *DB) error {
	s.settle(d, s.log.sync)
	return s.err
}

// flushed settles the log, whose memtable is in a table that the MANIFEST names.
func (s *sealedLog) flushed(d *DB) { s.settle(d, func() error { return nil }) }

func (s *sealedLog) settle(d *DB, how func() error) {
	s.once.Do(func() {
		s.err = how()
		d.cleaner.do(func() { d.closeLog(s.log) })
		s.settled.Store(true)
	})
}

// make creates the log, if possible.
func (s *spareLog) make(d *DB) {
	var err error
	if s.log, err = d.createLog(d.visible.Load() + 1); err != nil {
		d.opts.Logger.Warn("a log could not be created ahead", "err", err)
	}
}

// takeSpare returns the log created ahead, or nil.
func (c *committer) takeSpare() *logFile {
	s := c.spare
	if s == nil {
		return nil
	}
	<-s.done // always closed by the goroutine that creates the log
	c.spare = nil
	return s.log
}

// dropSpare removes the log created ahead.
func (c *committer) dropSpare() {
	if log := c.takeSpare(); log != nil {
		c.dropLog(log)
	}
}

// dropLog removes a log that nothing was written to.
func (c *committer) dropLog(log *logFile) {
	d := c.db
	d.cleaner.do(func() {
		d.closeLog(log)
		d.removeObsolete(filepath.Join(d.dir, manifest.MakeName(manifest.KindLog, log.num)))
	})
}

// close rejects further writes and waits for those in progress. Their leaders only wait for the
// file system, and for flushes, which succeed or fail.
func (c *committer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.leading { // the last leader broadcasts under mu, and no new one starts
		c.idle.Wait()
	}
}

// append writes a record that consists of parts.
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

// mark adds a sync mark, if there is something to prove that no mark has proved yet. It is
// written together with the next record. REQUIRES: the previous log is on disk.
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

// createLog creates a log with its header, and makes both durable. After a failure it tries to
// remove the file; if that fails, too, recovery skips it.
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
