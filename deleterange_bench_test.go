package sift_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/siftdb/sift"
)

// BenchmarkDeleteRange deletes a million keys in some ten tables: all of them, and all but
// a thousandth at either end, so that the first and the last table are deleted only in
// part. For comparison it deletes all of ten keys in one table: an edit of the MANIFEST and the
// removal of a file.
func BenchmarkDeleteRange(b *testing.B) {
	keys := 1_000_000
	if testing.Short() {
		keys = 100_000
	}
	b.Run("ten keys", func(b *testing.B) { benchDeleteRange(b, 10, 0) })
	b.Run("all", func(b *testing.B) { benchDeleteRange(b, keys, 0) })
	b.Run("edges", func(b *testing.B) { benchDeleteRange(b, keys, 1000) })
}

func benchDeleteRange(b *testing.B, keys, edge int) {
	key := func(i int) []byte { return fmt.Appendf(nil, "key%08d", i) }
	for b.Loop() {
		b.StopTimer()
		db := mustOpen(b, b.TempDir(), &sift.Options{TableBytes: 1 << 20})
		var batch sift.Batch
		for i := range keys {
			if batch.Put(key(i), key(i*7919)); batch.Len() == 1000 || i == keys-1 {
				if err := db.Write(&batch, sift.NoSync); err != nil {
					b.Fatal(err)
				}
				batch.Reset()
			}
		}
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			b.Fatal(err)
		}
		tables := len(db.Tables())
		before := db.Metrics().LastSequence
		b.StartTimer()
		if err := db.DeleteRange(context.Background(), key(edge), key(keys-edge)); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(tables), "tables")
		b.ReportMetric(float64(len(db.Tables())), "tables-after")
		b.ReportMetric(float64(db.Metrics().LastSequence-before), "point-deletes")
		mustClose(b, db)
		b.StartTimer()
	}
}
