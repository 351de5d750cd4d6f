package iterator

import (
	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// indexedIterator moves over the pairs of the parts of an index, in order.
type indexedIterator struct {
	util.BasicReleaser
	index  IteratorIndexer
	data   Iterator // over the current part; may be nil
	strict bool
	err    error
	onErr  func(error)
}

// NewIndexedIterator returns an iterator over the pairs of the parts of an index, in
// order. Unless strict is set, it skips parts whose errors are errors.IsCorrupted.
func NewIndexedIterator(index IteratorIndexer, strict bool) Iterator {
	return &indexedIterator{index: index, strict: strict}
}

// SetErrorCallback implements ErrorCallbackSetter.
func (it *indexedIterator) SetErrorCallback(f func(err error)) { it.onErr = f }

func (it *indexedIterator) ready() bool {
	if it.err == nil && it.Released() {
		it.err = ErrIterReleased
	}
	return it.err == nil
}

// setData opens the part that the index is at.
func (it *indexedIterator) setData() {
	it.clearData()
	it.data = it.index.Get()
}

func (it *indexedIterator) clearData() {
	if it.data != nil {
		it.data.Release()
		it.data = nil
	}
}

// dataFailed reports whether the current part has an error that ends the iterator.
func (it *indexedIterator) dataFailed() bool {
	err := it.data.Error()
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

// indexEnd records the error with which the index has ended. It always returns false.
func (it *indexedIterator) indexEnd() bool {
	it.clearData()
	if err := it.index.Error(); err != nil {
		if it.onErr != nil {
			it.onErr(err)
		}
		it.err = err
	}
	return false
}

// forward moves to the first pair in the current part or a later one. move moves
// within the current part.
func (it *indexedIterator) forward(move func() bool) bool {
	for {
		it.setData()
		if it.data != nil {
			if move() {
				return true
			}
			if it.dataFailed() {
				return false
			}
		}
		if !it.index.Next() {
			return it.indexEnd()
		}
		move = func() bool { return it.data.First() }
	}
}

func (it *indexedIterator) backward() bool {
	for {
		it.setData()
		if it.data != nil {
			if it.data.Last() {
				return true
			}
			if it.dataFailed() {
				return false
			}
		}
		if !it.index.Prev() {
			return it.indexEnd()
		}
	}
}

func (it *indexedIterator) First() bool {
	if !it.ready() {
		return false
	}
	if !it.index.First() {
		return it.indexEnd()
	}
	return it.forward(func() bool { return it.data.First() })
}

func (it *indexedIterator) Last() bool {
	if !it.ready() {
		return false
	}
	if !it.index.Last() {
		return it.indexEnd()
	}
	return it.backward()
}

func (it *indexedIterator) Seek(key []byte) bool {
	if !it.ready() {
		return false
	}
	if !it.index.Seek(key) {
		return it.indexEnd()
	}
	return it.forward(func() bool { return it.data.Seek(key) })
}

func (it *indexedIterator) Next() bool {
	if !it.ready() {
		return false
	}
	if it.data != nil {
		if it.data.Next() {
			return true
		}
		if it.dataFailed() {
			return false
		}
	}
	if !it.index.Next() {
		return it.indexEnd()
	}
	return it.forward(func() bool { return it.data.First() })
}

func (it *indexedIterator) Prev() bool {
	if !it.ready() {
		return false
	}
	if it.data != nil {
		if it.data.Prev() {
			return true
		}
		if it.dataFailed() {
			return false
		}
	}
	if !it.index.Prev() {
		return it.indexEnd()
	}
	return it.backward()
}

func (it *indexedIterator) Valid() bool { return it.err == nil && it.data != nil && it.data.Valid() }

func (it *indexedIterator) Key() []byte {
	if !it.Valid() {
		return nil
	}
	return it.data.Key()
}

func (it *indexedIterator) Value() []byte {
	if !it.Valid() {
		return nil
	}
	return it.data.Value()
}

func (it *indexedIterator) Error() error {
	if it.err == nil && !it.Released() {
		return it.index.Error()
	}
	return it.err
}

// Release also releases the index and the current part.
func (it *indexedIterator) Release() {
	if !it.Released() {
		it.clearData()
		it.index.Release()
		it.BasicReleaser.Release()
	}
}
