package sift

import (
	"bytes"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
)

// scanRange is what an iterator is bounded to. The zero scanRange is all keys.
type scanRange struct {
	lower, upper []byte // upper is the first key outside; nil: no bound

	// If every key of the range has one prefix, by the database's Prefixer, its
	// key, and the Prefixer's name; else the name is "".
	prefix   filter.Key
	prefixer string
	counts   *readStripe
}

// findPrefix looks for the one prefix of all keys of the range.
func (r *scanRange) findPrefix(o *Options, counts *readStripe) {
	if o.Prefix == nil || r.lower == nil || r.upper == nil {
		return
	}
	n := o.Prefix.PrefixLen(r.lower)
	if n < 0 || n > len(r.lower) {
		return
	}
	prefix := r.lower[:n]
	if !bytes.HasPrefix(r.upper, prefix) {
		var room [64]byte
		if end := base.AppendPrefixEnd(room[:0], prefix); end != nil && bytes.Compare(r.upper, end) > 0 {
			return
		}
	}
	r.prefix, r.prefixer, r.counts = filter.NewKey(prefix), o.prefixName, counts
}

// tables returns those tables of a level that may hold keys of the range.
func (r *scanRange) tables(v *manifest.Version, level int) []*manifest.TableMeta {
	metas := v.Levels[level]
	switch {
	case level == 0 && r.lower == nil && r.upper == nil:
		return metas
	case level == 0:
		var kept []*manifest.TableMeta
		for _, m := range metas {
			if r.overlaps(m) && r.mayHold(m) {
				kept = append(kept, m)
			}
		}
		return kept
	}
	if r.lower != nil {
		i, _ := v.FindTable(level, r.lower)
		metas = metas[i:]
	}
	if r.prefixer == "" {
		return metas // a level's iterator opens a table when it comes to it
	}
	var kept []*manifest.TableMeta
	for _, m := range metas {
		if !r.overlaps(m) {
			break
		}
		if r.mayHold(m) {
			kept = append(kept, m)
		}
	}
	return kept
}

func (r *scanRange) overlaps(m *manifest.TableMeta) bool {
	return (r.lower == nil || bytes.Compare(base.UserKey(m.Largest), r.lower) >= 0) &&
		(r.upper == nil || bytes.Compare(base.UserKey(m.Smallest), r.upper) < 0)
}

// mayHold asks a table's filter for the prefix.
func (r *scanRange) mayHold(m *manifest.TableMeta) bool {
	t := m.Handle.(*table)
	if r.prefixer == "" || t.reader == nil || t.reader.PrefixFilter() != r.prefixer {
		return true
	}
	asked := r.counts.prefixAsked.Add(1)
	if t.reader.MayContain(r.prefix) {
		return true
	}
	if asked%sampleEvery == 0 {
		t.absent.Add(sampleEvery)
	}
	r.counts.prefixUseful.Add(1)
	return false
}
