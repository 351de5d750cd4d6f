package sift

import (
	"bytes"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// scanRange is the range of an iterator. The zero scanRange is all keys.
type scanRange struct {
	lower, upper []byte // upper is the first key outside; nil: no bound
}

// prefixAsk probes filters for the common prefix of all keys of a range, and range filters
// for the range.
type prefixAsk struct {
	ranges bool // tables may have range filters
	on     bool // the keys have a common prefix
	prefix filter.Key
	lower  []byte // for range filters; using the scanRange's would make its upper bound escape to the heap
	counts *readStripe

	before        uint64 // filter probes before this scan
	asked, useful uint64

	rangesAsked, rangesUseful uint64
}

// prefixOf determines the common prefix of all keys of a range, if any.
func (d *DB) prefixOf(lower, upper []byte) (a prefixAsk) {
	p := d.opts.Prefix
	if lower == nil || upper == nil {
		return a
	}
	if a.ranges = d.opts.RangeFilter != nil; a.ranges {
		a.lower, a.counts = lower, d.reads.stripe()
	}
	if p == nil {
		return a
	}
	n := p.PrefixLen(lower)
	if n < 0 || n > len(lower) {
		return a
	}
	prefix := lower[:n]
	if !bytes.HasPrefix(upper, prefix) {
		var room [64]byte
		if end := base.AppendPrefixEnd(room[:0], prefix); end != nil && bytes.Compare(upper, end) > 0 {
			return a
		}
	}
	a.on, a.prefix, a.counts = true, filter.NewKey(prefix), d.reads.stripe()
	a.before = a.counts.prefixAsked.Load()
	return a
}

// count counts the probes.
func (a *prefixAsk) count() {
	if a.asked != 0 {
		a.counts.prefixAsked.Add(a.asked)
		a.counts.prefixUseful.Add(a.useful)
	}
	if a.rangesAsked != 0 {
		a.counts.rangesAsked.Add(a.rangesAsked)
		a.counts.rangesUseful.Add(a.rangesUseful)
	}
	a.asked, a.useful, a.rangesAsked, a.rangesUseful = 0, 0, 0, 0
}

// tables returns the tables of a level that may hold keys of the range.
func (r *scanRange) tables(v *manifest.Version, level int, ask *prefixAsk) []*manifest.TableMeta {
	metas := v.Levels[level]
	switch {
	case level == 0 && r.lower == nil && r.upper == nil:
		return metas
	case level == 0:
		var kept []*manifest.TableMeta
		for _, m := range metas {
			if r.overlaps(m) && ask.mayHold(m) && ask.mayHoldRange(r, m) {
				kept = append(kept, m)
			}
		}
		return kept
	}
	if r.lower != nil {
		i, _ := v.FindTable(level, r.lower)
		metas = metas[i:]
	}
	if r.upper != nil && len(metas) > 0 {
		skipped := len(v.Levels[level]) - len(metas)
		end, _ := v.FindTable(level, r.upper)
		metas = metas[:max(0, min(len(metas), end+1-skipped))]
	}
	if !ask.on && len(metas) > 0 && !ask.mayHoldRange(r, metas[0]) {
		return nil // the range lies within the table
	}
	if !ask.on {
		// A level's iterator opens tables on demand, so it opens none beyond the range.
		if n := len(metas); n > 0 && !r.overlaps(metas[n-1]) {
			metas = metas[:n-1]
		}
		return metas
	}
	// The keys of a prefix mostly lie in one table, whose filter is probed before its first key is
	// compared.
	var kept []*manifest.TableMeta
	for _, m := range metas {
		if ask.mayHold(m) && r.overlaps(m) && ask.mayHoldRange(r, m) {
			kept = append(kept, m)
		}
	}
	return kept
}

func (r *scanRange) overlaps(m *manifest.TableMeta) bool {
	return (r.lower == nil || bytes.Compare(base.UserKey(m.Largest), r.lower) >= 0) &&
		(r.upper == nil || bytes.Compare(base.UserKey(m.Smallest), r.upper) < 0)
}

// mayHold probes a table's filter for the prefix.
func (a *prefixAsk) mayHold(m *manifest.TableMeta) bool {
	if !a.on {
		return true
	}
	t := m.Handle.(*table)
	r, err := t.load()
	if err != nil || !t.prefixes {
		return true // the iterator reports the error if it reaches the table
	}
	a.asked++
	if r.MayContain(a.prefix) {
		return true
	}
	a.useful++
	if (a.before+a.asked)%sampleEvery == 0 {
		t.absent.Add(sampleEvery)
	}
	return false
}

// mayHoldRange probes a table's range filter if the range lies within the table: a table that
// begins or ends within the range has a key there. An empty range has none.
func (a *prefixAsk) mayHoldRange(r *scanRange, m *manifest.TableMeta) bool {
	if !a.ranges || bytes.Compare(base.UserKey(m.Smallest), r.lower) >= 0 ||
		bytes.Compare(base.UserKey(m.Largest), r.upper) < 0 {
		return true
	}
	reader, err := m.Handle.(*table).load()
	if err != nil {
		return true
	}
	a.rangesAsked++
	if bytes.Compare(r.lower, r.upper) < 0 && reader.MayContainRange(a.lower, r.upper) {
		return true
	}
	a.rangesUseful++
	return false
}
