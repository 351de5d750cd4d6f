package sift

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/internal/vfs"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// background is the state that the flushing and the compacting goroutine share with those who
// wait for them: what there is to do, and how it went.
//
// These fields, and the read state, are only modified inside change, which wakes all waiters on
// changed. A waiter checks its condition under mu before it sleeps, so it cannot miss a change.
type background struct {
	mu      sync.Mutex
	changed sync.Cond // on mu

	flushes    []*flushJob // full memtables, oldest first; the first ones are being flushed
	filled     uint64      // number of memtables that were ever full
	flushErr   error       // the last attempt to flush failed; it will be retried
	compactErr error       // the last compaction failed; it will be retried
	flushing   retries     // of flushes
	compacting retries     // of compactions
	fatalErr   error       // the MANIFEST failed: no more changes to the tree
	jobs       []*job      // jobs that callers wait for, such as Compact; the next one first
	closing    bool        // Close has begun: no more compactions
	ending     bool        // Close has flushed all it can

	closed context.Context    // ends when Close begins
	cancel context.CancelFunc // ends it, and so stops the running compaction
	wg     sync.WaitGroup
}

// change makes a change that others may wait for. Only change and ask broadcast.
func (b *background) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	b.changed.Broadcast()
}

// ask makes a failed operation be retried soon. REQUIRES: mu.
func (b *background) ask(r *retries) {
	r.asked = true
	b.changed.Broadcast()
}

// await returns when ready does. ready may only depend on state that change modifies, so that a
// broadcast follows whenever it becomes true. REQUIRES: mu.
func (b *background) await(ready func() bool) {
	for !ready() {
		b.changed.Wait()
	}
}

// flushJob is a full memtable on its way to level 0. Jobs that wait together may become one
// table.
type flushJob struct {
	mem     *memtable.Memtable
	lastSeq uint64 // the last sequence number in it
	logNum  uint64 // number of the next log: once flushed, older logs are removed
	sealed  *wal.Sealed
}

// maxFull is the number of full memtables that may wait to be flushed while another is being
// filled. With more than one, writers and the flushing goroutine do not wait for each other in
// turn.
const maxFull = 2

// maxJoined bounds the memtables, in bytes of capacity, that are flushed into one table
// because they wait together: below that, syncs take a large part of a flush.
const maxJoined = 8 << 20

// fatal returns the error that ended all writing, or nil.
func (b *background) fatal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fatalErr
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

// waitFullRoom returns when there is room for another full memtable. While flushes fail it
// returns their error, like waitFlushed.
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

// startBackground starts the two goroutines.
func (d *DB) startBackground() {
	d.bg.closed, d.bg.cancel = context.WithCancel(context.Background())
	d.bg.wg.Go(d.flushLoop)
	d.bg.wg.Go(func() { d.compactLoop(d.bg.closed) })
}

// stopCompactions cancels the running compaction and all jobs, and releases writes that wait
// for level 0.
func (d *DB) stopCompactions() {
	d.bg.cancel()
	d.bg.change(func() { d.bg.closing = true })
}

// stopBackground stops both goroutines and waits for them. A pending flush is completed first
// if possible. REQUIRES: stopCompactions was called.
func (d *DB) stopBackground() {
	d.bg.change(func() { d.bg.ending = true })
	// Both stop at their next check, and until then they only wait for the file system.
	d.bg.wg.Wait()
}

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
				b.flushes = slices.Delete(b.flushes, 0, len(jobs)) // clears the last places, which would keep memtables
			}
		})
		if err == nil {
			b.flushing.failed = 0
			continue
		}
		d.retryLater(&b.flushing, "flush", err, func() bool { return b.ending || b.fatalErr != nil })
	}
}

// nextFlushes waits for a full memtable and returns what is to be flushed now, oldest first:
// nothing if there is nothing left to flush, or no point in trying.
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

// pause waits for delay, or until ended is true if that is earlier, and reports whether the
// delay has passed.
func (b *background) pause(delay time.Duration, ended func() bool) (over bool) {
	rung := false
	t := time.AfterFunc(delay, func() { b.change(func() { rung = true }) })
	defer t.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.await(func() bool { return rung || ended() })
	// Evaluated under the lock: the timer may still fire.
	return rung
}

// flushParts bounds the runs of tombstones that get tables of their own in a flush.
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

// runJob executes a job, closes its input and opens the tables that it wrote. On failure it
// removes them.
func (d *DB) runJob(ctx context.Context, job *compact.Job) ([]*manifest.TableMeta, compact.Stats, error) {
	var created []string
	job.Create = func() (uint64, vfs.File, error) {
		num := d.nextFile.Add(1) - 1
		path := filepath.Join(d.dir, manifest.MakeName(manifest.KindTable, num))
		created = append(created, path)
		f, err := d.fs.Create(path)
		return num, f, err
	}
	returned := false
	defer func() {
		if !returned { // the input of Ingest, which is the caller's code, has panicked
			job.Input.Close()
			d.discard(nil, created)
		}
	}()
	outputs, stats, err := compact.Run(ctx, job)
	returned = true
	if cerr := job.Input.Close(); err == nil {
		err = cerr
	}
	if err == nil && len(outputs) > 0 {
		err = d.fs.SyncDir(d.dir) // (I2)
	}
	metas := make([]*manifest.TableMeta, 0, len(outputs))
	for _, o := range outputs {
		if err != nil {
			break
		}
		meta := &manifest.TableMeta{Num: o.Num, Size: uint64(o.Info.Size), Smallest: o.Info.Smallest, Largest: o.Info.Largest}
		t := d.opener.place(meta, filepath.Join(d.dir, manifest.MakeName(manifest.KindTable, o.Num)))
		meta.Handle = t
		metas = append(metas, meta)
		_, err = t.load()
	}
	if err != nil {
		d.discard(metas, created)
		return nil, stats, err
	}
	return metas, stats, nil
}

// discard closes tables that no version refers to and removes their files.
func (d *DB) discard(metas []*manifest.TableMeta, paths []string) {
	for _, m := range metas {
		m.Handle.(*table).close()
	}
	for _, p := range paths {
		if err := d.fs.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.opts.Logger.Warn("removing an unfinished table failed", "path", p, "err", err)
		}
	}
}

// applyEdit records an edit in the MANIFEST and installs its version; nothing else changes the
// version. added are the tables that the edit adds; flushed is the number of memtables, the
// oldest ones, whose contents they now hold. Files that the edit drops are removed when their
// last reader has left (I3); applyEdit does not wait for that.
func (d *DB) applyEdit(edit *manifest.Edit, added []*manifest.TableMeta, flushed int) error {
	return d.applyEditTo(edit, added, func(s *readState) {
		left := len(s.imms) - flushed
		s.imms = append([]*memtable.Memtable(nil), s.imms[:left]...) // a copy does not keep what was flushed
	})
}

// applyEditTo is applyEdit with another change of the memtables, in the read state that has the
// new version.
func (d *DB) applyEditTo(edit *manifest.Edit, added []*manifest.TableMeta, change func(s *readState)) (err error) {
	d.manifestMu.Lock()
	defer d.manifestMu.Unlock()
	defer func() {
		if err == nil {
			return
		}
		for _, meta := range added {
			meta.Handle.(*table).close()
		}
	}()
	if err := d.bg.fatal(); err != nil {
		return err
	}
	old := d.state.Load().version // only changes under manifestMu
	next, err := old.Apply(edit)
	if err != nil {
		return d.fail(fmt.Errorf("sift: edit does not fit the version: %w", err))
	}
	nextFile := d.nextFile.Load()
	edit.NextFile = &nextFile
	if edit.LastSeq != nil {
		d.flushedSeq = *edit.LastSeq
	} else {
		// Not the current sequence number: it must stay below the live log's first (I9).
		edit.LastSeq = &d.flushedSeq
	}
	if err := d.recordEdit(edit, next); err != nil {
		return d.fail(err)
	}
	next.Ref()
	d.bg.change(func() {
		s := *d.state.Load()
		s.version, s.flushed = next, d.flushedSeq
		if len(edit.Added) == 0 && len(edit.Deleted) > 0 {
			s.drops++
		}
		change(&s)
		d.state.Store(&s)
	})
	d.retire(old)
	d.keeper.versionChanged()
	return nil
}

// retire releases a version once no reader without a reference can be using it. Nobody waits
// for that: a reader may take as long as the disk does.
func (d *DB) retire(old *manifest.Version) {
	d.retired.do(func() {
		d.epoch.Synchronize()
		d.releaseVersion(old)
		if d.filters.Sparse() {
			version := d.refVersion()
			d.moveFilters(version)
			d.releaseVersion(version)
		}
	})
}

// refVersion returns the current version with a reference that the caller must release, or
// nil if the database is closed.
func (d *DB) refVersion() *manifest.Version {
	g := d.epoch.Enter()
	defer g.Exit()
	s := d.state.Load()
	if s == nil {
		return nil
	}
	s.version.Ref()
	return s.version
}

// fail records that the MANIFEST is in an unknown state. From then on no file is removed, since
// either the version before or the one after may be found.
func (d *DB) fail(err error) error {
	first := false
	d.bg.change(func() {
		if first = d.bg.fatalErr == nil; first {
			d.bg.fatalErr = fmt.Errorf("%w: the MANIFEST: %w", ErrReopen, err)
			d.opts.Logger.Error("the MANIFEST failed, no more writes are accepted", "err", err)
		}
		err = d.bg.fatalErr
	})
	if first {
		d.opts.Events.failed(err)
	}
	return err
}

// releaseVersion drops a reference on a version and removes the tables that have become
// unreachable.
func (d *DB) releaseVersion(v *manifest.Version) {
	v.Unref(func(meta *manifest.TableMeta) {
		t := meta.Handle.(*table)
		if err := t.close(); err != nil {
			d.opts.Logger.Warn("closing an obsolete table failed", "path", t.path, "err", err)
		}
		if d.removeFiles.Load() && d.bg.fatal() == nil {
			d.cleaner.do(func() { d.removeObsolete(t.path) })
		}
	})
}

// removeLogsBefore removes the logs whose contents are in tables.
func (d *DB) removeLogsBefore(num uint64) {
	d.removeMatching(func(kind manifest.FileKind, n uint64) bool {
		return kind == manifest.KindLog && n < num
	})
}

// removeMatching removes the database's files for which obsolete returns true.
func (d *DB) removeMatching(obsolete func(kind manifest.FileKind, num uint64) bool) {
	names, err := d.fs.List(d.dir)
	if err != nil {
		d.opts.Logger.Warn("listing the directory failed", "err", err)
		return
	}
	for _, name := range names {
		kind, num, ok := manifest.ParseName(name)
		if !ok || !obsolete(kind, num) {
			continue
		}
		d.cleaner.do(func() { d.removeObsolete(filepath.Join(d.dir, name)) })
	}
}

// removeObsolete removes a file that is no longer needed.
func (d *DB) removeObsolete(path string) {
	if err := d.fs.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.opts.Logger.Warn("removing an obsolete file failed", "path", path, "err", err)
	}
}

// tableOptions configures the tables written to a level.
func (d *DB) tableOptions(level int) *sstable.WriterOptions {
	return &sstable.WriterOptions{
		BlockBytes:         d.opts.BlockBytes,
		DisableCompression: d.opts.DisableCompression,
		Filter:             d.opts.LevelFilters[level],
		Prefix:             d.opts.Prefix,
		Range:              d.opts.RangeFilter,
	}
}
