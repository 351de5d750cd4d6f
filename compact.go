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

// flushBefore is Flush, but returns ctx.Err() early when ctx ends.
func (d *DB) flushBefore(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	flushed := make(chan error, 1)
	go func() { flushed <- d.Flush() }() // does not block: the channel has capacity
	select {
	case err := <-flushed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rangeCompaction is the job of Compact.
type rangeCompaction struct {
	db       *DB
	from, to []byte
	firstNew uint64 // tables with lower numbers existed at the first step
	// down compacts everything into the deepest level; other tables there are then rewritten. It is
	// nil before the first step.
	down *compact.Manual
	rest tableSearch // for these other tables
}

// step is job.step.
func (c *rangeCompaction) step(ctx context.Context) (last bool, err error) {
	d := c.db
	if c.down == nil {
		// No compaction is running: those that began earlier, and may have kept entries for
		// snapshots that have ended since, have numbered all their tables.
		c.firstNew = d.nextFile.Load()
		c.down = compact.NewManual(c.from, c.to, c.firstNew)
		c.rest = tableSearch{from: c.from, to: c.to}
	}
	version := d.state.Load().version
	plan, ok := c.down.Next(version, d.compactConfig())
	if ok {
		if plan.TrivialMove {
			plan.TrivialMove = !d.wantsRewrite(plan.OutputLevel, plan.Inputs[0][0])
		}
		return false, d.runPlan(ctx, &plan)
	}
	level, meta, more, err := c.rest.next(ctx, version, c.down.Level(), func(level int, meta *manifest.TableMeta) (bool, error) {
		return meta.Num < c.firstNew && d.wantsRewrite(level, meta), nil
	})
	if meta == nil {
		return !more, err
	}
	plan = rewritePlan(level, meta)
	return false, d.runPlan(ctx, &plan)
}

// buildFilters implements BuildFilters.
func (d *DB) buildFilters(ctx context.Context) (rewritten int, err error) {
	if d.opts.KeyedFilters && errors.Is(d.filterKeyErr, fs.ErrPermission) {
		return 0, d.filterKeyErr // there is no secret for the filters
	}
	firstNew := d.nextFile.Load()
	var search, rest tableSearch
	wanted := func(level int, meta *manifest.TableMeta) (bool, error) {
		if meta.Num >= firstNew {
			return false, nil // written with the right filter
		}
		return d.lacksFilter(level, meta)
	}
	// apart returns the compaction of a table of level 0 and those that must move with it. It adds
	// others that save work later, unless they cannot be read.
	apart := func(version *manifest.Version, meta *manifest.TableMeta) (plan compact.Plan) {
		cfg := d.compactConfig()
		for range 2 {
			plan, _ = compact.PickOld(version, cfg, base.UserKey(meta.Smallest), base.UserKey(meta.Largest), firstNew)
			if plan.TrivialMove = false; readable(&plan) {
				break
			}
			cfg.TableBytes = 0 // adds no others
		}
		return plan
	}
	err = d.do(ctx, func(ctx context.Context) (last bool, err error) {
		version := d.state.Load().version
		level, meta, more, err := search.next(ctx, version, 0, wanted)
		if meta == nil {
			return !more, err
		}
		plan := rewritePlan(level, meta)
		if level == 0 {
			// Level 0 is ordered by file number, so a table there cannot be rewritten under a new
			// number: it is compacted into level 1 instead.
			plan, _ = compact.PickOld(version, d.compactConfig(), nil, nil, firstNew)
			plan.TrivialMove = false
			if !readable(&plan) {
				// This compaction will fail: first rewrite all tables that do not need the
				// unreadable ones.
				level, meta, more, err := rest.next(ctx, version, 0, func(level int, meta *manifest.TableMeta) (bool, error) {
					ok, err := wanted(level, meta)
					if ok && level == 0 {
						p := apart(version, meta)
						ok = readable(&p)
					}
					return ok, err
				})
				switch {
				case more || err != nil:
					return false, err
				case meta != nil && level == 0:
					plan = apart(version, meta)
				case meta != nil:
					plan = rewritePlan(level, meta)
				}
			}
		}
		if err = d.runPlan(ctx, &plan); err == nil {
			rewritten += len(plan.Inputs[0])
		}
		return false, err
	})
	return rewritten, err
}

// rewritePlan returns the plan that rewrites one table of a level >= 1 in place.
func rewritePlan(level int, meta *manifest.TableMeta) compact.Plan {
	plan := compact.Plan{Level: level, OutputLevel: level}
	plan.Inputs[0] = []*manifest.TableMeta{meta}
	return plan
}

// readable reports whether all tables of a plan can be read.
func readable(plan *compact.Plan) bool {
	for _, metas := range plan.Inputs {
		for _, meta := range metas {
			if _, err := meta.Handle.(*table).load(); err != nil {
				return false
			}
		}
	}
	return true
}

// lacksFilter reports whether BuildFilters must rewrite a table of a level. It reads a filter that
// is not in memory, and returns the error if that fails. It returns false for unreadable tables:
// there are no keys to build a filter from.
func (d *DB) lacksFilter(level int, meta *manifest.TableMeta) (bool, error) {
	t := meta.Handle.(*table)
	if _, err := t.loadWhole(); err != nil {
		return false, nil
	}
	if err := t.reader.Load().ProveFilter(); err != nil {
		return false, err
	}
	return !t.hasFilter(d.opts.LevelFilters[level].Name()), nil
}

// baseMemtables is the minimum target size of level 1, in memtables.
const baseMemtables = 4

// compactConfig returns the options of package compact.
func (d *DB) compactConfig() compact.Config {
	return compact.Config{
		L0Trigger:       d.opts.L0Tables,
		LevelBaseBytes:  uint64(d.opts.LevelBaseBytes),
		LevelBaseMin:    baseMemtables * uint64(d.opts.MemtableBytes),
		LevelMultiplier: uint64(d.opts.LevelMultiplier),
		TableBytes:      uint64(d.opts.TableBytes),
		MaxTableBytes:   uint64(d.opts.Memory / tableShare),
	}
}

// wantsRewrite reports whether rewriting a table for a level would make it smaller or give it
// another filter. It returns false for unreadable tables.
func (d *DB) wantsRewrite(level int, meta *manifest.TableMeta) bool {
	t := meta.Handle.(*table)
	_, err := t.loadWhole()
	return err == nil && (!t.hasFilter(d.opts.LevelFilters[level].Name()) || !t.compacted())
}

// runPlan executes a compaction.
func (d *DB) runPlan(ctx context.Context, plan *compact.Plan) error {
	if err := d.bg.fatal(); err != nil {
		return err
	}
	if plan.TrivialMove {
		return d.runMove(plan)
	}
	start := time.Now()
	input, bytesIn, err := d.planInput(plan)
	if err != nil {
		return err
	}
	outputs, stats, err := d.runJob(ctx, d.planJob(plan, input))
	if err != nil {
		return err
	}
	d.inheritAccessRates(plan.Inputs, outputs)
	if err := d.applyEdit(planEdit(plan, outputs), outputs, 0); err != nil {
		return err
	}
	d.droppedLarge(stats.LargeBytes)
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

// runMove moves a table to the next level, without a change to its file.
func (d *DB) runMove(plan *compact.Plan) error {
	if err := d.applyEdit(planEdit(plan, plan.Inputs[0]), nil, 0); err != nil {
		return err
	}
	d.advancePointer(plan)
	d.stats.moves.Add(1)
	d.opts.Events.compacted(CompactionEvent{From: plan.Level, To: plan.OutputLevel, Moved: true, Inputs: 1, Outputs: 1})
	return nil
}

// planJob returns the job that writes the input of a plan to new tables.
func (d *DB) planJob(plan *compact.Plan, input base.Iterator) *compact.Job {
	version := d.state.Load().version
	job := &compact.Job{
		Input:      input,
		Boundaries: d.snapshots.boundaries(&d.visible),
		Writer:     d.tableOptions(plan.OutputLevel),
	}
	job.NothingBelow = compact.NothingBelow(version, plan, d.mayContain)
	if plan.OutputLevel > plan.Level {
		tableBytes := d.compactConfig().LevelTableBytes(plan.OutputLevel)
		job.TableBytes = int64(tableBytes)
		job.SplitBefore = compact.SplitBefore(plan, tableBytes)
	}
	return job
}

// planEdit returns the edit that replaces the inputs of a plan by its outputs.
func planEdit(plan *compact.Plan, outputs []*manifest.TableMeta) *manifest.Edit {
	edit := &manifest.Edit{}
	if plan.Pointer != nil {
		edit.Pointers = []manifest.Pointer{{Level: plan.Level, Key: plan.Pointer}}
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
	return edit
}

// advancePointer records the key at which the next compaction of the level begins. Only the
// compacting goroutine uses the pointers.
func (d *DB) advancePointer(plan *compact.Plan) {
	if plan.Pointer != nil {
		d.pointers[plan.Level] = plan.Pointer
	}
}

// planInput returns a merging iterator over the tables of a plan, and their total size in bytes.
func (d *DB) planInput(plan *compact.Plan) (base.Iterator, uint64, error) {
	o := &sstable.IterOptions{DontFillCache: true, Readahead: true, CheckOrder: true, IO: new(sstable.BlockIO)}
	var bytesIn uint64
	for _, metas := range plan.Inputs {
		for _, meta := range metas {
			if _, err := meta.Handle.(*table).load(); err != nil {
				return nil, 0, fmt.Errorf("compacting level %d: %w", plan.Level, err)
			}
			bytesIn += meta.Size
		}
	}
	var children []base.Iterator
	if plan.Level == 0 {
		// One table of a run is open at a time: an Ingest may add thousands of tables to level 0,
		// and each open one has a read-ahead window.
		for _, run := range manifest.Runs(plan.Inputs[0]) {
			children = append(children, levelIterator(run, o))
		}
	} else {
		children = append(children, levelIterator(plan.Inputs[0], o))
	}
	if len(plan.Inputs[1]) > 0 {
		children = append(children, levelIterator(plan.Inputs[1], o))
	}
	return merge.New(children...), bytesIn, nil
}
