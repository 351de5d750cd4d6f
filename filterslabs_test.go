package sift

import (
	"context"
	"encoding/binary"
	"iter"
	"math"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/siftdb/sift/filter"
)

// TestFilterSlabs checks that filters that are loaded and dropped as the traffic changes, while the
// tables stay, leak no memory.
func TestFilterSlabs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs filters of more than 8 MiB")
	}
	const (
		keys   = 6_000_000
		limit  = 12 << 20
		phases = 3
	)
	o := &Options{Filter: filter.Ribbon(30), TableBytes: 64 << 10, FilterMemory: limit, CacheBytes: -1, MapBytes: -1}
	dir := t.TempDir()
	db := mustOpen(t, dir, o)
	var all iter.Seq2[Op, error] = func(yield func(Op, error) bool) {
		for i := range uint64(keys) {
			if !yield(Op{Key: binary.BigEndian.AppendUint64(nil, i<<1)}, nil) {
				return
			}
		}
	}
	if err := db.Ingest(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, dir, o) // loads whole filters, and then parts of all
	defer mustClose(t, db)
	var most uint64
	for phase := range phases {
		begin := time.Now()
		for i := uint64(0); time.Since(begin) < 3*time.Second; i++ {
			key := binary.BigEndian.AppendUint64(nil, uint64(phase)*keys/phases*2+i*7919%(keys/phases)*2+1)
			if found, err := db.Has(key); err != nil || found {
				t.Fatal(found, err)
			}
		}
		off, unused := int64(0), int64(0)
		for range 100 { // a slab is freed soon after the collection that found it unreachable
			runtime.GC()
			if off, unused = db.filters.OffHeap(); unused <= limit/4+8<<20 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		m := db.Metrics().Memory
		others := m.Total() - m.Garbage - m.Filters
		rest := uint64(off) + live[0].Value.Uint64() - min(others, live[0].Value.Uint64())
		t.Logf("filters of %.1f MiB take %.1f MiB", float64(m.Filters)/(1<<20), float64(rest)/(1<<20))
		most = max(most, rest)
	}
	if most > limit+limit/4+8<<20 {
		t.Errorf("filters take %d bytes, but may take only %d", most, limit)
	}
}

// TestUnusedRangeFiltersTakeNoMemory checks that range filters are not loaded without RangeFilter.
func TestUnusedRangeFiltersTakeNoMemory(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, dir, &Options{RangeFilter: filter.Range(12, 0)})
	for i := range uint64(5000) {
		if err := db.Put(binary.BigEndian.AppendUint64(nil, i*1000), nil, NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, dir, &Options{FilterMemory: 1 << 30})
	defer mustClose(t, db)
	<-db.loader.done
	db.filterManager.Rebalance(math.MaxInt64)
	if m := db.Metrics().Memory; m.Filters == 0 || m.RangeFilters != 0 {
		t.Errorf("filters take %d bytes, unused range filters %d", m.Filters, m.RangeFilters)
	}
	p, err := db.PlanFilters(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, pt := range p.Tables {
		if sum += pt.Bytes; pt.RangeBytes != 0 {
			t.Errorf("the plan has %d bytes for an unused range filter", pt.RangeBytes)
		}
	}
	if p.Bytes == 0 || p.Bytes != sum {
		t.Errorf("the plan takes %d bytes, its filters %d", p.Bytes, sum)
	}
}
