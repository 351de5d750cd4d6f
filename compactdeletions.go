package sift

import (
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
)

// minDeletions is the minimum number of tombstones for which a table is compacted. They must also
// be at least half of its entries.
const minDeletions = 256

// pickDeletions returns a compaction of a table that holds mostly tombstones. It frees the space of
// the tombstones and of what they delete, and saves iterators from skipping them, long before the
// level is too large. Each such compaction moves the tombstones one level down; in the deepest
// level it drops them. Level 0 comes last: more such tables may follow there, and one compaction
// can take them all. Tables of levels that wait for a retry come after all others. REQUIRES: bg.mu.
func (d *DB) pickDeletions(version *manifest.Version) (compact.Plan, bool) {
	if d.opts.DisableAutoCompaction || d.noDeletions == version {
		return compact.Plan{}, false
	}
	d.noDeletions = nil         // an old version would keep its tables' filters and indexes in memory
	d.deletionsWait.Store(true) // before reading the snapshots, so as not to miss the end of one
	oldest := d.snapshots.boundaries(&d.visible)[0]
	waiting := false
	retryLater := d.waitingLevels()
	var failed compact.Plan // of the first of these levels
	anyFailed := false
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
				waiting = true // a snapshot may still see what the tombstones delete
				continue
			}
			plan := compact.PickDeletions(version, d.compactConfig(), level, meta)
			if !retryLater[level] {
				return plan, true
			}
			if !anyFailed {
				failed, anyFailed = plan, true
			}
			break
		}
	}
	if anyFailed {
		return failed, true
	}
	if !waiting {
		d.noDeletions = version
		d.deletionsWait.Store(false)
	}
	return compact.Plan{}, false
}

// wakeDeletions wakes the compacting goroutine if tombstones wait for the end of a snapshot.
func (d *DB) wakeDeletions() {
	if d.deletionsWait.Load() {
		d.bg.change(func() {})
	}
}

// mayContain probes the filter of a table for a key within the table's range. A compaction drops
// the tombstone of a key that it excludes, so it probes only filters that sift has written: a
// false negative of another program's filter would bring a deleted value back. REQUIRES: the
// table is in a version with a reference.
func (d *DB) mayContain(meta *manifest.TableMeta, userKey []byte) bool {
	r, err := meta.Handle.(*table).load()
	if err != nil {
		return true
	}
	if p := r.Properties(); p == nil || p.FilterPolicy == "" {
		return true
	}
	return r.MayContain(filter.NewKey(userKey))
}
