package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// TestModel compares tables of many shapes with a sorted slice, by Get of every key and
// of keys close to it, by scans, and by random iterator moves.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		list := randomEntries(rng, 1+rng.IntN(300))
		o := &WriterOptions{
			BlockBytes:         1 + rng.IntN(600),
			RestartInterval:    1 + rng.IntN(20),
			DisableCompression: rng.IntN(2) == 0,
			Filter:             hashList{unitKeys: rng.IntN(3)},
		}
		ro := &ReaderOptions{Policies: []filter.Policy{hashList{}}}
		switch rng.IntN(3) {
		case 0:
			ro.Cache = NewBlockCache(1 << 20)
		case 1:
			ro.Cache = NewBlockCache(2000)
		}
		name := fmt.Sprintf("seed %d, %d entries, blocks of %d, restarts every %d", seed, len(list), o.BlockBytes, o.RestartInterval)
		data, _ := buildTable(t, list, o)
		r := openTable(t, data, ro)
		if s, err := r.FilterStatus(); s != FilterOK || err != nil {
			t.Fatalf("%s: filter is %v: %v", name, s, err)
		}
		for _, io := range []*IterOptions{nil, {DontFillCache: true}, {Readahead: true}, {DontFillCache: true, Readahead: true}} {
			if err := checkScan(r, list, io); err != nil {
				t.Fatalf("%s: %+v: %v", name, io, err)
			}
		}
		for _, e := range list {
			for _, seq := range []uint64{0, e.seq - 1, e.seq, e.seq + 1, base.MaxSequence} {
				for _, key := range []string{e.key, e.key + "\x00", e.key + "a", e.key[:len(e.key)/2]} {
					if err := checkGet(r, list, key, seq&base.MaxSequence); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
		}
		checkMoves(t, name, rng, r, list)
		if err := r.Verify(t.Context(), func(err error) { t.Errorf("%s: %v", name, err) }); err != nil {
			t.Fatal(err)
		}
	}
}

// checkMoves makes random moves with an iterator and compares each position with that in the sorted
// slice.
func checkMoves(t *testing.T, name string, rng *rand.Rand, r *Reader, list []kv) {
	t.Helper()
	it := r.NewIter(&IterOptions{DontFillCache: rng.IntN(2) == 0})
	defer it.Close()
	pos, valid := 0, false
	for range 400 {
		var got bool
		var what string
		switch op := rng.IntN(10); {
		case op == 0:
			what, got, pos = "First", it.First(), 0
		case op == 1:
			what, got, pos = "Last", it.Last(), len(list)-1
		case op <= 3:
			e := list[rng.IntN(len(list))]
			if rng.IntN(2) == 0 {
				e.key += "\x00"
			}
			e.seq = uint64(rng.IntN(5 * len(list)))
			target := e.ikey()
			i, _ := slices.BinarySearchFunc(list, target, func(a kv, k []byte) int { return base.CompareInternal(a.ikey(), k) })
			if op == 2 {
				what, got, pos = fmt.Sprintf("SeekGE(%q)", target), it.SeekGE(target), i
			} else {
				what, got, pos = fmt.Sprintf("SeekLT(%q)", target), it.SeekLT(target), i-1
			}
		case op <= 6:
			if !valid {
				continue
			}
			what, got = "Next", it.Next()
			pos++
		default:
			if !valid {
				continue
			}
			what, got = "Prev", it.Prev()
			pos--
		}
		valid = pos >= 0 && pos < len(list)
		if got != valid || it.Valid() != valid || it.Err() != nil {
			t.Fatalf("%s: %s returned %v, Valid %v, %v; want %v", name, what, got, it.Valid(), it.Err(), valid)
		}
		if valid && (!bytes.Equal(it.Key(), list[pos].ikey()) || string(it.Value()) != list[pos].value) {
			t.Fatalf("%s: after %s at %q = %q; want %+v", name, what, it.Key(), it.Value(), list[pos])
		}
	}
}
