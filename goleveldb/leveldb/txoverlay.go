package leveldb

import (
	"bytes"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/iterator"
)

// overlay is a cursor over a database and the writes of a transaction, which hide the database's
// entries for the same keys. Its methods behave like those of a sift.Iter. While it moves forward,
// both of its iterators are at the current key or at the next key that they have; a move backward
// seeks in both.
type overlay struct {
	base         *sift.Iter
	view         view
	own          iterator.Iterator // over view
	seq          uint64            // writes with higher numbers are not visible
	lower, upper []byte
	key, value   []byte
	buf          []byte

	valid         bool // at a key
	forward       bool // whether the last move was forward; a new cursor is before the first key
	closed        bool
	inBase, inOwn bool   // whether base and own are at a key
	ownKey        []byte // the key that own is at
	ofBase, ofOwn bool   // whether base and own are at the current key
}

// newOverlay returns a cursor that sees the writes so far. REQUIRES: Transaction.mu.
func newOverlay(base *sift.Iter, own *ownWrites) *overlay {
	v := own.view.ref()
	return &overlay{base: base, view: v, own: v.iter(), seq: own.seq, key: []byte{}, value: []byte{}}
}

// seekOwn moves own to the newest visible write of the first key that is >= key.
func (c *overlay) seekOwn(key []byte) bool {
	c.inOwn = c.own.Seek(appendEntry(nil, key, c.seq))
	return c.visible()
}

// stepOwn moves own on to the next key that has a visible write.
func (c *overlay) stepOwn() {
	for c.inOwn = c.own.Next(); c.inOwn && bytes.Equal(userKey(c.own.Key()), c.ownKey); {
		c.inOwn = c.own.Next()
	}
	c.visible()
}

// visible moves own on to the first visible entry. That is the newest visible one of its key,
// since no earlier one of the same key was visible.
func (c *overlay) visible() bool {
	for c.inOwn && number(c.own.Key()) > c.seq {
		c.inOwn = c.own.Next()
	}
	if c.inOwn {
		c.ownKey = append(c.ownKey[:0], userKey(c.own.Key())...)
	}
	return c.inOwn
}

// last returns the last key that is < key, or the last key if key is nil, and its newest visible
// write.
func (c *overlay) last(key []byte) (found []byte, w write, ok bool) {
	for {
		if key != nil && c.own.Seek(appendEntry(nil, key, ^uint64(0))) {
			ok = c.own.Prev()
		} else {
			ok = c.own.Last()
		}
		if !ok {
			return nil, write{}, false
		}
		key = append([]byte{}, userKey(c.own.Key())...)
		if c.seekOwn(key) && bytes.Equal(c.ownKey, key) {
			return key, decodeWrite(c.own.Value()), true
		}
	}
}

// set makes a pair the current one.
func (c *overlay) set(key, value []byte) bool {
	c.key, c.value, c.valid = append(c.key[:0], key...), append(c.value[:0], value...), true
	return true
}

// begin begins a move in a direction. It returns false if the cursor is closed.
func (c *overlay) begin(forward bool) bool {
	c.valid, c.forward = false, forward
	return !c.closed || c.base.First() // base is closed, too, and sets the error
}

// isPast reports whether a cursor that is at no key is before the first key, or, without first,
// after the last one.
func (c *overlay) isPast(first bool) bool { return c.Err() == nil && c.forward != first }

// SeekGE moves to the first key that is >= key.
func (c *overlay) SeekGE(key []byte) bool {
	if !c.begin(true) {
		return false
	}
	if c.lower != nil && bytes.Compare(key, c.lower) < 0 {
		key = c.lower
	}
	c.inBase = c.base.SeekGE(key)
	c.seekOwn(key)
	return c.skipDeleted()
}

// skipDeleted makes the lesser key of base and own the current one, skipping keys that the
// transaction deleted.
func (c *overlay) skipDeleted() bool {
	for {
		if c.Err() != nil {
			return false
		}
		order := -1 // base before own
		switch {
		case c.inOwn && c.upper != nil && bytes.Compare(c.ownKey, c.upper) >= 0:
			c.inOwn = false
			continue
		case !c.inOwn && !c.inBase:
			return false
		case !c.inBase:
			order = 1
		case c.inOwn:
			order = bytes.Compare(c.base.Key(), c.ownKey)
		}
		c.ofBase, c.ofOwn = order <= 0, order >= 0
		if !c.ofOwn {
			return c.set(c.base.Key(), c.base.Value())
		}
		if w := decodeWrite(c.own.Value()); !w.deleted {
			return c.set(c.ownKey, w.value)
		}
		c.step()
	}
}

// step moves base and own past the current key.
func (c *overlay) step() {
	if c.ofBase {
		c.inBase = c.base.Next()
	}
	if c.ofOwn {
		c.stepOwn()
	}
}

// seekLT moves to the last key that is < key, or to the last key if key is nil.
func (c *overlay) seekLT(key []byte) bool {
	if !c.begin(false) {
		return false
	}
	if c.upper != nil && (key == nil || bytes.Compare(key, c.upper) > 0) {
		key = c.upper
	}
	for {
		var inBase bool
		if key == nil {
			inBase = c.base.Last()
		} else {
			inBase = c.base.SeekLT(key)
		}
		own, w, inOwn := c.last(key)
		if c.Err() != nil {
			return false
		}
		if inOwn && c.lower != nil && bytes.Compare(own, c.lower) < 0 {
			inOwn = false
		}
		switch {
		case !inOwn && !inBase:
			return false
		case !inOwn || inBase && bytes.Compare(c.base.Key(), own) > 0:
			return c.set(c.base.Key(), c.base.Value())
		case !w.deleted:
			return c.set(own, w.value)
		}
		key = append([]byte{}, own...)
	}
}

func (c *overlay) First() bool { return c.SeekGE([]byte{}) }
func (c *overlay) Last() bool  { return c.seekLT(nil) }

func (c *overlay) Next() bool {
	switch {
	case c.closed || !c.valid && c.isPast(true):
		return c.First()
	case !c.valid:
		return false
	case c.forward:
		c.valid = false
		c.step()
		return c.skipDeleted()
	}
	c.buf = append(append(c.buf[:0], c.key...), 0)
	return c.SeekGE(c.buf)
}

func (c *overlay) Prev() bool {
	switch {
	case c.closed || !c.valid && c.isPast(false):
		return c.Last()
	case !c.valid:
		return false
	case len(c.key) == 0: // no key is less
		c.begin(false)
		return false
	}
	c.buf = append(c.buf[:0], c.key...)
	return c.seekLT(c.buf)
}

func (c *overlay) Valid() bool { return c.valid }

func (c *overlay) Key() []byte {
	if !c.valid {
		return nil
	}
	return c.key
}

func (c *overlay) Value() []byte {
	if !c.valid {
		return nil
	}
	return c.value
}

// Err returns the error that stopped the last move.
func (c *overlay) Err() error {
	if err := c.base.Err(); err != nil {
		return err
	}
	return c.own.Error()
}

// Close releases the iterators, and the files that they read.
func (c *overlay) Close() error {
	c.closed, c.valid = true, false
	c.own.Release()
	c.view.unref()
	return c.base.Close()
}
