package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// exactRanges is a range filter without false positives.
type exactRanges map[string][]uint64

func (f exactRanges) Add(prefix []byte, x uint64) { f[string(prefix)] = append(f[string(prefix)], x) }
func (f exactRanges) NumKeys() int                { return len(f) }
func (f exactRanges) Finish() ([]byte, error)     { return nil, nil }
func (f exactRanges) MayContainRange(prefix []byte, lo, hi uint64) bool {
	return slices.ContainsFunc(f[string(prefix)], func(x uint64) bool { return lo <= x && x <= hi })
}
func (f exactRanges) FPR(uint64) float64 { return 0 }
func (f exactRanges) SizeBytes() int     { return 0 }

// words returns all strings of up to n bytes of an alphabet, ascending.
func words(alphabet string, n int) (list []string) {
	list = []string{""}
	for level := list; n > 0; n-- {
		var next []string
		for _, w := range level {
			for _, b := range []byte(alphabet) {
				next = append(next, w+string([]byte{b}))
			}
		}
		list, level = append(list, next...), next
	}
	slices.Sort(list)
	return list
}

// TestRangesOfFewKeys compares a filter's answers for all ranges of short keys with a list of the
// keys: no range that holds a key may be excluded and, in an alphabet without zeros, each empty
// range within a prefix must be.
func TestRangesOfFewKeys(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		alphabet := []string{"\x01/\xff", "./0", "\x00/\xff"}[seed%3]
		zeros := strings.Contains(alphabet, "\x00")
		all := words(alphabet, 4)
		var k rangeKeys
		var keys []string
		for _, w := range all {
			if rng.IntN(20) == 0 {
				keys = append(keys, w)
				k.add([]byte(w))
			}
		}
		bounds := words(alphabet, 3)
		for _, prefixer := range []Prefixer{nil, FixedPrefix(1), PrefixUpTo('/', 1), emptyPrefix{}} {
			for at := range 3 {
				if prefixer != nil && at > 0 {
					break
				}
				for _, symbols := range []bool{true, false} {
					h := filterOfKeys(&k, prefixer, at, symbols)
					desc := fmt.Sprintf("seed %d, prefix %v, at %d, symbols %t", seed, prefixer, at, symbols)
					for i, from := range bounds {
						for _, to := range bounds[i+1:] {
							first, _ := slices.BinarySearch(keys, from)
							holds := first < len(keys) && keys[first] < to
							may := h.mayContain([]byte(from), []byte(to))
							if holds && !may {
								t.Fatalf("%s: [%q, %q) is excluded, but holds %q", desc, from, to, keys[first])
							}
							if !holds && may && !zeros && isWithin(h, from, to) {
								t.Fatalf("%s: [%q, %q) is empty and not excluded; the keys are %q", desc, from, to, keys)
							}
						}
					}
				}
			}
		}
	}
}

// filterOfKeys returns a range filter of the keys, split by a prefixer or at a length.
func filterOfKeys(k *rangeKeys, prefixer Prefixer, at int, withSymbols bool) *heldRange {
	f := exactRanges{}
	h := &heldRange{reader: f, prefixer: prefixer}
	if prefixer == nil {
		h.prefixer = fixedPrefix(at)
	}
	length := func([]byte) int { return at }
	if prefixer != nil {
		length = prefixer.PrefixLen
	}
	if withSymbols {
		h.symbols = k.splitBy("", length).symbols
	}
	k.each(func(key []byte) {
		n := length(key)
		switch {
		case n < 0:
		case !withSymbols:
			f.Add(splitKey(key, n))
		case n > len(key):
			f.Add(key, 0)
		default:
			f.Add(key[:n], h.symbols.number(key[n:]))
		}
	})
	return h
}

// isWithin reports whether all keys of a range have the same prefix, and numbers can represent both
// bounds exactly.
func isWithin(h *heldRange, from, to string) bool {
	n := h.prefixer.PrefixLen([]byte(from))
	if n < 0 || n > len(from) || h.symbols != nil && len(from)-n > len(h.symbols.positions) {
		return false
	}
	end := base.AppendPrefixEnd(nil, []byte(from[:n]))
	return strings.HasPrefix(to, from[:n]) || h.symbols != nil && end != nil && bytes.Equal(end, []byte(to))
}
