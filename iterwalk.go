package sift

import (
	"bytes"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/gap"
)

// After a few consecutive tombstones, an iterator continues as a walk: it jumps over the gaps that
// the database has recorded, and records the ranges that it has walked over. A gap that is valid
// for a reader stays valid as long as it reads, so a walk may use gaps that have been cut since.
//
// A gap that a walk adds must be valid for all later readers. So the walk first watches the range
// and then walks over it (a second time, if the range is new): later writes cut the watch, and
// earlier ones are in the memtable that the iterator reads. Therefore only an iterator over the
// current state, whose memtable is still the mutable one, adds gaps: other iterators may not see
// entries that were written after their sequence number.
//
// If the range of an iterator begins or ends in a gap, the iterator excludes the gap from the
// range, and does not open the tables that lie in it. If it then finds its first key after a few
// tombstones, it extends the gap without a watch, unless a gap was cut meanwhile.
const (
	growAfter = 3  // minimum number of tombstones right after a gap for which it is extended
	walkAfter = 4  // number of consecutive tombstones after which an iterator walks
	newGap    = 64 // minimum number of tombstones for which a gap is recorded
	growGap   = 8  // minimum number of tombstones if the range is next to a gap
)

// gapBytes is the maximum memory of a database's gaps in bytes.
const gapBytes = 128 << 10

// walk is a move over tombstones, in one direction. Its start is in the iterator.
type walk struct {
	it       *Iter
	gaps     []*gap.Gap
	jump     *gap.Gap   // the gap that the walk is in, or nil
	near     *gap.Gap   // the next gap in its direction, or nil
	watch    *gap.Watch // on the range of the walk, or nil
	tried    bool       // the walk has tried to begin a watch
	passed   int        // number of tombstones since the start or the last jump
	known    int        // number of tombstones before that, including those in the gaps
	backward bool
	edge     bool // the range of the iterator ends in the gap of the last jump
}

// nearGaps are the gaps by which a range has been shortened.
type nearGaps struct {
	below *gap.Gap // the range begins at its end; nil: none
	above *gap.Gap // the range ends at its start; nil: none
	cuts  uint64   // Set.Cuts before anything was read
}

// skipGaps shortens a range by the gaps at its two ends, for a reader of a state, so that the
// reader skips tables with only deleted keys there. some is false if nothing is left.
func (d *DB) skipGaps(s *readState, seq uint64, lower, upper []byte, near *nearGaps) (lo, hi []byte, some bool) {
	gaps := d.gaps.Gaps()
	if len(gaps) == 0 {
		return lower, upper, true
	}
	near.cuts = d.gaps.Cuts()
	view := gap.View{Seq: seq, Drops: s.drops}
	if g := gap.Next(gaps, lower, view); g != nil && g.Holds(lower) {
		if g.ReachesTo(upper) {
			d.ahead.used()
			return nil, nil, false
		}
		lower, near.below = g.To, g
		d.ahead.used()
	}
	if g := gap.Prev(gaps, upper, view); g != nil && g.ReachesTo(upper) && bytes.Compare(g.From, lower) > 0 {
		upper, near.above = g.From, g
	}
	return lower, upper, true
}

// growNear extends the gap before the range up to first, the first key of the range, unless there
// may be a newer key between them that the iterator does not see.
func (it *Iter) growNear(first []byte, tombstones int) {
	g := it.near.below
	if g == nil || it.mem == nil || !bytes.Equal(base.UserKey(it.seek), g.To) {
		return
	}
	if s := it.db.state.Load(); s == nil || s.mem != it.mem || !it.readsMem && !it.mem.Empty() {
		return
	}
	it.db.gaps.Grow(g, first, it.view(), tombstones, it.near.cuts)
}

// usesGaps reports whether the iterator may use gaps. It may not if it sees writes of its
// transaction, of which gaps know nothing.
func (it *Iter) usesGaps() bool { return it.lastOwn == it.seq && it.db.gaps != nil }

// view returns the iterator's view for gaps.
func (it *Iter) view() gap.View { return gap.View{Seq: it.seq, Drops: it.drops} }

// inGap returns the current gaps if a key lies in one that the iterator may use, else nil. A walk
// from the key must start with the gaps returned: if the key does not lie in a gap of a later list,
// the walk would start at the position of it.in, which is arbitrary.
func (it *Iter) inGap(key []byte) []*gap.Gap {
	if !it.usesGaps() {
		return nil
	}
	gaps := it.db.gaps.Gaps()
	if len(gaps) == 0 {
		return nil
	}
	if g := gap.Next(gaps, key, it.view()); g == nil || !g.Holds(key) {
		return nil
	}
	return gaps
}

// gapBefore is inGap for the keys right before a key. A nil key is the end of all keys.
func (it *Iter) gapBefore(key []byte) []*gap.Gap {
	if !it.usesGaps() {
		return nil
	}
	gaps := it.db.gaps.Gaps()
	if len(gaps) == 0 {
		return nil
	}
	if g := gap.Prev(gaps, key, it.view()); g == nil || !g.ReachesTo(key) {
		return nil
	}
	return gaps
}

// startWalk returns a walk from the key start. A nil start is the end of all keys.
func (it *Iter) startWalk(gaps []*gap.Gap, start []byte, backward bool) walk {
	if it.start = append(it.start[:0], start...); it.start == nil && start != nil {
		it.start = []byte{}
	}
	it.unbounded = start == nil
	w := walk{it: it, gaps: gaps, backward: backward}
	w.look(it.startKey())
	w.known = w.beside(start)
	return w
}

// beside returns the weight of the gap by which the range has been shortened, if the walk starts
// next to it: a gap that the walk records becomes one with it.
func (w *walk) beside(start []byte) int {
	switch near := &w.it.near; {
	case w.backward && near.above != nil && bytes.Equal(start, near.above.From):
		return near.above.Weight
	case !w.backward && near.below != nil && bytes.Equal(start, near.below.To):
		return near.below.Weight
	}
	return 0
}

// startKey returns the start of the walk, or nil for the end of all keys.
func (it *Iter) startKey() []byte {
	if it.unbounded {
		return nil
	}
	return it.start
}

// look sets near to the first gap that holds the key or lies after it, or, for a backward walk,
// that reaches the key or lies before it. It sets jump to near if the walk is in that gap at the
// key.
func (w *walk) look(key []byte) {
	w.jump, w.near = nil, nil
	if !w.backward {
		if w.near = gap.Next(w.gaps, key, w.it.view()); w.near != nil && w.near.Holds(key) {
			w.jump = w.near
		}
		return
	}
	if w.near = gap.Prev(w.gaps, key, w.it.view()); w.near != nil && w.near.ReachesTo(key) {
		w.jump = w.near
	}
}

// enters reports whether the key that the walk has reached lies in a gap, and then sets jump.
func (w *walk) enters(key []byte) bool {
	if w.near == nil || !w.reached(key) {
		return false
	}
	if w.watch != nil {
		w.gaps = w.it.db.gaps.Gaps() // a gap that becomes part of a recorded one must be current
	}
	if g := gap.Next(w.gaps, key, w.it.view()); g != nil && g.Holds(key) {
		w.jump = g
		return true
	}
	if w.backward {
		w.near = gap.Prev(w.gaps, key, w.it.view())
	} else {
		w.near = gap.Next(w.gaps, key, w.it.view())
	}
	return false
}

// reached reports whether a key lies in the near gap or beyond it.
func (w *walk) reached(key []byte) bool {
	if w.backward {
		return w.near.ReachesTo(key) && !bytes.Equal(w.near.To, key)
	}
	return bytes.Compare(w.near.From, key) <= 0
}

// leap jumps over the gap that the walk is in. It returns false if the iterator's range ends in the
// gap.
func (w *walk) leap() bool {
	it, g := w.it, w.jump
	it.db.ahead.used()
	w.known += g.Weight + w.passed
	w.passed, w.jump = 0, nil
	w.edge = true
	if !w.backward {
		if g.To == nil || it.upper != nil && bytes.Compare(g.To, it.upper) >= 0 {
			return false
		}
		w.edge = false
		w.near = gap.Next(w.gaps, g.To, it.view())
		it.seek = base.AppendInternalKey(it.seek[:0], g.To, base.MaxSequence, base.KindSeek)
		it.in.SeekGE(it.seek)
		return true
	}
	if len(g.From) == 0 || it.lower != nil && bytes.Compare(g.From, it.lower) <= 0 {
		return false
	}
	w.edge = false
	w.near = gap.Prev(w.gaps, g.From, it.view())
	it.seek = base.AppendInternalKey(it.seek[:0], g.From, base.MaxSequence, base.KindSeek)
	it.in.SeekLT(it.seek)
	return true
}

// pass counts a tombstone. Once there are enough for a gap, it restarts the walk with a watch, and
// returns true.
func (w *walk) pass() (again bool) {
	w.passed++
	if w.tried || w.passed < growGap || w.known == 0 && w.passed < newGap {
		return false
	}
	w.tried = true
	if w.known == 0 && !w.it.db.gaps.Worth(w.passed) || !w.begin() {
		return false
	}
	it := w.it
	w.passed, w.known = 0, 0
	w.gaps = it.db.gaps.Gaps()                // from after the watch has begun
	if w.look(it.startKey()); w.jump == nil { // else that gap has become part of jump
		w.known = w.beside(it.startKey())
	}
	switch {
	case w.jump != nil:
	case it.unbounded && w.backward:
		it.in.Last()
	default:
		it.seek = base.AppendInternalKey(it.seek[:0], it.start, base.MaxSequence, base.KindSeek)
		if w.backward {
			it.in.SeekLT(it.seek)
		} else {
			it.in.SeekGE(it.seek)
		}
	}
	return true
}

// begin starts to watch the range that the walk is about to cover. It returns false if the iterator
// may not see all writes since its sequence number.
func (w *walk) begin() bool {
	it := w.it
	if it.mem == nil {
		return false
	}
	if w.backward {
		w.watch = it.db.gaps.Watch(it.lower, it.startKey(), it.view(), true)
	} else {
		w.watch = it.db.gaps.Watch(it.start, it.upper, it.view(), false)
	}
	// Check after the watch has begun: a writer that found nothing to cut had already inserted
	// its entry into this memtable.
	if s := it.db.state.Load(); s != nil && s.mem == it.mem && (it.readsMem || it.mem.Empty()) {
		return true
	}
	w.watch.Abandon()
	w.watch = nil
	return false
}

// seen cuts a key that was set after the iterator's sequence number from the watched range.
func (w *walk) seen(key []byte) {
	if w.watch != nil {
		w.watch.Seen(key)
	}
}

// end ends the walk at a live key, or at the end of the iterator's range if at is nil, and records
// a gap if there is a watch.
func (w *walk) end(at []byte) {
	if w.watch == nil {
		return
	}
	if w.it.err != nil {
		w.watch.Abandon()
	} else {
		w.watch.Done(at, w.known+w.passed)
	}
	w.watch = nil
}

// walkForward is findNext as a walk.
func (it *Iter) walkForward(w walk) bool {
	it.backward, it.valid = false, false
	var skip []byte
	for {
		if w.jump != nil {
			if skip = nil; !w.leap() {
				break
			}
		}
		if !it.in.Valid() {
			break
		}
		ikey := it.in.Key()
		userKey, t := base.UserKey(ikey), base.KeyTrailer(ikey)
		if it.upper != nil && bytes.Compare(userKey, it.upper) >= 0 {
			break
		}
		if t>>8 > it.seq {
			if base.Kind(t) == base.KindSet {
				w.seen(userKey)
			}
			it.in.Next()
			continue
		}
		if skip != nil && bytes.Equal(userKey, skip) {
			it.in.Next()
			continue
		}
		if base.Kind(t) == base.KindSet {
			it.key, it.value, it.valid = userKey, it.in.Value(), true
			w.end(userKey)
			return true
		}
		it.keyBuf = append(it.keyBuf[:0], userKey...)
		skip = it.keyBuf
		if w.enters(userKey) {
			continue
		}
		if w.pass() {
			skip = nil
			continue
		}
		if w.passed == it.most {
			w.end(userKey)
			return false
		}
		it.in.Next()
	}
	if !w.edge {
		it.err = it.in.Err()
	}
	w.end(nil)
	return false
}

// walkBackward is findPrev as a walk.
func (it *Iter) walkBackward(w walk) bool {
	it.backward, it.valid = true, false
	have, deleted := false, false
	for {
		if w.jump != nil && !w.leap() {
			break
		}
		if !it.in.Valid() {
			break
		}
		ikey := it.in.Key()
		userKey, t := base.UserKey(ikey), base.KeyTrailer(ikey)
		if have && !bytes.Equal(userKey, it.keyBuf) {
			if !deleted {
				break
			}
			if have = false; w.pass() {
				continue
			}
		}
		if it.lower != nil && bytes.Compare(userKey, it.lower) < 0 {
			break
		}
		if !have && w.enters(userKey) {
			continue
		}
		if t>>8 > it.seq {
			if base.Kind(t) == base.KindSet {
				w.seen(userKey)
			}
			it.in.Prev()
			continue
		}
		if !have {
			it.keyBuf = append(it.keyBuf[:0], userKey...)
			have = true
		}
		if deleted = base.Kind(t) == base.KindDelete; !deleted {
			it.valueBuf = append(it.valueBuf[:0], it.in.Value()...)
		}
		it.in.Prev()
	}
	if !w.edge {
		it.err = it.in.Err()
	}
	if it.err != nil || !have || deleted {
		w.end(nil)
		return false
	}
	it.key, it.value, it.valid = it.keyBuf, it.valueBuf, true
	w.end(it.keyBuf)
	return true
}
