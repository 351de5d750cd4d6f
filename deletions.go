package sift

import (
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
)

// minDeletions is the fewest deletions for which a table is compacted, if they are also
// half of its entries.
const minDeletions = 256

// pickDeletions returns the compaction of a table that holds mostly deletions, so that
// they and what they delete take no room, and iterators do not walk over them, long before
// a level is too large. Each such compaction takes them a level further down, and in the
// deepest they go. One of level 0 comes last, as it can wait: more such tables may follow,
// to be compacted together. REQUIRES: bg.mu.
func (d *DB) pickDeletions(version *manifest.Version) (compact.Plan, bool) {
	if d.opts.DisableAutoCompaction || d.noDeletions == version {
		return compact.Plan{}, false
	}
	d.deletionsWait.Store(true) // before the snapshots are looked at: none that goes is missed
	oldest := d.snapshots.boundaries(&d.visible)[0]
	waiting := false
	for level := 1; level <= version.Deepest+1; level++ {
		level := level % (version.Deepest + 1)
		for _, meta := range version.Levels[level] {
			r := meta.Handle.(*table).reader.Load()
			if r == nil {
				waiting = waiting || !d.loader.ended()
				continue
			}
			p := r.Properties()
			if p == nil || p.NumDeletions < minDeletions || 2*p.NumDeletions < p.NumEntries {
				continue
			}
			if p.MaxSeq > oldest {
				waiting = true // a snapshot needs what they delete
				continue
			}
			return compact.PickDeletions(version, d.compactConfig(), level, meta), true
		}
	}
	if !waiting {
		d.noDeletions = version
		d.deletionsWait.Store(false)
	}
	return compact.Plan{}, false
}

// wakeDeletions has the compacting goroutine look for deletions that waited for a snapshot.
func (d *DB) wakeDeletions() {
	if d.deletionsWait.Load() {
		d.bg.change(func() {})
	}
}

// mayContain asks the filter of a table for a key that lies within the table's range. What
// it excludes is taken not to exist, so only filters that sift has written are asked:
// one of another program that excludes a key of its table would bring a deleted value back.
// REQUIRES: the table is in a version with a reference.
func (d *DB) mayContain(meta *manifest.TableMeta, userKey []byte) bool {
	r, err := meta.Handle.(*table).load()
	if err != nil {
		return true
	}
	g := d.epoch.Enter() // a filter's memory goes when all who may see it have left
	defer g.Exit()
	if p := r.Properties(); p == nil || p.FilterPolicy == "" {
		return true
	}
	f := r.Filter()
	if f == nil {
		return true
	}
	if keyed, ok := f.(*filter.KeyedReader); ok {
		return keyed.MayContainBytes(userKey)
	}
	return f.MayContain(filter.NewKey(userKey))
}
