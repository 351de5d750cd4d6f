// Package iterator defines iterators over keys and values in order.
package iterator

import (
	"errors"

	"github.com/syndtr/goleveldb/leveldb/util"
)

// ErrIterReleased is the error of an iterator that is used after Release.
var ErrIterReleased = errors.New("leveldb/iterator: iterator released")

// IteratorSeeker is the set of moves. Each reports whether the iterator is at a pair
// afterwards.
//
// A new iterator is before the first pair, from where Next moves to the first pair.
// From after the last pair, Prev moves to the last pair.
type IteratorSeeker interface {
	// First moves to the first pair.
	First() bool
	// Last moves to the last pair.
	Last() bool
	// Seek moves to the first pair whose key is >= key. It does not retain key.
	Seek(key []byte) bool
	// Next moves to the next pair.
	Next() bool
	// Prev moves to the previous pair.
	Prev() bool
}

// CommonIterator is what iterators over pairs and over other iterators share.
type CommonIterator interface {
	IteratorSeeker
	util.Releaser
	util.ReleaseSetter

	// Valid reports whether the iterator is at a pair.
	Valid() bool
	// Error returns the error that has ended the iteration, if any. Reaching either end is not an
	// error.
	Error() error
}

// Iterator moves over pairs. After an error every move returns false. It must be released, and
// not be used concurrently.
type Iterator interface {
	CommonIterator

	// Key returns the key, nil if the iterator is not at a pair. It must not be changed, and is
	// valid until the next move, even after Release.
	Key() []byte
	// Value returns the value, under the same conditions as Key.
	Value() []byte
}

// ErrorCallbackSetter is implemented by iterators over other iterators.
type ErrorCallbackSetter interface {
	// SetErrorCallback sets a function that is called with each error, skipped ones included. f may
	// be nil.
	SetErrorCallback(f func(err error))
}

type emptyIterator struct {
	util.BasicReleaser
	err error
}

// NewEmptyIterator returns an iterator without pairs, whose Error is err.
func NewEmptyIterator(err error) Iterator { return &emptyIterator{err: err} }

func (it *emptyIterator) move() bool {
	if it.err == nil && it.Released() {
		it.err = ErrIterReleased
	}
	return false
}

func (it *emptyIterator) First() bool      { return it.move() }
func (it *emptyIterator) Last() bool       { return it.move() }
func (it *emptyIterator) Seek([]byte) bool { return it.move() }
func (it *emptyIterator) Next() bool       { return it.move() }
func (it *emptyIterator) Prev() bool       { return it.move() }
func (*emptyIterator) Valid() bool         { return false }
func (*emptyIterator) Key() []byte         { return nil }
func (*emptyIterator) Value() []byte       { return nil }
func (it *emptyIterator) Error() error     { return it.err }
