package leveldb

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// cursor is the position of an iterator: a sift.Iter, or an overlay with a transaction's writes.
type cursor interface {
	First() bool
	Last() bool
	SeekGE(key []byte) bool
	Err() error
	Close() error
}

// dbIter is an iterator over a database or a snapshot. It embeds the sift.Iter, whose Valid is
// promoted.
type dbIter struct {
	dbCursor
	iterBase
}

// txIter is an iterator that sees a transaction's writes.
type txIter struct {
	txCursor
	iterBase
}

// A cursor is embedded one level deeper than iterBase, so that the methods of iterBase hide those
// of the same name.
type (
	dbCursor struct{ *sift.Iter }
	txCursor struct{ *overlay }
)

// held is what an iterator releases. If a program drops an iterator without releasing it, the
// garbage collector releases it: held has a finalizer. Since setting a finalizer is expensive, a
// held is reused for other iterators.
type held struct {
	in       cursor // nil if there is nothing to release
	alive    *atomic.Int32
	releaser util.Releaser
}

var helds = sync.Pool{New: func() any {
	h := new(held)
	runtime.SetFinalizer(h, (*held).release)
	return h
}}

func (h *held) release() {
	if h.in == nil {
		return
	}
	if h.releaser != nil {
		h.releaser.Release()
	}
	h.in.Close() // returns the error of the last move, which Error has reported
	h.alive.Add(-1)
	*h = held{}
}

// iterOptions returns the store's options for a range.
func iterOptions(slice *util.Range, ro *opt.ReadOptions) *sift.IterOptions {
	o := &sift.IterOptions{DontFillCache: ro.GetDontFillCache()}
	if slice != nil {
		o.LowerBound, o.UpperBound = slice.Start, slice.Limit
	}
	return o
}

// newIter counts an iterator as alive, and makes it releasable.
func newIter(in cursor, alive *atomic.Int32) iterBase {
	alive.Add(1)
	h := helds.Get().(*held)
	h.in, h.alive = in, alive
	return iterBase{in: in, held: h}
}

// newDBIter returns an iterator over in, or an empty one with the converted error of opening it.
func newDBIter(in *sift.Iter, err error, alive *atomic.Int32) iterator.Iterator {
	if err != nil {
		return iterator.NewEmptyIterator(err)
	}
	return &dbIter{dbCursor: dbCursor{in}, iterBase: newIter(in, alive)}
}

// iterBase is common to all iterators.
type iterBase struct {
	in   cursor // closed after Release
	held *held  // nil after Release
	err  error  // set by Release

	key, value []byte // of a dbIter: copies of the current pair, empty until they are made
}

// In goleveldb, only a move may change the slices that Key and Value have returned, and programs
// use them after Release. Other iterators reuse the memory of a released sift.Iter, so Key and
// Value return copies, which are made once per move. Those of an overlay are copies already.

// Key implements iterator.Iterator.
func (it *dbIter) Key() []byte { return copied(&it.key, it.Iter.Key()) }

// Value implements iterator.Iterator.
func (it *dbIter) Value() []byte { return copied(&it.value, it.Iter.Value()) }

// copied returns the copy of b in buf. If buf is empty, it first makes the copy. It returns nil if
// b is nil.
func copied(buf *[]byte, b []byte) []byte {
	if b == nil {
		return nil
	}
	if len(*buf) == 0 {
		if *buf == nil {
			*buf = make([]byte, 0, len(b))
		}
		*buf = append(*buf, b...)
	}
	return *buf
}

// moves drops the copies of the pair that the iterator leaves, and keeps their memory.
func (it *iterBase) moves() { it.key, it.value = it.key[:0], it.value[:0] }

// A program's last use of an iterator may be a move. KeepAlive keeps the garbage collector from
// releasing the iterator before that move has returned.

// Next implements iterator.Iterator.
func (it *dbIter) Next() bool {
	it.moves()
	ok := it.Iter.Next()
	runtime.KeepAlive(it)
	return ok
}

// Prev implements iterator.Iterator.
func (it *dbIter) Prev() bool {
	it.moves()
	ok := it.Iter.Prev()
	runtime.KeepAlive(it)
	return ok
}

// Next implements iterator.Iterator.
func (it *txIter) Next() bool {
	ok := it.overlay.Next()
	runtime.KeepAlive(it)
	return ok
}

// Prev implements iterator.Iterator.
func (it *txIter) Prev() bool {
	ok := it.overlay.Prev()
	runtime.KeepAlive(it)
	return ok
}

// First implements iterator.Iterator.
func (it *iterBase) First() bool {
	ok := it.ready() && it.in.First()
	runtime.KeepAlive(it)
	return ok
}

// Last implements iterator.Iterator.
func (it *iterBase) Last() bool {
	ok := it.ready() && it.in.Last()
	runtime.KeepAlive(it)
	return ok
}

// Seek implements iterator.Iterator.
func (it *iterBase) Seek(key []byte) bool {
	ok := it.ready() && it.in.SeekGE(key)
	runtime.KeepAlive(it)
	return ok
}

// ready prepares a move, and reports whether the iterator may move. After an error it may not.
func (it *iterBase) ready() bool {
	it.moves()
	return it.in.Err() == nil
}

// Error implements iterator.Iterator.
func (it *iterBase) Error() error {
	switch err := it.in.Err(); {
	case it.held != nil:
		return convert(err)
	case it.err == nil && err != nil:
		return ErrIterReleased // it was moved afterwards
	}
	return it.err
}

// SetReleaser implements iterator.Iterator.
func (it *iterBase) SetReleaser(releaser util.Releaser) {
	switch {
	case it.held == nil:
		panic(util.ErrReleased)
	case it.held.releaser != nil && releaser != nil:
		panic(util.ErrHasReleaser)
	}
	it.held.releaser = releaser
}

// Release implements iterator.Iterator.
func (it *iterBase) Release() {
	h := it.held
	if h == nil {
		return
	}
	it.err = it.Error()
	it.held = nil
	h.release()
	helds.Put(h)
}
