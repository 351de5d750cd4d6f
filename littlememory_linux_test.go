package sift_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/siftdb/sift"
)

var (
	littleKeys = flag.Int("little.keys", 0, "number of keys in the store of BenchmarkLittleMemory; 0 skips it")
	littleDir  = flag.String("little.dir", "", "where the store of BenchmarkLittleMemory is kept; it is created if it does not exist")
)

// BenchmarkLittleMemory looks up random keys in a store whose filters and indexes do not fit into
// Options.Memory, except in the last case. Besides CPU time it reports how often and how much a
// lookup reads from files, and how much memory filters and indexes take. With 25 million keys the
// store takes 2 GB.
func BenchmarkLittleMemory(b *testing.B) {
	if *littleKeys == 0 {
		b.Skip("-little.keys is not given")
	}
	dir := *littleDir
	if dir == "" {
		dir = b.TempDir()
	}
	db := mustOpen(b, dir, nil)
	if len(db.Tables()) == 0 {
		littleIngest(b, db)
	}
	mustClose(b, db)
	for _, memory := range []int64{8 << 20, 16 << 20, 32 << 20, 0} {
		name := fmt.Sprintf("%dMiB", memory>>20)
		if memory == 0 {
			name = "default"
		}
		b.Run(name, func(b *testing.B) {
			db := mustOpen(b, dir, &sift.Options{Memory: memory, DisableAutoCompaction: true, MapBytes: -1})
			defer mustClose(b, db)
			db.Tables() // loads all tables
			rng := rand.New(rand.NewPCG(1, 2))
			b.Run("present", func(b *testing.B) {
				var key []byte
				get := func(n int) {
					for range n {
						key = littleKey(key, rng.IntN(*littleKeys))
						if found, err := db.Has(key); !found || err != nil {
							b.Fatal(found, err)
						}
					}
				}
				if b.N == 1 { // warm up before the first round
					get(20_000)
				}
				b.ResetTimer()
				reads, bytes, cpu := readCalls(b), readBytes(b), littleCPU(b)
				get(b.N)
				n := float64(b.N)
				b.ReportMetric((littleCPU(b)-cpu)/n, "cpu-µs/op")
				b.ReportMetric((readCalls(b)-reads)/n, "reads/op")
				b.ReportMetric((readBytes(b)-bytes)/n, "readB/op")
				m := db.Metrics().Memory
				b.ReportMetric(float64(m.Filters+m.Indexes)/(1<<20), "MiB-filters+indexes")
				b.ReportMetric(float64(m.Indexes)/(1<<20), "MiB-indexes")
			})
		})
	}
}

// littleKey returns the i-th key, in ascending order.
func littleKey(buf []byte, i int) []byte {
	x := uint64(i) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	buf = binary.BigEndian.AppendUint64(buf[:0], uint64(i)<<36|x>>28)
	return binary.BigEndian.AppendUint64(buf, x*0xbf58476d1ce4e5b9)
}

func littleIngest(b *testing.B, db *sift.DB) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var key []byte
	value := make([]byte, 100)
	err := db.Ingest(context.Background(), func(yield func(sift.Op, error) bool) {
		for i := range *littleKeys {
			key = littleKey(key, i)
			if !yield(sift.Op{Key: key, Value: benchValue(rng, value)}, nil) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}

// littleCPU returns the CPU time of the process in microseconds.
func littleCPU(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}

func readCalls(b *testing.B) float64 { return ioCount(b, "syscr: ") }
func readBytes(b *testing.B) float64 { return ioCount(b, "rchar: ") }

// ioCount returns a count of the process's reads, from the page cache or from the disk.
func ioCount(b *testing.B, name string) (n float64) {
	content, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip(err)
	}
	_, rest, _ := strings.Cut(string(content), name)
	if _, err := fmt.Sscan(rest, &n); err != nil {
		b.Fatal(err)
	}
	return n
}
