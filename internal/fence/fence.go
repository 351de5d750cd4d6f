// Package fence finds the first key of a sorted list that is at or after a given key, reading only
// a few cache lines. It locates the table of a level, or the block of a table, that may hold a key.
package fence

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/siftdb/sift/internal/base"
)

// Index is a search tree over a sorted list of keys. It stores the keys' common prefix once, and
// the eight bytes of each key after that prefix as a number, big-endian and zero-padded, which
// decides most comparisons.
//
// The zero Index has no keys.
type Index struct {
	shared  []byte
	numbers Numbers
}

// New returns an index of n ascending keys. It keeps no reference to them.
func New(n int, key func(i int) []byte) Index {
	if n == 0 {
		return Index{}
	}
	// The keys are sorted, so all share what the first and the last share.
	first, last := key(0), key(n-1)
	shared := base.CommonPrefix(first, last)
	numbers := NewNumbers(n, func(i int) uint64 { return prefix(key(i), shared) })
	return Index{shared: bytes.Clone(first[:shared]), numbers: numbers}
}

// prefix returns the eight bytes of a key from an offset on, as a number that sorts as they do.
func prefix(key []byte, from int) uint64 {
	n := len(key) - from
	switch {
	case n >= 8:
		return binary.BigEndian.Uint64(key[from:])
	case len(key) >= 8: // the last eight bytes, less those before the offset
		return binary.BigEndian.Uint64(key[len(key)-8:]) << (8 * uint(8-n))
	}
	var p uint64
	for i, c := range key[from:] {
		p |= uint64(c) << (56 - 8*i)
	}
	return p
}

// Find returns i, the number of keys that are certainly below key, and ties, the number of keys
// after them that the index cannot tell from key. The first key at or after key is one of the ties
// or follows them.
func (x *Index) Find(key []byte) (i, ties int) {
	shared := len(x.shared)
	if len(key) < shared || string(key[:shared]) != string(x.shared) {
		if bytes.Compare(key, x.shared) < 0 {
			return 0, 0
		}
		return x.numbers.n, 0
	}
	p := prefix(key, shared)
	i = x.numbers.Rank(p)
	if i == x.numbers.n || x.numbers.At(i) != p {
		return i, 0
	}
	if p == math.MaxUint64 {
		return i, x.numbers.n - i
	}
	return i, x.numbers.Rank(p+1) - i
}

// Number returns the eight bytes of a key from an offset on, big-endian and zero-padded.
func Number(key []byte, from int) uint64 { return prefix(key, from) }
