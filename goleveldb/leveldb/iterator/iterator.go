// Package iterator moves over keys and values in order.
package iterator

import (
	"errors"

	"github.com/syndtr/goleveldb/leveldb/util"
)

// ErrIterReleased is the error of an iterator that is used after Release.
var ErrIterReleased = errors.New("leveldb/iterator: iterator released")

// IteratorSeeker moves. Each move reports whether the iterator is at a pair afterwards.
//
// A new iterator is before the first pair: Next moves to the first. After the last,
// Prev moves to the last; before the first, Next moves to the first.
type IteratorSeeker interface {
	// First moves to the first pair.
	First() bool
	// Last moves to the last pair.
	Last() bool
	// Seek moves to the first pair whose key is not less than key, which is not kept.
	Seek(key []byte) bool
	// Next moves to the next pair.
	Next() bool
	// Prev moves to the pair before.
	Prev() bool
}

// CommonIterator is what iterators over pairs and over other iterators share.
type CommonIterator interface {
	IteratorSeeker
	util.Releaser
	util.ReleaseSetter

	// Valid reports whether the iterator is at a pair.
	Valid() bool
	// Error returns what went wrong, or nil. Running off either end is no error.
	Error() error
}

// Iterator moves over pairs. After an error every move returns false. It is used by
// one goroutine at a time, and must be released.
type Iterator interface {
	CommonIterator

	// Key returns the key, or nil if the iterator is at no pair. It must not be
	// changed, and is valid until the next move.
	Key() []byte
	// Value returns the value, as Key does the key.
	Value() []byte
}

// ErrorCallbackSetter is implemented by iterators over other iterators.
type ErrorCallbackSetter interface {
	// SetErrorCallback sets what is called with each error, those that are passed
	// over included; nil for nothing.
	SetErrorCallback(f func(err error))
}

type emptyIterator struct {
	util.BasicReleaser
	err error
}

// NewEmptyIterator returns an iterator over nothing, whose Error is err.
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
