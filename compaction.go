package sift

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/sstable"
)

// manualCompaction is work that a caller waits for. It runs on the compacting
// goroutine, between the compactions that the tree needs by itself.
type manualCompaction struct {
	ctx  context.Context
	run  func(ctx context.Context) error
	done chan error
}

// Compact flushes, and then compacts the tables that hold keys from..to, both
// included, into the deepest level that holds any; nil is no bound. Deleted and
// overwritten entries that no snapshot sees are gone afterwards, and every
// table in the range has the filter of its level. When ctx is cancelled Compact
// returns ctx.Err(), and what it had completed stays.
func (d *DB) Compact(ctx context.Context, from, to []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.Flush(); err != nil {
		return err
	}
	return d.runManual(ctx, func(ctx context.Context) error { return d.compactRange(ctx, from, to) })
}

// BuildFilters rewrites, in its place, every table whose filter is missing,
// damaged, of an unknown kind, or of another policy than the options give its
// level. It returns the number of tables.
func (d *DB) BuildFilters(ctx context.Context) (rewritten int, err error) {
	if d.opts.KeyedFilters && errors.Is(d.filterKeyErr, fs.ErrPermission) {
		return 0, d.filterKeyErr // there is nothing to key them with
	}
	err = d.runManual(ctx, func(ctx context.Context) error {
		firstNew := d.nextFile.Load()
		for {
			level, meta := d.nextWithoutFilter(firstNew)
			if meta == nil {
				return nil
			}
			plan := rewritePlan(level, meta)
			if level == 0 {
				// The order of level 0 is that of the file numbers, so a table
				// there cannot get a new one: level 0 goes down instead.
				plan, _ = compact.PickRange(d.state.Load().version, d.compactConfig(), 0, nil, nil)
				plan.TrivialMove = false
			}
			rewritten += len(plan.Inputs[0])
			if err := d.runPlan(ctx, &plan); err != nil {
				return err
			}
		}
	})
	return rewritten, err
}

// rewritePlan rewrites one table of a level >= 1 in its place.
func rewritePlan(level int, meta *manifest.TableMeta) compact.Plan {
	plan := compact.Plan{Level: level, OutputLevel: level}
	plan.Inputs[0] = []*manifest.TableMeta{meta}
	return plan
}

// nextWithoutFilter returns a table with a number below firstNew that
// BuildFilters has to rewrite, or nil.
func (d *DB) nextWithoutFilter(firstNew uint64) (int, *manifest.TableMeta) {
	s := d.state.Load()
	for level, metas := range s.version.Levels {
		want := d.opts.LevelFilters[level]
		for _, meta := range metas {
			t := meta.Handle.(*table)
			if t.err != nil || meta.Num >= firstNew {
				continue // reads report it: there is nothing to build from; or it is our work
			}
			if t.filterPolicy() != want.Name() {
				return level, meta
			}
		}
	}
	return 0, nil
}

// runManual hands work to the compacting goroutine and waits for it.
func (d *DB) runManual(ctx context.Context, run func(context.Context) error) error {
	if d.opts.ReadOnly {
		return ErrReadOnly
	}
	m := &manualCompaction{ctx: ctx, run: run, done: make(chan error, 1)}
	d.bg.mu.Lock()
	if d.bg.closing || d.closed.Load() {
		d.bg.mu.Unlock()
		return ErrClosed
	}
	d.bg.manual = append(d.bg.manual, m)
	d.bg.changed.Broadcast()
	d.bg.mu.Unlock()
	return <-m.done
}

func (d *DB) compactLoop(ctx context.Context) {
	b := &d.bg
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.closing || b.fatalErr != nil {
			for _, m := range b.manual {
				m.done <- cmpErr(b.fatalErr, ErrClosed)
			}
			b.manual = nil
			if b.closing {
				return
			}
			b.changed.Wait()
			continue
		}
		if len(b.manual) > 0 {
			m := b.manual[0]
			b.manual = b.manual[1:]
			b.mu.Unlock()
			m.done <- d.runCancelable(ctx, m)
			b.mu.Lock()
			continue
		}
		plan, ok := d.pickCompaction()
		if !ok {
			if plan, ok = d.awaitIdle(); !ok {
				continue
			}
		}
		b.mu.Unlock()
		err := d.runPlan(ctx, &plan)
		b.mu.Lock()
		if errors.Is(err, context.Canceled) {
			continue
		}
		b.compactErr = err
		b.changed.Broadcast()
		if err != nil {
			d.opts.Logger.Error("compaction failed", "level", plan.Level, "err", err)
			b.mu.Unlock()
			d.opts.Events.failed(err)
			b.mu.Lock()
			b.pause(d.opts.retryDelay, func() bool { return b.closing })
		}
	}
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// runCancelable runs manual work until it is done, its caller gives up, or the
// database closes.
func (d *DB) runCancelable(ctx context.Context, m *manualCompaction) error {
	runCtx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	err := m.run(runCtx)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ErrClosed
	}
	return err
}

// baseMemtables is what level 1 may hold in any case, in memtables.
const baseMemtables = 4

func (d *DB) compactConfig() compact.Config {
	return compact.Config{
		L0Trigger:       d.opts.L0Tables,
		LevelBaseBytes:  uint64(d.opts.LevelBaseBytes),
		LevelBaseMin:    baseMemtables * uint64(d.opts.MemtableBytes),
		LevelMultiplier: uint64(d.opts.LevelMultiplier),
		TableBytes:      uint64(d.opts.TableBytes),
	}
}

// pickCompaction returns what the tree needs most, if it needs anything.
func (d *DB) pickCompaction() (compact.Plan, bool) {
	if d.opts.DisableAutoCompaction {
		return compact.Plan{}, false
	}
	return compact.Pick(d.state.Load().version, d.compactConfig(), d.pointers)
}

// idleDelay is how long nothing may be written before level 0 is tidied up.
const idleDelay = 100 * time.Millisecond

// awaitIdle waits for something to happen, and returns a compaction that spares
// reads some tables of level 0 if nothing does for a moment, no write either.
// REQUIRES: bg.mu.
func (d *DB) awaitIdle() (plan compact.Plan, ok bool) {
	b := &d.bg
	written, version := d.visible.Load(), d.state.Load().version
	if !d.opts.DisableAutoCompaction {
		plan, ok = compact.PickIdle(version, d.compactConfig())
	}
	if !ok || len(b.flushes) > 0 {
		b.changed.Wait()
		return plan, false
	}
	over := b.pause(idleDelay, func() bool {
		return b.closing || b.fatalErr != nil || len(b.manual) > 0 || len(b.flushes) > 0
	})
	return plan, over && d.visible.Load() == written && d.state.Load().version == version
}

// compactRange compacts a range level by level, and then what is left in the
// deepest level as it was.
func (d *DB) compactRange(ctx context.Context, from, to []byte) error {
	firstNew := d.nextFile.Load()
	deepest := 1
	v := d.state.Load().version
	for level := range v.Levels {
		if len(v.Overlapping(nil, level, from, to)) > 0 {
			deepest = max(level, 1)
		}
	}
	for level := range deepest {
		for {
			plan, ok := compact.PickRange(d.state.Load().version, d.compactConfig(), level, from, to)
			if !ok {
				break
			}
			if plan.TrivialMove {
				plan.TrivialMove = !d.wantsRewrite(plan.OutputLevel, plan.Inputs[0][0])
			}
			if err := d.runPlan(ctx, &plan); err != nil {
				return err
			}
		}
	}
	for _, meta := range d.state.Load().version.Overlapping(nil, deepest, from, to) {
		if meta.Num < firstNew && d.wantsRewrite(deepest, meta) {
			plan := rewritePlan(deepest, meta)
			if err := d.runPlan(ctx, &plan); err != nil {
				return err
			}
		}
	}
	return nil
}

// wantsRewrite reports whether a table would come out of a compaction into the
// level smaller or with another filter.
func (d *DB) wantsRewrite(level int, meta *manifest.TableMeta) bool {
	t := meta.Handle.(*table)
	return t.err == nil && (t.filterPolicy() != d.opts.LevelFilters[level].Name() || !t.settled())
}

// runPlan carries out a compaction.
func (d *DB) runPlan(ctx context.Context, plan *compact.Plan) error {
	if err := d.bg.fatal(); err != nil {
		return err
	}
	edit := &manifest.Edit{}
	if plan.Pointer != nil {
		edit.Pointers = []manifest.Pointer{{Level: plan.Level, Key: plan.Pointer}}
	}
	if plan.TrivialMove {
		meta := plan.Inputs[0][0]
		edit.Deleted = []manifest.DeletedTable{{Level: plan.Level, Num: meta.Num}}
		edit.Added = []manifest.AddedTable{{Level: plan.OutputLevel, Table: meta}}
		if err := d.applyEdit(edit, nil, nil); err != nil {
			return err
		}
		d.advancePointer(plan)
		d.stats.moves.Add(1)
		d.opts.Events.compacted(CompactionEvent{From: plan.Level, To: plan.OutputLevel, Moved: true, Inputs: 1, Outputs: 1})
		return nil
	}

	start := time.Now()
	input, bytesIn, err := d.planInput(plan)
	if err != nil {
		return err
	}
	version := d.state.Load().version
	job := &compact.Job{
		Input:      input,
		Boundaries: d.snapshots.boundaries(&d.visible),
		Writer:     d.tableOptions(plan.OutputLevel),
	}
	job.NothingBelow = compact.NothingBelow(version, plan)
	if plan.OutputLevel > plan.Level {
		job.TableBytes = int64(d.opts.TableBytes)
		job.SplitBefore = compact.SplitBefore(plan, uint64(d.opts.TableBytes))
	}
	outputs, stats, err := d.runJob(ctx, job)
	if err != nil {
		return err
	}
	for i, metas := range plan.Inputs {
		level := plan.Level
		if i == 1 {
			level = plan.OutputLevel
		}
		for _, meta := range metas {
			edit.Deleted = append(edit.Deleted, manifest.DeletedTable{Level: level, Num: meta.Num})
		}
	}
	for _, meta := range outputs {
		edit.Added = append(edit.Added, manifest.AddedTable{Level: plan.OutputLevel, Table: meta})
	}
	d.keeper.inherit(plan.Inputs, outputs)
	if err := d.applyEdit(edit, outputs, nil); err != nil {
		return err
	}
	d.advancePointer(plan)
	took := time.Since(start)
	d.stats.compactions.Add(1)
	d.stats.compactReadBytes.Add(bytesIn)
	d.stats.compactWriteBytes.Add(uint64(stats.BytesOut))
	if plan.Level == 0 {
		d.stats.drained(bytesIn, took)
	}
	d.opts.Logger.Info("compacted", "level", plan.Level, "to", plan.OutputLevel,
		"tables", len(plan.Inputs[0])+len(plan.Inputs[1]), "into", len(outputs),
		"read", bytesIn, "written", stats.BytesOut, "dropped", stats.EntriesIn-stats.EntriesOut, "took", took)
	d.opts.Events.compacted(CompactionEvent{
		From: plan.Level, To: plan.OutputLevel, Inputs: len(plan.Inputs[0]) + len(plan.Inputs[1]), Outputs: len(outputs),
		Read: bytesIn, Written: uint64(stats.BytesOut), Took: took,
	})
	return nil
}

// advancePointer remembers where in its level the next compaction begins. Only
// the compacting goroutine uses the pointers.
func (d *DB) advancePointer(plan *compact.Plan) {
	if plan.Pointer != nil {
		d.pointers[plan.Level] = plan.Pointer
	}
}

// planInput merges the tables of a plan.
func (d *DB) planInput(plan *compact.Plan) (base.Iterator, uint64, error) {
	o := &sstable.IterOptions{DontFillCache: true, Readahead: true, IO: new(sstable.BlockIO)}
	var bytesIn uint64
	for _, metas := range plan.Inputs {
		for _, meta := range metas {
			if err := meta.Handle.(*table).err; err != nil {
				return nil, 0, fmt.Errorf("compacting level %d: %w", plan.Level, err)
			}
			bytesIn += meta.Size
		}
	}
	var children []base.Iterator
	if plan.Level == 0 {
		its, err := tableIterators(plan.Inputs[0], o)
		if err != nil {
			return nil, 0, err
		}
		children = its
	} else if len(plan.Inputs[0]) > 0 {
		children = append(children, levelIterator(plan.Inputs[0], o))
	}
	if len(plan.Inputs[1]) > 0 {
		children = append(children, levelIterator(plan.Inputs[1], o))
	}
	return merge.New(children...), bytesIn, nil
}
