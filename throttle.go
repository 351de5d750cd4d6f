package sift

import (
	"fmt"
	"time"
)

// throttle slows writes down while level 0 grows faster than it is compacted,
// and stops them where it has grown too far. It belongs to the leader of the
// commit queue.
type throttle struct {
	owed time.Duration // delay that is due but too short to be worth a sleep
}

const (
	slowFactor = 2 // writes slow down from slowFactor x L0Tables on
	stopFactor = 3 // and wait at stopFactor x L0Tables
	// minDrainRate is assumed until a compaction of level 0 has been measured,
	// in bytes per second.
	minDrainRate = 4 << 20
	minSleep     = time.Millisecond
	maxSleep     = 100 * time.Millisecond
)

// wait holds back a group of the given size. Between the two limits writes are
// admitted at the rate at which level 0 was last compacted, falling from twice
// the rate at the first limit to half of it at the second.
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
	over := float64(tables-slow+1) / float64(stop-slow+1)
	rate := max(float64(d.stats.drainRate.Load()), minDrainRate) * (2 - 1.5*over)
	t.owed = min(t.owed+time.Duration(float64(bytes)/rate*float64(time.Second)), maxSleep)
	if t.owed >= minSleep {
		d.stats.slowed(t.owed)
		time.Sleep(t.owed)
		t.owed = 0
	}
	return nil
}

// stop waits until level 0 has fewer than limit tables.
func (t *throttle) stop(d *DB, limit int) error {
	start := time.Now()
	defer func() { d.stats.stalled(time.Since(start)) }()
	d.opts.Logger.Warn("writes wait for compaction", "level0", limit)
	b := &d.bg
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(d.state.Load().version.Levels[0]) >= limit {
		switch {
		case b.fatalErr != nil:
			return b.fatalErr
		case b.compactErr != nil:
			return fmt.Errorf("%w: level 0 is full, a compaction failed and is being tried again: %w", ErrReadOnly, b.compactErr)
		}
		b.changed.Wait()
	}
	return nil
}
