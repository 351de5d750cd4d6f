package sift

// KeyRange is the keys from From, included, to To, excluded. nil means no bound.
type KeyRange struct{ From, To []byte }

// HasRange reports whether there is a key in from..to, from included and to excluded; nil
// means no bound. No block is read where range filters exclude the range; see
// Options.RangeFilter.
func (d *DB) HasRange(from, to []byte) (bool, error) {
	return d.hasAny(&IterOptions{LowerBound: from, UpperBound: to}, latest)
}

// HasPrefix reports whether there is a key that begins with prefix. No block is read
// where filters exclude the prefix; see Options.Prefix.
func (d *DB) HasPrefix(prefix []byte) (bool, error) {
	return d.hasAny(&IterOptions{Prefix: prefix}, latest)
}

// HasRanges is HasRange for many ranges, as of one moment. has[i] is the answer for
// ranges[i]. On error it returns no answers.
func (d *DB) HasRanges(ranges []KeyRange) (has []bool, err error) {
	s := d.Snapshot()
	defer s.Close()
	return s.HasRanges(ranges)
}

// HasRange is DB.HasRange on the snapshot.
func (s *Snapshot) HasRange(from, to []byte) (bool, error) {
	if s.closed.Load() {
		return false, ErrClosed
	}
	return s.db.hasAny(&IterOptions{LowerBound: from, UpperBound: to}, s.seq)
}

// HasPrefix is DB.HasPrefix on the snapshot.
func (s *Snapshot) HasPrefix(prefix []byte) (bool, error) {
	if s.closed.Load() {
		return false, ErrClosed
	}
	return s.db.hasAny(&IterOptions{Prefix: prefix}, s.seq)
}

// HasRanges is DB.HasRanges on the snapshot.
func (s *Snapshot) HasRanges(ranges []KeyRange) (has []bool, err error) {
	has = make([]bool, len(ranges))
	for i, r := range ranges {
		if has[i], err = s.HasRange(r.From, r.To); err != nil {
			return nil, err
		}
	}
	return has, nil
}

// hasAny reports whether an iterator has a first key.
func (d *DB) hasAny(o *IterOptions, seq uint64) (bool, error) {
	it, err := d.newIter(o, seq, nil)
	if err != nil {
		return false, err
	}
	has := it.First()
	return has, it.Close()
}
