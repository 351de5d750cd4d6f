package iterator

import "github.com/syndtr/goleveldb/leveldb/util"

// BasicArray is an ordered array.
type BasicArray interface {
	// Len returns the length.
	Len() int
	// Search returns the first index whose key is >= key, Len if there is none.
	Search(key []byte) int
}

// Array is an ordered array of pairs.
type Array interface {
	BasicArray
	// Index returns the key and value at index i.
	Index(i int) (key, value []byte)
}

// ArrayIndexer is an ordered array of iterators.
type ArrayIndexer interface {
	BasicArray
	// Get returns a new iterator over the part at index i.
	Get(i int) Iterator
}

// arrayPosition moves over the indexes of an array.
type arrayPosition struct {
	util.BasicReleaser
	array BasicArray
	pos   int // -1 before the first
	err   error
}

func (p *arrayPosition) ready() bool {
	if p.Released() {
		p.err = ErrIterReleased
		return false
	}
	return true
}

func (p *arrayPosition) moveTo(pos int) bool {
	if !p.ready() {
		return false
	}
	p.pos = min(max(pos, -1), p.array.Len())
	return p.Valid()
}

func (p *arrayPosition) First() bool { return p.moveTo(0) }
func (p *arrayPosition) Last() bool  { return p.ready() && p.moveTo(p.array.Len()-1) }
func (p *arrayPosition) Next() bool  { return p.moveTo(p.pos + 1) }
func (p *arrayPosition) Prev() bool  { return p.moveTo(p.pos - 1) }
func (p *arrayPosition) Seek(key []byte) bool {
	return p.ready() && p.moveTo(p.array.Search(key))
}
func (p *arrayPosition) Valid() bool {
	return !p.Released() && p.pos >= 0 && p.pos < p.array.Len()
}
func (p *arrayPosition) Error() error { return p.err }

type arrayIterator struct {
	arrayPosition
	pairs Array
}

// NewArrayIterator returns an iterator over an array.
func NewArrayIterator(array Array) Iterator {
	return &arrayIterator{arrayPosition{array: array, pos: -1}, array}
}

func (it *arrayIterator) Key() []byte {
	if !it.Valid() {
		return nil
	}
	key, _ := it.pairs.Index(it.pos)
	return key
}

func (it *arrayIterator) Value() []byte {
	if !it.Valid() {
		return nil
	}
	_, value := it.pairs.Index(it.pos)
	return value
}

// IteratorIndexer moves over iterators.
type IteratorIndexer interface {
	CommonIterator
	// Get returns a new iterator over the current part, nil if there is none.
	Get() Iterator
}

type arrayIndexer struct {
	arrayPosition
	parts ArrayIndexer
}

// NewArrayIndexer returns an IteratorIndexer over an array.
func NewArrayIndexer(array ArrayIndexer) IteratorIndexer {
	return &arrayIndexer{arrayPosition{array: array, pos: -1}, array}
}

func (it *arrayIndexer) Get() Iterator {
	if !it.Valid() {
		return nil
	}
	return it.parts.Get(it.pos)
}
