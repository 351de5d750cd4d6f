package sift

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/sstable"
)

// The number of levels of a goleveldb database depends on its options and its size. Open fits the
// levels into the seven levels of sift and LevelDB. Levels only order entries by age, so it can
// renumber them. If more than six levels below level 0 have tables, it merges the two adjacent ones
// with the fewest bytes, usually the uppermost, until six remain. The new MANIFEST that Open writes
// makes all of this take effect at once. A read-only Open writes nothing: reads search the tables
// of excess levels like those of level 0; see manifest.State.

// fitLevels returns the version with its tables in the available levels.
func (r *recovery) fitLevels(deep []manifest.DeepLevel) (*manifest.Version, error) {
	edit := &manifest.Edit{}
	below := map[*manifest.TableMeta]bool{}
	for _, l := range deep {
		for _, meta := range l.Tables {
			below[meta] = true
		}
	}
	for _, meta := range r.version.Levels[0] {
		if !below[meta] {
			edit.Added = append(edit.Added, manifest.AddedTable{Level: 0, Table: meta})
		}
	}
	for len(deep) >= manifest.NumLevels {
		i, err := smallestPair(deep)
		if err != nil {
			return nil, err
		}
		tables, err := r.mergeLevels(deep[i], deep[i+1])
		if err != nil {
			return nil, err
		}
		r.discardMerged(slices.Concat(deep[i].Tables, deep[i+1].Tables))
		merged := append([]manifest.DeepLevel{}, deep[:i]...)
		merged = append(merged, manifest.DeepLevel{Level: deep[i+1].Level, Tables: tables})
		deep = append(merged, deep[i+2:]...)
	}
	for _, l := range manifest.Fit(deep) {
		for _, meta := range l.Tables {
			edit.Added = append(edit.Added, manifest.AddedTable{Level: l.Level, Table: meta})
		}
	}
	return (*manifest.Version)(nil).Apply(edit)
}

// smallestPair returns the index of the upper of the two adjacent levels that have the fewest
// bytes in total and no unreadable table.
func smallestPair(levels []manifest.DeepLevel) (int, error) {
	best, size := -1, uint64(0)
	var errs error
	for i := range levels[1:] {
		var n uint64
		var err error
		for _, l := range levels[i : i+2] {
			for _, meta := range l.Tables {
				n += meta.Size
				_, lerr := meta.Handle.(*table).load()
				err = errors.Join(err, lerr)
			}
		}
		if errs = errors.Join(errs, err); err == nil && (best < 0 || n < size) {
			best, size = i, n
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("sift: the tables form %d levels, more than %d, and no two adjacent ones can be merged: %w", len(levels)+1, manifest.NumLevels, errs)
	}
	return best, nil
}

// mergeLevels merges two levels into new tables and returns these.
func (r *recovery) mergeLevels(upper, lower manifest.DeepLevel) ([]*manifest.TableMeta, error) {
	d := r.db
	o := &sstable.IterOptions{DontFillCache: true, Readahead: true, IO: new(sstable.BlockIO)}
	metas, stats, err := d.runJob(context.Background(), &compact.Job{
		Input:      merge.New(levelIterator(upper.Tables, o), levelIterator(lower.Tables, o)),
		Boundaries: []uint64{base.MaxSequence}, // there are no readers yet
		TableBytes: int64(d.opts.TableBytes),
		Writer:     d.tableOptions(min(lower.Level, manifest.NumLevels-1)),
	})
	r.merged = append(r.merged, metas...)
	if err == nil {
		d.opts.Logger.Info("merged two levels, since there are too many", "upper", upper.Level, "lower", lower.Level, "written", stats.BytesOut)
	}
	return metas, err
}

// discardMerged removes the tables, after a merge, if an earlier merge has written them: no version
// will have them.
func (r *recovery) discardMerged(tables []*manifest.TableMeta) {
	r.merged = slices.DeleteFunc(r.merged, func(meta *manifest.TableMeta) bool {
		if !slices.Contains(tables, meta) {
			return false
		}
		r.db.discardTables([]*manifest.TableMeta{meta})
		return true
	})
}
