package sift_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// TestFilterMemoryIsACap fills a database under several budgets and checks throughout that filters
// take no more, and finally that all keys are found.
func TestFilterMemoryIsACap(t *testing.T) {
	for _, budget := range []int64{1, 20 << 10, 60 << 10, 1 << 30} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			t.Parallel()
			db := mustOpen(t, t.TempDir(), &sift.Options{
				FilterMemory: budget, Filter: filter.Ribbon(10), LevelFilters: []filter.Policy{filter.Bloom(10)},
				MemtableBytes: 1 << 20, TableBytes: 512 << 10, LevelBaseBytes: 1 << 20, LevelMultiplier: 4,
			})
			defer mustClose(t, db)
			var it *sift.Iter
			const keys = 60000
			for i := range keys {
				key := benchKey(nil, uint64(2*i))
				if err := db.Put(key, key, sift.NoSync); err != nil {
					t.Fatal(err)
				}
				if i%500 != 0 {
					continue
				}
				if held := db.Metrics().Memory.Filters; held > uint64(budget) {
					t.Fatalf("after %d keys filters take %d bytes of %d", i, held, budget)
				}
				if i%10000 == 0 { // iterators keep old tables, not their filters
					if it != nil {
						mustClose(t, it)
					}
					var err error
					if it, err = db.NewIter(nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			mustClose(t, it)
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
			for i := range keys {
				if ok, err := db.Has(benchKey(nil, uint64(2*i))); !ok || err != nil {
					t.Fatalf("key %d: %v, %v", i, ok, err)
				}
			}
			// The manager plans for a new version some time after it is installed.
			for begin := time.Now(); ; time.Sleep(time.Millisecond) {
				units, held := 0, 0.0
				for _, l := range db.Metrics().Levels {
					units, held = units+l.Filter.Units, held+l.Filter.HeldUnits
				}
				wrong := budget == 1 && held != 0 || budget == 1<<30 && held != float64(units) || budget == 60<<10 && (held == 0 || held == float64(units))
				if !wrong {
					break
				}
				if time.Since(begin) > 30*time.Second {
					t.Fatalf("%g of %d units held within %d bytes", held, units, budget)
				}
			}
			// A table whose filter is not loaded still has one.
			if n, err := db.BuildFilters(context.Background()); n != 0 || err != nil {
				t.Errorf("BuildFilters rewrote %d tables, %v", n, err)
			}
		})
	}
}

// TestFilterMemoryFollowsTraffic looks up absent keys in one part of the key space, and then in
// another, and expects the units of that part to be loaded within seconds.
func TestFilterMemoryFollowsTraffic(t *testing.T) {
	const keys = 200000
	db := mustOpen(t, t.TempDir(), &sift.Options{
		Filter: filter.Ribbon(12), TableBytes: 128 << 10, MemtableBytes: 4 << 20, LevelBaseBytes: 64 << 20,
		FilterMemory: keys * 12 / 8 / 4, // a quarter of all filters
		// During a pause in writing, a flushed table would be moved to level 1 as it is, too large
		// for two units of its filter to fit.
		DisableAutoCompaction: true,
	})
	defer mustClose(t, db)
	for i := range keys {
		if err := db.Put(fmt.Appendf(nil, "key%08d0", i), fmt.Appendf(nil, "%d", i), sift.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, hot := range []int{keys / 20, keys * 3 / 4} {
		limit := time.Now().Add(40 * time.Second)
		for {
			for i := range 20000 {
				key := fmt.Appendf(nil, "key%08d1", hot+i%1000)
				if ok, err := db.Has(key); ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			var here, others float64 // units: those of the hot table, and the most of any other
			for _, m := range db.Tables() {
				k := fmt.Sprintf("key%08d1", hot)
				if string(m.Smallest) < k && k < string(m.Largest) {
					here = m.HeldUnits
				} else if m.FilterUnits > 1 {
					others = max(others, m.HeldUnits)
				}
			}
			followed := here >= 2 && here >= others+1
			if m := db.Metrics(); followed && (m.WastedReadsPerSecond <= 0 || m.NextMiBSavesPerSecond <= 0 || m.NextMiBSavesPerSecond > m.WastedReadsPerSecond) {
				t.Errorf("%v reads per second are wasted, and another MiB saves %v", m.WastedReadsPerSecond, m.NextMiBSavesPerSecond)
			}
			if followed {
				t.Logf("%g units of the hot table are held, up to %g of the others", here, others)
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("the units do not follow the lookups: %+v", db.Tables())
			}
		}
	}
}

func TestPlanFilters(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, &sift.Options{Filter: filter.Ribbon(10)})
	fill(t, db, 50000, "key%06d")
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, dir, &sift.Options{ReadOnly: true})
	defer mustClose(t, db)
	last := 2.0
	for _, budget := range []int64{0, 30 << 10, 50 << 10, 1 << 20} {
		p, err := db.PlanFilters(budget)
		if err != nil {
			t.Fatal(err)
		}
		if p.Bytes > budget || p.WastedReads >= last || p.NextMiBSaves < 0 {
			t.Errorf("the plan for %d bytes: %+v", budget, p)
		}
		last = p.WastedReads
	}
	if last > 0.002 {
		t.Errorf("with all filters, %v reads are wasted", last)
	}
}

// TestFilterMemoryCapsRanges checks that range filters count against the budget, too: however small
// it is, there are no false negatives, and if it is large enough, ranges without keys are excluded.
func TestFilterMemoryCapsRanges(t *testing.T) {
	const keys = 40000
	for _, tt := range []struct {
		budget int64
		least  float64 // share of the ranges that are excluded
	}{{1, 0}, {60 << 10, 0.3}, {1 << 30, 0.99}} {
		t.Run(fmt.Sprint(tt.budget), func(t *testing.T) {
			t.Parallel()
			db := mustOpen(t, t.TempDir(), &sift.Options{
				FilterMemory: tt.budget, Filter: filter.Ribbon(10), RangeFilter: filter.Range(16, 0),
				MemtableBytes: 1 << 20, TableBytes: 256 << 10, LevelBaseBytes: 1 << 20, LevelMultiplier: 4,
			})
			defer mustClose(t, db)
			key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
			for i := range keys {
				if err := db.Put(key(i*1000), key(i), sift.NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
			for begin := time.Now(); ; {
				before := db.Metrics()
				if held := before.Memory.Filters + before.Memory.RangeFilters; held > uint64(tt.budget) {
					t.Fatalf("filters take %d and range filters %d bytes of %d", before.Memory.Filters, before.Memory.RangeFilters, tt.budget)
				}
				for i := 7; i < keys; i += 7 {
					for _, at := range []int{i * 1000, i*1000 + 500} {
						has, err := db.HasRange(key(at-8), key(at+8))
						if has != (at%1000 == 0) || err != nil {
							t.Fatalf("keys from %d to %d: %v, %v", at-8, at+8, has, err)
						}
					}
				}
				after := db.Metrics()
				probes, useful := after.RangeProbes-before.RangeProbes, after.RangeUseful-before.RangeUseful
				if float64(useful) >= tt.least*float64(probes)/2 && (tt.least == 0) == (after.Memory.RangeFilters == 0) {
					break
				}
				if time.Since(begin) > 60*time.Second {
					t.Fatalf("%d of %d ranges are excluded, with %d bytes of range filters", useful, probes, after.Memory.RangeFilters)
				}
			}
			p, err := db.PlanFilters(tt.budget)
			if err != nil || p.Bytes > tt.budget {
				t.Errorf("the plan takes %d bytes of %d, %v", p.Bytes, tt.budget, err)
			}
		})
	}
}
