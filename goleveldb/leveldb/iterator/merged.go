package iterator

import (
	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// place is where a mergedIterator is.
type place int8

const (
	atStart   place = iota // before the first pair
	atEnd                  // after the last
	goingUp                // the others are after the current one
	goingDown              // the others are before it
)

// mergedIterator moves over several iterators at once.
type mergedIterator struct {
	util.BasicReleaser
	cmp    comparer.Comparer
	iters  []Iterator
	strict bool
	place  place
	at     int // the current one
	err    error
	onErr  func(error)
}

// NewMergedIterator returns an iterator over the pairs of several iterators, which
// must have no key in common. Unless strict is set, it skips iterators whose errors
// are errors.IsCorrupted. Release releases all of them.
func NewMergedIterator(iters []Iterator, cmp comparer.Comparer, strict bool) Iterator {
	return &mergedIterator{iters: iters, cmp: cmp, strict: strict}
}

// SetErrorCallback implements ErrorCallbackSetter.
func (it *mergedIterator) SetErrorCallback(f func(err error)) { it.onErr = f }

func (it *mergedIterator) ready() bool {
	if it.err == nil && it.Released() {
		it.err = ErrIterReleased
	}
	return it.err == nil
}

// all moves every iterator but the one numbered except. It returns false if one of
// them has an error that ends the merged iterator.
func (it *mergedIterator) all(except int, move func(Iterator) bool) bool {
	for i, in := range it.iters {
		if i != except && !move(in) && it.failed(in) {
			return false
		}
	}
	return true
}

func (it *mergedIterator) failed(in Iterator) bool {
	err := in.Error()
	if err == nil {
		return false
	}
	if it.onErr != nil {
		it.onErr(err)
	}
	if it.strict || !errors.IsCorrupted(err) {
		it.err = err
		return true
	}
	return false
}

// choose makes the iterator with the least key the current one, or with the greatest for goingDown.
func (it *mergedIterator) choose(p place) bool {
	it.at = -1
	for i, in := range it.iters {
		if !in.Valid() {
			continue
		}
		if it.at < 0 {
			it.at = i
			continue
		}
		c := it.cmp.Compare(in.Key(), it.iters[it.at].Key())
		if p == goingUp && c < 0 || p == goingDown && c > 0 {
			it.at = i
		}
	}
	it.place = p
	if it.at < 0 {
		it.place = atEnd
		if p == goingDown {
			it.place = atStart
		}
		return false
	}
	return true
}

func (it *mergedIterator) First() bool {
	return it.ready() && it.all(-1, Iterator.First) && it.choose(goingUp)
}

func (it *mergedIterator) Last() bool {
	return it.ready() && it.all(-1, Iterator.Last) && it.choose(goingDown)
}

func (it *mergedIterator) Seek(key []byte) bool {
	return it.ready() && it.all(-1, func(in Iterator) bool { return in.Seek(key) }) && it.choose(goingUp)
}

func (it *mergedIterator) Next() bool {
	switch {
	case !it.ready() || it.place == atEnd:
		return false
	case it.place == atStart:
		return it.First()
	case it.place == goingDown:
		key := append([]byte(nil), it.Key()...)
		if !it.all(it.at, func(in Iterator) bool { return in.Seek(key) }) {
			return false
		}
	}
	in := it.iters[it.at]
	return (in.Next() || !it.failed(in)) && it.choose(goingUp)
}

func (it *mergedIterator) Prev() bool {
	switch {
	case !it.ready() || it.place == atStart:
		return false
	case it.place == atEnd:
		return it.Last()
	case it.place == goingUp:
		key := append([]byte(nil), it.Key()...)
		before := func(in Iterator) bool {
			if in.Seek(key) {
				return in.Prev()
			}
			return in.Error() == nil && in.Last()
		}
		if !it.all(it.at, before) {
			return false
		}
	}
	in := it.iters[it.at]
	return (in.Prev() || !it.failed(in)) && it.choose(goingDown)
}

func (it *mergedIterator) Valid() bool { return it.err == nil && it.place >= goingUp }

func (it *mergedIterator) Key() []byte {
	if !it.Valid() || it.Released() {
		return nil
	}
	return it.iters[it.at].Key()
}

func (it *mergedIterator) Value() []byte {
	if !it.Valid() || it.Released() {
		return nil
	}
	return it.iters[it.at].Value()
}

func (it *mergedIterator) Error() error { return it.err }

// Release also releases the merged iterators.
func (it *mergedIterator) Release() {
	if it.Released() {
		return
	}
	it.place = atEnd
	for _, in := range it.iters {
		in.Release()
	}
	it.iters = nil
	it.BasicReleaser.Release()
}
