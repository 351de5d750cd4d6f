package fence

import (
	"math"
	"math/bits"
	"unsafe"
)

// Numbers is a search tree over a sorted list of numbers. They are in groups of eight, one cache
// line each; the last numbers of the groups form the next list, and so on up to a list of a single
// group. A search counts the smaller numbers in one group of each list, without data-dependent
// branches.
//
// The zero Numbers is empty.
type Numbers struct {
	n     int
	lists [][]group // from the root to the leaves
}

type group [groupLen]uint64

const groupLen = 8

// NewNumbers returns a search tree over n ascending numbers.
func NewNumbers(n int, number func(i int) uint64) Numbers {
	if n == 0 {
		return Numbers{}
	}
	list := newList(n, number)
	x := Numbers{n: n, lists: [][]group{list}}
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

// Rank returns how many of the numbers are below p.
func (x *Numbers) Rank(p uint64) int {
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

// At returns number i.
func (x *Numbers) At(i int) uint64 { return x.lists[len(x.lists)-1][i/groupLen][i%groupLen] }

// Bytes returns the memory of the tree's numbers in bytes.
func (x *Numbers) Bytes() int64 {
	n := int64(0)
	for _, list := range x.lists {
		n += int64(cap(list)) * int64(unsafe.Sizeof(group{}))
	}
	return n
}
