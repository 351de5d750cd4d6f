package sift_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/siftdb/sift"
)

// TestMappedTableTruncated checks that lookups, scans and compactions of tables that are truncated
// while open, mapped or not, return errors instead of crashing the process.
func TestMappedTableTruncated(t *testing.T) {
	for _, mapBytes := range []int64{0, -1, 100_000} {
		t.Run(fmt.Sprint(mapBytes), func(t *testing.T) {
			dir := t.TempDir()
			db := mustOpen(t, dir, &sift.Options{CacheBytes: -1, MapBytes: mapBytes, DisableCompression: true, TableBytes: 64 << 10})
			value := make([]byte, 100)
			key := func(i int) []byte { return fmt.Appendf(nil, "key%08d", i) }
			for i := range 5000 {
				if err := db.Put(key(i), value, sift.NoSync); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Compact(context.Background(), nil, nil); err != nil {
				t.Fatal(err)
			}
			for i := range 5000 {
				if _, err := db.Get(key(i)); err != nil {
					t.Fatal(err)
				}
			}
			it, err := db.NewIter(nil)
			if err != nil {
				t.Fatal(err)
			}
			tables := db.Tables() // the directory may still have others, which are about to be removed
			if len(tables) < 4 {
				t.Fatalf("only %d tables", len(tables))
			}
			for _, table := range tables {
				if err := os.Truncate(table.Path, 10_000); err != nil {
					t.Fatal(err)
				}
			}
			check := func(what string, err error) {
				t.Helper()
				var damage *sift.CorruptionError
				if !errors.As(err, &damage) || filepath.Dir(damage.Path) != dir || damage.Offset < 0 {
					t.Errorf("%s: error is %v", what, err)
				}
			}
			failed := 0
			for i := range 5000 {
				if _, err := db.Get(key(i)); err != nil {
					check("Get", err)
					failed++
				}
			}
			if failed < 3000 || failed == 5000 {
				t.Errorf("%d lookups of 5000 failed", failed)
			}
			for ok := it.First(); ok; ok = it.Next() {
			}
			check("Iter", it.Err())
			check("Iter.Close", it.Close())
			if err := db.Put(key(1), value, sift.NoSync); err != nil {
				t.Fatal(err)
			}
			check("Compact", db.Compact(context.Background(), nil, nil))
			_ = db.Close() // it may fail because of the compaction
		})
	}
}
