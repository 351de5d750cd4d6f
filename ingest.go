package sift

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/wal"
	"github.com/siftdb/sift/memtable"
)

// ingest implements Ingest.
func (d *DB) ingest(ctx context.Context, ops iter.Seq2[Op, error]) error {
	switch {
	case d.opts.ReadOnly:
		return ErrReadOnly
	case d.closed.Load():
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r := newCommit()
	r.alone = func() error { return d.commit.ingest(ctx, ops) }
	return d.commit.enqueue(r, nil, true)
}

// All entries of an ingestion have the same sequence number. The ingestion is the only
// write while it runs, so it knows the number in advance. All earlier writes are already in
// tables, so the entries of the ingestion are newer than all others, at whichever level.
//
// One edit of the MANIFEST adds the tables, the sequence number, and a new log that begins after
// it. A crash before that leaves unreferenced tables and an unused log.

// ingest performs Ingest on the leader's goroutine.
func (c *committer) ingest(ctx context.Context, ops iter.Seq2[Op, error]) (err error) {
	d, callers := c.db, ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.bg.closed, cancel)()
	defer func() {
		if errors.Is(err, context.Canceled) && callers.Err() == nil && d.bg.closed.Err() != nil {
			err = ErrClosed
		}
	}()
	if err := c.flushAll(); err != nil {
		return err
	}
	seq := c.lastSeq + 1
	if seq > base.MaxSequence {
		return errNoSequence
	}
	level, metas, err := d.writeSorted(ctx, ops, seq)
	if err != nil || len(metas) == 0 {
		return err
	}
	log, err := wal.Create(&d.logs, seq)
	if err != nil {
		d.discardTables(metas)
		return fmt.Errorf("%w: a log could not be created: %w", ErrTryAgain, err)
	}
	c.changing = true // until the log is the one that the MANIFEST names
	installed, err := d.installSorted(ctx, metas, level, seq, log)
	if err != nil {
		c.changing = false
		if !installed {
			d.discardTables(metas)
			log.Discard()
		} else {
			log.Close() // the MANIFEST may name it
		}
		return err
	}
	c.log.Replace(log)
	c.lastSeq = seq
	c.changing = false
	c.recent.stop() // transactions check the tables instead
	d.removeLogsBefore(log.Num())
	return nil
}

// flushAll flushes all earlier writes to tables, and syncs the log.
func (c *committer) flushAll() error {
	if err := c.rotate(); err != nil {
		return err
	}
	if err := c.db.bg.waitFlushed(); err != nil {
		return err
	}
	if err := c.log.SyncSealed(); err != nil {
		return c.fail(err)
	}
	return nil
}

// writeSorted writes the operations to tables for the deepest level, which it returns. The size of
// the tables grows with the bytes written, as that of a compaction's tables grows with the level.
func (d *DB) writeSorted(ctx context.Context, ops iter.Seq2[Op, error], seq uint64) (level int, metas []*manifest.TableMeta, err error) {
	version := d.refVersion()
	defer d.releaseVersion(version)
	level = max(version.Deepest, 1)
	input := newSortedOps(ctx, ops, seq)
	cfg := d.compactConfig()
	job := &compact.Job{
		Input:        input,
		Boundaries:   []uint64{seq}, // there is one entry per key
		Writer:       d.tableOptions(level),
		TableBytes:   int64(cfg.LevelTableBytes(level)),
		GrowTables:   func(written int64) int64 { return int64(cfg.LastTableBytes(uint64(written))) },
		NothingBelow: compact.NothingBelow(version, &compact.Plan{}, d.mayContain),
	}
	if len(version.Levels[0]) == 0 && len(version.Levels[1]) == 0 {
		// The tables will be above the deepest level: like those of a compaction, each must overlap
		// little of it. Tables of level 0 are split when they are compacted.
		job.SplitBefore = compact.SplitBefore(&compact.Plan{Grandparents: version.Levels[level]}, cfg.LevelTableBytes(level))
	}
	metas, stats, err := d.runJob(ctx, job)
	for _, meta := range metas {
		meta.Handle.(*table).ingested = seq
	}
	if err == nil {
		d.opts.Logger.Info("ingested", "entries", stats.EntriesIn, "bytes", stats.BytesOut, "tables", len(metas))
	}
	return level, metas, err
}

// installSorted adds the tables to the version, and makes their entries visible. It does so on the
// compacting goroutine, so that no compaction adds a table to the same level at the same time.
// installed is true if the MANIFEST may name the tables, even if there is an error.
func (d *DB) installSorted(ctx context.Context, metas []*manifest.TableMeta, deepest int, seq uint64, log *wal.Log) (installed bool, err error) {
	err = d.do(ctx, func(context.Context) (last bool, err error) {
		installed = true
		logNum := log.Num()
		version := d.state.Load().version
		edit := &manifest.Edit{LogNumber: &logNum, LastSeq: &seq}
		for _, meta := range metas {
			edit.Added = append(edit.Added, manifest.AddedTable{Level: freeLevel(version, meta, deepest), Table: meta})
		}
		// The new memtable lets readers distinguish states with the tables from those without:
		// see iterState and walk.begin.
		mem := memtable.New(d.opts.MemtableBytes)
		if err := d.applyEditTo(edit, metas, func(s *readState) { mem.Follow(s.mem); s.mem = mem }); err != nil {
			return true, err
		}
		d.gaps.Clear()
		d.visible.Store(seq)
		return true, nil
	})
	return installed, err
}

// freeLevel returns the deepest level, not below deepest, such that no table in that level or above
// it overlaps the given one. If one of level 0 does, it returns 0.
func freeLevel(v *manifest.Version, meta *manifest.TableMeta, deepest int) int {
	from, to := base.UserKey(meta.Smallest), base.UserKey(meta.Largest)
	free := 0
	for level := range deepest + 1 {
		if len(v.Overlapping(nil, level, from, to)) > 0 {
			break
		}
		free = level
	}
	return free
}

// discardTables closes and removes tables that no version has.
func (d *DB) discardTables(metas []*manifest.TableMeta) {
	paths := make([]string, len(metas))
	for i, meta := range metas {
		paths[i] = meta.Handle.(*table).path
	}
	d.discard(metas, paths)
}

// maxIngestEntry is the maximum length of key and value together, as in a batch: DeleteRange must
// be able to delete the key.
const maxIngestEntry = maxBatchBytes - maxOpOverhead

// sortedOps is a base.Iterator over operations, as entries with one sequence number. It can only
// move forward.
type sortedOps struct {
	base.Iterator // nil: its other methods are not called
	ctx           context.Context
	seq           uint64
	next          func() (Op, error, bool)
	stop          func()
	key           []byte // the internal key
	value         []byte
	err           error
}

func newSortedOps(ctx context.Context, ops iter.Seq2[Op, error], seq uint64) *sortedOps {
	o := &sortedOps{ctx: ctx, seq: seq}
	o.next, o.stop = iter.Pull2(ops)
	return o
}

// First implements base.Iterator. It is called once.
func (o *sortedOps) First() bool { return o.Next() }

// Next implements base.Iterator.
func (o *sortedOps) Next() bool {
	op, err, ok := o.next()
	if ok && err == nil {
		err = o.ctx.Err()
	}
	if !ok || err != nil {
		o.err = err
		return false
	}
	if o.key != nil && bytes.Compare(base.UserKey(o.key), op.Key) >= 0 {
		o.err = fmt.Errorf("sift: Ingest: key %q does not come after %q", op.Key, base.UserKey(o.key))
		return false
	}
	if len(op.Key) > maxIngestEntry || len(op.Value) > maxIngestEntry-len(op.Key) {
		o.err = fmt.Errorf("sift: Ingest: a key of %d bytes and a value of %d bytes are too long together", len(op.Key), len(op.Value))
		return false
	}
	kind := base.KindSet
	if o.value = op.Value; op.Delete {
		kind, o.value = base.KindDelete, nil
	}
	o.key = base.AppendInternalKey(o.key[:0], op.Key, o.seq, kind)
	return true
}

func (o *sortedOps) Key() []byte   { return o.key }
func (o *sortedOps) Value() []byte { return o.value }
func (o *sortedOps) Err() error    { return o.err }

func (o *sortedOps) Close() error {
	o.stop()
	return nil
}
