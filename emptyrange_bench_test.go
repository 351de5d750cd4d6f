package sift_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// BenchmarkEmptyRange looks for keys in ranges that hold none, right after a key, with a new
// iterator for each, with Reset of one iterator, with HasRange, and with HasRanges by 256: a
// million keys device/N/time with values of 100, a hundred per device, a range filter of 12 bits
// per key.
func BenchmarkEmptyRange(b *testing.B) {
	devices := 10_000
	if testing.Short() {
		devices = 500
	}
	o := &sift.Options{RangeFilter: filter.Range(12, 0), CacheBytes: 8 << 20}
	db := mustOpen(b, b.TempDir(), o)
	b.Cleanup(func() { mustClose(b, db) })
	rng := rand.New(rand.NewPCG(1, 3))
	times := make([]int, 100*devices)
	value := make([]byte, 100)
	key := func(i int, time int) []byte { return fmt.Appendf(nil, "device/%05d/%010d", i/100, time) }
	for i := range times {
		times[i] = rng.IntN(1_000_000_000)
	}
	for _, i := range rng.Perm(len(times)) {
		if err := db.Put(key(i, times[i]), benchValue(rng, value), sift.NoSync); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		b.Fatal(err)
	}
	waitQuiet(db)
	it, err := db.NewIter(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer it.Close()
	for _, way := range []struct {
		name string
		has  func(r []sift.KeyRange) (bool, error)
	}{
		{"new", func(r []sift.KeyRange) (bool, error) {
			it, err := db.NewIter(&sift.IterOptions{LowerBound: r[0].From, UpperBound: r[0].To})
			if err != nil {
				return false, err
			}
			has := it.First()
			return has, it.Close()
		}},
		{"Reset", func(r []sift.KeyRange) (bool, error) {
			err := it.Reset(&sift.IterOptions{LowerBound: r[0].From, UpperBound: r[0].To})
			return err == nil && it.First(), err
		}},
		{"HasRange", func(r []sift.KeyRange) (bool, error) { return db.HasRange(r[0].From, r[0].To) }},
		{"HasRanges", func(r []sift.KeyRange) (bool, error) {
			has, err := db.HasRanges(r)
			return err == nil && has[0], err
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			by := 1
			if way.name == "HasRanges" {
				by = 256
			}
			ranges := make([]sift.KeyRange, 1<<16)
			for i := range ranges {
				n := rng.IntN(len(times))
				ranges[i] = sift.KeyRange{From: key(n, times[n]+1), To: key(n, times[n]+11)}
			}
			b.ReportAllocs()
			before := db.Metrics().BlockReads
			b.ResetTimer()
			for i := 0; i < b.N; i += by {
				at := i % len(ranges)
				if _, err := way.has(ranges[at : at+by]); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(db.Metrics().BlockReads-before)*1000/float64(b.N), "reads/1000")
		})
	}
}
