package sift

import (
	"bytes"
	"slices"
	"sort"
)

// readSet is the set of the keys that a transaction has read, and of the ranges that its iterators
// have passed over.
type readSet struct {
	off  bool // record nothing: the transaction cannot write
	lost bool // the set grew too large and was dropped: the transaction can no longer write

	keys   []readKey
	buf    []byte            // the bytes of the keys
	byHash map[uint64]uint32 // from hashes to indices into keys; nil up to fewKeys
	ranges []keyRange        // of completed moves; sorted and disjoint after finish
	tracks []*rangeTrack     // of open iterators
	merge  int               // the number of ranges at which they are merged next
	bytes  int               // the memory of the set, approximately
}

// readKey is a key that was read, present or absent.
type readKey struct {
	hash     uint64
	from, to int // in buf
}

// keyRange is a range of keys.
type keyRange struct {
	lower, upper []byte // inclusive and exclusive
	open         bool   // there is no upper bound
}

const (
	fewKeys       = 8  // maximum number of keys for a linear search instead of byHash
	readKeyBytes  = 48 // memory of a key besides its bytes, entry in byHash included
	keyRangeBytes = 64 // memory of a range besides its bounds
	firstMerge    = 64 // minimum number of ranges for merging them
)

func (s *readSet) key(k *readKey) []byte { return s.buf[k.from:k.to:k.to] }

// empty reports whether nothing is recorded. REQUIRES: finish.
func (s *readSet) empty() bool { return len(s.keys) == 0 && len(s.ranges) == 0 }

// addKey adds a key. REQUIRES: the set is not off.
func (s *readSet) addKey(hash uint64, key []byte) {
	if len(s.keys) <= fewKeys {
		for i := range s.keys {
			if k := &s.keys[i]; k.hash == hash && bytes.Equal(s.key(k), key) {
				return
			}
		}
	} else if i, ok := s.byHash[hash]; ok && bytes.Equal(s.key(&s.keys[i]), key) {
		return
	}
	from := len(s.buf)
	s.buf = append(s.buf, key...)
	s.keys = append(s.keys, readKey{hash, from, len(s.buf)})
	s.bytes += readKeyBytes + len(key)
	if len(s.keys) <= fewKeys {
		return
	}
	if s.byHash == nil {
		s.byHash = make(map[uint64]uint32)
		for i, k := range s.keys {
			s.byHash[k.hash] = uint32(i)
		}
	}
	// Of two keys with the same hash, byHash has only the first; keys has both.
	if _, ok := s.byHash[hash]; !ok {
		s.byHash[hash] = uint32(len(s.keys) - 1)
	}
}

// addRange adds a range, and retains its slices.
func (s *readSet) addRange(r keyRange) {
	if s.off {
		return
	}
	s.ranges = append(s.ranges, r)
	s.bytes += r.size()
	if len(s.ranges) >= max(s.merge, firstMerge) {
		s.mergeRanges()
		s.merge = 2 * len(s.ranges)
	}
}

func (r *keyRange) size() int { return keyRangeBytes + cap(r.lower) + cap(r.upper) }

// mergeRanges sorts the ranges and joins those that overlap or touch.
func (s *readSet) mergeRanges() {
	slices.SortFunc(s.ranges, func(a, b keyRange) int { return bytes.Compare(a.lower, b.lower) })
	for i := range s.ranges {
		s.bytes -= s.ranges[i].size()
	}
	kept := s.ranges[:0]
	for _, r := range s.ranges {
		if n := len(kept); n > 0 && (kept[n-1].open || bytes.Compare(r.lower, kept[n-1].upper) <= 0) {
			last := &kept[n-1]
			if r.open || !last.open && bytes.Compare(r.upper, last.upper) > 0 {
				last.upper, last.open = r.upper, r.open
			}
			continue
		}
		kept = append(kept, r)
	}
	clear(s.ranges[len(kept):])
	s.ranges = kept
	for i := range s.ranges {
		s.bytes += s.ranges[i].size()
	}
}

// finish completes the set, with the ranges of open iterators, for checks.
func (s *readSet) finish() {
	for _, t := range s.tracks {
		t.leave()
	}
	s.mergeRanges()
}

// touches reports whether a write to key conflicts with the set. It compares only the hashes of
// keys, so it may rarely return true without a conflict. REQUIRES: finish.
func (s *readSet) touches(hash uint64, key []byte) bool {
	if len(s.keys) <= fewKeys {
		for i := range s.keys {
			if s.keys[i].hash == hash {
				return true
			}
		}
	} else if _, ok := s.byHash[hash]; ok {
		return true
	}
	if len(s.ranges) == 0 {
		return false
	}
	// i is the last range that does not begin after the key.
	i := sort.Search(len(s.ranges), func(i int) bool { return bytes.Compare(s.ranges[i].lower, key) > 0 }) - 1
	return i >= 0 && (s.ranges[i].open || bytes.Compare(key, s.ranges[i].upper) < 0)
}

// forget drops the set, which records nothing from then on.
func (s *readSet) forget() {
	*s = readSet{off: true, lost: true, tracks: s.tracks}
}

// close makes the open iterators fail.
func (s *readSet) close() {
	for _, t := range s.tracks {
		t.it.valid, t.it.err = false, ErrClosed
	}
}

// rangeTrack records the range that an iterator of a transaction has passed over since its
// last seek.
type rangeTrack struct {
	tx      *Tx
	it      *Iter
	on      bool     // there was a seek
	fromEnd bool     // the seek was to the end, and now.lower is not known yet
	now     keyRange // the range
}

// track makes the transaction record the ranges that an iterator passes over.
func (t *Tx) track(it *Iter) {
	it.track = &rangeTrack{tx: t, it: it}
	t.reads.tracks = append(t.reads.tracks, it.track)
}

// leave adds the range to the read set.
func (t *rangeTrack) leave() {
	if t.on {
		t.tx.reads.addRange(t.now)
	}
	t.on, t.fromEnd, t.now = false, false, keyRange{}
}

// close adds the range to the read set and stops recording.
func (t *rangeTrack) close() {
	if t.tx.closed {
		return
	}
	t.leave()
	s := &t.tx.reads
	s.tracks = slices.DeleteFunc(s.tracks, func(o *rangeTrack) bool { return o == t })
	t.tx.charge()
}

// ready prepares for a seek, and returns the error with which the iterator fails, or nil.
func (t *rangeTrack) ready() error {
	if t.tx.closed {
		return ErrClosed
	}
	t.leave()
	t.tx.charge()
	return t.tx.err
}

// from begins a range at key, to which the iterator seeks, or at the end of all keys if end is
// set.
func (t *rangeTrack) from(key []byte, end bool) {
	if t.tx.reads.off {
		return
	}
	t.on, t.fromEnd = true, end
	t.now = keyRange{lower: bytes.Clone(key), upper: bytes.Clone(key), open: end}
}

// forward extends the range after a forward move, which has ended at a key if ok is set, else at
// the end of the iterator's range.
func (t *rangeTrack) forward(ok bool) {
	r := &t.now
	switch {
	case !t.on:
	case ok && !r.open && bytes.Compare(r.upper, t.it.key) <= 0:
		r.upper = append(append(r.upper[:0], t.it.key...), 0)
	case !ok && t.it.upper == nil:
		r.open = true
	case !ok && bytes.Compare(r.upper, t.it.upper) < 0:
		r.upper = append(r.upper[:0], t.it.upper...)
	}
}

// backward is forward for backward moves.
func (t *rangeTrack) backward(ok bool) {
	if !t.on {
		return
	}
	key := t.it.lower
	if ok {
		key = t.it.key
	}
	if r := &t.now; t.fromEnd || bytes.Compare(key, r.lower) < 0 {
		r.lower = append(r.lower[:0], key...)
	}
	t.fromEnd = false
}
