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

// cursor is what an iterator moves: a sift.Iter, or one with a transaction's own
// writes.
type cursor interface {
	First() bool
	Last() bool
	SeekGE(key []byte) bool
	Next() bool
	Prev() bool
	Key() []byte
	Value() []byte
	Err() error
	Close() error
}

// iterState is where a dbIter is.
type iterState int8

const (
	iterBefore iterState = iota // before the first key
	iterAfter                   // after the last
	iterAt                      // at a key
	iterReleased
)

// iterBase is what all iterators have: all but the moves by one and what reads the entry,
// which are called for each entry.
type iterBase struct {
	held  *held
	state iterState
	err   error // state is not iterAt then
}

// dbIter is an iterator over a sift.Iter, whose methods it calls directly.
type dbIter struct {
	iterBase
	in *sift.Iter // held.in; closed after Release
}

// txIter is an iterator that sees a transaction's own writes.
type txIter struct {
	iterBase
	in *overlay // held.in; closed after Release
}

// held is what an iterator releases. One that a program drops instead of releasing it is
// released when its memory is collected: held has a finalizer, and as setting one is
// expensive, a held is reused for other iterators.
type held struct {
	in       cursor // nil: nothing
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
	h.in.Close() // its error is that of the last move
	h.alive.Add(-1)
	*h = held{}
}

// iterOptions makes the store's options of a range.
func iterOptions(slice *util.Range, ro *opt.ReadOptions) *sift.IterOptions {
	o := &sift.IterOptions{DontFillCache: ro.GetDontFillCache()}
	if slice != nil {
		o.LowerBound, o.UpperBound = slice.Start, slice.Limit
	}
	return o
}

// newIter registers what an iterator moves.
func newIter(in cursor, alive *atomic.Int32) iterBase {
	alive.Add(1)
	h := helds.Get().(*held)
	h.in, h.alive = in, alive
	return iterBase{held: h}
}

// newDBIter makes an iterator of what opening one has returned.
func newDBIter(in *sift.Iter, err error, alive *atomic.Int32) iterator.Iterator {
	if err != nil {
		return iterator.NewEmptyIterator(convert(err))
	}
	return &dbIter{newIter(in, alive), in}
}

func (it *iterBase) ready() bool {
	if it.err == nil && it.state == iterReleased {
		it.err = ErrIterReleased
	}
	return it.err == nil
}

// moved records how a move ended; end is where the iterator is if it ran off.
func (it *iterBase) moved(ok bool, end iterState) bool {
	if ok {
		it.state = iterAt
		return true
	}
	it.state = end
	it.err = convert(it.held.in.Err())
	return false
}

// First implements iterator.Iterator.
func (it *iterBase) First() bool { return it.ready() && it.moved(it.held.in.First(), iterAfter) }

// Last implements iterator.Iterator.
func (it *iterBase) Last() bool { return it.ready() && it.moved(it.held.in.Last(), iterBefore) }

// Seek implements iterator.Iterator.
func (it *iterBase) Seek(key []byte) bool {
	return it.ready() && it.moved(it.held.in.SeekGE(key), iterAfter)
}

// forward is Next where the cursor's own has returned false.
func (it *iterBase) forward() bool {
	switch {
	case it.state == iterAt:
		return it.moved(false, iterAfter)
	case it.state == iterBefore:
		return it.First()
	}
	it.ready() // a released one says so
	return false
}

// back is forward for Prev.
func (it *iterBase) back() bool {
	switch {
	case it.state == iterAt:
		return it.moved(false, iterBefore)
	case it.state == iterAfter:
		return it.Last()
	}
	it.ready() // a released one says so
	return false
}

// Next implements iterator.Iterator.
func (it *dbIter) Next() bool {
	if it.in.Next() {
		it.state = iterAt
		return true
	}
	return it.forward()
}

// Prev implements iterator.Iterator.
func (it *dbIter) Prev() bool {
	if it.state == iterAt && it.in.Prev() {
		return true
	}
	return it.back()
}

// Valid implements iterator.Iterator.
func (it *dbIter) Valid() bool { return it.in.Valid() }

// Key implements iterator.Iterator.
func (it *dbIter) Key() []byte { return it.in.Key() }

// Value implements iterator.Iterator.
func (it *dbIter) Value() []byte { return it.in.Value() }

// Next implements iterator.Iterator.
func (it *txIter) Next() bool { return it.state == iterAt && it.in.Next() || it.forward() }

// Prev implements iterator.Iterator.
func (it *txIter) Prev() bool { return it.state == iterAt && it.in.Prev() || it.back() }

// Valid implements iterator.Iterator.
func (it *txIter) Valid() bool { return it.state == iterAt }

// Key implements iterator.Iterator.
func (it *txIter) Key() []byte {
	if it.state != iterAt {
		return nil
	}
	return it.in.Key()
}

// Value implements iterator.Iterator.
func (it *txIter) Value() []byte {
	if it.state != iterAt {
		return nil
	}
	return it.in.Value()
}

// Error implements iterator.Iterator.
func (it *iterBase) Error() error { return it.err }

// SetReleaser implements iterator.Iterator.
func (it *iterBase) SetReleaser(releaser util.Releaser) {
	switch {
	case it.state == iterReleased:
		panic(util.ErrReleased)
	case it.held.releaser != nil && releaser != nil:
		panic(util.ErrHasReleaser)
	}
	it.held.releaser = releaser
}

// Release implements iterator.Iterator.
func (it *iterBase) Release() {
	if it.state == iterReleased {
		return
	}
	it.state = iterReleased
	h := it.held
	it.held = nil
	h.release()
	helds.Put(h)
}
