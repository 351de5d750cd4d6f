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

// flushJob is an immutable memtable on its way to level 0. One flush may take several jobs.
type flushJob struct {
	mem     *memtable.Memtable
	lastSeq uint64      // the last sequence number in mem
	logNum  uint64      // number of the next log: older logs are removed once mem is flushed
	sealed  *wal.Sealed // the log of mem
}

// maxFull is the maximum number of full memtables while another is being filled. With only one,
// writers and the flushing goroutine would take turns waiting for each other.
const maxFull = 2

// maxJoined is the maximum total capacity, in bytes, of the memtables that one flush joins.
// Smaller memtables are joined because syncs take a large part of a small flush.
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
			b.flushErr, b.flushing.soon = err, false
			if err == nil {
				b.flushes = slices.Delete(b.flushes, 0, len(jobs)) // also clears the vacated elements, which would keep memtables alive
			}
		})
		if err == nil {
			b.flushing.failed = 0
			continue
		}
		d.failure(&b.flushing, "flush", err)
		b.pauseRetry(&b.flushing, func() bool { return b.ending || b.fatalErr != nil })
	}
}

// nextFlushes waits for a full memtable and returns the jobs of the next flush, oldest first. It
// returns none to end the goroutine: during Close, when nothing is left to flush or the last flush
// failed, and once the MANIFEST has failed.
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

// flushParts is the maximum number of runs of tombstones for which a flush begins separate tables.
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
		// The entries of all older memtables are in version.
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

// memtablesIterator returns an iterator over the entries of the jobs' memtables.
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

// waitFlushed waits until the memtables that are full when it is called have been flushed. While
// flushes fail, it returns their error instead of waiting.
func (b *background) waitFlushed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.filled
	_, err := b.awaitFlushes(func() bool { return b.filled-uint64(len(b.flushes)) >= all })
	return err
}

// waitFullRoom waits until another full memtable may be queued. While flushes fail, it returns
// their error instead of waiting.
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
		b.retrySoon(&b.flushing)
		return waited, b.flushRefused()
	}
	return waited, b.fatalErr
}

// flushRefused returns the reason why it is futile to wait for a flush now, or nil. REQUIRES: mu.
func (b *background) flushRefused() error {
	switch {
	case b.fatalErr != nil:
		return b.fatalErr
	case b.flushErr != nil:
		return fmt.Errorf("%w: a flush failed and will be retried: %w", ErrTryAgain, b.flushErr)
	}
	return nil
}
