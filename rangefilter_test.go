package sift_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// TestRangeFilterHidesNoKey compares scans of ranges with a sorted list, over keys of several
// shapes, some of which have tombstones in upper levels.
func TestRangeFilterHidesNoKey(t *testing.T) {
	shapes := map[string]func(rng *rand.Rand) []byte{
		"binary":      func(rng *rand.Rand) []byte { return binary.BigEndian.AppendUint64(nil, rng.Uint64N(1<<20)<<8) },
		"entity/time": func(rng *rand.Rand) []byte { return fmt.Appendf(nil, "device/%d/%08d", rng.IntN(200), rng.IntN(5000)) },
		"paths": func(rng *rand.Rand) []byte {
			return fmt.Appendf(nil, "src/%x/%x.go:%d", rng.IntN(20), rng.IntN(400), rng.IntN(500))
		},
		"any length": func(rng *rand.Rand) []byte { return bytes.Repeat([]byte{byte(rng.IntN(3))}, rng.IntN(30)) },
		"random": func(rng *rand.Rand) []byte {
			k := binary.BigEndian.AppendUint64(nil, rng.Uint64())
			return binary.BigEndian.AppendUint64(k, rng.Uint64())[:1+rng.IntN(16)]
		},
	}
	for name, key := range shapes {
		for _, prefix := range []sift.Prefixer{nil, sift.PrefixUpTo('/', 2)} {
			for _, keyed := range []bool{false, true} {
				o := &sift.Options{
					RangeFilter: filter.Range(14, 0), Prefix: prefix, KeyedFilters: keyed,
					MemtableBytes: 16 << 10, TableBytes: 8 << 10, LevelBaseBytes: 32 << 10,
				}
				t.Run(fmt.Sprintf("%s/%v/%v", name, prefix, keyed), func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					db := mustOpen(t, dir, o)
					rng := rand.New(rand.NewPCG(1, 5))
					live := map[string]bool{}
					for i := range 6000 {
						k := key(rng)
						var err error
						if live[string(k)] = rng.IntN(4) > 0; live[string(k)] {
							err = db.Put(k, []byte("value"), sift.NoSync)
						} else {
							err = db.Delete(k, sift.NoSync)
						}
						if err != nil {
							t.Fatal(err)
						}
						if i == 4000 {
							if err := db.Flush(); err != nil {
								t.Fatal(err)
							}
						}
					}
					if err := db.Flush(); err != nil {
						t.Fatal(err)
					}
					var keys []string
					for k, there := range live {
						if there {
							keys = append(keys, k)
						}
					}
					slices.Sort(keys)
					var ranges []sift.KeyRange
					var want []bool
					for range 6000 {
						from := key(rng)
						if rng.IntN(2) == 0 {
							from = append([]byte(keys[rng.IntN(len(keys))]), make([]byte, rng.IntN(3))...)
						}
						to := key(rng)
						switch rng.IntN(4) {
						case 0:
							to = append(bytes.Clone(from), 0)
						case 1:
							to = bytes.Clone(from)
							if len(to) > 0 && to[len(to)-1] < 0xf0 {
								to[len(to)-1] += byte(1 + rng.IntN(8))
							}
						}
						if rng.IntN(50) == 0 {
							to = nil
						}
						i, _ := slices.BinarySearch(keys, string(from))
						has := i < len(keys) && (to == nil || keys[i] < string(to))
						ranges, want = append(ranges, sift.KeyRange{From: from, To: to}), append(want, has)
						if got, err := db.HasRange(from, to); err != nil || got != has {
							t.Fatalf("HasRange(%q, %q) = %v, %v, want %v", from, to, got, err, has)
						}
					}
					if got, err := db.HasRanges(ranges); err != nil || !slices.Equal(got, want) {
						t.Errorf("HasRanges: %v, or other results than HasRange", err)
					}
					if got, err := db.HasPrefix([]byte(keys[7])); err != nil || !got {
						t.Errorf("HasPrefix of a key = %v, %v", got, err)
					}
					if m := db.Metrics(); m.RangeProbes == 0 || m.Memory.RangeFilters == 0 {
						t.Errorf("range filters were probed %d times and take %d bytes", m.RangeProbes, m.Memory.RangeFilters)
					}
					mustClose(t, db)
					checkClean(t, dir, o)
				})
			}
		}
	}
}

// TestRangeFilterReadsNoBlock checks that HasRange and iterators find out without reading a block
// that a range within one entity is empty.
func TestRangeFilterReadsNoBlock(t *testing.T) {
	db := mustOpen(t, t.TempDir(), &sift.Options{RangeFilter: filter.Range(20, 0), CacheBytes: -1})
	defer mustClose(t, db)
	key := func(device, at int) []byte { return fmt.Appendf(nil, "device/%05d/%08d", device, at) }
	for i := range 20_000 {
		if err := db.Put(key(i/100, i%100*50), nil, sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	before := db.Metrics()
	const ranges = 1000
	for i := range ranges {
		from, to := key(i%200, i%90*50+1), key(i%200, i%90*50+9)
		has, err := db.HasRange(from, to)
		if has || err != nil {
			t.Fatalf("HasRange(%s, %s) = %v, %v", from, to, has, err)
		}
		it, err := db.NewIter(&sift.IterOptions{LowerBound: from, UpperBound: to})
		if err != nil {
			t.Fatal(err)
		}
		if it.First() || it.Last() || it.Close() != nil {
			t.Fatalf("an iterator from %s to %s is at %s, %v", from, to, it.Key(), it.Err())
		}
	}
	m := db.Metrics()
	if reads := m.BlockReads - before.BlockReads; reads > ranges/100 {
		t.Errorf("%d absent ranges took %d block reads", ranges, reads)
	}
	if useful := m.RangeUseful - before.RangeUseful; useful < 2*ranges*99/100 {
		t.Errorf("of %d probes, %d excluded the range", 2*ranges, useful)
	}
}
