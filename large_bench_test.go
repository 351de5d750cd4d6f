package sift_test

import (
	"context"
	"encoding/binary"
	"flag"
	"slices"
	"testing"

	"github.com/siftdb/sift"
)

var (
	largeKeys = flag.Int("large.keys", 0, "number of keys in the store of BenchmarkLarge; 0 skips it")
	largeDir  = flag.String("large.dir", "", "where the store of BenchmarkLarge is kept; it is created if it does not exist")
)

// BenchmarkLarge looks up absent keys, each once, in a store of many small values on several
// levels: nine tenths of the keys are in the deepest one, nine tenths of the rest in the one above
// it, and so on.
func BenchmarkLarge(b *testing.B) {
	if *largeKeys == 0 {
		b.Skip("-large.keys is not given")
	}
	dir := *largeDir
	if dir == "" {
		dir = b.TempDir()
	}
	db := mustOpen(b, dir, nil)
	defer mustClose(b, db)
	if len(db.Tables()) == 0 {
		for from := 0; from < *largeKeys; {
			n := (*largeKeys - from + 9) / 10 * 9
			if n < 50_000 {
				n = *largeKeys - from
			}
			largeIngest(b, db, from, n)
			from += n
		}
	}
	waitQuiet(db)
	for _, l := range db.Metrics().Levels {
		b.Logf("%d tables, %d MiB, filters of %d KiB", l.Tables, l.Bytes>>20, l.Filter.Bytes>>10)
	}
	b.Run("absent", func(b *testing.B) {
		var key []byte
		before := db.Metrics()
		for i := range b.N {
			key = largeKey(key, -1-i)
			if found, err := db.Has(key); found || err != nil {
				b.Fatal(found, err)
			}
		}
		b.ReportMetric(float64(db.Metrics().BlockReads-before.BlockReads)*1000/float64(b.N), "reads/1000")
	})
}

// largeKey returns the i-th of a set of 16-byte keys in random order.
func largeKey(buf []byte, i int) []byte {
	x := uint64(i) * 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xbf58476d1ce4e5b9
	x ^= x >> 29
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(buf[:0], x), ^x)
}

// largeIngest ingests n keys, beginning with number from.
func largeIngest(b *testing.B, db *sift.DB, from, n int) {
	b.Helper()
	var key []byte
	all := make([]uint64, n)
	for i := range all {
		key = largeKey(key, from+i)
		all[i] = binary.BigEndian.Uint64(key)
	}
	slices.Sort(all)
	err := db.Ingest(context.Background(), func(yield func(sift.Op, error) bool) {
		key, value := make([]byte, 16), make([]byte, 8)
		for _, x := range all {
			binary.BigEndian.PutUint64(key, x)
			binary.BigEndian.PutUint64(key[8:], ^x)
			binary.BigEndian.PutUint64(value, x*0x9e3779b97f4a7c15)
			if !yield(sift.Op{Key: key, Value: value}, nil) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}
