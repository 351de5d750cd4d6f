package sift

import (
	"bytes"
	"sync/atomic"

	"github.com/siftdb/sift/internal/gap"
)

// Deleting the keys after a gap one after the other extends the gap, so that the next iterator does
// not meet all the tombstones: after every aheadEvery deletions in ascending order, the goroutine
// that committed the last one walks over them. This takes about a third as long as the deletions
// themselves, and stops when no iterator has used a gap for aheadUnused deletions, so that at most
// some tenths of a second are wasted. Without gaps it does nothing.
const (
	aheadEvery  = 128
	aheadUnused = 1 << 22
	// aheadMost bounds a walk, per deletion: there may be other tombstones after the gap.
	aheadMost = 4
)

// deletedRun is a run of deletions of ascending keys. There may be other writes between them, but
// no other deletions.
type deletedRun struct {
	from, to []byte // the first and the last
	n        int
}

// add adds a deletion to the run.
func (r *deletedRun) add(key []byte) {
	if r.n == 0 || bytes.Compare(key, r.to) < 0 {
		r.from, r.n = append(r.from[:0], key...), 0
	}
	r.to = append(r.to[:0], key...)
	r.n++
}

// take returns the run and begins a new one, if there are enough deletions for a walk.
func (r *deletedRun) take() (run deletedRun) {
	if r.n >= aheadEvery {
		run, *r = *r, deletedRun{}
	}
	return run
}

// aheadWork counts the deletions that were walked over since an iterator last used a gap.
type aheadWork struct{ n atomic.Int64 }

func (w *aheadWork) used() {
	if w.n.Load() != 0 {
		w.n.Store(0)
	}
}

// walkAhead extends the gap before a run to its end, unless there is a live key in between.
func (d *DB) walkAhead(run deletedRun) {
	if run.n == 0 {
		return
	}
	unused := d.ahead.n.Load() + int64(run.n)
	if unused > aheadUnused {
		return
	}
	s := d.state.Load()
	if s == nil {
		return
	}
	g := gap.Prev(d.gaps.Gaps(), run.from, gap.View{Seq: d.visible.Load(), Drops: s.drops})
	if g == nil || g.To == nil || bytes.Compare(g.To, run.to) > 0 {
		return
	}
	it, err := d.openIter(&IterOptions{LowerBound: g.From, UpperBound: append(run.to, 0), DontFillCache: true}, latest, nil)
	if it == nil || err != nil {
		return // gaps only save time
	}
	it.most = aheadMost * run.n
	it.First()
	it.Close()
	d.ahead.n.Store(unused) // undo the reset by this iterator
}
