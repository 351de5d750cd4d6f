// Package fence finds the first key of a sorted list that is not below a given one, reading
// only a few cache lines: which table of a level may hold a key, or which block of a table.
package fence

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"

	"github.com/siftdb/sift/internal/base"
)

// Index is a search tree over a sorted list of keys. It stores the keys' common prefix once,
// and of each key the eight bytes after that prefix as a number, big-endian and zero-padded,
// which decides most comparisons. The numbers are in groups of eight, one cache line each; the
// last numbers of the groups form the next list, up to a list of one group. A search counts
// the smaller numbers in one group of each list, without data-dependent branches.
//
// The zero Index has no keys.
type Index struct {
	shared []byte
	n      int
	lists  [][]group // from the root to the leaves
}

type group [groupLen]uint64

const groupLen = 8

// New returns an index of n ascending keys. It keeps no reference to them.
func New(n int, key func(i int) []byte) Index {
	if n == 0 {
		return Index{}
	}
	// The keys are sorted, so all share what the first and the last share.
	first, last := key(0), key(n-1)
	shared := base.CommonPrefix(first, last)
	x := Index{shared: bytes.Clone(first[:shared]), n: n}
	list := newList(n, func(i int) uint64 { return prefix(key(i), shared) })
	x.lists = [][]group{list}
	for len(list) > 1 {
		below := list
		list = newList(len(below), func(i int) uint64 { return below[i][groupLen-1] })
		x.lists = append([][]group{list}, x.lists...)
	}
	return x
}

// newList arranges n ascending numbers in groups. It pads the last group with the largest
// number.
func newList(n int, number func(i int) uint64) []group {
	list := make([]group, (n+groupLen-1)/groupLen)
	for i := range list {
		for j := range list[i] {
			list[i][j] = math.MaxUint64
			if at := i*groupLen + j; at < n {
				list[i][j] = number(at)
			}
		}
	}
	return list
}

// prefix returns the eight bytes of a key from an offset on, as a number of the same order.
func prefix(key []byte, from int) uint64 {
	n := len(key) - from
	switch {
	case n >= 8:
		return binary.BigEndian.Uint64(key[from:])
	case len(key) >= 8: // the end of the key, without what comes before
		return binary.BigEndian.Uint64(key[len(key)-8:]) << (8 * uint(8-n))
	}
	var p uint64
	for i, c := range key[from:] {
		p |= uint64(c) << (56 - 8*i)
	}
	return p
}

// Find returns i, the number of keys that are certainly below key, and ties, the number of keys
// after those for which the index cannot tell: the first key that is not below key is among
// these or right after them.
func (x *Index) Find(key []byte) (i, ties int) {
	shared := len(x.shared)
	if len(key) < shared || string(key[:shared]) != string(x.shared) {
		if bytes.Compare(key, x.shared) < 0 {
			return 0, 0
		}
		return x.n, 0
	}
	p := prefix(key, shared)
	i = x.rank(p)
	if i == x.n || x.lists[len(x.lists)-1][i/groupLen][i%groupLen] != p {
		return i, 0
	}
	if p == math.MaxUint64 {
		return i, x.n - i
	}
	return i, x.rank(p+1) - i
}

// rank returns the number of numbers below p.
func (x *Index) rank(p uint64) int {
	i := 0
	for _, list := range x.lists {
		if i >= len(list) {
			return x.n
		}
		g := &list[i]
		_, b0 := bits.Sub64(g[0], p, 0)
		_, b1 := bits.Sub64(g[1], p, 0)
		_, b2 := bits.Sub64(g[2], p, 0)
		_, b3 := bits.Sub64(g[3], p, 0)
		_, b4 := bits.Sub64(g[4], p, 0)
		_, b5 := bits.Sub64(g[5], p, 0)
		_, b6 := bits.Sub64(g[6], p, 0)
		_, b7 := bits.Sub64(g[7], p, 0)
		i = groupLen*i + int(b0+b1+b2+b3+b4+b5+b6+b7)
	}
	return min(i, x.n)
}

// Shared returns the common prefix of all keys. It must not be modified.
func (x *Index) Shared() []byte { return x.shared }

// Number returns the eight bytes of a key from an offset on, big-endian and zero-padded.
func Number(key []byte, from int) uint64 { return prefix(key, from) }

// Number returns the eight bytes of key i after the common prefix, big-endian and zero-padded.
func (x *Index) Number(i int) uint64 { return x.lists[len(x.lists)-1][i/groupLen][i%groupLen] }

// Len returns the number of keys.
func (x *Index) Len() int { return x.n }

// Bytes returns the index's memory in bytes, without Shared.
func (x *Index) Bytes() int64 {
	n := int64(0)
	for _, list := range x.lists {
		n += int64(cap(list)) * int64(unsafe.Sizeof(group{}))
	}
	return n
}
