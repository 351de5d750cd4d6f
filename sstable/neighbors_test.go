package sstable

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// TestNeighbors compares Get and seeks of every key of tables with many blocks, and of keys close
// to it, with a search of the sorted entries.
func TestNeighbors(t *testing.T) {
	shapes := []struct {
		name string
		key  func(rng *rand.Rand, i int) string
	}{
		{"random", func(rng *rand.Rand, _ int) string {
			return string(binary.BigEndian.AppendUint64(nil, rng.Uint64()))
		}},
		{"sequential", func(_ *rand.Rand, i int) string { return fmt.Sprintf("key%012d", 2*i) }},
		{"binary counter", func(_ *rand.Rand, i int) string {
			return "\xff" + string(binary.BigEndian.AppendUint32(nil, uint32(i)<<7))
		}},
		{"URL", func(rng *rand.Rand, i int) string {
			return fmt.Sprintf("https://host%d.example/%s/%d", rng.IntN(5), strings.Repeat("dir/", rng.IntN(4)), i)
		}},
		{"long", func(rng *rand.Rand, i int) string {
			return strings.Repeat("x", 70+rng.IntN(3)) + fmt.Sprintf("%04d", rng.IntN(2000))
		}},
		{"last bytes", func(rng *rand.Rand, _ int) string {
			b := []byte(strings.Repeat("\xff", rng.IntN(12)))
			for range rng.IntN(12) {
				b = append(b, []byte{0, 1, 0xfe, 0xff}[rng.IntN(4)])
			}
			return string(b)
		}},
		{"zeros", func(rng *rand.Rand, _ int) string {
			return strings.Repeat("a", rng.IntN(2)) + strings.Repeat("\x00", rng.IntN(40)) + strings.Repeat("\x01", rng.IntN(2))
		}},
		{"few keys", func(rng *rand.Rand, _ int) string { return fmt.Sprintf("same-for-all-%d", rng.IntN(4)) }},
		{"two far apart", func(rng *rand.Rand, i int) string {
			return strings.Repeat("\xff", 9*(i%2)) + fmt.Sprintf("%06d", i)
		}},
	}
	for seed, shape := range shapes {
		rng := rand.New(rand.NewPCG(uint64(seed), 17))
		for _, n := range []int{1, 2, 31, 32, 33, 34, 64, 65, 66, 700} {
			var list []kv
			for i := range n {
				list = append(list, kv{shape.key(rng, i), uint64(i + 1), KindSet, fmt.Sprint(i)})
			}
			list = sortEntries(list)
			data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 1 + 60*rng.IntN(2), DisableCompression: rng.IntN(2) == 0})
			r := openTable(t, data, &ReaderOptions{Cache: NewBlockCache(int64(rng.IntN(2) * 30_000))})
			checkNeighbors(t, fmt.Sprintf("%s, %d entries, %d blocks", shape.name, n, r.numBlocks), r, list)
			if t.Failed() {
				return
			}
		}
	}
}

// checkNeighbors compares Get and seeks of the keys in the list, and of keys close to them, with
// the list, which must be sorted.
func checkNeighbors(t *testing.T, name string, r *Reader, list []kv) {
	t.Helper()
	keys := []string{"", "\x00", "\xff", strings.Repeat("\xff", 30)}
	for _, e := range list {
		keys = append(keys, e.key, e.key+"\x00", e.key+"\xff")
		if n := len(e.key); n > 0 {
			b := []byte(e.key)
			b[n-1]--
			keys = append(keys, e.key[:n-1], e.key[:n/2], string(b), string(b)+"\xff\xff")
			b[n-1] += 2
			keys = append(keys, string(b))
		}
	}
	slices.Sort(keys)
	it := r.NewIter(nil)
	defer it.Close()
	encoded := make([][]byte, len(list))
	for i, e := range list {
		encoded[i] = e.ikey()
	}
	at := func(i int) string {
		if i < 0 || i >= len(list) {
			return "nothing"
		}
		return fmt.Sprintf("%q", encoded[i])
	}
	now := func(ok bool) string {
		switch {
		case it.Err() != nil:
			return it.Err().Error()
		case !ok:
			return "nothing"
		}
		return fmt.Sprintf("%q", it.Key())
	}
	for _, key := range slices.Compact(keys) {
		for _, seq := range []uint64{0, uint64(len(list) / 2), base.MaxSequence} {
			target := base.AppendInternalKey(nil, []byte(key), seq, base.KindSeek)
			i, _ := slices.BinarySearchFunc(encoded, target, base.CompareInternal)
			if got := now(it.SeekGE(target)); got != at(i) {
				t.Fatalf("%s: SeekGE(%q) leads to %s, want %s", name, target, got, at(i))
			}
			if got := now(it.SeekLT(target)); got != at(i-1) {
				t.Fatalf("%s: SeekLT(%q) leads to %s, want %s", name, target, got, at(i-1))
			}
			want, found := "", i < len(list) && list[i].key == key
			if found {
				want = list[i].value
			}
			if v, _, _, ok, err := r.Get([]byte(key), seq); err != nil || ok != found || string(v) != want {
				t.Fatalf("%s: Get(%q, %d) returns %q, %t, %v, want %q, %t", name, key, seq, v, ok, err, want, found)
			}
		}
	}
}
