package sift

import (
	"bytes"
	"slices"
	"sort"
)

// readSet holds the keys that a transaction has read and the ranges that its iterators have
// passed over.
type readSet struct {
	off  bool // nothing is recorded: the transaction cannot write
	lost bool // the set grew too large and was dropped, so the transaction can no longer write

	keys   []readKey
	buf    []byte            // the bytes of the keys
	byHash map[uint64]uint32 // from hashes to indices into keys; nil up to fewKeys
	ranges []keyRange        // complete ones; sorted and disjoint after finish
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
	lower, upper []byte // upper is the first key outside
	open         bool   // there is no upper
}

const (
	fewKeys       = 8  // up to this many, a linear search instead of byHash
	readKeyBytes  = 48 // including its entry in byHash
	keyRangeBytes = 64
	firstMerge    = 64
)

func (s *readSet) key(k *readKey) []byte { return s.buf[k.from:k.to:k.to] }

// empty reports whether nothing was read.
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
	// If two keys have the same hash, byHash has the first; keys has both.
	if _, ok := s.byHash[hash]; !ok {
		s.byHash[hash] = uint32(len(s.keys) - 1)
	}
}

// addRange adds a range and retains its slices.
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

// mergeRanges sorts the ranges and joins those that touch.
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

// finish prepares the set for touches: it adds the ranges of the open iterators.
func (s *readSet) finish() {
	for _, t := range s.tracks {
		t.leave()
	}
	s.mergeRanges()
}

// touches reports whether a write to key conflicts with the set. A key with the hash of one
// that was read counts as that key. REQUIRES: finish.
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
	// The last range that does not begin after the key.
	i := sort.Search(len(s.ranges), func(i int) bool { return bytes.Compare(s.ranges[i].lower, key) > 0 }) - 1
	return i >= 0 && (s.ranges[i].open || bytes.Compare(key, s.ranges[i].upper) < 0)
}

// forget drops the set and records nothing from now on.
func (s *readSet) forget() {
	*s = readSet{off: true, lost: true, tracks: s.tracks}
}

// close invalidates the iterators.
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
	on      bool // there was a seek
	fromEnd bool // the seek was to the end: now.lower is not known yet
	now     keyRange
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

// ready returns why the iterator cannot move, or nil.
func (t *rangeTrack) ready() error {
	if t.tx.closed {
		return ErrClosed
	}
	t.leave()
	t.tx.charge()
	return t.tx.err
}

// from begins a range at key, to which the iterator seeks, or with end at the end of all
// keys.
func (t *rangeTrack) from(key []byte, end bool) {
	if t.tx.reads.off {
		return
	}
	t.on, t.fromEnd = true, end
	t.now = keyRange{lower: bytes.Clone(key), upper: bytes.Clone(key), open: end}
}

// forward extends the range after a forward move; ok is false at the end.
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

// backward extends the range after a backward move.
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
