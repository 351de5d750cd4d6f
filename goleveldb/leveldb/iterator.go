package leveldb

import (
	"runtime"
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
	in       cursor
	state    iterState
	err      error
	releaser util.Releaser
	alive    *atomic.Int32 // counts it
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
	it := &dbIter{in: in, alive: alive}
	alive.Add(1)
	runtime.SetFinalizer(it, (*dbIter).Release)
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
	it.err = convert(it.in.Err())
	return false
}

// First implements iterator.Iterator.
func (it *dbIter) First() bool { return it.ready() && it.moved(it.in.First(), iterAfter) }

// Last implements iterator.Iterator.
func (it *dbIter) Last() bool { return it.ready() && it.moved(it.in.Last(), iterBefore) }

// Seek implements iterator.Iterator.
func (it *dbIter) Seek(key []byte) bool {
	return it.ready() && it.moved(it.in.SeekGE(key), iterAfter)
}

// Next implements iterator.Iterator.
func (it *dbIter) Next() bool {
	switch {
	case it.state == iterAfter || !it.ready():
		return false
	case it.state == iterBefore:
		return it.First()
	}
	return it.moved(it.in.Next(), iterAfter)
}

// Prev implements iterator.Iterator.
func (it *dbIter) Prev() bool {
	switch {
	case it.state == iterBefore || !it.ready():
		return false
	case it.state == iterAfter:
		return it.Last()
	}
	return it.moved(it.in.Prev(), iterBefore)
}

// Valid implements iterator.Iterator.
func (it *dbIter) Valid() bool { return it.err == nil && it.state == iterAt }

// Key implements iterator.Iterator.
func (it *dbIter) Key() []byte {
	if !it.Valid() {
		return nil
	}
	return it.in.Key()
}

// Value implements iterator.Iterator.
func (it *dbIter) Value() []byte {
	if !it.Valid() {
		return nil
	}
	return it.in.Value()
}

// Error implements iterator.Iterator.
func (it *dbIter) Error() error { return it.err }

// SetReleaser implements iterator.Iterator.
func (it *dbIter) SetReleaser(releaser util.Releaser) {
	switch {
	case it.state == iterReleased:
		panic(util.ErrReleased)
	case it.releaser != nil && releaser != nil:
		panic(util.ErrHasReleaser)
	}
	it.releaser = releaser
}

// Release implements iterator.Iterator.
func (it *dbIter) Release() {
	if it.state == iterReleased {
		return
	}
	it.state = iterReleased
	runtime.SetFinalizer(it, nil)
	if it.releaser != nil {
		it.releaser.Release()
		it.releaser = nil
	}
	it.in.Close() // its error is that of the last move
	it.in = nil
	it.alive.Add(-1)
}
