package sift

import (
	"context"
	"sync"
	"time"
)

// background is the state that the flushing and compacting goroutines share with the
// goroutines that wait for them: pending work, and errors.
//
// These fields, and the read state, are modified only inside change, which wakes all waiters on
// changed. A waiter checks its condition under mu before it sleeps, so it cannot miss a change.
type background struct {
	mu      sync.Mutex
	changed sync.Cond // on mu

	flushes    []*flushJob // full memtables, oldest first; the first ones are being flushed
	filled     uint64      // number of memtables that have been full since Open
	flushErr   error       // the last attempt to flush failed; it will be retried
	compactErr error       // the last compaction of level 0 that was due failed, or one found damage; it will be retried
	flushing   retries     // of flushes
	compacting retries     // of compactions
	fatalErr   error       // the MANIFEST failed: no more changes to the tree
	jobs       []*job      // jobs that callers wait for, such as that of Compact; the next one first
	closing    bool        // Close has begun: no more compactions
	ending     bool        // Close has flushed all that it could

	closed context.Context    // ends when Close begins
	cancel context.CancelFunc // ends closed, and with it the running compaction
	wg     sync.WaitGroup
}

// change makes a change for which others may wait. Only change and retrySoon broadcast.
func (b *background) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	b.changed.Broadcast()
}

// retrySoon requests an early retry of a failed operation. REQUIRES: mu.
func (b *background) retrySoon(r *retries) {
	r.soon = true
	b.changed.Broadcast()
}

// await waits until ready returns true. ready must depend only on state that change modifies, so
// that a broadcast follows whenever it becomes true. REQUIRES: mu.
func (b *background) await(ready func() bool) {
	for !ready() {
		b.changed.Wait()
	}
}

// fatal returns the error that ended all writing, or nil.
func (b *background) fatal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fatalErr
}

// startBackground starts the two goroutines.
func (d *DB) startBackground() {
	d.bg.closed, d.bg.cancel = context.WithCancel(context.Background())
	d.bg.wg.Go(d.flushLoop)
	d.bg.wg.Go(func() { d.compactLoop(d.bg.closed) })
}

// stopCompactions cancels the running compaction and all jobs, and wakes writes that wait for a
// compaction of level 0.
func (d *DB) stopCompactions() {
	d.bg.cancel()
	d.bg.change(func() { d.bg.closing = true })
}

// stopBackground stops both goroutines and waits for them. They first complete pending flushes if
// possible. REQUIRES: stopCompactions was called.
func (d *DB) stopBackground() {
	d.bg.change(func() { d.bg.ending = true })
	// Both stop at their next check, and until then they only wait for the file system.
	d.bg.wg.Wait()
}

// pause waits for delay, or until ended returns true, and reports whether the delay has passed.
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
