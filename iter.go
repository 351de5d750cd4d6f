package sift

import (
	"bytes"
	"iter"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/memtable"
	"github.com/siftdb/sift/sstable"
)

// Iter iterates in bytewise order over the keys that the database had when the Iter was created or
// last Reset. Each move reports whether the iterator is at a key afterwards. If not, either it is
// before the first or after the last key of the range and Err returns nil, or the move has failed
// and Err returns an error. A new Iter is before the first key, so a loop over Next needs no First.
// From before the first key, Next moves to the first; from after the last, Prev moves to the last.
// After a failure both return false until the next First, Last, SeekGE, SeekLT or Reset. An Iter
// with bounds or a prefix ignores all other keys: SeekGE of a key before the range moves to the
// first key of the range, SeekLT of one after it to the last. The key of a seek may be the slice
// that Key has returned.
//
// Key and Value return slices that must not be modified, and that are valid until the next move,
// Reset or Close. An Iter is not safe for concurrent use; a database can have any number of them.
// Moves after Close return false, and Err then returns ErrClosed. Close it: until then, all tables
// that the database had when the Iter was created or last Reset stay on disk, not only those that
// it reads, and their memtables stay in memory.
type Iter struct {
	db        *DB
	state     *readState    // with a reference on its version; nil: the iterator has had nothing to read
	snapshot  *Snapshot     // the snapshot that created the iterator, or nil
	in        base.Iterator // over the entries of all sources, in the order of internal keys
	seq       uint64        // entries with higher sequence numbers are invisible, apart from the transaction's writes
	*iterRoom               // nil: the iterator has had nothing to read

	nothing bool // the range is empty, and so is in
	closed  bool
	valid   bool
	// backward is set if the last move was backward, or there was none. in is then before the
	// current entry, of which keyBuf and valueBuf have copies.
	backward bool
	key      []byte // the current key
	value    []byte // the current value
	err      error
}

// iterRoom is the part of an iterator that is needed only if its range is not empty.
type iterRoom struct {
	lower     []byte             // the first key of the range; nil: no bound
	upper     []byte             // the first key after the range; nil: no bound
	near      nearGaps           // the gaps that end where the range begins, and begin where it ends
	tx        *Tx                // the transaction that created the iterator, or nil
	lastOwn   uint64             // sequence number of the transaction's last write that the iterator sees; seq without any
	track     *rangeTrack        // records the range for the transaction; nil without one
	mem       *memtable.Memtable // the mutable memtable when the iterator was opened; nil: it reads an older state
	readsMem  bool               // mem is a source of in
	drops     uint64             // readState.drops
	most      int                // a forward walk ends after this many tombstones; 0: no limit
	unbounded bool               // the current walk, or backward move, starts from the end of all keys
	start     []byte             // where the current walk starts otherwise
	keyBuf    []byte             // copy of key if in has moved on; never nil
	valueBuf  []byte             // copy of value after a backward move
	seek      []byte             // the target of the last seek of in
	bufs      [96]byte           // memory for keyBuf and seek while keys are short
	bounds    [64]byte           // memory for the bounds while they are short
	options   sstable.IterOptions
}

// init gives keyBuf and seek their memory.
func (r *iterRoom) init() {
	r.keyBuf, r.seek = r.bufs[:0:len(r.bufs)/2], r.bufs[len(r.bufs)/2:][:0]
}

// setBounds sets lower and upper to copies of the bounds.
func (r *iterRoom) setBounds(lower, upper []byte) {
	free := r.bounds[:]
	r.lower, r.upper = copyBound(&free, lower), copyBound(&free, upper)
}

// roomyIter is an Iter with its iterRoom, in one allocation.
type roomyIter struct {
	Iter
	room iterRoom
}

// copyBound returns a copy of a bound, in memory from free if free is large enough.
func copyBound(free *[]byte, bound []byte) []byte {
	if bound == nil || len(bound) > len(*free) {
		return bytes.Clone(bound)
	}
	n := copy(*free, bound)
	b := (*free)[:n:n]
	*free = (*free)[n:]
	return b
}

// boundsRoom is memory for the end of a prefix, if that is short.
type boundsRoom [64]byte

// limits returns the bounds of o, which may be nil, with its prefix. They alias o and room.
func (o *IterOptions) limits(room *boundsRoom) (lower, upper []byte) {
	if o == nil {
		return nil, nil
	}
	lower, upper = o.LowerBound, o.UpperBound
	if o.Prefix != nil {
		if bytes.Compare(lower, o.Prefix) < 0 {
			lower = o.Prefix
		}
		end := base.AppendPrefixEnd(room[:0], o.Prefix)
		if end != nil && (upper == nil || bytes.Compare(end, upper) < 0) {
			upper = end
		}
	}
	return lower, upper
}

// First moves to the first key.
func (it *Iter) First() bool {
	if !it.ready() {
		return false
	}
	if it.lower != nil {
		return it.SeekGE(it.lower)
	}
	if it.track != nil {
		it.track.from(nil, false)
	}
	if gaps := it.inGap(nil); gaps != nil {
		return it.forward(it.walkForward(it.startWalk(gaps, []byte{}, false)))
	}
	it.seek = base.AppendInternalKey(it.seek[:0], nil, it.lastOwn, base.KindAny)
	it.in.First()
	return it.forward(it.findNext(nil))
}

// Last moves to the last key.
func (it *Iter) Last() bool {
	if !it.ready() {
		return false
	}
	if it.upper != nil {
		return it.SeekLT(it.upper)
	}
	if it.track != nil {
		it.track.from(nil, true)
	}
	if gaps := it.gapBefore(nil); gaps != nil {
		return it.back(it.walkBackward(it.startWalk(gaps, nil, true)))
	}
	it.unbounded = true
	it.in.Last()
	return it.back(it.findPrev(true))
}

// SeekGE moves to the first key that is not less than key.
func (it *Iter) SeekGE(key []byte) bool {
	if !it.ready() {
		return false
	}
	if it.lower != nil && bytes.Compare(key, it.lower) < 0 {
		key = it.lower
	}
	if it.track != nil {
		it.track.from(key, false)
	}
	if gaps := it.inGap(key); gaps != nil {
		return it.forward(it.walkForward(it.startWalk(gaps, key, false)))
	}
	seq, kind := it.lastOwn, base.KindAny
	if g := it.near.below; g != nil && bytes.Equal(key, g.To) {
		seq, kind = base.MaxSequence, base.KindSeek // growNear must also know of newer entries of key itself
	}
	it.seek = base.AppendInternalKey(it.seek[:0], key, seq, kind)
	it.in.SeekGE(it.seek)
	return it.forward(it.findNext(nil))
}

// SeekLT moves to the last key that is less than key.
func (it *Iter) SeekLT(key []byte) bool {
	if !it.ready() {
		return false
	}
	if it.upper != nil && bytes.Compare(key, it.upper) > 0 {
		key = it.upper
	}
	if key == nil {
		key = []byte{} // nil is the end of all keys to gaps and walks
	}
	if it.track != nil {
		it.track.from(key, false)
	}
	if gaps := it.gapBefore(key); gaps != nil {
		return it.back(it.walkBackward(it.startWalk(gaps, key, true)))
	}
	// Every entry of the key itself sorts at or after this target.
	it.unbounded = false
	it.seek = base.AppendInternalKey(it.seek[:0], key, base.MaxSequence, base.KindSeek)
	it.in.SeekLT(it.seek)
	return it.back(it.findPrev(true))
}

// Next moves to the key after the current one; from before the first key, to the first.
func (it *Iter) Next() bool {
	if !it.valid {
		return it.isPast(true) && it.First()
	}
	if it.backward {
		// it.in is before all entries of the current key, or past the start.
		it.keyBuf = append(it.keyBuf[:0], it.key...)
		it.seek = base.AppendInternalKey(it.seek[:0], it.keyBuf, 0, base.KindDelete)
		it.valid, it.backward = false, false
		it.in.SeekGE(it.seek)
		return it.forward(it.findNext(it.keyBuf))
	}
	r := it.iterRoom
	r.keyBuf = append(r.keyBuf[:0], it.key...)
	if it.in.Next() {
		// Usually the next entry is that of the next key.
		ikey := it.in.Key()
		userKey, t := base.UserKey(ikey), base.KeyTrailer(ikey)
		if base.Kind(t) == base.KindSet && t>>8 <= it.seq && !bytes.Equal(userKey, r.keyBuf) &&
			(r.upper == nil || bytes.Compare(userKey, r.upper) < 0) {
			it.key, it.value = userKey, it.in.Value()
			return r.track == nil || it.forward(true)
		}
	}
	return it.forward(it.findNext(r.keyBuf))
}

// Prev moves to the key before the current one; from after the last key, to the last.
func (it *Iter) Prev() bool {
	if !it.valid {
		return it.isPast(false) && it.Last()
	}
	if !it.backward {
		it.seek = base.AppendInternalKey(it.seek[:0], it.key, base.MaxSequence, base.KindSeek)
		it.valid = false
		it.in.SeekLT(it.seek)
	}
	return it.back(it.findPrev(false))
}

// isPast reports whether an iterator that is at no key is before the first key, or, if first is
// false, after the last one. It returns false after a failure.
func (it *Iter) isPast(first bool) bool {
	if it.closed && it.err == nil {
		it.err = ErrClosed
	}
	return it.err == nil && it.backward == first
}

// findNext moves forward from the position of in to the first visible key other than skip. If
// skip is nil, in is where a seek to seek has moved it.
func (it *Iter) findNext(skip []byte) bool {
	it.backward, it.valid = false, false
	sought, tombstones, hidden := skip == nil, 0, false
	for ; it.in.Valid(); it.in.Next() {
		ikey := it.in.Key()
		userKey, t := base.UserKey(ikey), base.KeyTrailer(ikey)
		if it.upper != nil && bytes.Compare(userKey, it.upper) >= 0 {
			return false
		}
		if it.hidden(t >> 8) {
			hidden = true
			continue
		}
		if skip != nil && bytes.Equal(userKey, skip) {
			continue
		}
		if base.Kind(t) == base.KindDelete {
			it.keyBuf = append(it.keyBuf[:0], userKey...)
			skip = it.keyBuf
			if tombstones++; tombstones == walkAfter && it.usesGaps() {
				start := it.keyBuf
				if sought {
					start = base.UserKey(it.seek)
				}
				return it.walkForward(it.startWalk(it.db.gaps.Gaps(), start, false))
			}
			continue
		}
		it.key, it.value, it.valid = userKey, it.in.Value(), true
		if tombstones >= growAfter && sought && !hidden {
			it.growNear(userKey, tombstones)
		}
		return true
	}
	it.err = it.in.Err()
	return false
}

// forward records a forward move, which has ended at a key if ok is set, in the read set of the
// iterator's transaction, if there is one. It returns ok.
func (it *Iter) forward(ok bool) bool {
	if it.track != nil {
		it.track.forward(ok)
	}
	return ok
}

// back is forward for backward moves.
func (it *Iter) back(ok bool) bool {
	if it.track != nil {
		it.track.backward(ok)
	}
	return ok
}

// hidden reports whether entries with the sequence number are too new for the iterator.
func (it *Iter) hidden(seq uint64) bool { return seq > it.seq && (seq < ownSeq || seq > it.lastOwn) }

// findPrev moves backward from the position of in to the last visible key, and past the entries of
// that key, which come oldest first. If sought is set, in is where a seek to seek, or to the end of
// all keys if unbounded is set, has moved it.
func (it *Iter) findPrev(sought bool) bool {
	it.backward, it.valid = true, false
	tombstones := 0
	have := false // keyBuf is the last entries' key; the newest so far is deleted or in valueBuf
	deleted := false
	for ; it.in.Valid(); it.in.Prev() {
		ikey := it.in.Key()
		userKey, t := base.UserKey(ikey), base.KeyTrailer(ikey)
		if have && !bytes.Equal(userKey, it.keyBuf) {
			if !deleted {
				break
			}
			have = false
			if tombstones++; tombstones == walkAfter && it.usesGaps() {
				start := append(it.keyBuf, 0) // right after the deleted key
				switch {
				case sought && it.unbounded:
					start = nil
				case sought:
					start = base.UserKey(it.seek)
				}
				return it.walkBackward(it.startWalk(it.db.gaps.Gaps(), start, true))
			}
		}
		if it.lower != nil && bytes.Compare(userKey, it.lower) < 0 {
			break
		}
		if it.hidden(t >> 8) {
			continue
		}
		if !have {
			it.keyBuf = append(it.keyBuf[:0], userKey...)
			have = true
		}
		if deleted = base.Kind(t) == base.KindDelete; !deleted {
			it.valueBuf = append(it.valueBuf[:0], it.in.Value()...)
		}
	}
	if it.err = it.in.Err(); it.err != nil || !have || deleted {
		return false
	}
	it.key, it.value, it.valid = it.keyBuf, it.valueBuf, true
	return true
}

// ready prepares the iterator for an absolute move. It returns false if the move ends at no key.
func (it *Iter) ready() bool {
	it.valid = false
	if it.closed {
		it.err = ErrClosed
		return false
	}
	if it.nothing {
		return false
	}
	it.err = nil
	if it.track != nil {
		if it.err = it.track.ready(); it.err != nil {
			return false
		}
	}
	return true
}

// Valid reports whether the iterator is at a key.
func (it *Iter) Valid() bool { return it.valid }

// Key returns the current key, or nil.
func (it *Iter) Key() []byte {
	if !it.valid {
		return nil
	}
	return it.key
}

// Value returns the value of the current key, or nil.
func (it *Iter) Value() []byte {
	if !it.valid {
		return nil
	}
	return it.value
}

// Err returns the error that stopped the last move, or nil. Errors are those of Get, without
// ErrNotFound; after Close of the DB, ErrClosed if the move needs a file.
func (it *Iter) Err() error { return it.db.closedErr(it.err) }

// Close releases the iterator and returns Err. Closing again does nothing.
func (it *Iter) Close() error {
	if it.closed {
		return nil
	}
	it.closed, it.valid = true, false
	err := it.Err()
	if cerr := it.leave(); err == nil {
		err = cerr
	}
	if it.state != nil {
		it.db.releaseVersion(it.state.version)
		it.state = nil // do not keep it in memory
	}
	return err
}

// Entry is a key and its value. DB.Scan says how long the slices are valid.
type Entry struct{ Key, Value []byte }

// Scan is DB.Scan on the snapshot.
func (s *Snapshot) Scan(o *IterOptions) iter.Seq2[Entry, error] {
	return scan(func() (*Iter, error) { return s.NewIter(o) })
}

func scan(open func() (*Iter, error)) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		it, err := open()
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer it.Close() // also when the loop ends early, panics, or ends the goroutine
		for ok := it.First(); ok; ok = it.Next() {
			if !yield(Entry{it.key, it.value}, nil) {
				return // there was no error to pass to it
			}
		}
		if err := it.Close(); err != nil {
			yield(Entry{}, err)
		}
	}
}
