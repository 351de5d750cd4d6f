package sift

// KeyRange is the range of keys [From, To). nil means no bound. If To is not above From, the
// range is empty.
type KeyRange struct{ From, To []byte }

// HasRange is DB.HasRange on the snapshot.
func (s *Snapshot) HasRange(from, to []byte) (bool, error) {
	if s.closed.Load() {
		return false, ErrClosed
	}
	return s.hasAny(&IterOptions{LowerBound: from, UpperBound: to})
}

// HasPrefix is DB.HasPrefix on the snapshot.
func (s *Snapshot) HasPrefix(prefix []byte) (bool, error) {
	if s.closed.Load() {
		return false, ErrClosed
	}
	return s.hasAny(&IterOptions{Prefix: prefix})
}

func (s *Snapshot) hasAny(o *IterOptions) (bool, error) {
	has, err := s.db.hasAny(o, s.seq)
	err = s.read(err)
	return has && err == nil, err
}

// HasRanges is DB.HasRanges on the snapshot.
func (s *Snapshot) HasRanges(ranges []KeyRange) (has []bool, err error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	has, err = s.db.hasRanges(ranges, s.seq)
	if err = s.read(err); err != nil {
		return nil, err
	}
	return has, nil
}

// hasAny reports whether there is a key in a range.
func (d *DB) hasAny(o *IterOptions, seq uint64) (bool, error) {
	it, err := d.openIter(o, seq, nil)
	if it == nil || err != nil {
		return false, err
	}
	has := it.First()
	return has, it.Close()
}

// hasRanges checks many ranges at one sequence number, with one iterator.
func (d *DB) hasRanges(ranges []KeyRange, seq uint64) (has []bool, err error) {
	it := d.noIter()
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			has, err = nil, cerr
		}
	}()
	s, seq, present := it.hold(seq)
	if s == nil {
		return nil, ErrClosed
	}
	it.seq = seq
	has = make([]bool, len(ranges))
	var near nearGaps // unused: these lookups do not extend gaps
	for i := range ranges {
		r := &ranges[i]
		probe := d.prefixOf(r.From, r.To)
		lower, upper, some := d.skipGaps(s, seq, r.From, r.To, &near)
		if !some {
			continue
		}
		src := s.sources(lower, upper, &probe)
		if src.none() {
			continue
		}
		if has[i], err = it.finds(s, &src, lower, upper, present); err != nil {
			return nil, d.closedErr(err)
		}
	}
	return has, nil
}

// finds reports whether a range has a key in the state that the iterator holds.
func (it *Iter) finds(s *readState, src *sources, lower, upper []byte, present bool) (bool, error) {
	if err := it.leave(); err != nil {
		return false, err
	}
	if it.iterRoom == nil {
		it.iterRoom = new(iterRoom)
		it.init()
	}
	it.setBounds(lower, upper)
	if err := it.read(s, src, nil, present); err != nil {
		return false, err
	}
	it.nothing = false
	return it.First(), it.Err()
}
