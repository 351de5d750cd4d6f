package sift

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/sstable"
)

// deleteRange implements DeleteRange.
func (d *DB) deleteRange(ctx context.Context, from, to []byte) error {
	switch {
	case d.opts.ReadOnly:
		return ErrReadOnly
	case d.closed.Load():
		return ErrClosed
	}
	if to != nil && bytes.Compare(from, to) >= 0 {
		return nil
	}
	r := rangeDeletion{db: d, from: from, to: to, at: from, began: d.visible.Load(), tables: tableSearch{from: from, to: to}}
	for {
		// After the flush, everything that is visible now is durable, in tables.
		r.seq = d.visible.Load()
		if err := d.flushBefore(ctx); err != nil {
			return err
		}
		if err := d.do(ctx, r.step); err != nil {
			return err
		}
		if r.done {
			d.recordGap(ctx, from, to)
			if r.dropped {
				d.awaitRemoval(ctx)
			}
			return nil
		}
		if err := r.deleteKeys(ctx); err != nil {
			return err
		}
	}
}

// gapStep is the number of tombstones after which recordGap checks whether ctx has ended.
const gapStep = 1024

// recordGap walks over a deleted range, up to its first live key, so that it becomes a gap. It
// reads all that the tombstones hide, which is much if a snapshot has kept it, and returns early
// when ctx ends: gaps only save time.
func (d *DB) recordGap(ctx context.Context, from, to []byte) {
	var last []byte // where the previous walk ended
	for d.gaps != nil && ctx.Err() == nil {
		o := &IterOptions{LowerBound: from, UpperBound: to, DontFillCache: true}
		it, err := d.openIter(o, latest, nil) // begins after the gap so far
		if it == nil || err != nil {
			return
		}
		it.most = gapStep
		found := it.First()
		at := bytes.Clone(it.keyBuf) // the last tombstone
		if err := it.Close(); found || err != nil || bytes.Compare(at, last) <= 0 {
			return
		}
		last = at
	}
}

// rangeDeletion is a call of DeleteRange. It searches the tables that it will not drop, the
// rest, at a sequence number up to which everything is durable and in tables, and deletes
// each key of the range that has a value there. It does not delete keys that were put after the
// call began: with concurrent writers it might never end otherwise. Once it finds no more keys,
// it can drop the other tables: no older value can reappear, whichever later writes a crash
// loses. The last search and the drop are one step on the compacting goroutine, so no compaction
// can move an entry from these tables to the rest in between; entries that flushes add have
// higher sequence numbers.
type rangeDeletion struct {
	db       *DB
	from, to []byte
	began    uint64 // tables with newer entries, such as the call's own tombstones, are not dropped
	seq      uint64 // all entries up to it are durable and in tables
	// keepDeletions is set if tables that hold only tombstones are not dropped either, since the
	// tombstones may hide keys of the rest.
	keepDeletions bool

	tables tableSearch // loads the tables within the range

	at       []byte // where the search for keys continues
	keys     Batch  // deletions of the keys found
	size     int    // size of keys in bytes, approximately
	excluded bool   // the search up to at has left out tables, which were to be dropped
	whole    bool   // the search of the range is a single step

	dropped bool // tables have been dropped
	done    bool
}

const (
	// maxFoundBytes is the total length of keys after which a step stops searching.
	maxFoundBytes = 8 << 20
	// maxSearchBytes is the size of the entries after which a step stops searching, since
	// compactions wait meanwhile.
	maxSearchBytes = 32 << 20
	// checkBytes is the size of the entries after which a step checks whether ctx has ended.
	checkBytes = 64 << 10
	// deleteBatchBytes is the size at which a batch of deletions is written.
	deleteBatchBytes = 256 << 10
)

// step is job.step. It searches the rest for keys, and drops the other tables if it finds none.
func (r *rangeDeletion) step(ctx context.Context) (last bool, err error) {
	d := r.db
	version := d.state.Load().version // only this goroutine removes tables from it
	if more, err := r.load(ctx, version); more || err != nil {
		return false, err
	}
	dropped := r.droppable(version)
	fromStart := bytes.Equal(r.at, r.from)
	r.excluded = len(dropped) > 0 || r.excluded && !fromStart
	found, more, err := r.find(ctx, version, dropped)
	switch {
	case err != nil:
		return true, err
	case found && !r.keepDeletions:
		r.keepDeletions, r.at = true, r.from
		return false, nil
	case found:
		r.whole = false
		return true, nil
	case more:
		return false, nil
	case !fromStart && r.excluded:
		// Only a search of the whole range in one step proves that tables can be dropped.
		r.at, r.whole = r.from, true
		return false, nil
	}
	if len(dropped) == 0 {
		r.done = true
		return true, nil
	}
	again, failed, err := r.drop(version, dropped)
	if failed {
		d.manifestFailed(err)
	}
	if again {
		return false, nil
	}
	if err == nil {
		d.opts.Logger.Info("dropped tables of a deleted range", "tables", len(dropped))
	}
	r.done = err == nil
	return true, err
}

// drop drops tables. again reports that it has not, because a new snapshot sees one of them: the
// caller must then choose the tables again. failed is that of changeVersion.
func (r *rangeDeletion) drop(version *manifest.Version, tables map[*manifest.TableMeta]bool) (again, failed bool, err error) {
	d := r.db
	// The lock prevents new snapshots until the tables are dropped.
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	edit := &manifest.Edit{}
	for level, metas := range version.Levels {
		for _, meta := range metas {
			if !tables[meta] {
				continue
			}
			if !r.unseen(meta) {
				return true, false, nil
			}
			edit.Deleted = append(edit.Deleted, manifest.DeletedTable{Level: level, Num: meta.Num})
		}
	}
	if failed, err = d.changeVersion(edit, nil, func(*readState) {}); err != nil {
		return false, failed, err
	}
	r.dropped = true
	return false, false, nil
}

// within reports whether a table lies within the range.
func (r *rangeDeletion) within(meta *manifest.TableMeta) bool {
	return bytes.Compare(base.UserKey(meta.Smallest), r.from) >= 0 &&
		(r.to == nil || bytes.Compare(base.UserKey(meta.Largest), r.to) < 0)
}

// load loads the tables within the range: their properties tell whether they may be dropped. It
// tries each of them once, and again in a later step if the disk could not read it for now. more
// reports that it has to continue in another step.
func (r *rangeDeletion) load(ctx context.Context, version *manifest.Version) (more bool, err error) {
	_, _, more, err = r.tables.next(ctx, version, 0, func(_ int, meta *manifest.TableMeta) (bool, error) {
		if r.within(meta) {
			meta.Handle.(*table).load() // unseen ignores tables that cannot be loaded
		}
		return false, nil
	})
	return more, err
}

// droppable returns the tables that lie within the range and may be dropped. REQUIRES: load has
// returned false for the version.
func (r *rangeDeletion) droppable(version *manifest.Version) map[*manifest.TableMeta]bool {
	snapshots := &r.db.snapshots
	snapshots.mu.Lock()
	defer snapshots.mu.Unlock()
	snapshots.expire(time.Now())
	tables := make(map[*manifest.TableMeta]bool)
	for _, metas := range version.Levels {
		for _, meta := range metas {
			if r.within(meta) && r.unseen(meta) {
				tables[meta] = true
			}
		}
	}
	return tables
}

// unseen reports whether a table may be dropped: it holds no entry from after the call began, none
// that a snapshot can see, and no Checkpoint is choosing its tables. Tables without properties, and
// those that load could not load, were written before the database was opened. It reads nothing
// from the disk, since others wait for the lock. REQUIRES: snapshots.mu.
func (r *rangeDeletion) unseen(meta *manifest.TableMeta) bool {
	if r.db.snapshots.tableUsers > 0 {
		return false
	}
	var minSeq uint64
	if reader := meta.Handle.(*table).reader.Load(); reader != nil {
		if p := reader.Properties(); p != nil && p.NumEntries > 0 {
			if p.MaxSeq > r.began || r.keepDeletions && p.NumDeletions == p.NumEntries {
				return false
			}
			minSeq = p.MinSeq
		}
	}
	seqs := r.db.snapshots.seqs
	return len(seqs) == 0 || seqs[len(seqs)-1] < minSeq
}

// find sets keys to deletions of the next keys that have a value in the rest, and reports whether
// there are any. more reports that it has found none so far and has to continue.
func (r *rangeDeletion) find(ctx context.Context, version *manifest.Version, dropped map[*manifest.TableMeta]bool) (found, more bool, err error) {
	o := &sstable.IterOptions{DontFillCache: true, Readahead: true}
	var src sources
	var top []*manifest.TableMeta // of level 0
	for level, metas := range version.Levels {
		for _, meta := range metas {
			switch {
			case dropped[meta] || !overlaps(meta, r.at, r.to):
			case level == 0:
				top = append(top, meta)
			default:
				src.levels[level] = append(src.levels[level], meta)
			}
		}
	}
	src.runs = manifest.Runs(top)
	children, err := src.iterators(o)
	if err != nil {
		return false, false, err
	}
	in := merge.New(children...)
	defer in.Close()
	r.keys.Reset()
	r.size = 0
	var last []byte // the key of the last entry up to seq
	have := false
	searched, checked := 0, 0 // bytes of entries, and of those before ctx was checked
	for ok := in.SeekGE(base.AppendInternalKey(nil, r.at, base.MaxSequence, base.KindSeek)); ok; ok = in.Next() {
		ikey := in.Key()
		enough := searched > maxSearchBytes && !r.whole
		if searched += len(ikey) + len(in.Value()); searched-checked >= checkBytes {
			if checked = searched; ctx.Err() != nil {
				return false, false, ctx.Err()
			}
		}
		userKey, t := base.UserKey(ikey), base.KeyTrailer(ikey)
		if r.to != nil && bytes.Compare(userKey, r.to) >= 0 {
			break
		}
		if t>>8 > r.seq || have && bytes.Equal(userKey, last) {
			continue
		}
		first := !have
		last, have = append(last[:0], userKey...), true
		if !first && (r.size > maxFoundBytes || enough) { // each step gets past a key
			r.at = bytes.Clone(userKey)
			return r.keys.Len() > 0, r.keys.Len() == 0, nil
		}
		if base.Kind(t) == base.KindDelete || t>>8 > r.began {
			continue // this entry hides older ones, and the tables to be dropped have no newer ones
		}
		r.keys.Delete(userKey)
		if err := r.keys.Err(); err != nil {
			return false, false, fmt.Errorf("sift: DeleteRange: a key of %d bytes: %w", len(userKey), err)
		}
		r.size += len(userKey) + 8
	}
	if err := in.Err(); err != nil {
		return false, false, err
	}
	if r.keys.Len() > 0 {
		r.at = r.to // the search is complete
		if r.to == nil {
			r.at = append(last, 0)
		}
		return true, false, nil
	}
	return false, false, nil
}

// deleteKeys writes the deletions in keys. The next flush makes them durable.
func (r *rangeDeletion) deleteKeys(ctx context.Context) error {
	var batch Batch
	for op := range r.keys.Ops() {
		batch.Delete(op.Key)
		if batch.Size() < deleteBatchBytes {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.db.Write(&batch, NoSync); err != nil {
			return err
		}
		batch.Reset()
	}
	return r.db.Write(&batch, NoSync)
}
