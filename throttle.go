package sift

import (
	"fmt"
	"time"
)

// throttle slows writes down while level 0 grows faster than it is compacted,
// and stops them where it has grown too far. It belongs to the leader of the
// commit queue.
//
// The delay is spread over all writes, so that none waits long: it lets them in at
// a rate that falls to next to nothing before the stop. There it takes minutes to
// fill a memtable of the usual size, and a compaction is over by then. Three things
// get as far as the stop all the same: batches that would have to wait longer than
// maxSleep each, memtables of a few KiB, and a Flush, which adds a table however
// little is in it.
//
// A single write is held back
//   - here: maxSleep at most; at the stop until level 0 has been compacted: for the
//     step that is running, another of a job (see schedule.go), and those that level 0
//     then needs. A step of level 0 takes all of it that overlaps and what it falls on
//     in level 1;
//   - by the change to a new memtable: until what is in the old log is on disk,
//     and, if maxFull memtables are on their way already, until the first of them
//     has become a table.
//
// Short of the stop, and where the disk takes Y bytes a second that others leave to
// it, that is no longer than the larger of maxSleep and 3 x MemtableBytes / Y.
type throttle struct {
	owed time.Duration // delay that is due
}

const (
	slowFactor = 2 // writes slow down from slowFactor x L0Tables on
	stopFactor = 3 // and wait at stopFactor x L0Tables
	// minDrainRate is assumed until a compaction of level 0 has been measured,
	// in bytes per second.
	minDrainRate = 4 << 20
	minSleep     = time.Millisecond       // what is less is not worth a sleep
	maxSleep     = 100 * time.Millisecond // for one group; the rest is due from the next
	maxOwed      = time.Second
)

// wait holds back a group of the given size. Between the two limits writes are
// admitted at a rate that falls from twice that at which level 0 was last
// compacted, at the first, by the square of the distance to the second.
func (t *throttle) wait(d *DB, bytes int) error {
	if d.opts.DisableAutoCompaction {
		return nil
	}
	slow, stop := slowFactor*d.opts.L0Tables, stopFactor*d.opts.L0Tables
	tables := len(d.state.Load().version.Levels[0])
	if tables < slow {
		t.owed = 0
		return nil
	}
	if tables >= stop {
		return t.stop(d, stop)
	}
	left := float64(stop-tables) / float64(stop-slow+1)
	rate := max(float64(d.stats.drainRate.Load()), minDrainRate) * 2 * left * left
	t.owed = min(t.owed+time.Duration(float64(bytes)/rate*float64(time.Second)), maxOwed)
	if t.owed >= minSleep {
		sleep := min(t.owed, maxSleep)
		d.slowed(sleep)
		start := time.Now()
		time.Sleep(sleep)
		t.owed -= time.Since(start) // a sleep that was too long counts
	}
	return nil
}

// stop waits until level 0 has fewer than limit tables. As long as it has more, a
// compaction is due and under way, or has failed, or the database closes.
func (t *throttle) stop(d *DB, limit int) error {
	start := time.Now()
	defer func() { d.stalled(time.Since(start)) }()
	d.opts.Logger.Info("writes wait for compaction", "level0", limit)
	b := &d.bg
	b.mu.Lock()
	defer b.mu.Unlock()
	full := func() bool { return len(d.state.Load().version.Levels[0]) >= limit }
	b.await(func() bool { return !full() || b.fatalErr != nil || b.compactErr != nil || b.closing })
	switch {
	case !full():
		return nil
	case b.fatalErr != nil:
		return b.fatalErr
	case b.closing:
		return ErrClosed
	}
	b.ask(&b.compacting)
	return fmt.Errorf("%w: level 0 is full, a compaction failed and is being tried again: %w", ErrTryAgain, b.compactErr)
}
