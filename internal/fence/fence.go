// Package fence finds the first key of a sorted list that is not below a given
// one, in a few cache lines: which table of a level may hold it, which block of a
// table.
package fence

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"
)

// Index is a sorted list of keys, laid out for searching. What all keys begin
// with is kept once; the eight bytes behind it, big-endian and padded with zeros,
// order most of them as numbers. The numbers lie in groups of eight, a cache line
// each, and the last numbers of the groups make a smaller list of the same form,
// up to a list of one group. A search counts the smaller numbers of one group in
// each list, so that no branch depends on them.
//
// The zero Index is one over no keys.
type Index struct {
	shared []byte
	n      int
	lists  [][]group // the smallest first
}

type group [groupLen]uint64

const groupLen = 8

// New returns the index of n keys, ascending. It aliases none of them.
func New(n int, key func(i int) []byte) Index {
	if n == 0 {
		return Index{}
	}
	// The keys are sorted: what the first and the last share, all share.
	first, last := key(0), key(n-1)
	shared := 0
	for shared < min(len(first), len(last)) && first[shared] == last[shared] {
		shared++
	}
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

// newList lays n ascending numbers out in groups. What is left of the last one is
// filled up with the largest number there is.
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

// prefix returns the eight bytes of a key from one on as a number that orders as
// they do.
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

// Find returns the number of keys that are certain to be below key, and how many
// of those that follow the index cannot tell from it: the first key that is not
// below it is among them or right behind them.
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

// rank returns how many numbers are below p.
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

// Shared returns what all keys begin with. It must not be changed.
func (x *Index) Shared() []byte { return x.shared }

// Number returns the eight bytes of key i behind what all begin with, big-endian and
// padded with zeros.
func (x *Index) Number(i int) uint64 { return x.lists[len(x.lists)-1][i/groupLen][i%groupLen] }

// Len returns the number of keys.
func (x *Index) Len() int { return x.n }

// Bytes is what the index takes in memory beside Shared.
func (x *Index) Bytes() int64 {
	n := int64(0)
	for _, list := range x.lists {
		n += int64(cap(list)) * int64(unsafe.Sizeof(group{}))
	}
	return n
}
