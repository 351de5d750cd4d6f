package sift

import (
	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/compact"
	"github.com/siftdb/sift/internal/manifest"
)

// minDeletions is the minimum number of tombstones in a table that is compacted because of
// them; they must also be at least half of its entries.
const minDeletions = 256

// pickDeletions returns a compaction of a table that holds mostly tombstones. It frees the
// space of the tombstones and of what they delete, and saves iterators from skipping them,
// long before the level is too large. Each such compaction moves them one level down; the
// deepest level drops them. Level 0 comes last: more such tables may follow there, and are
// then compacted together. REQUIRES: bg.mu.
func (d *DB) pickDeletions(version *manifest.Version) (compact.Plan, bool) {
	if d.opts.DisableAutoCompaction || d.noDeletions == version {
		return compact.Plan{}, false
	}
	d.deletionsWait.Store(true) // before reading the snapshots, so that no end of one is missed
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
				waiting = true // a snapshot still sees what they delete
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

// wakeDeletions wakes the compacting goroutine if tombstones wait for the end of a snapshot.
func (d *DB) wakeDeletions() {
	if d.deletionsWait.Load() {
		d.bg.change(func() {})
	}
}

// mayContain probes the filter of a table for a key within the table's range. Tombstones of
// keys that it excludes are dropped, so it probes only filters that sift has written: a false
// negative in another program's filter would bring a deleted value back. REQUIRES: the table
// is in a version with a reference.
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
