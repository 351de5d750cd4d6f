package sstable

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/siftdb/sift/internal/base"
)

// TestIndexFind compares find with a walk over all separators.
func TestIndexFind(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	for round := range 400 {
		common := strings.Repeat("c", rng.IntN(12))
		letters := 1 + rng.IntN(3)
		word := func() []byte {
			b := []byte(common)
			for range rng.IntN(12) {
				b = append(b, 'a'+byte(rng.IntN(letters)))
			}
			return b
		}
		var seps [][]byte
		for range 1 + rng.IntN(20) {
			seps = append(seps, base.AppendInternalKey(nil, word(), uint64(rng.IntN(3)), base.KindSet))
		}
		if round%2 == 0 { // a successor, as at the end of a table
			seps = append(seps, base.AppendInternalKey(nil, []byte("d"), base.MaxSequence, base.KindSeek))
		}
		slices.SortFunc(seps, base.CompareInternal)
		seps = slices.CompactFunc(seps, slices.Equal[[]byte])
		w := blockWriter{interval: 1 + rng.IntN(3)}
		for i, s := range seps {
			w.add(s, w.shared(s), appendHandle(nil, Handle{uint64(i) * 100, 90}))
		}
		x, err := decodeIndex(w.finish(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		targets := [][]byte{nil, {0xff}, []byte("c"), []byte("d"), []byte("e"), []byte(common + "\xff\xff\xff\xff\xff\xff\xff\xff\xff")}
		for range 50 {
			targets = append(targets, word())
		}
		for _, target := range targets {
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

// TestIndexCommon: the separator behind the last block has nothing in common with the
// others, and does not spoil what they have.
func TestIndexCommon(t *testing.T) {
	data, _ := buildTable(t, numbered(1000), &WriterOptions{BlockBytes: 200})
	x := openTable(t, data, nil).index
	for i := range x.numBlocks() - 1 {
		if at, ties := x.fence.Find(base.UserKey(x.separator(i))); at != i || ties != 1 {
			t.Errorf("separator %d is found at %d and the %d from there on", i, at, ties)
		}
	}
	if last := string(base.UserKey(x.separator(x.numBlocks() - 1))); last != "l" {
		t.Errorf("the last separator is %q", last)
	}
}
