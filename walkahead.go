package sift

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/internal/gap"
)

// Deletions of consecutive keys after a gap extend the gap, so that the next iterator does not pass
// all the tombstones: after every aheadEvery deletions in ascending order, the goroutine that
// committed the last one walks over them. This takes about a third of the time of the deletions,
// but many times as long if they delete large values in tables, since the walk reads their blocks.
// There are no more walks once they have taken aheadUnused since an iterator last used a gap.
// Without a gap before the keys, nothing happens.
const (
	aheadEvery  = 128
	aheadUnused = time.Second
	// aheadMost is the maximum number of tombstones in a walk, per deletion: there may be other
	// tombstones after the gap.
	aheadMost = 4
)

// deletedRun is a run of deletions of ascending keys. There may be other writes between them, but
// no other deletions.
type deletedRun struct {
	from, to []byte // the first and the last key
	n        int    // number of deletions
}

// add adds a deletion to the run.
func (r *deletedRun) add(key []byte) {
	if r.n == 0 || bytes.Compare(key, r.to) < 0 {
		r.from, r.n = append(r.from[:0], key...), 0
	}
	r.to = append(r.to[:0], key...)
	r.n++
}

// take returns the run and begins a new one if there are enough deletions for a walk. Otherwise it
// returns an empty run.
func (r *deletedRun) take() (run deletedRun) {
	if r.n >= aheadEvery {
		run, *r = *r, deletedRun{}
	}
	return run
}

// aheadWork is the total duration of walks since an iterator last used a gap, in nanoseconds.
type aheadWork struct{ ns atomic.Int64 }

// used records that an iterator uses a gap.
func (w *aheadWork) used() {
	if w.ns.Load() != 0 {
		w.ns.Store(0)
	}
}

// walkAhead extends the gap before a run to the end of the run, or up to the first live key.
func (d *DB) walkAhead(run deletedRun) {
	if run.n == 0 {
		return
	}
	unused := d.ahead.ns.Load()
	if unused > int64(aheadUnused) {
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
	begin := time.Now()
	it, err := d.openIter(&IterOptions{LowerBound: g.From, UpperBound: append(run.to, 0), DontFillCache: true}, latest, nil)
	if it == nil || err != nil {
		return // gaps only save time
	}
	it.most = aheadMost * run.n
	it.First()
	it.Close()
	// Not Add: this iterator has used the gap, too, which has reset the duration.
	d.ahead.ns.Store(unused + int64(time.Since(begin)))
}
