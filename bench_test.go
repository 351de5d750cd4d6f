package sift_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// benchKey returns the i-th of a set of 16-byte keys in random order; odd numbers are for
// absent keys.
func benchKey(buf []byte, i uint64) []byte {
	x := i * 0x9e3779b97f4a7c15
	x ^= x >> 32
	buf = binary.BigEndian.AppendUint64(buf[:0], x)
	return binary.BigEndian.AppendUint64(buf, i)
}

// benchValue fills the first half of buf with random bytes, so that buf compresses to half.
func benchValue(rng *rand.Rand, buf []byte) []byte {
	for i := 0; i < len(buf)/2; i += 8 {
		binary.LittleEndian.PutUint64(buf[i:], rng.Uint64())
	}
	return buf
}

func benchDB(b *testing.B, keys int, compact bool) *sift.DB {
	b.Helper()
	db := benchDBIn(b, b.TempDir(), keys, compact)
	b.Cleanup(func() { mustClose(b, db) })
	return db
}

// benchDBIn is benchDB in a given directory; the caller closes the database.
func benchDBIn(b *testing.B, dir string, keys int, compact bool) *sift.DB {
	b.Helper()
	db := mustOpen(b, dir, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 100)
	var key []byte
	for i := range keys {
		key = benchKey(key, uint64(2*i))
		if err := db.Put(key, benchValue(rng, value), sift.NoSync); err != nil {
			b.Fatal(err)
		}
	}
	if compact {
		if err := db.Compact(context.Background(), nil, nil); err != nil {
			b.Fatal(err)
		}
	} else if err := db.Flush(); err != nil {
		b.Fatal(err)
	}
	waitQuiet(db)
	return db
}

const benchKeys = 500_000

// eachShape runs a benchmark right after the writes and again after everything is compacted.
func eachShape(b *testing.B, run func(b *testing.B, db *sift.DB)) {
	for _, shape := range []string{"quiesced", "compacted"} {
		b.Run(shape, func(b *testing.B) { run(b, benchDB(b, benchKeys, shape == "compacted")) })
	}
}

func BenchmarkGet(b *testing.B) {
	eachShape(b, func(b *testing.B, db *sift.DB) {
		for odd, name := range []string{"present", "absent"} {
			b.Run(name, func(b *testing.B) {
				before := db.Metrics()
				b.ReportAllocs()
				var seed atomic.Uint64
				b.RunParallel(func(pb *testing.PB) {
					rng := rand.New(rand.NewPCG(seed.Add(1), 9))
					var key []byte
					for pb.Next() {
						key = benchKey(key, uint64(2*rng.IntN(benchKeys)+odd))
						if err := db.View(key, func([]byte) error { return nil }); err != nil && !errors.Is(err, sift.ErrNotFound) {
							b.Fatal(err)
						}
					}
				})
				after := db.Metrics()
				b.ReportMetric(float64(after.BlockReads-before.BlockReads)*1000/float64(b.N), "reads/1000")
			})
		}
	})
}

func BenchmarkPut(b *testing.B) {
	for _, name := range []string{"sequential", "random"} {
		b.Run(name, func(b *testing.B) {
			db := mustOpen(b, b.TempDir(), nil)
			defer mustClose(b, db)
			rng := rand.New(rand.NewPCG(1, 2))
			value := make([]byte, 100)
			var key []byte
			b.ReportAllocs()
			for i := range b.N {
				if name == "random" {
					key = benchKey(key, uint64(i))
				} else {
					key = binary.BigEndian.AppendUint64(append(key[:0], "sequence"...), uint64(i))
				}
				if err := db.Put(key, benchValue(rng, value), sift.NoSync); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkScan(b *testing.B) {
	db := benchDB(b, benchKeys, true)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range db.Scan(nil) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		b.ReportMetric(float64(n), "entries")
	}
}

// BenchmarkSeek seeks random keys with one iterator.
func BenchmarkSeek(b *testing.B) {
	eachShape(b, func(b *testing.B, db *sift.DB) {
		it, err := db.NewIter(nil)
		if err != nil {
			b.Fatal(err)
		}
		defer it.Close()
		rng := rand.New(rand.NewPCG(1, 9))
		var key []byte
		b.ReportAllocs()
		for b.Loop() {
			key = benchKey(key, uint64(2*rng.IntN(benchKeys)))
			if !it.SeekGE(key) {
				b.Fatal(it.Err())
			}
		}
	})
}

func BenchmarkGetMany(b *testing.B) {
	eachShape(b, func(b *testing.B, db *sift.DB) {
		for odd, name := range []string{"present", "absent"} {
			for _, n := range []int{8, 32, 100} {
				for _, together := range []bool{false, true} {
					way := "one by one"
					if together {
						way = "together"
					}
					b.Run(fmt.Sprintf("%s/%d/%s", name, n, way), func(b *testing.B) {
						b.ReportAllocs()
						rng := rand.New(rand.NewPCG(5, 9))
						keys := make([][]byte, n)
						for range b.N {
							for i := range keys {
								keys[i] = benchKey(keys[i], uint64(2*rng.IntN(benchKeys)+odd))
							}
							if together {
								if _, err := db.GetMany(keys); err != nil {
									b.Fatal(err)
								}
								continue
							}
							for _, key := range keys {
								if _, err := db.Get(key); err != nil && !errors.Is(err, sift.ErrNotFound) {
									b.Fatal(err)
								}
							}
						}
						b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/key")
					})
				}
			}
		}
	})
}

// BenchmarkFirst reads the first key of the database again and again while two goroutines put
// random keys as fast as they can, and reports latencies.
func BenchmarkFirst(b *testing.B) {
	for _, pause := range []time.Duration{0, 100 * time.Microsecond, 5 * time.Millisecond} {
		b.Run(fmt.Sprintf("pause=%v", pause), func(b *testing.B) {
			db := mustOpen(b, b.TempDir(), nil)
			defer mustClose(b, db)
			var writing sync.WaitGroup
			var stop atomic.Bool
			var puts atomic.Int64
			for w := range uint64(2) {
				writing.Go(func() {
					rng := rand.New(rand.NewPCG(w, 2))
					value := make([]byte, 100)
					var key []byte
					for !stop.Load() {
						key = benchKey(key, rng.Uint64())
						if err := db.Put(key, value, sift.NoSync); err != nil {
							b.Error(err)
							return
						}
						puts.Add(1)
					}
				})
			}
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				start := time.Now()
				it, err := db.NewIter(nil)
				if err != nil {
					b.Fatal(err)
				}
				it.First()
				if err := it.Close(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				time.Sleep(pause)
			}
			b.ReportMetric(float64(puts.Load())/b.Elapsed().Seconds(), "puts/s")
			stop.Store(true)
			writing.Wait()
			slices.Sort(took)
			for _, q := range []float64{0.5, 0.99, 0.999} {
				b.ReportMetric(float64(took[int(q*float64(len(took)-1))].Microseconds()), fmt.Sprintf("us/p%v", 100*q))
			}
		})
	}
}
