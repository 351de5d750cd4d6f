package sift

import (
	"errors"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/merge"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// noIter returns an iterator over an empty range.
func (d *DB) noIter() *Iter { return &Iter{db: d, in: merge.Empty{}, nothing: true, backward: true} }

// openIter returns an iterator over what is visible at seq and, unless tx is nil, over the writes
// of tx. Without tx it returns nil if it knows that the range is empty.
func (d *DB) openIter(o *IterOptions, seq uint64, tx *Tx) (*Iter, error) {
	// Do not copy the bounds before it is known that the range may have keys.
	var room boundsRoom
	lower, upper := o.limits(&room)
	probe := d.prefixOf(lower, upper)
	g := d.epoch.Enter()
	defer g.Exit()
	s, seq, present := d.iterState(seq)
	if s == nil {
		return nil, ErrClosed
	}
	var near nearGaps
	if tx == nil {
		var some bool
		if lower, upper, some = d.skipGaps(s, seq, lower, upper, &near); !some {
			return nil, nil
		}
	}
	src := s.sources(lower, upper, &probe)
	if src.none() && tx == nil {
		return nil, nil
	}
	roomy := new(roomyIter)
	it := &roomy.Iter
	it.db, it.seq, it.iterRoom, it.backward = d, seq, &roomy.room, true
	it.init()
	it.setBounds(lower, upper)
	it.tx, it.near = tx, near
	if err := it.read(s, &src, o, present); err != nil {
		return nil, err
	}
	s.version.Ref()
	it.state = s
	return it, nil
}

// read makes the iterator read the sources of a state.
func (it *Iter) read(s *readState, src *sources, o *IterOptions, present bool) error {
	it.options.DontFillCache = o != nil && o.DontFillCache
	it.drops, it.lastOwn = s.drops, it.seq
	it.readsMem, it.mem = src.mem != nil, nil
	if present {
		it.mem = s.mem
	}
	children, err := src.iterators(&it.options)
	if err != nil {
		return err
	}
	if it.tx != nil {
		children, it.lastOwn = it.tx.written.iterators(it.tx, children)
		it.tx.track(it)
	}
	switch len(children) {
	case 0:
		it.in = merge.Empty{}
	case 1:
		it.in = children[0]
	default:
		it.in = merge.New(children...)
	}
	return nil
}

// Reset makes the iterator equal to a new one from the same DB, Snapshot or Tx with the given
// options, at less cost: in a loop over empty ranges it does not allocate. o may be nil, and its
// bounds may be the current key. An iterator of a DB then sees the current state, including later
// writes; for a constant view, create the iterator from a Snapshot. Reset invalidates the slices
// that Key and Value have returned, and clears Err.
//
// Reset returns ErrClosed if the iterator, or its DB, Snapshot or Tx, is closed, and otherwise the
// errors of NewIter. After an error the iterator is empty, Err returns the error, and Reset can be
// called again. The iterator must still be closed.
func (it *Iter) Reset(o *IterOptions) error {
	if it.closed {
		return ErrClosed
	}
	var room boundsRoom
	lower, upper := o.limits(&room)
	if it.iterRoom != nil {
		it.setBounds(lower, upper) // before leave, which invalidates the current key: it may be a bound
		lower, upper = it.lower, it.upper
	}
	err := it.leave()
	if err == nil {
		err = it.enter(o, lower, upper)
	}
	it.err = err
	return it.Err()
}

// leave closes in and makes the iterator empty.
func (it *Iter) leave() error {
	it.valid, it.backward, it.nothing = false, true, true
	if it.iterRoom != nil && it.track != nil {
		it.track.close()
		it.track = nil
	}
	in := it.in
	it.in = merge.Empty{}
	return in.Close()
}

// enter makes an empty iterator read a range of the state that a new iterator would read.
func (it *Iter) enter(o *IterOptions, lower, upper []byte) error {
	var tx *Tx
	if it.iterRoom != nil {
		tx = it.tx
	}
	want := uint64(latest)
	switch {
	case tx != nil:
		if err := tx.usable(); err != nil {
			return err
		}
		want = tx.seq
	case it.snapshot != nil:
		if it.snapshot.closed.Load() {
			return ErrClosed
		}
		want = it.snapshot.seq
	}
	probe := it.db.prefixOf(lower, upper)
	s, seq, present := it.hold(want)
	if s == nil || it.snapshot != nil && it.snapshot.closed.Load() {
		return ErrClosed // the state may lack entries of a snapshot that has been closed meanwhile
	}
	it.seq = seq
	var near nearGaps
	if tx == nil {
		var some bool
		if lower, upper, some = it.db.skipGaps(s, seq, lower, upper, &near); !some {
			return nil
		}
	}
	src := s.sources(lower, upper, &probe)
	if src.none() && tx == nil {
		return nil
	}
	if it.iterRoom == nil {
		it.iterRoom = new(iterRoom)
		it.init()
		it.setBounds(lower, upper)
	}
	if it.near = near; near.below != nil {
		it.lower = near.below.To
	}
	if near.above != nil {
		it.upper = near.above.From
	}
	if err := it.read(s, &src, o, present); err != nil {
		return err
	}
	it.nothing = false
	if tx != nil {
		if err := tx.read(nil); err != nil {
			it.leave()
			return err
		}
	}
	return nil
}

// hold is iterState, and sets it.state to the state, with a reference on its version. If that is
// the state already, hold does not enter the epoch.
func (it *Iter) hold(want uint64) (s *readState, seq uint64, present bool) {
	d := it.db
	if s, seq, present = d.iterState(want); s == it.state {
		return s, seq, present
	}
	g := d.epoch.Enter()
	if s, seq, present = d.iterState(want); s != nil {
		s.version.Ref()
	}
	g.Exit()
	if s != nil {
		if it.state != nil {
			d.releaseVersion(it.state.version)
		}
		it.state = s
	}
	return s, seq, present
}

// iterState returns the current read state, or nil if the database is closed, and the sequence
// number at which an iterator reads it: want, or the newest one if want is latest. present reports
// whether it is the newest. The state has all entries up to that number, so a gap that is valid
// for readers at the number is valid for the iterator.
func (d *DB) iterState(want uint64) (s *readState, seq uint64, present bool) {
	for {
		s = d.state.Load()
		if s == nil || want != latest {
			return s, want, false // a snapshot is older than the state
		}
		seq = d.readSeq(want)
		if now := d.state.Load(); now != nil && now.mem == s.mem {
			return s, seq, true
		}
	}
}

// sources are the memtables and tables that an iterator reads. Tables known to hold no key of its
// range are left out.
type sources struct {
	mem    *memtable.Memtable // nil if it is empty
	imms   []*memtable.Memtable
	runs   [][]*manifest.TableMeta                   // of level 0; see manifest.Version.Runs
	levels [manifest.NumLevels][]*manifest.TableMeta // of levels 1 and below
}

// sources returns the sources of an iterator over a range.
func (s *readState) sources(lower, upper []byte, probe *prefixProbe) sources {
	src := sources{imms: s.imms}
	// Entries that are added to an empty memtable from now on have higher sequence numbers than
	// the iterator's.
	if !s.mem.Empty() {
		src.mem = s.mem
	}
	src.runs = runsOf(s.version, lower, upper, probe)
	for level := 1; level <= s.version.Deepest; level++ {
		if len(s.version.Levels[level]) > 0 {
			src.levels[level] = tablesOf(s.version, level, lower, upper, probe)
		}
	}
	probe.count()
	return src
}

// none reports whether there are no sources.
func (s *sources) none() bool {
	for _, metas := range s.levels {
		if len(metas) > 0 {
			return false
		}
	}
	return s.mem == nil && len(s.imms) == 0 && len(s.runs) == 0
}

// iterators returns an iterator for each memtable, each run of level 0, and each further
// level.
func (s *sources) iterators(o *sstable.IterOptions) (children []base.Iterator, err error) {
	children = make([]base.Iterator, 0, 1+len(s.imms)+len(s.runs)+manifest.NumLevels)
	if s.mem != nil {
		children = append(children, s.mem.NewIter())
	}
	for _, m := range s.imms {
		children = append(children, m.NewIter())
	}
	for _, run := range s.runs {
		if len(run) > 1 {
			children = append(children, levelIterator(run, o))
			continue
		}
		it, err := run[0].Handle.(*table).iter(o)
		if err != nil {
			return nil, errors.Join(err, closeAll(children))
		}
		children = append(children, it)
	}
	for _, metas := range s.levels {
		if len(metas) > 0 {
			children = append(children, levelIterator(metas, o))
		}
	}
	return children, nil
}
