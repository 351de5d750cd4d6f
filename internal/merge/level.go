package merge

import (
	"sort"

	"github.com/siftdb/sift/internal/base"
)

// Level iterates over tables whose key ranges ascend without overlap. It opens each table on
// entering it, and closes it on leaving it.
type Level struct {
	n        int
	smallest func(i int) []byte
	largest  func(i int) []byte
	open     func(i int) (base.Iterator, error)

	at  int           // the index of the open table
	it  base.Iterator // iterator over table at; nil: none open
	err error
}

var _ base.Iterator = (*Level)(nil)

// NewLevel returns an iterator over n tables. Table i has the encoded internal keys smallest(i)
// to largest(i), where largest(i) is before smallest(i+1). open(i) returns an iterator over
// it, which the Level closes.
func NewLevel(n int, largest, smallest func(i int) []byte, open func(i int) (base.Iterator, error)) *Level {
	return &Level{n: n, smallest: smallest, largest: largest, open: open}
}

// PrefetchFirst prepares First, if the tables' iterators are Prefetchers.
func (l *Level) PrefetchFirst() {
	if p := l.prefetcher(0); p != nil {
		p.PrefetchFirst()
	}
}

// PrefetchGE prepares SeekGE, if the tables' iterators are Prefetchers.
func (l *Level) PrefetchGE(ikey []byte) {
	if p := l.prefetcher(l.findGE(ikey)); p != nil {
		p.PrefetchGE(ikey)
	}
}

// prefetcher opens table i and returns its iterator, or nil if that cannot prefetch. If opening
// fails, the move that is prepared tries again.
func (l *Level) prefetcher(i int) Prefetcher {
	l.err = nil
	if !l.load(i) {
		return nil
	}
	p, _ := l.it.(Prefetcher)
	return p
}

// findGE returns the first table that ends at or after the encoded internal key.
func (l *Level) findGE(ikey []byte) int {
	return sort.Search(l.n, func(i int) bool { return base.CompareInternal(l.largest(i), ikey) >= 0 })
}

// First moves to the first entry.
func (l *Level) First() bool {
	l.err = nil
	return l.forward(0, l.load(0) && l.it.First())
}

// Last moves to the last entry.
func (l *Level) Last() bool {
	l.err = nil
	return l.backward(l.n-1, l.load(l.n-1) && l.it.Last())
}

// SeekGE moves to the first entry at or after the encoded internal key.
func (l *Level) SeekGE(ikey []byte) bool {
	l.err = nil
	i := l.findGE(ikey)
	return l.forward(i, l.load(i) && l.it.SeekGE(ikey))
}

// SeekLT moves to the last entry before the encoded internal key.
func (l *Level) SeekLT(ikey []byte) bool {
	l.err = nil
	i := sort.Search(l.n, func(i int) bool { return base.CompareInternal(l.smallest(i), ikey) >= 0 }) - 1
	return l.backward(i, l.load(i) && l.it.SeekLT(ikey))
}

// Next moves to the next entry. REQUIRES: Valid().
func (l *Level) Next() bool {
	if l.err != nil {
		return false
	}
	return l.forward(l.at, l.it.Next())
}

// Prev moves to the previous entry. REQUIRES: Valid().
func (l *Level) Prev() bool {
	if l.err != nil {
		return false
	}
	return l.backward(l.at, l.it.Prev())
}

// forward continues with the first entry of the following tables if the move within table i
// found none.
func (l *Level) forward(i int, ok bool) bool {
	for !ok && l.atEnd() && i+1 < l.n {
		i++
		ok = l.load(i) && l.it.First()
	}
	return ok
}

func (l *Level) backward(i int, ok bool) bool {
	for !ok && l.atEnd() && i > 0 {
		i--
		ok = l.load(i) && l.it.Last()
	}
	return ok
}

// atEnd reports whether the iterator stopped at the end of a table. If it stopped because of an
// error, atEnd records that.
func (l *Level) atEnd() bool {
	if l.err == nil && l.it != nil {
		l.err = l.it.Err()
	}
	return l.err == nil
}

// load opens table i. It returns false if there is no such table or it cannot be opened.
func (l *Level) load(i int) bool {
	if l.it != nil && l.at == i {
		return true
	}
	if l.it != nil {
		l.err = l.it.Close()
		l.it = nil
	}
	if l.err != nil || i < 0 || i >= l.n {
		return false
	}
	it, err := l.open(i)
	if err != nil {
		l.err = err
		return false
	}
	l.at, l.it = i, it
	return true
}

// Valid reports whether the iterator is at an entry.
func (l *Level) Valid() bool { return l.err == nil && l.it != nil && l.it.Valid() }

// Key returns the encoded internal key.
func (l *Level) Key() []byte { return l.it.Key() }

// Value returns the value.
func (l *Level) Value() []byte { return l.it.Value() }

// Err returns the error that stopped the last move, or nil.
func (l *Level) Err() error { return l.err }

// Close closes the open table.
func (l *Level) Close() error {
	if l.it == nil {
		return nil
	}
	it := l.it
	l.it = nil
	return it.Close()
}
