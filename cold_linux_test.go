package sift_test

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/siftdb/sift"
)

// coldKeys make tables of some 230 MB.
const coldKeys = 2_000_000

// BenchmarkCold reads tables that are not in the page cache: keys one by one and together, the
// entry after a random key, all entries, and the files themselves, 1 MiB at a time.
func BenchmarkCold(b *testing.B) {
	for _, compact := range []bool{false, true} {
		shape := "quiesced"
		if compact {
			shape = "compacted"
		}
		b.Run(shape, func(b *testing.B) {
			dir := b.TempDir()
			mustClose(b, benchDBIn(b, dir, coldKeys, compact))
			// Pages that are mapped stay in the page cache when others are dropped.
			db := mustOpen(b, dir, &sift.Options{MapBytes: -1, CacheBytes: -1, DisableAutoCompaction: true})
			defer mustClose(b, db)
			db.Tables() // loads all tables
			b.Run("Get", func(b *testing.B) {
				eachCold(b, dir, func(keys [][]byte) {
					for _, key := range keys {
						if _, err := db.Get(key); err != nil && !errors.Is(err, sift.ErrNotFound) {
							b.Fatal(err)
						}
					}
				})
			})
			b.Run("GetMany", func(b *testing.B) {
				eachCold(b, dir, func(keys [][]byte) {
					if _, err := db.GetMany(keys); err != nil {
						b.Fatal(err)
					}
				})
			})
			b.Run("Seek", func(b *testing.B) {
				eachCold(b, dir, func(keys [][]byte) {
					it, err := db.NewIter(nil)
					if err != nil {
						b.Fatal(err)
					}
					for _, key := range keys[:8] {
						if !it.SeekGE(key) && it.Err() != nil {
							b.Fatal(it.Err())
						}
					}
					if err := it.Close(); err != nil {
						b.Fatal(err)
					}
				})
			})
			b.Run("Scan", func(b *testing.B) {
				b.SetBytes(dirBytes(b, dir))
				eachCold(b, dir, func([][]byte) {
					for _, err := range db.Scan(nil) {
						if err != nil {
							b.Fatal(err)
						}
					}
				})
			})
			b.Run("files", func(b *testing.B) {
				b.SetBytes(dirBytes(b, dir))
				buf := make([]byte, 1<<20)
				eachCold(b, dir, func([][]byte) {
					eachFile(b, dir, func(f *os.File) error {
						_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
						return err
					})
				})
			})
		})
	}
}

// eachCold drops the pages of the files in dir and times fn, which gets 64 random keys that are
// present. It also reports CPU time and how much was read from the disk.
func eachCold(b *testing.B, dir string, fn func(keys [][]byte)) {
	b.Helper()
	var cpu, read int64
	rng := rand.New(rand.NewPCG(rand.Uint64(), 9))
	keys := make([][]byte, 64)
	for range b.N {
		b.StopTimer()
		for i := range keys {
			keys[i] = benchKey(keys[i], uint64(2*rng.IntN(coldKeys)))
		}
		eachFile(b, dir, func(f *os.File) error { return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) })
		cpu, read = cpu-cpuTime(b), read-bytesRead(b)
		b.StartTimer()
		fn(keys)
		b.StopTimer()
		cpu, read = cpu+cpuTime(b), read+bytesRead(b)
		b.StartTimer()
	}
	b.ReportMetric(float64(cpu)/1e6/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(read)/(1<<20)/float64(b.N), "device-MiB/op")
}

// cpuTime returns the CPU time of the process in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

// bytesRead returns how many bytes the process has read from disks.
func bytesRead(b *testing.B) int64 {
	info, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(info), "\nread_bytes: ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func eachFile(b *testing.B, dir string, fn func(f *os.File) error) {
	b.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".ldb" {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // compacted meanwhile
		} else if err != nil {
			return err
		}
		return errors.Join(fn(f), f.Close())
	})
	if err != nil {
		b.Fatal(err)
	}
}

func dirBytes(b *testing.B, dir string) (sum int64) {
	eachFile(b, dir, func(f *os.File) error {
		info, err := f.Stat()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum
}

// BenchmarkSyncedPut puts keys as fast as it can while another goroutine puts synced ones, and
// reports the longest synced put and the most dirty pages of the machine.
func BenchmarkSyncedPut(b *testing.B) {
	for range b.N {
		db := mustOpen(b, b.TempDir(), nil)
		var filled atomic.Bool
		var filling sync.WaitGroup
		filling.Go(func() {
			defer filled.Store(true)
			rng := rand.New(rand.NewPCG(1, 2))
			value := make([]byte, 100)
			var key []byte
			for i := range coldKeys {
				key = benchKey(key, uint64(2*i))
				if err := db.Put(key, benchValue(rng, value), sift.NoSync); err != nil {
					b.Error(err)
					return
				}
			}
		})
		var longest time.Duration
		dirty := 0
		for i := 0; !filled.Load(); i++ {
			begin := time.Now()
			if err := db.Put(benchKey(nil, uint64(2*i+1)), nil, sift.Sync); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, time.Since(begin))
			dirty = max(dirty, dirtyKB(b))
		}
		filling.Wait()
		mustClose(b, db)
		b.ReportMetric(float64(longest.Microseconds())/1e3, "ms/longest")
		b.ReportMetric(float64(dirty)/1024, "dirtyMiB")
	}
}

// dirtyKB returns the size of the machine's dirty pages in KiB.
func dirtyKB(b *testing.B) int {
	b.Helper()
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(line, "Dirty:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("no Dirty in /proc/meminfo")
	return 0
}
