package sift

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
)

// One goroutine changes the tree below level 0, one step at a time. There are three kinds of
// steps:
//
//   - compactions that the tree needs, because a level is too large or a table holds mostly
//     tombstones;
//   - steps of jobs, which callers wait for, such as Compact;
//   - compactions that reduce the number of tables in level 0, to speed up reads, when there is
//     nothing else to do and nothing is written.
//
// The first two kinds alternate while there are both, so that neither waits for more than one
// step of the other. Several jobs take turns. After a compaction has failed, the next one of its
// level waits for a while; other steps do not.

// job is work that a caller waits for and that may take more than one compaction. Its steps are
// bounded, except the compaction of level 0 and the last search of a DeleteRange. Each step starts
// from the current tree, which may have changed since the previous step.
type job struct {
	ctx context.Context // of the caller
	// step performs the next step and reports whether it was the last one. It runs on the
	// compacting goroutine, and returns early when its ctx ends.
	step func(ctx context.Context) (last bool, err error)

	running bool       // a step is running; guarded by background.mu
	done    chan error // capacity 1, for the result
}

// do performs a job step by step on the compacting goroutine. It returns when the job is done or
// has failed, when ctx ends, or when the database closes, but not while a step is running.
func (d *DB) do(ctx context.Context, step func(ctx context.Context) (last bool, err error)) error {
	if d.opts.ReadOnly {
		return ErrReadOnly
	}
	b := &d.bg
	j := &job{ctx: ctx, step: step, done: make(chan error, 1)}
	b.change(func() {
		b.jobs = append(b.jobs, j)
		if err := b.over(); err != nil {
			b.finish(j, err)
		}
	})
	// The goroutine that removes a job from the list sends its result: this one, or the
	// compacting one, after a step or when it stops. Once it has stopped, the list stays empty.
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		b.change(func() {
			if !j.running {
				b.finish(j, ctx.Err())
			}
		})
		return <-j.done // a running step sees ctx, too
	}
}

// over returns the reason why the tree will not change any more, or nil. REQUIRES: mu.
func (b *background) over() error {
	switch {
	case b.fatalErr != nil:
		return b.fatalErr
	case b.closing:
		return ErrClosed
	}
	return nil
}

// finish ends a job, unless it has ended. REQUIRES: it is called inside change.
func (b *background) finish(j *job, err error) {
	if i := slices.Index(b.jobs, j); i >= 0 {
		b.jobs = slices.Delete(b.jobs, i, i+1)
		j.done <- err
	}
}

// step is the compacting goroutine's next step: a step of a job, or a plan.
type step struct {
	job   *job
	plan  compact.Plan
	idle  bool // run the plan only if nothing is being written
	waits bool // the level of the plan has failed, and it is too early for a retry
}

// some reports whether there is a step.
func (s *step) some() bool { return s.job != nil || len(s.plan.Inputs[0]) > 0 }

func (d *DB) compactLoop(ctx context.Context) {
	b := &d.bg
	defer b.change(func() {
		for len(b.jobs) > 0 { // no more jobs are added
			b.finish(b.jobs[0], b.over())
		}
	})
	for ofJob := false; ; {
		next, ok := d.nextStep(ofJob)
		if !ok {
			return
		}
		if ofJob = next.job != nil; ofJob {
			d.runStep(ctx, next.job)
		} else {
			d.runAutomatic(ctx, &next.plan)
		}
	}
}

// nextStep waits for the next step and returns it. ok is false when the tree will not change any
// more.
func (d *DB) nextStep(afterJob bool) (next step, ok bool) {
	b := &d.bg
	for {
		b.mu.Lock()
		b.await(func() bool {
			next = d.choose(afterJob)
			return next.some() || b.over() != nil
		})
		ok = b.over() == nil
		if ok && next.job != nil {
			next.job.running = true
		}
		b.mu.Unlock()
		switch {
		case ok && next.waits:
			b.pauseRetry(&b.compacting, func() bool { return b.over() != nil || !d.choose(afterJob).waits })
		case !ok || !next.idle || d.quiet():
			return next, ok
		}
	}
}

// choose returns the next step, if any. After a step of a job, compactions that the tree needs
// come first. A step that waits comes last. REQUIRES: bg.mu.
func (d *DB) choose(afterJob bool) step {
	b, version, waiting := &d.bg, d.state.Load().version, d.waitingLevels()
	var plan compact.Plan
	due := false
	if !d.opts.DisableAutoCompaction {
		cfg := d.compactConfig()
		cfg.Failed = waiting
		plan, due = compact.Pick(version, cfg, d.pointers)
	}
	deletions, ok := d.pickDeletions(version)
	if ok && deletions.Level > 0 && (!due || !waiting[deletions.Level] && (plan.Level > 0 || waiting[0])) {
		plan, due = deletions, true
	}
	waits := due && waiting[plan.Level]
	switch {
	case due && !waits && (afterJob || len(b.jobs) == 0):
		return step{plan: plan}
	case len(b.jobs) > 0:
		return step{job: b.jobs[0]}
	case !d.opts.DisableAutoCompaction && len(b.flushes) == 0:
		idle, found := compact.PickIdle(version, d.compactConfig())
		if !found {
			idle, found = deletions, ok && deletions.Level == 0
		}
		if found && !(waits && waiting[0]) {
			return step{plan: idle, idle: true, waits: waiting[0]}
		}
	}
	return step{plan: plan, waits: waits}
}

// waitingLevels returns the levels whose last compaction failed, as long as it is too early for a
// retry. After that, they are levels like all others. REQUIRES: bg.mu.
func (d *DB) waitingLevels() (levels [manifest.NumLevels]bool) {
	if d.bg.compacting.waits() {
		levels = d.failedLevels
	}
	return levels
}

// idleDelay is the time without writes after which an idle step runs.
const idleDelay = 100 * time.Millisecond

// quiet waits for idleDelay, and reports whether nothing was written meanwhile and no other step
// has become due.
func (d *DB) quiet() bool {
	b, written, version := &d.bg, d.visible.Load(), d.state.Load().version
	over := b.pause(idleDelay, func() bool {
		return b.over() != nil || len(b.jobs) > 0 || len(b.flushes) > 0
	})
	return over && d.visible.Load() == written && d.state.Load().version == version
}

// runAutomatic executes a compaction that the tree needs. If it fails, its level waits.
func (d *DB) runAutomatic(ctx context.Context, plan *compact.Plan) {
	b := &d.bg
	err := d.runPlan(ctx, plan)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	retry := d.failedLevels[plan.Level]
	b.change(func() {
		// Writes wait for level 0 only while a compaction of it is due. It is still due after a
		// failure, so a retry will clear the error. After damage the retry may come only in an
		// hour, and a compaction may become due before that.
		if plan.Level == 0 && (err == nil || plan.Score > 0 || isFinal(err)) {
			b.compactErr = err
		}
		if retry {
			b.compacting.soon = false
		}
	})
	if err == nil {
		if retry {
			d.failedLevels[plan.Level] = false
			b.compacting.failed = 0
		}
		return
	}
	if retry { // the other levels that have failed come next
		d.failedLevels = [manifest.NumLevels]bool{}
	}
	d.failedLevels[plan.Level], d.damagedLevels[plan.Level] = true, isFinal(err)
	d.failure(&b.compacting, fmt.Sprintf("compaction of level %d", plan.Level), err)
}

// runStep performs the next step of a job. ctx ends when the database closes.
func (d *DB) runStep(ctx context.Context, j *job) {
	stepCtx, cancel := context.WithCancel(j.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	drops := d.state.Load().drops
	last, err := j.step(stepCtx)
	succeeded := err == nil // even if the caller has given up meanwhile
	switch {
	case err == nil && !last:
		err = j.ctx.Err()
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = ErrClosed
	}
	b := &d.bg
	b.change(func() {
		j.running = false
		if d.state.Load().drops != drops { // the damaged tables may be gone
			b.compacting.early, b.compacting.due = time.Time{}, time.Time{}
		}
		// A failed compaction may succeed now. But if it found damage, and its retry is not due,
		// writes would wait for that, perhaps for an hour.
		if succeeded && !(d.damagedLevels[0] && d.waitingLevels()[0]) {
			b.compactErr = nil
		}
		if err != nil || last {
			b.finish(j, err)
			return
		}
		// Let the other jobs take their turns.
		b.jobs = append(slices.Delete(b.jobs, 0, 1), j)
	})
}
