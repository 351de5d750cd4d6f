package sift

import (
	"bytes"
	"slices"
	"sort"
)

// readSet is what a transaction has read: keys, and the ranges that its iterators
// have passed over.
type readSet struct {
	off  bool // nothing is remembered: the transaction cannot write
	lost bool // it has grown too large and was forgotten, which lets nothing be written

	keys   []readKey
	buf    []byte            // the keys, one after another
	byHash map[uint64]uint32 // from hashes to indices into keys, once there are several
	ranges []keyRange        // of iterators that have gone elsewhere; sorted and disjoint once settled
	tracks []*rangeTrack     // of iterators that are open
	merge  int               // how many ranges there are when they are merged
	bytes  int               // about the memory that all take
}

// readKey is a key that was read, there or not.
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
	fewKeys       = 8  // are looked through one by one
	readKeyBytes  = 48 // with its place in byHash
	keyRangeBytes = 64
	firstMerge    = 64
)

func (s *readSet) key(k *readKey) []byte { return s.buf[k.from:k.to:k.to] }

// empty reports whether nothing was read.
func (s *readSet) empty() bool { return len(s.keys) == 0 && len(s.ranges) == 0 }

// addKey adds a key.
func (s *readSet) addKey(hash uint64, key []byte) {
	if s.off {
		return
	}
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
	// Of two keys with one hash the first stays; both are in keys.
	if _, ok := s.byHash[hash]; !ok {
		s.byHash[hash] = uint32(len(s.keys) - 1)
	}
}

// addRange adds a range, which it keeps.
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

// settle makes the set ready for touches: it takes in the ranges of the iterators that
// are open.
func (s *readSet) settle() {
	for _, t := range s.tracks {
		t.leave()
	}
	s.mergeRanges()
}

// touches reports whether a write to a key is one to what was read. Of a key with the
// hash of one that was read it is not looked at which one it is. REQUIRES: settle.
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

// forget drops all, and what is read from now on.
func (s *readSet) forget() {
	*s = readSet{off: true, lost: true, tracks: s.tracks}
}

// close ends the iterators.
func (s *readSet) close() {
	for _, t := range s.tracks {
		t.it.valid, t.it.err = false, ErrClosed
	}
}

// rangeTrack follows an iterator of a transaction: the range that it has passed over
// since it was last sent somewhere.
type rangeTrack struct {
	tx      *Tx
	it      *Iter
	on      bool // it was sent somewhere
	fromEnd bool // now has no lower bound yet
	now     keyRange
}

// track makes the transaction follow an iterator.
func (t *Tx) track(it *Iter) {
	it.track = &rangeTrack{tx: t, it: it}
	t.reads.tracks = append(t.reads.tracks, it.track)
}

// leave adds the range to what was read.
func (t *rangeTrack) leave() {
	if t.on {
		t.tx.reads.addRange(t.now)
	}
	t.on, t.fromEnd, t.now = false, false, keyRange{}
}

// close stops following.
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

// from notes that the iterator is sent to key, from where it goes either way. end says
// that it is sent to the end instead.
func (t *rangeTrack) from(key []byte, end bool) {
	if t.tx.reads.off {
		return
	}
	t.on, t.fromEnd = true, end
	t.now = keyRange{lower: bytes.Clone(key), upper: bytes.Clone(key), open: end}
}

// forward notes where the iterator has come to, moving forward: to a key or not.
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

// backward is forward for moves the other way.
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
