package manifest

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"github.com/siftdb/sift/internal/base"
)

// levelIndex finds a table of a level >= 1 by user key. The largest user keys
// often begin alike, so the index drops what all of them share and keeps the
// next eight bytes of each, big-endian and padded with zeros, in one flat array:
// a search touches a few cache lines and compares whole keys only on a tie.
type levelIndex struct {
	shared   []byte
	prefixes []uint64
}

func newLevelIndex(tables []*TableMeta) levelIndex {
	if len(tables) == 0 {
		return levelIndex{}
	}
	// The keys are sorted: what the first and the last share, all share.
	first, last := base.UserKey(tables[0].Largest), base.UserKey(tables[len(tables)-1].Largest)
	n := 0
	for n < len(first) && n < len(last) && first[n] == last[n] {
		n++
	}
	x := levelIndex{shared: slices.Clip(first[:n]), prefixes: make([]uint64, len(tables))}
	for i, t := range tables {
		x.prefixes[i] = keyPrefix(base.UserKey(t.Largest)[n:])
	}
	return x
}

// keyPrefix returns the first eight bytes of b as a number that orders as they
// do. Keys whose prefixes differ are ordered by them; equal prefixes say nothing.
func keyPrefix(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var p uint64
	for i, c := range b {
		p |= uint64(c) << (56 - 8*i)
	}
	return p
}

// find returns the index of the first table whose largest user key is >= key.
func (x *levelIndex) find(tables []*TableMeta, key []byte) int {
	if n := len(x.shared); n > 0 {
		if len(key) < n || !bytes.Equal(key[:n], x.shared) {
			if bytes.Compare(key, x.shared) < 0 {
				return 0
			}
			return len(tables)
		}
		key = key[n:]
	}
	p := keyPrefix(key)
	lo := firstAtLeast(x.prefixes, p)
	if lo == len(x.prefixes) || x.prefixes[lo] != p {
		return lo
	}
	// Tables of the same prefix are told apart by whole keys.
	n := len(x.prefixes) - lo
	if p != math.MaxUint64 {
		n = firstAtLeast(x.prefixes[lo:], p+1)
	}
	return lo + sort.Search(n, func(i int) bool {
		return bytes.Compare(base.UserKey(tables[lo+i].Largest)[len(x.shared):], key) >= 0
	})
}

// firstAtLeast returns the index of the first number >= p in the sorted a,
// len(a) if there is none. Every step halves whatever the comparison says.
func firstAtLeast(a []uint64, p uint64) int {
	lo := 0
	for n := len(a); n > 0; {
		half := (n + 1) / 2
		if a[lo+half-1] < p {
			lo += half
		}
		n -= half
	}
	return lo
}
