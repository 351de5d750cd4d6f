package sift

import (
	"bytes"
	"sort"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/sstable"
)

// prefixProbe probes filters for the prefix that all keys of a range have in common, and range
// filters for the range.
type prefixProbe struct {
	ranges bool // probe range filters
	on     bool // probe filters for prefix
	prefix filter.Key
	counts *readStripe

	before         uint64 // counts.prefixProbes before this scan
	probes, useful uint64 // not yet in counts

	rangeProbes, rangeUseful uint64
}

// prefixOf returns the probe for a range.
func (d *DB) prefixOf(lower, upper []byte) (a prefixProbe) {
	p := d.opts.Prefix
	if lower == nil || upper == nil {
		return a
	}
	if a.ranges = d.opts.RangeFilter != nil; a.ranges {
		a.counts = d.reads.stripe()
	}
	if p == nil {
		return a
	}
	n := sstable.RangePrefixLen(p, lower, upper)
	if n < 0 {
		return a
	}
	a.on, a.prefix, a.counts = true, filter.NewKey(lower[:n]), d.reads.stripe()
	a.before = a.counts.prefixProbes.Load()
	return a
}

// count adds the probes to the counters.
func (a *prefixProbe) count() {
	if a.probes != 0 {
		a.counts.prefixProbes.Add(a.probes)
		a.counts.prefixUseful.Add(a.useful)
	}
	if a.rangeProbes != 0 {
		a.counts.rangeProbes.Add(a.rangeProbes)
		a.counts.rangeUseful.Add(a.rangeUseful)
	}
	a.probes, a.useful, a.rangeProbes, a.rangeUseful = 0, 0, 0, 0
}

// runsOf returns the tables of level 0 that may hold keys from lower to upper, in runs.
func runsOf(v *manifest.Version, lower, upper []byte, probe *prefixProbe) [][]*manifest.TableMeta {
	if lower == nil && upper == nil {
		return v.Runs
	}
	var kept [][]*manifest.TableMeta
	for _, run := range v.Runs {
		if lower != nil {
			run = run[sort.Search(len(run), func(i int) bool { return bytes.Compare(base.UserKey(run[i].Largest), lower) >= 0 }):]
		}
		if upper != nil {
			run = run[:sort.Search(len(run), func(i int) bool { return bytes.Compare(base.UserKey(run[i].Smallest), upper) >= 0 })]
		}
		if run = probe.mayHoldAny(run, lower, upper); len(run) > 0 {
			kept = append(kept, run)
		}
	}
	return kept
}

// mayHoldAny returns the tables that may hold a key in a range, out of tables that overlap the
// range.
func (a *prefixProbe) mayHoldAny(metas []*manifest.TableMeta, lower, upper []byte) []*manifest.TableMeta {
	if !a.on && !a.ranges {
		return metas
	}
	var kept []*manifest.TableMeta
	for _, m := range metas {
		if a.mayHold(m) && a.mayHoldRange(lower, upper, m) {
			kept = append(kept, m)
		}
	}
	return kept
}

// tablesOf returns the tables of a level >= 1 that may hold keys from lower to upper. The
// bounds are separate parameters because in a struct, the end of a prefix would escape to the
// heap.
func tablesOf(v *manifest.Version, level int, lower, upper []byte, probe *prefixProbe) []*manifest.TableMeta {
	metas := v.Levels[level]
	if lower != nil {
		i, _ := v.FindTable(level, lower)
		metas = metas[i:]
	}
	if upper != nil && len(metas) > 0 {
		end := 0 // most ranges are short, and end in the same table
		if bytes.Compare(base.UserKey(metas[0].Largest), upper) < 0 {
			end, _ = v.FindTable(level, upper)
			end -= len(v.Levels[level]) - len(metas)
		}
		metas = metas[:max(0, min(len(metas), end+1))]
	}
	if !probe.on && len(metas) > 0 && !probe.mayHoldRange(lower, upper, metas[0]) {
		return nil // the range lies within the table
	}
	if !probe.on {
		// Only the last table may lie beyond the range.
		if n := len(metas); n > 0 && !overlaps(metas[n-1], lower, upper) {
			metas = metas[:n-1]
		}
		return metas
	}
	// The keys with a prefix are usually in one table: probing its filter first saves comparing
	// its bounds.
	var kept []*manifest.TableMeta
	for _, m := range metas {
		if probe.mayHold(m) && overlaps(m, lower, upper) && probe.mayHoldRange(lower, upper, m) {
			kept = append(kept, m)
		}
	}
	return kept
}

// overlaps reports whether a table overlaps a range.
func overlaps(m *manifest.TableMeta, lower, upper []byte) bool {
	return (lower == nil || bytes.Compare(base.UserKey(m.Largest), lower) >= 0) &&
		(upper == nil || bytes.Compare(base.UserKey(m.Smallest), upper) < 0)
}

// mayHold probes a table's filter for the prefix.
func (a *prefixProbe) mayHold(m *manifest.TableMeta) bool {
	if !a.on {
		return true
	}
	t := m.Handle.(*table)
	r, err := t.load()
	if err != nil || !t.prefixes {
		return true // the iterator reports the error if it reaches the table
	}
	a.probes++
	if r.MayContain(a.prefix) {
		return true
	}
	a.useful++
	if (a.before+a.probes)%sampleEvery == 0 {
		t.traffic.AbsentKeys.Add(sampleEvery)
	}
	return false
}

// mayHoldRange probes a table's range filter if the range lies between the table's first and last
// key: otherwise one of these may be in the range. It returns false for an empty range there.
func (a *prefixProbe) mayHoldRange(lower, upper []byte, m *manifest.TableMeta) bool {
	if !a.ranges || bytes.Compare(base.UserKey(m.Smallest), lower) >= 0 ||
		bytes.Compare(base.UserKey(m.Largest), upper) < 0 {
		return true
	}
	t := m.Handle.(*table)
	reader, err := t.load()
	if err != nil {
		return true
	}
	a.rangeProbes++
	may := bytes.Compare(lower, upper) < 0 && reader.MayContainRange(lower, upper)
	if (!may || !reader.HasRangeFilter()) && (a.counts.rangeProbes.Load()+a.rangeProbes)%sampleEvery == 0 {
		t.traffic.AbsentRanges.Add(sampleEvery)
	}
	if may {
		return true
	}
	a.rangeUseful++
	return false
}
