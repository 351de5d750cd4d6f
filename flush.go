package sift

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// flushJob is a full memtable on its way to level 0. Jobs that wait together may become one
// table.
type flushJob struct {
	mem     *memtable.Memtable
	lastSeq uint64 // the last sequence number in it
	logNum  uint64 // number of the next log: once flushed, older logs are removed
	sealed  *wal.Sealed
}

// maxFull is the number of full memtables that may wait to be flushed while another is being
// filled. With more than one, writers and the flushing goroutine do not take turns waiting for
// each other.
const maxFull = 2

// maxJoined bounds the total capacity, in bytes, of the waiting memtables that are flushed
// into one table: syncs take a large part of smaller flushes.
const maxJoined = 8 << 20

// installMemtable makes mem the mutable memtable and hands the previous one to the flushing
// goroutine. logNum is the new memtable's log, sealed the previous log.
func (d *DB) installMemtable(mem *memtable.Memtable, lastSeq, logNum uint64, sealed *wal.Sealed) {
	d.bg.change(func() {
		old := d.state.Load()
		d.state.Store(&readState{mem: mem, imms: append([]*memtable.Memtable{old.mem}, old.imms...), version: old.version, flushed: old.flushed, drops: old.drops})
		d.bg.flushes = append(d.bg.flushes, &flushJob{mem: old.mem, lastSeq: lastSeq, logNum: logNum, sealed: sealed})
		d.bg.filled++
	})
}

func (d *DB) flushLoop() {
	b := &d.bg
	for {
		jobs := b.nextFlushes()
		if len(jobs) == 0 {
			return
		}
		err := d.flushMemtables(jobs)
		b.change(func() {
			b.flushErr = err
			if err == nil {
				b.flushes = slices.Delete(b.flushes, 0, len(jobs)) // also clears the vacated places, so that no memtable is kept alive
			}
		})
		if err == nil {
			b.flushing.failed = 0
			continue
		}
		d.retryLater(&b.flushing, "flush", err, func() bool { return b.ending || b.fatalErr != nil })
	}
}

// nextFlushes waits for a full memtable and returns what to flush now, oldest first. It
// returns nothing once nothing is left to flush, or trying is futile.
func (b *background) nextFlushes() []*flushJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.await(func() bool { return len(b.flushes) > 0 || b.ending })
	if len(b.flushes) == 0 || b.fatalErr != nil || b.ending && b.flushErr != nil {
		return nil
	}
	n, bytes := 1, b.flushes[0].mem.Capacity()
	for n < len(b.flushes) && bytes+b.flushes[n].mem.Capacity() <= maxJoined {
		bytes += b.flushes[n].mem.Capacity()
		n++
	}
	return b.flushes[:n:n]
}

// flushParts bounds the number of runs of tombstones that get their own tables in a flush.
const flushParts = 16

// flushMemtables writes memtables to level 0: to one table, unless they have long runs of
// tombstones.
func (d *DB) flushMemtables(jobs []*flushJob) error {
	start := time.Now()
	version := d.refVersion()
	defer d.releaseVersion(version)
	entries := 0
	for _, job := range jobs {
		entries += job.mem.Len()
	}
	outputs, stats, err := d.runJob(context.Background(), &compact.Job{
		Input:      memtablesIterator(jobs),
		Boundaries: d.snapshots.boundaries(&d.visible),
		Writer:     d.tableOptions(0),
		// Older memtables are already in tables.
		NothingBelow: compact.NothingBelow(version, &compact.Plan{}, d.mayContain),
		DeletionRun:  max(minDeletions, entries/flushParts),
	})
	if err != nil {
		return err
	}
	last := jobs[len(jobs)-1]
	edit := &manifest.Edit{LogNumber: &last.logNum, LastSeq: &last.lastSeq}
	for _, t := range outputs {
		edit.Added = append(edit.Added, manifest.AddedTable{Level: 0, Table: t})
	}
	if err := d.applyEdit(edit, outputs, len(jobs)); err != nil {
		return err
	}
	d.stats.flushes.Add(1)
	d.stats.flushBytes.Add(uint64(stats.BytesOut))
	d.droppedLarge(stats.LargeBytes)
	took := time.Since(start)
	d.opts.Logger.Info("flushed", "entries", stats.EntriesIn, "bytes", stats.BytesOut, "took", took)
	d.opts.Events.flushed(FlushEvent{Entries: stats.EntriesIn, Bytes: uint64(stats.BytesOut), Took: took})
	for _, job := range jobs {
		job.sealed.Flushed() // closes the log, before it is removed
	}
	d.removeLogsBefore(last.logNum)
	return nil
}

// memtablesIterator iterates over the entries of the jobs' memtables.
func memtablesIterator(jobs []*flushJob) base.Iterator {
	if len(jobs) == 1 {
		return jobs[0].mem.NewIter()
	}
	children := make([]base.Iterator, len(jobs))
	for i, job := range jobs {
		children[len(jobs)-1-i] = job.mem.NewIter()
	}
	return merge.New(children...)
}

// waitFlushed returns when the memtables that are full at the time of the call have been
// flushed. While flushes fail it returns their error instead of waiting.
func (b *background) waitFlushed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.filled
	_, err := b.awaitFlushes(func() bool { return b.filled-uint64(len(b.flushes)) >= all })
	return err
}

// waitFullRoom returns when another full memtable may be queued. While flushes fail it returns
// their error, like waitFlushed.
func (b *background) waitFullRoom() (waited bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.awaitFlushes(func() bool {
		return len(b.flushes) == 0 || len(b.flushes) < maxFull && b.flushErr == nil
	})
}

// awaitFlushes waits until enough flushes are done. REQUIRES: mu.
func (b *background) awaitFlushes(enough func() bool) (waited bool, err error) {
	waited = !enough() && b.flushRefused() == nil
	b.await(func() bool { return enough() || b.flushRefused() != nil })
	if !enough() {
		b.ask(&b.flushing)
		return waited, b.flushRefused()
	}
	return waited, b.fatalErr
}

// flushRefused returns why waiting for a flush is futile now, or nil. REQUIRES: mu.
func (b *background) flushRefused() error {
	switch {
	case b.fatalErr != nil:
		return b.fatalErr
	case b.flushErr != nil:
		return fmt.Errorf("%w: a flush failed and will be retried: %w", ErrTryAgain, b.flushErr)
	}
	return nil
}
