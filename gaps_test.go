package sift_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
)

// TestGapsGiveTheSameAnswers applies many deletions, mostly of runs of keys, to databases that
// record many gaps, few, or none: scans in both directions, with bounds and prefixes, on snapshots
// and old iterators, must give the same results.
func TestGapsGiveTheSameAnswers(t *testing.T) {
	const keys = 2000
	name := func(i int) []byte { return fmt.Appendf(nil, "k%d/%04d", i/500, i) }
	type replica struct {
		db    *sift.DB
		snaps []*sift.Snapshot
		iters []*sift.Iter
		trace []string
	}
	seeds, ops := uint64(4), 3000
	if testing.Short() {
		seeds, ops = 1, 1500
	}
	for seed := range seeds {
		var replicas []*replica
		for _, gapBytes := range []int{-1, 0, 1200} {
			for _, memtable := range []int{16 << 10, 4 << 20} {
				o := &sift.Options{MemtableBytes: memtable, TableBytes: 4 << 10, LevelBaseBytes: 32 << 10, LevelMultiplier: 4, BlockBytes: 256}
				if memtable > 1<<20 {
					o.Prefix = sift.PrefixUpTo('/', 1)
				}
				testhook.Apply(o, testhook.Settings{GapBytes: gapBytes})
				p := &replica{db: mustOpen(t, t.TempDir(), o)}
				replicas = append(replicas, p)
				rng := rand.New(rand.NewPCG(seed, 99))
				must := func(err error) {
					if err != nil {
						t.Fatal(err)
					}
				}
				see := func(it *sift.Iter, ok bool) {
					if ok != it.Valid() || it.Err() != nil {
						t.Fatalf("a move returns %v, Valid %v, Err %v", ok, it.Valid(), it.Err())
					}
					p.trace = append(p.trace, fmt.Sprintf("%s=%s", it.Key(), it.Value()))
				}
				move := func(it *sift.Iter) {
					switch k := name(rng.IntN(keys + 20)); rng.IntN(8) {
					case 0:
						see(it, it.First())
					case 1:
						see(it, it.Last())
					case 2:
						see(it, it.SeekGE(k))
					case 3:
						see(it, it.SeekLT(k))
					case 4, 5:
						see(it, it.Next())
					default:
						see(it, it.Prev())
					}
				}
				options := func() *sift.IterOptions {
					o := new(sift.IterOptions)
					switch rng.IntN(5) {
					case 0:
						o.Prefix = fmt.Appendf(nil, "k%d/", rng.IntN(5))
					case 1:
						o.LowerBound = name(rng.IntN(keys))
					case 2:
						o.UpperBound = name(rng.IntN(keys))
					case 3:
						o.LowerBound, o.UpperBound = name(rng.IntN(keys)), name(rng.IntN(keys))
					}
					return o
				}
				for op := range ops {
					switch n := rng.IntN(100); {
					case n < 25:
						must(p.db.Put(name(rng.IntN(keys)), fmt.Appendf(nil, "%d", op), sift.NoSync))
					case n < 30:
						var b sift.Batch
						from := rng.IntN(keys)
						for i := from; i < min(keys, from+rng.IntN(400)); i++ {
							b.Put(name(i), fmt.Appendf(nil, "%d", op))
						}
						must(p.db.Write(&b, sift.NoSync))
					case n < 40:
						var b sift.Batch
						from := rng.IntN(keys)
						for i := from; i < min(keys, from+rng.IntN(700)); i++ {
							b.Delete(name(i))
						}
						must(p.db.Write(&b, sift.NoSync))
					case n < 43:
						if len(p.snaps) < 3 {
							p.snaps = append(p.snaps, p.db.Snapshot())
						} else {
							must(p.snaps[0].Close())
							p.snaps = slices.Delete(p.snaps, 0, 1)
						}
					case n < 48 && len(p.iters) < 4:
						o := options()
						it, err := p.db.NewIter(o)
						if s := rng.IntN(4); s < len(p.snaps) {
							must(it.Close())
							it, err = p.snaps[s].NewIter(o)
						}
						must(err)
						p.iters = append(p.iters, it)
					case n < 50 && len(p.iters) > 2:
						must(p.iters[0].Close())
						p.iters = slices.Delete(p.iters, 0, 1)
					case n < 75 && len(p.iters) > 0:
						it := p.iters[rng.IntN(len(p.iters))]
						move(it)
						move(it)
					case n < 98:
						it, err := p.db.NewIter(options())
						must(err)
						for range 1 + rng.IntN(6) {
							move(it)
						}
						must(it.Close())
					case n < 99:
						must(p.db.Flush())
					case rng.IntN(4) == 0:
						must(p.db.Compact(context.Background(), nil, nil))
					}
				}
				for _, it := range p.iters {
					must(it.Close())
				}
				for _, s := range p.snaps {
					must(s.Close())
				}
				mustClose(t, p.db)
			}
		}
		for i, p := range replicas[1:] {
			for at := range max(len(p.trace), len(replicas[0].trace)) {
				if p.trace[at] != replicas[0].trace[at] {
					t.Fatalf("seed %d: after move %d, database %d is at %s, and the one without gaps at %s", seed, at, i+1, p.trace[at], replicas[0].trace[at])
				}
			}
		}
	}
}

// TestGapsAndWriters checks that the next iterator finds a key that was put, even while others walk
// over deleted keys around it.
func TestGapsAndWriters(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{MemtableBytes: 256 << 10})
	defer mustClose(t, db)
	const keys = 4000
	name := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	var b sift.Batch
	for i := range keys {
		b.Delete(name(i))
	}
	if err := db.Write(&b, sift.NoSync); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var walkers, writers sync.WaitGroup
	for w := range 2 {
		walkers.Go(func() {
			for !stop.Load() {
				it, err := db.NewIter(nil)
				if err != nil {
					t.Error(err)
					return
				}
				if w == 0 {
					it.First()
				} else {
					it.Last()
				}
				if err := it.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for w := range 2 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range 4000 {
				i := 2*rng.IntN(keys/2) + w // each writer has its own keys
				k := name(i)
				if err := db.Put(k, k, sift.NoSync); err != nil {
					t.Error(err)
				}
				it, err := db.NewIter(nil)
				if err != nil {
					t.Error(err)
					return
				}
				if !it.SeekGE(name(i&^7)) || string(it.Key()) > string(k) {
					t.Errorf("key %d was put, and the first from %d on is %x", i, i&^7, it.Key())
				}
				if !it.SeekLT(name(i|7+1)) || string(it.Key()) < string(k) {
					t.Errorf("key %d was put, and the last before %d is %x", i, i|7+1, it.Key())
				}
				if err := it.Close(); err != nil {
					t.Error(err)
				}
				if err := db.Delete(k, sift.NoSync); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	walkers.Wait()
}

// TestGapsGrowBesideWriters checks that a key that was put is found while the first key is deleted
// again and again, so that the gap before it grows.
func TestGapsGrowBesideWriters(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{MemtableBytes: 256 << 10})
	defer mustClose(t, db)
	name := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	first := func() (key int, ok bool) {
		it, err := db.NewIter(nil)
		if err != nil {
			t.Error(err)
			return 0, false
		}
		defer it.Close()
		if !it.First() {
			return 0, false
		}
		return int(binary.BigEndian.Uint32(it.Key())), true
	}
	var head atomic.Int64 // about the first key
	var stop atomic.Bool
	var poppers, writers sync.WaitGroup
	poppers.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if err := db.Put(name(2*(100+i)), nil, sift.NoSync); err != nil {
				t.Error(err)
			}
			for { // the popper has the even keys
				key, ok := first()
				if !ok || key%2 != 0 {
					break
				}
				head.Store(int64(key))
				if err := db.Delete(name(key), sift.NoSync); err != nil {
					t.Error(err)
				}
				if key < 2*i {
					break
				}
			}
		}
	})
	for w := range 2 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for n := 0; (n < 10_000 || head.Load() < 1000) && !t.Failed(); n++ {
				key := max(0, int(head.Load())-8+rng.IntN(16))&^3 + 1 + 2*w
				if err := db.Put(name(key), nil, sift.NoSync); err != nil {
					t.Error(err)
				}
				if at, ok := first(); !ok || at > key {
					t.Errorf("key %d was put, and the first is %d (%v)", key, at, ok)
				}
				if err := db.Delete(name(key), sift.NoSync); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	poppers.Wait()
}
