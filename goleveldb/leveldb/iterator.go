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

// dbIter is an iterator of a DB.
type dbIter struct {
	held  *held
	own   *sift.Iter // held.in, unless that is of a transaction: its calls need no interface
	state iterState
	err   error // state is not iterAt then
}

// held is what an iterator releases. One that a program drops instead of releasing it is
// released when its memory is collected: held has a finalizer, and as that is dear to set
// it is used again for other iterators.
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

// newIterator makes an iterator of what opening one has returned.
func newIterator(in cursor, err error, alive *atomic.Int32) iterator.Iterator {
	if err != nil {
		return iterator.NewEmptyIterator(convert(err))
	}
	alive.Add(1)
	h := helds.Get().(*held)
	h.in, h.alive = in, alive
	it := &dbIter{held: h}
	it.own, _ = in.(*sift.Iter)
	return it
}

func (it *dbIter) ready() bool {
	if it.err == nil && it.state == iterReleased {
		it.err = ErrIterReleased
	}
	return it.err == nil
}

// moved notes how a move ended; end is where the iterator is if it ran off.
func (it *dbIter) moved(ok bool, end iterState) bool {
	if ok {
		it.state = iterAt
		return true
	}
	it.state = end
	it.err = convert(it.held.in.Err())
	return false
}

// First implements iterator.Iterator.
func (it *dbIter) First() bool { return it.ready() && it.moved(it.held.in.First(), iterAfter) }

// Last implements iterator.Iterator.
func (it *dbIter) Last() bool { return it.ready() && it.moved(it.held.in.Last(), iterBefore) }

// Seek implements iterator.Iterator.
func (it *dbIter) Seek(key []byte) bool {
	return it.ready() && it.moved(it.held.in.SeekGE(key), iterAfter)
}

// Next implements iterator.Iterator.
func (it *dbIter) Next() bool {
	switch {
	case it.state == iterAt && it.own != nil:
		return it.own.Next() || it.moved(false, iterAfter)
	case it.state == iterAfter || !it.ready():
		return false
	case it.state == iterBefore:
		return it.First()
	}
	return it.moved(it.held.in.Next(), iterAfter)
}

// Prev implements iterator.Iterator.
func (it *dbIter) Prev() bool {
	switch {
	case it.state == iterBefore || !it.ready():
		return false
	case it.state == iterAfter:
		return it.Last()
	}
	return it.moved(it.held.in.Prev(), iterBefore)
}

// Valid implements iterator.Iterator.
func (it *dbIter) Valid() bool { return it.state == iterAt }

// Key implements iterator.Iterator.
func (it *dbIter) Key() []byte {
	switch {
	case it.state != iterAt:
		return nil
	case it.own == nil:
		return it.held.in.Key()
	}
	return it.own.Key()
}

// Value implements iterator.Iterator.
func (it *dbIter) Value() []byte {
	switch {
	case it.state != iterAt:
		return nil
	case it.own == nil:
		return it.held.in.Value()
	}
	return it.own.Value()
}

// Error implements iterator.Iterator.
func (it *dbIter) Error() error { return it.err }

// SetReleaser implements iterator.Iterator.
func (it *dbIter) SetReleaser(releaser util.Releaser) {
	switch {
	case it.state == iterReleased:
		panic(util.ErrReleased)
	case it.held.releaser != nil && releaser != nil:
		panic(util.ErrHasReleaser)
	}
	it.held.releaser = releaser
}

// Release implements iterator.Iterator.
func (it *dbIter) Release() {
	if it.state == iterReleased {
		return
	}
	it.state = iterReleased
	h := it.held
	it.held, it.own = nil, nil
	h.release()
	helds.Put(h)
}
