package sift_test

import (
	"context"
	"math"
	"testing"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/filter"
)

// TestBlockMetrics checks that databases that share a block cache count their own reads and hits,
// but the bytes of the whole cache.
func TestBlockMetrics(t *testing.T) {
	cache := sift.NewBlockCache(1 << 20)
	var dbs [2]*sift.DB
	for i := range dbs {
		db, err := sift.OpenMemory(&sift.Options{BlockCache: cache, DisableAutoCompaction: true})
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, db)
		fill(t, db, 10, "key%d")
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		dbs[i] = db
	}
	for hits := range uint64(2) {
		if _, err := dbs[0].Get([]byte("key3")); err != nil {
			t.Fatal(err)
		}
		m, other := dbs[0].Metrics(), dbs[1].Metrics()
		if m.BlockReads != 1 || m.BlockReadBytes == 0 || m.BlockReadBytes > m.Levels[0].Bytes || m.CacheHits != hits {
			t.Errorf("%d blocks of %d bytes were read, %d came from the cache; want 1 and %d", m.BlockReads, m.BlockReadBytes, m.CacheHits, hits)
		}
		if other.BlockReads != 0 || other.BlockReadBytes != 0 || other.CacheHits != 0 {
			t.Errorf("the other database counts %d blocks read and %d cache hits", other.BlockReads, other.CacheHits)
		}
		if held := uint64(cache.Bytes()); held == 0 || m.Memory.BlockCache != held || other.Memory.BlockCache != held {
			t.Errorf("the cache holds %d bytes, but the databases count %d and %d", held, m.Memory.BlockCache, other.Memory.BlockCache)
		}
	}
}

// TestLogBytes checks that LogBytes counts what writes add to the log, but neither flushes nor
// compactions.
func TestLogBytes(t *testing.T) {
	db, err := sift.OpenMemory(&sift.Options{DisableAutoCompaction: true})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, db)
	if n := db.Metrics().LogBytes; n != 0 {
		t.Errorf("LogBytes is %d before the first write", n)
	}
	var b sift.Batch
	b.Put([]byte("key"), make([]byte, 1000))
	if err := db.Write(&b, sift.NoSync); err != nil {
		t.Fatal(err)
	}
	logged := db.Metrics().LogBytes
	if size := uint64(b.Size()); logged < size || logged > size+100 { // a record has a header
		t.Errorf("a batch of %d bytes counts as %d", size, logged)
	}
	if err := db.Compact(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := db.Metrics().LogBytes; n != logged {
		t.Errorf("LogBytes was %d, and is %d after a compaction", logged, n)
	}
}

// TestDontFillCache checks that a scan with DontFillCache adds no blocks to the block cache, and
// that other scans do.
func TestDontFillCache(t *testing.T) {
	cache := sift.NewBlockCache(1 << 20)
	db, err := sift.OpenMemory(&sift.Options{BlockCache: cache, DisableAutoCompaction: true})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, db)
	fill(t, db, 1000, "key%d")
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, dont := range []bool{true, false} {
		if n := len(scanKeys(t, db, &sift.IterOptions{DontFillCache: dont})); n != 1000 {
			t.Errorf("a scan finds %d keys", n)
		}
		if n := cache.Bytes(); (n == 0) != dont {
			t.Errorf("after a scan with DontFillCache %t the cache has %d bytes", dont, n)
		}
	}
}

// TestFilterCounts checks that positives of a filter are counted as true or false ones, and lookups
// without a filter separately.
func TestFilterCounts(t *testing.T) {
	for _, p := range []filter.Policy{alwaysYes{}, filter.None()} {
		db, err := sift.OpenMemory(&sift.Options{Filter: p, DisableAutoCompaction: true})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, db, 10, "key%d")
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		if rate := db.Metrics().Levels[0].Filter.ObservedFPR(); !math.IsNaN(rate) {
			t.Errorf("%s: an FPR of %v before the first lookup", p.Name(), rate)
		}
		for key, want := range map[string]bool{"key3": true, "key3x": false, "key4x": false} {
			if has, err := db.Has([]byte(key)); has != want || err != nil {
				t.Errorf("%s: Has(%s): %t, %v", p.Name(), key, has, err)
			}
		}
		f := db.Metrics().Levels[0].Filter
		if !filter.IsNone(p) && (f.Probes != 3 || f.Useful != 0 || f.TruePositive != 1 || f.FalsePositive != 2 || f.Unfiltered != 0 || f.ObservedFPR() != 1) {
			t.Errorf("with a filter that excludes nothing: %+v", f)
		}
		if filter.IsNone(p) && (f.Probes != 0 || f.Useful != 0 || f.TruePositive != 0 || f.FalsePositive != 0 || f.Unfiltered != 3) {
			t.Errorf("without a filter: %+v", f)
		}
		mustClose(t, db)
	}
}
