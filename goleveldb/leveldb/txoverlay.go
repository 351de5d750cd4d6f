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
	writes       iterator.Iterator // over view
	seq          uint64            // writes with higher numbers are not visible
	lower, upper []byte
	key, value   []byte
	buf          []byte

	valid            bool // at a key
	forward          bool // whether the last move was forward; a new cursor is before the first key
	closed           bool
	inBase, inWrites bool   // whether base and writes are at a key
	writesKey        []byte // the key that writes is at
	ofBase, ofWrites bool   // whether base and writes are at the current key
}

// newOverlay returns a cursor that sees the writes so far. REQUIRES: Transaction.mu.
func newOverlay(base *sift.Iter, tx *txWrites) *overlay {
	v := tx.view.ref()
	return &overlay{base: base, view: v, writes: v.iter(), seq: tx.seq, key: []byte{}, value: []byte{}}
}

// seekWrites moves writes to the newest visible write of the first key that is >= key.
func (c *overlay) seekWrites(key []byte) bool {
	c.inWrites = c.writes.Seek(appendEntry(nil, key, c.seq))
	return c.visible()
}

// stepWrites moves writes to the next key that has a visible write.
func (c *overlay) stepWrites() {
	for c.inWrites = c.writes.Next(); c.inWrites && bytes.Equal(userKey(c.writes.Key()), c.writesKey); {
		c.inWrites = c.writes.Next()
	}
	c.visible()
}

// visible moves writes forward to the first visible entry. That is the newest visible one of its
// key, since no earlier one of the same key was visible.
func (c *overlay) visible() bool {
	for c.inWrites && number(c.writes.Key()) > c.seq {
		c.inWrites = c.writes.Next()
	}
	if c.inWrites {
		c.writesKey = append(c.writesKey[:0], userKey(c.writes.Key())...)
	}
	return c.inWrites
}

// last returns the last key that is < key, or the last key if key is nil, and its newest visible
// write.
func (c *overlay) last(key []byte) (found []byte, w write, ok bool) {
	for {
		if key != nil && c.writes.Seek(appendEntry(nil, key, ^uint64(0))) {
			ok = c.writes.Prev()
		} else {
			ok = c.writes.Last()
		}
		if !ok {
			return nil, write{}, false
		}
		key = append([]byte{}, userKey(c.writes.Key())...)
		if c.seekWrites(key) && bytes.Equal(c.writesKey, key) {
			return key, decodeWrite(c.writes.Value()), true
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
	c.seekWrites(key)
	return c.skipDeleted()
}

// skipDeleted makes the lesser key of base and writes the current one, skipping keys that the
// transaction deleted.
func (c *overlay) skipDeleted() bool {
	for {
		if c.Err() != nil {
			return false
		}
		order := -1 // base before writes
		switch {
		case c.inWrites && c.upper != nil && bytes.Compare(c.writesKey, c.upper) >= 0:
			c.inWrites = false
			continue
		case !c.inWrites && !c.inBase:
			return false
		case !c.inBase:
			order = 1
		case c.inWrites:
			order = bytes.Compare(c.base.Key(), c.writesKey)
		}
		c.ofBase, c.ofWrites = order <= 0, order >= 0
		if !c.ofWrites {
			return c.set(c.base.Key(), c.base.Value())
		}
		if w := decodeWrite(c.writes.Value()); !w.deleted {
			return c.set(c.writesKey, w.value)
		}
		c.step()
	}
}

// step moves base and writes past the current key.
func (c *overlay) step() {
	if c.ofBase {
		c.inBase = c.base.Next()
	}
	if c.ofWrites {
		c.stepWrites()
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
		written, w, inWrites := c.last(key)
		if c.Err() != nil {
			return false
		}
		if inWrites && c.lower != nil && bytes.Compare(written, c.lower) < 0 {
			inWrites = false
		}
		switch {
		case !inWrites && !inBase:
			return false
		case !inWrites || inBase && bytes.Compare(c.base.Key(), written) > 0:
			return c.set(c.base.Key(), c.base.Value())
		case !w.deleted:
			return c.set(written, w.value)
		}
		key = append([]byte{}, written...)
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
	return c.writes.Error()
}

// Close releases the iterators, and the files that they read.
func (c *overlay) Close() error {
	c.closed, c.valid = true, false
	c.writes.Release()
	c.view.unref()
	return c.base.Close()
}
