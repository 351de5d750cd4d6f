package sift

import (
	"fmt"
	"time"

	"github.com/siftdb/sift/internal/manifest"
)

// throttle delays writes while level 0 grows faster than it is compacted, and stops them when
// it has grown too large. Only the leader of the commit queue uses it.
//
// The delay is spread over all writes, so that none waits long: writes are admitted at a rate that
// falls to nearly zero before the stop. At that rate it takes minutes to fill a memtable of the
// default size, and a compaction finishes sooner. Writes are stopped only after batches that would
// each have to wait longer than maxSleep, with memtables of a few KiB, after Flush, which adds
// tables however small, or after an Ingest of many tables among the keys of levels 0 and 1, which
// adds them all to level 0 at once.
//
// A single write waits
//   - here, at most maxSleep. At the stop it waits until level 0 has been compacted: for the
//     running step, one step of a job (see compactloop.go), and the compactions of level 0 that
//     are then due, each of which takes all overlapping tables of level 0 and what they overlap in
//     level 1;
//   - for a new memtable. If maxFull memtables are waiting to be flushed, it waits until the first
//     of them has been flushed.
//
// Short of the stop, if the disk is the bottleneck and has Y bytes per second to spare, the wait is
// at most the larger of maxSleep and 3 x MemtableBytes / Y.
type throttle struct {
	owed time.Duration // the part of the delay for which no write has slept yet
}

const (
	slowFactor = 2 // writes are delayed from slowFactor x L0Tables runs on
	stopFactor = 3 // and stopped from stopFactor x L0Tables runs on
	// minDrainRate is the minimum assumed rate, in bytes per second, at which level 0 is compacted.
	minDrainRate = 4 << 20
	minSleep     = time.Millisecond       // shorter delays accumulate
	maxSleep     = 100 * time.Millisecond // per group; later groups sleep for the rest
	maxOwed      = time.Second            // maximum of throttle.owed
)

// wait delays a group of the given size. Between the two limits, writes are admitted at a rate
// that starts at twice the rate at which level 0 was recently compacted, and is proportional to
// the square of the distance to the second limit.
func (t *throttle) wait(d *DB, bytes int) error {
	if d.opts.DisableAutoCompaction {
		return nil
	}
	slow, stop := slowFactor*d.opts.L0Tables, stopFactor*d.opts.L0Tables
	runs := level0Runs(d.state.Load().version)
	if runs < slow {
		t.owed = 0
		return nil
	}
	if runs >= stop {
		return t.stop(d, stop)
	}
	left := float64(stop-runs) / float64(stop-slow+1)
	rate := max(float64(d.stats.drainRate.Load()), minDrainRate) * 2 * left * left
	t.owed = min(t.owed+time.Duration(float64(bytes)/rate*float64(time.Second)), maxOwed)
	if t.owed >= minSleep {
		sleep := min(t.owed, maxSleep)
		d.slowed(sleep)
		start := time.Now()
		time.Sleep(sleep)
		t.owed -= time.Since(start) // oversleeping counts, too
	}
	return nil
}

// level0Runs returns the number that is compared with the limits: the number of runs in level 0,
// which is how many iterators a scan merges for it. A flush may write several tables, which do not
// overlap and form one run (see Job.DeletionRun). Many tables in few runs also count, since a
// lookup compares its key with each table.
func level0Runs(v *manifest.Version) int {
	const tablesPerRun = 4
	return max(len(v.Runs), len(v.Levels[0])/tablesPerRun)
}

// stop waits until level 0 has fewer than limit runs. It does not wait forever: with that many
// tables a compaction is running or due, or has failed, or the database is closing.
func (t *throttle) stop(d *DB, limit int) error {
	start := time.Now()
	defer func() { d.stalled(time.Since(start)) }()
	d.opts.Logger.Info("writes wait for compaction", "level0", limit)
	b := &d.bg
	b.mu.Lock()
	defer b.mu.Unlock()
	full := func() bool { return level0Runs(d.state.Load().version) >= limit }
	b.await(func() bool { return !full() || b.fatalErr != nil || b.compactErr != nil || b.closing })
	switch {
	case !full():
		return nil
	case b.fatalErr != nil:
		return b.fatalErr
	case b.closing:
		return ErrClosed
	}
	b.retrySoon(&b.compacting)
	return fmt.Errorf("%w: level 0 is full, and its compaction failed and will be retried: %w", ErrTryAgain, b.compactErr)
}
