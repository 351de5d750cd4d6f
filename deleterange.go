package sift

import (
	"bytes"
	"context"
	"time"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/sstable"
)

// DeleteRange removes the keys from from to to, from included and to not; nil is no bound.
// Tables that lie wholly within the range go as they are, by one edit of the MANIFEST, and
// their files are removed as soon as no iterator from before holds them. Other keys are
// deleted one by one, in batches. While there is a snapshot or a transaction, it keeps
// what it can see, and so all keys in tables with anything that it can see are deleted
// one by one.
//
// The call as a whole is not atomic: readers meanwhile may find some of the keys gone and
// others not, but an Iter, a Snapshot and a transaction see what they saw before. Never
// does an older value of a key come back, at no moment and after no crash, whoever opens
// the database. A key that is written during the call may be deleted or not. What
// DeleteRange has deleted when it returns nil is durable. When ctx ends, or after another
// error, a part is deleted, and the call can be repeated.
//
// There is no such operation in a Batch: a LevelDB database has no entry that says it, and
// a batch is one record of its log.
func (d *DB) DeleteRange(ctx context.Context, from, to []byte) error {
	if d.opts.ReadOnly {
		return ErrReadOnly
	}
	if to != nil && bytes.Compare(from, to) >= 0 {
		return nil
	}
	r := rangeDeletion{db: d, from: from, to: to, at: from, began: d.visible.Load()}
	for {
		// What is visible now is then in tables, and durable.
		r.seq = d.visible.Load()
		if err := d.flushBefore(ctx); err != nil {
			return err
		}
		if err := d.do(ctx, r.step); err != nil {
			return err
		}
		if r.done {
			d.hasAny(&IterOptions{LowerBound: from, UpperBound: to, DontFillCache: true}, latest) // so that the gap is remembered
			return nil
		}
		if err := r.deleteKeys(ctx); err != nil {
			return err
		}
	}
}

// rangeDeletion is a DeleteRange. Some tables are to be dropped. All others, the rest, are
// looked at without them, as of a sequence number up to which all is durable and in
// tables: a key that has a value there is deleted. When none has, the tables go, and there
// is nothing that could come back for what they held, whatever is lost of later writes.
// This is found out, and the tables go, in one step on the goroutine that compacts, so
// that no compaction moves anything from the tables to the rest meanwhile; what flushes
// add has higher sequence numbers.
type rangeDeletion struct {
	db       *DB
	from, to []byte
	began    uint64 // tables with anything from after it are not dropped: the call's own deletions
	seq      uint64 // all up to it is durable and in tables
	// keepDeletions: neither are tables of deletions alone, which hide keys of the rest.
	keepDeletions bool

	at   []byte // where the search for keys goes on
	keys Batch  // the keys that it found, to be deleted
	size int    // their bytes
	done bool
}

const (
	// maxFoundBytes bounds the keys that are found in a step.
	maxFoundBytes = 8 << 20
	// deleteBatchBytes bounds the batches that delete them.
	deleteBatchBytes = 256 << 10
)

// step looks for keys in the rest, and drops the tables if there are none.
func (r *rangeDeletion) step(ctx context.Context) (last bool, err error) {
	d := r.db
	version := d.state.Load().version // only this goroutine takes tables out of it
	dropped := r.droppable(version)
	found, err := r.find(ctx, version, dropped)
	if found && !r.keepDeletions {
		r.keepDeletions, r.at = true, r.from
		return false, nil
	}
	if err != nil || found {
		return true, err
	}
	if !bytes.Equal(r.at, r.from) {
		r.at = r.from // once more, all of it: this time it is the proof
		return false, nil
	}
	if len(dropped) == 0 {
		r.done = true
		return true, nil
	}
	// No snapshot is made until the tables are gone.
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	edit := &manifest.Edit{}
	for level, metas := range version.Levels {
		for _, meta := range metas {
			if !dropped[meta] {
				continue
			}
			if !r.unseen(meta) {
				return false, nil // a snapshot has come: choose again
			}
			edit.Deleted = append(edit.Deleted, manifest.DeletedTable{Level: level, Num: meta.Num})
		}
	}
	if err := d.applyEdit(edit, nil, 0); err != nil {
		return true, err
	}
	d.opts.Logger.Info("dropped tables of a deleted range", "tables", len(edit.Deleted))
	r.done = true
	return true, nil
}

// droppable returns the tables that lie within the range and may be dropped.
func (r *rangeDeletion) droppable(version *manifest.Version) map[*manifest.TableMeta]bool {
	d := r.db
	var within []*manifest.TableMeta
	for _, metas := range version.Levels {
		for _, meta := range metas {
			if bytes.Compare(base.UserKey(meta.Smallest), r.from) >= 0 &&
				(r.to == nil || bytes.Compare(base.UserKey(meta.Largest), r.to) < 0) {
				within = append(within, meta)
				meta.Handle.(*table).load() // not under the lock; its error is kept
			}
		}
	}
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	d.snapshots.expire(time.Now())
	tables := make(map[*manifest.TableMeta]bool)
	for _, meta := range within {
		if r.unseen(meta) {
			tables[meta] = true
		}
	}
	return tables
}

// unseen reports whether a table holds nothing from after the call began, and nothing
// that a snapshot can see. Those that do not say what they hold are older than the
// database was opened. REQUIRES: the snapshots' lock.
func (r *rangeDeletion) unseen(meta *manifest.TableMeta) bool {
	var minSeq uint64
	if reader, err := meta.Handle.(*table).load(); err == nil {
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

// find collects the next keys with a value in the rest, and reports whether there are any.
func (r *rangeDeletion) find(ctx context.Context, version *manifest.Version, dropped map[*manifest.TableMeta]bool) (bool, error) {
	o := &sstable.IterOptions{DontFillCache: true, Readahead: true}
	var src sources
	for level, metas := range version.Levels {
		for _, meta := range metas {
			switch {
			case dropped[meta] || !overlaps(meta, r.at, r.to):
			case level == 0:
				src.runs = append(src.runs, []*manifest.TableMeta{meta})
			default:
				src.levels[level] = append(src.levels[level], meta)
			}
		}
	}
	children, err := src.iterators(o)
	if err != nil {
		return false, err
	}
	in := merge.New(children...)
	defer in.Close()
	r.keys.Reset()
	r.size = 0
	var last []byte // the last key of which the newest entry was seen
	have := false
	n := 0
	for ok := in.SeekGE(base.AppendInternalKey(nil, r.at, base.MaxSequence, base.KindSeek)); ok; ok = in.Next() {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		ikey := in.Key()
		userKey, t := base.UserKey(ikey), base.KeyTrailer(ikey)
		if r.to != nil && bytes.Compare(userKey, r.to) >= 0 {
			break
		}
		if t>>8 > r.seq || have && bytes.Equal(userKey, last) {
			continue
		}
		last, have = append(last[:0], userKey...), true
		if base.Kind(t) == base.KindDelete {
			continue
		}
		if r.size > maxFoundBytes {
			r.at = bytes.Clone(userKey)
			return true, nil
		}
		r.keys.Delete(userKey)
		r.size += len(userKey) + 8
	}
	if err := in.Err(); err != nil {
		return false, err
	}
	if r.keys.Len() > 0 {
		r.at = r.to // nothing is left to look for
		if r.to == nil {
			r.at = append(last, 0)
		}
		return true, nil
	}
	return false, nil
}

// deleteKeys deletes the keys that were found. The flush that follows makes it durable.
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
