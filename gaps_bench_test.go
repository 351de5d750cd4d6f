package sift_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/siftdb/sift"
)

// BenchmarkQueue runs a queue of window keys: each iteration puts one at the tail and deletes the
// first one that an iterator finds.
func BenchmarkQueue(b *testing.B) {
	for _, window := range []uint64{1000, 100_000} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			db := mustOpen(b, b.TempDir(), nil)
			defer mustClose(b, db)
			var key [8]byte
			put := func(i uint64) {
				binary.BigEndian.PutUint64(key[:], i)
				if err := db.Put(key[:], key[:], sift.NoSync); err != nil {
					b.Fatal(err)
				}
			}
			for i := range window {
				put(i)
			}
			head := uint64(0)
			for b.Loop() {
				put(head + window)
				it, err := db.NewIter(nil)
				if err != nil {
					b.Fatal(err)
				}
				if !it.First() || binary.BigEndian.Uint64(it.Key()) != head {
					b.Fatalf("the first key is %x, want %x", it.Key(), head)
				}
				copy(key[:], it.Key())
				if err := it.Close(); err != nil {
					b.Fatal(err)
				}
				if err := db.Delete(key[:], sift.NoSync); err != nil {
					b.Fatal(err)
				}
				head++
			}
		})
	}
}
