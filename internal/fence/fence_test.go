package fence

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// check compares Find with a search over the whole keys.
func check(t *testing.T, x *Index, keys [][]byte, key []byte) {
	t.Helper()
	i, ties := x.Find(key)
	want := sort.Search(len(keys), func(i int) bool { return bytes.Compare(keys[i], key) >= 0 })
	if i > want || want > i+ties || i+ties > len(keys) {
		t.Fatalf("%d keys, %q: %d and %d more, want %d", len(keys), key, i, ties, want)
	}
	if ties == 0 && i < len(keys) && bytes.Equal(keys[i], key) {
		t.Fatalf("%d keys: %q is not found", len(keys), key)
	}
}

func TestFind(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 513, 5000} {
		for _, shape := range []struct {
			name          string
			shared, bytes int // lengths of a key's common and random parts
			alphabet      int
		}{
			{"random", 0, 16, 256}, {"decimal", 9, 7, 10}, {"short", 0, 3, 256}, {"ties", 3, 20, 2},
			{"long", 40, 4, 256}, {"edges", 1, 9, -2}, {"empty and short", 0, -10, 256},
		} {
			randomKey := func() []byte {
				key := bytes.Repeat([]byte("x"), shape.shared)
				length := shape.bytes
				if length < 0 {
					length = rng.IntN(-length)
				}
				for range length {
					c := byte(0)
					if shape.alphabet > 0 {
						c = byte(rng.IntN(shape.alphabet))
					} else if rng.IntN(-shape.alphabet) == 0 {
						c = 255
					}
					key = append(key, c)
				}
				return key
			}
			var keys [][]byte
			for range n {
				keys = append(keys, randomKey())
			}
			slices.SortFunc(keys, bytes.Compare)
			x := New(len(keys), func(i int) []byte { return keys[i] })
			if x.numbers.n != n {
				t.Fatalf("%d keys of %d", x.numbers.n, n)
			}
			for range 300 {
				key := randomKey()
				check(t, &x, keys, key)
				check(t, &x, keys, append(key, 0))
				check(t, &x, keys, key[:rng.IntN(len(key)+1)])
				check(t, &x, keys, bytes.Repeat([]byte{255}, rng.IntN(60)))
				if n > 0 {
					check(t, &x, keys, keys[rng.IntN(n)])
				}
			}
			// Keys that differ within eight bytes after the common prefix are no ties.
			if shape.name == "random" && n > 0 {
				if i, ties := x.Find(keys[n/2]); i != n/2 || ties != 1 {
					t.Errorf("%d keys: %d and %d more", n, i, ties)
				}
			}
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte("ab\x00abc\x00abcdefghijk\x00abcdefghijkl"), []byte("abcdefghijk"))
	f.Fuzz(func(t *testing.T, list, key []byte) {
		keys := bytes.Split(list, []byte{0})
		slices.SortFunc(keys, bytes.Compare)
		x := New(len(keys), func(i int) []byte { return keys[i] })
		check(t, &x, keys, key)
		for _, k := range keys {
			check(t, &x, keys, k)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{8, 60, 500, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			keys := make([][]byte, n)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "%016d", rng.IntN(4_000_000))
			}
			slices.SortFunc(keys, bytes.Compare)
			x := New(n, func(i int) []byte { return keys[i] })
			targets := make([][]byte, 1<<12)
			for i := range targets {
				targets[i] = fmt.Appendf(nil, "%016d", rng.IntN(4_000_000))
			}
			i := 0
			for b.Loop() {
				x.Find(targets[i%len(targets)])
				i++
			}
		})
	}
}
