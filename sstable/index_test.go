package sstable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
	"github.com/siftdb/sift/internal/fence"
)

// TestIndexFind compares find with a linear search of the separators.
func TestIndexFind(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	for round := range 400 {
		common := strings.Repeat("c", rng.IntN(12))
		letters := 1 + rng.IntN(3)
		word := func() []byte {
			b := []byte(common)
			for range rng.IntN(14) {
				b = append(b, 'a'+byte(rng.IntN(letters)))
			}
			return b
		}
		var seps [][]byte
		for range 1 + rng.IntN(90) {
			seps = append(seps, base.AppendInternalKey(nil, word(), uint64(rng.IntN(3)), base.KindSet))
		}
		if round%2 == 0 { // a successor, as at the end of a table
			seps = append(seps, base.AppendInternalKey(nil, []byte("d"), base.MaxSequence, base.KindSeek))
		}
		slices.SortFunc(seps, base.CompareInternal)
		seps = slices.CompactFunc(seps, slices.Equal[[]byte])
		w := blockWriter{interval: 1 + rng.IntN(3)}
		for i, s := range seps {
			w.add(s, w.shared(s), appendHandle(nil, Handle{uint64(i) * 100, 95 - uint64(round/2%2)})) // without gaps, or with them
		}
		x, err := decodeIndex(w.finish(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		targets := [][]byte{nil, {0xff}, bytes.Repeat([]byte{0xff}, 8), []byte("c"), []byte("d"), []byte("e"), []byte(common + "\xff\xff\xff\xff\xff\xff\xff\xff\xff")}
		for range 50 {
			targets = append(targets, word())
		}
		number := func(i int) uint64 { return fence.Number(base.UserKey(seps[i]), len(x.shared)) }
		for _, s := range seps {
			targets = append(targets, base.UserKey(s))
		}
		for _, target := range targets {
			shares := bytes.HasPrefix(target, x.shared)
			if shares {
				checkRank(t, x, seps, fence.Number(target, len(x.shared)))
			}
			for i := range seps {
				want := shares && i < len(seps)-1 && fence.Number(target, len(x.shared)) < number(i) &&
					(i == 0 || fence.Number(target, len(x.shared)) > number(i-1))
				if got := x.within(target, i); got != want {
					t.Fatalf("round %d: within(%q, %d) among %q: %t", round, target, i, seps, got)
				}
			}
			for _, trailer := range []uint64{0, base.Trailer(1, base.KindSeek), base.Trailer(base.MaxSequence, base.KindSeek)} {
				want := slices.IndexFunc(seps, func(s []byte) bool { return compareTo(s, target, trailer) >= 0 })
				if want < 0 {
					want = len(seps)
				}
				if got := x.find(target, trailer); got != want {
					t.Fatalf("round %d: block %d for %q/%x among %q, want %d", round, got, target, trailer, seps, want)
				}
			}
		}
	}
}

// checkRank compares the results of rank and ties with those of a linear search.
func checkRank(t *testing.T, x *packedIndex, seps [][]byte, p uint64) {
	t.Helper()
	below, equal := 0, 0
	for _, s := range seps[:len(seps)-1] {
		switch n := fence.Number(base.UserKey(s), len(x.shared)); {
		case n < p:
			below++
		case n == p:
			equal++
		}
	}
	i, tie := x.rank(p)
	if i != below || tie != (equal > 0) {
		t.Fatalf("%#x has rank %d, tie %t, among %q; want %d, %d ties", p, i, tie, seps, below, equal)
	}
	if tie && x.ties(i, p) != equal {
		t.Fatalf("%#x has %d ties among %q, want %d", p, x.ties(i, p), seps, equal)
	}
}

// TestIndexCommon checks that the last separator, which shares no prefix with the others, does not
// affect the prefix that those share.
func TestIndexCommon(t *testing.T) {
	data, _ := buildTable(t, numbered(1000), &WriterOptions{BlockBytes: 200})
	x := openTable(t, data, nil).index.Load()
	for i := range x.numBlocks() - 1 {
		key := base.UserKey(x.separator(new(separatorBuf), i))
		p := fence.Number(key, len(x.shared))
		if at, tie := x.rank(p); at != i || !tie || x.ties(i, p) != 1 {
			t.Errorf("separator %d has rank %d, tie %t, %d ties", i, at, tie, x.ties(i, p))
		}
	}
	if last := string(base.UserKey(x.separator(new(separatorBuf), x.numBlocks()-1))); last != "l" {
		t.Errorf("the last separator is %q", last)
	}
}

// TestIndexHolds checks that an index returns the separators and handles that it was built from.
func TestIndexHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 2000 {
		common := bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(12))
		longest := []int{0, 1, 8, 9, 12, 127, 128, 300}[rng.IntN(8)]
		var seps [][]byte
		for range 1 + rng.IntN(100) {
			key := bytes.Clone(common)
			for range rng.IntN(longest + 1) {
				key = append(key, byte(rng.IntN(3))*127) // with zeros, which fence numbers are padded with
			}
			seq, kind := base.MaxSequence, base.KindSeek
			switch rng.IntN(3 + round%3) {
			case 0:
				seq, kind = uint64(rng.IntN(3)), base.KindSet
			case 3: // an unknown kind, as in the largest trailer; and the smallest
				seq, kind = base.MaxSequence*uint64(rng.IntN(2)), base.Kind(255*rng.IntN(2))
			case 4:
				seq, kind = 1<<40+uint64(rng.IntN(1000)), base.KindSet
			}
			seps = append(seps, base.AppendInternalKey(nil, key, seq, kind))
		}
		slices.SortFunc(seps, base.CompareInternal)
		seps = slices.CompactFunc(seps, slices.Equal[[]byte])
		w := blockWriter{interval: 1 + rng.IntN(3)}
		var handles []Handle
		at := rng.Uint64N(1 << 40)
		for _, s := range seps {
			h := Handle{at, uint64(400 + rng.IntN(8<<10))}
			switch {
			case round%4 == 1 && rng.IntN(20) == 0:
				h.Length = math.MaxUint16 + uint64(rng.IntN(3))
			case round%4 == 2 && rng.IntN(20) == 0:
				h.Offset++
			}
			at = h.end()
			handles = append(handles, h)
			w.add(s, w.shared(s), appendHandle(nil, h))
		}
		x, err := decodeIndex(w.finish(), 1<<62)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range seps {
			if got := x.separator(new(separatorBuf), i); !bytes.Equal(got, want) || x.separatorLen(i) != len(want) {
				t.Fatalf("round %d: separator %d of %d is %q, want %q", round, i, len(seps), got, want)
			}
			for _, key := range [][]byte{base.UserKey(want), base.UserKey(seps[rng.IntN(len(seps))]), common, append(bytes.Clone(base.UserKey(want)), 0)} {
				if got := x.endsAt(i, key); got != bytes.Equal(base.UserKey(want), key) {
					t.Fatalf("round %d: separator %d of %d is %q, endsAt(%q) is %t", round, i, len(seps), want, key, got)
				}
			}
			if got := x.handle(i); got != handles[i] {
				t.Fatalf("round %d: block %d of %d is at %v, want %v", round, i, len(seps), got, handles[i])
			}
		}
	}
}

// TestIndexBytes checks the memory per block, including the cache's pointers, and that lookups do
// not allocate.
func TestIndexBytes(t *testing.T) {
	for _, c := range []struct {
		name  string
		key   func(i int) []byte
		bytes float64 // at most
	}{
		{"random", func(i int) []byte {
			return binary.BigEndian.AppendUint64(nil, uint64(i)<<44|uint64(i)*0x9e3779b97f4a7c15>>20)
		}, 9},
		{"every other", func(i int) []byte { return fmt.Appendf(nil, "%016d", 2*i) }, 12},
		{"one after another", func(i int) []byte { return fmt.Appendf(nil, "%016d", i) }, 12}, // no short separators exist
	} {
		var entries []kv
		for i := range 40_000 {
			entries = append(entries, kv{string(c.key(i)), 7, KindSet, strings.Repeat("v", 100)})
		}
		data, _ := buildTable(t, entries, &WriterOptions{DisableCompression: true})
		r := openTable(t, data, &ReaderOptions{Cache: NewBlockCache(1 << 20)})
		n := r.index.Load().numBlocks()
		if per := float64(r.index.Load().bytesHeld()) / float64(n); n < 1000 || per > c.bytes {
			t.Errorf("%s: %d blocks take %.1f bytes each", c.name, n, per)
		}
		i := 0
		if allocs := testing.AllocsPerRun(100, func() {
			r.index.Load().find([]byte(entries[i*391].key), base.MaxSequence)
			r.index.Load().endsAt(i, []byte(entries[i*391].key))
			i++
		}); allocs != 0 {
			t.Errorf("%s: a lookup allocates %v times", c.name, allocs)
		}
	}
}
