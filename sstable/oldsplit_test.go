package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift/filter"
)

// TestSplitWithoutSymbols checks that range filters of tables whose split has no symbols are probed
// for the 8 bytes after the prefix, and exclude no key.
func TestSplitWithoutSymbols(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var keys [][]byte
	w := filter.Range(14, 0).NewWriter()
	for range 2000 {
		keys = append(keys, fmt.Appendf(nil, "k%d/%x", rng.IntN(9), rng.Uint64()>>rng.IntN(60)))
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, k := range keys {
		w.Add(splitKey(k, 3))
	}
	block, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	r, err := filter.Range(14, 0).Open(block)
	if err != nil {
		t.Fatal(err)
	}
	if name, y := cutSymbols("at(3)"); name != "at(3)" || y != nil {
		t.Fatalf("at(3) is %q with symbols %v", name, y)
	}
	h := &heldRange{reader: r, prefixer: fixedPrefix(3)}
	excluded := 0
	for range 20_000 {
		from := bytes.Clone(keys[rng.IntN(len(keys))])
		if rng.IntN(2) == 0 {
			from[len(from)-1]++
		}
		to := append(bytes.Clone(from), byte(rng.IntN(3)))
		if rng.IntN(2) == 0 {
			to = bytes.Clone(from)
			to[len(to)-1]++
		}
		i, _ := slices.BinarySearchFunc(keys, from, bytes.Compare)
		has := i < len(keys) && bytes.Compare(keys[i], to) < 0
		may := h.mayContain(from, to)
		if has && !may {
			t.Fatalf("%q to %q is excluded, but holds %q", from, to, keys[i])
		}
		if !may {
			excluded++
		}
	}
	if excluded < 1000 {
		t.Errorf("only %d ranges are excluded", excluded)
	}
	// Ranges whose end has eight or more bytes after the prefix.
	exact := exactRanges{}
	exact.Add(splitKey([]byte("12345678a"), 0))
	h = &heldRange{reader: exact, prefixer: fixedPrefix(0)}
	for to, want := range map[string]bool{"12345678": false, "12345679": true, "12345678b": true} {
		if may := h.mayContain([]byte("12345670"), []byte(to)); may != want {
			t.Errorf("up to %q: %t", to, may)
		}
	}
}
