package sift

import "time"

// Events are callbacks for background work. Nil functions are not called. A callback runs on the
// goroutine that did the work, or that is about to write, and several may run concurrently.
// Callbacks must not block, and must not call methods of the DB that wait for background work:
// Flush, Compact, BuildFilters, Checkpoint, Close and writes, including DeleteRange, Ingest and the
// commit of a transaction. Other methods, such as Metrics and Get, are allowed. A panic of a
// callback on a background goroutine ends the program, like any unrecovered panic. Ingest and
// DeleteRange cause no events of their own.
type Events struct {
	// Flushed: memtables were written to tables of level 0.
	Flushed func(FlushEvent)
	// Compacted: tables were merged into the next level, moved there, or rewritten in
	// place.
	Compacted func(CompactionEvent)
	// Stalled: a write is about to be delayed, or has waited, because flushes or compactions are
	// behind. Writes that are committed together count as one.
	Stalled func(StallEvent)
	// Failed: a flush or compaction failed and will be retried; the log or the MANIFEST
	// failed and the database takes no more writes; a table that was loaded in the background
	// after Open is unreadable, or its filter unusable; the filter of a new table could not be
	// built; or Open found a torn end of the MANIFEST. Errors about damage match ErrCorruption. It
	// is not called for errors that a read returns.
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
	From, To int    // levels; the same if tables were rewritten in place
	Moved    bool   // a table was moved to the next level unchanged; Read, Written and Took are 0
	Inputs   int    // tables read; 1 if Moved
	Outputs  int    // tables written; 1 if Moved
	Read     uint64 // bytes
	Written  uint64 // bytes
	Took     time.Duration
}

// StallEvent describes a write stall.
type StallEvent struct {
	Stopped bool          // the write waited for a flush or compaction; false: it will be delayed
	Took    time.Duration // duration of the wait or of the delay
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

// slowed records that a write is about to be delayed by t.
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
