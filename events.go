package sift

import "time"

// Events are callbacks for background work. nil functions are not called. Each runs on
// the goroutine that did the work, or is about to write, and several may run
// concurrently. They must not block, and must not call methods of the DB that wait for
// the background: Flush, Compact, BuildFilters, Checkpoint, Close and writes, including
// DeleteRange, Ingest and the commit of a transaction. Others, such as Metrics and Get, are
// allowed.
type Events struct {
	// Flushed: memtables were written to tables of level 0.
	Flushed func(FlushEvent)
	// Compacted: tables were merged into the next level, moved there, or rewritten in
	// place.
	Compacted func(CompactionEvent)
	// Stalled: a write was delayed because flushes or compactions were behind.
	Stalled func(StallEvent)
	// Failed: a flush or compaction failed and will be retried; the log or the MANIFEST
	// failed and the database takes no more writes; a table that was loaded in the background
	// after Open is unreadable, or its filter unusable; or Open found a torn end of the
	// MANIFEST. Damage matches ErrCorruption. Reads return their errors instead.
	Failed func(error)
}

// FlushEvent describes a flush.
type FlushEvent struct {
	Entries uint64 // in the memtables
	Bytes   uint64 // written
	Took    time.Duration
}

// CompactionEvent describes a compaction.
type CompactionEvent struct {
	From, To int  // levels; the same if tables were rewritten in place
	Moved    bool // a table was moved to the next level unchanged
	Inputs   int  // tables
	Outputs  int
	Read     uint64 // bytes
	Written  uint64 // bytes
	Took     time.Duration
}

// StallEvent describes a write that was held back.
type StallEvent struct {
	Stopped bool // it had to wait for a flush or compaction; otherwise it was slowed down
	Took    time.Duration
}

func (e *Events) flushed(f FlushEvent) {
	if e.Flushed != nil {
		e.Flushed(f)
	}
}

func (e *Events) compacted(c CompactionEvent) {
	if e.Compacted != nil {
		e.Compacted(c)
	}
}

func (e *Events) failed(err error) {
	if e.Failed != nil {
		e.Failed(err)
	}
}

// slowed records that a write was slowed down.
func (d *DB) slowed(t time.Duration) {
	d.stats.slowed(t)
	if d.opts.Events.Stalled != nil {
		d.opts.Events.Stalled(StallEvent{Took: t})
	}
}

// stalled records that a write had to wait.
func (d *DB) stalled(t time.Duration) {
	d.stats.stalled(t)
	if d.opts.Events.Stalled != nil {
		d.opts.Events.Stalled(StallEvent{Stopped: true, Took: t})
	}
}
