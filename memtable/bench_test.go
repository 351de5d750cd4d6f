package memtable

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/siftdb/sift/internal/base"
)

// keyShapes are 16-byte keys of two kinds: binary ones, whose first eight bytes differ,
// and text, where many keys have the same first eight bytes.
var keyShapes = []struct {
	name string
	key  func(dst []byte, i uint64) []byte
}{
	{"bin", func(dst []byte, i uint64) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, i), i)
	}},
	{"text", func(dst []byte, i uint64) []byte { return fmt.Appendf(dst, "user%012d", i%1e12) }},
}

func filled(b *testing.B, n int, key func([]byte, uint64) []byte) *Memtable {
	m := New(n * EntrySize(16, 100))
	r := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, 100)
	for i := range n {
		k := key(nil, r.Uint64())
		add(b, m, uint64(i), base.KindSet, k, value)
	}
	return m
}

func BenchmarkGet(b *testing.B) {
	const n = 200_000
	for _, shape := range keyShapes {
		m := filled(b, n, shape.key)
		run := func(name string, seed uint64, get func(k []byte) bool, want bool) {
			b.Run(shape.name+"/"+name, func(b *testing.B) {
				r := rand.New(rand.NewPCG(seed, seed))
				keys := make([][]byte, 1<<16)
				for i := range keys {
					keys[i] = shape.key(nil, r.Uint64())
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if get(keys[i&(len(keys)-1)]) != want {
						b.Fatal("wrong answer")
					}
					i++
				}
			})
		}
		search := func(k []byte) bool {
			_, _, _, ok := m.Get(k, base.MaxSequence)
			return ok
		}
		find := func(k []byte) bool {
			_, _, _, ok := m.Find(xxhash.Sum64(k), k, base.MaxSequence)
			return ok
		}
		run("hit", 1, search, true)
		run("hit-hashed", 1, find, true)
		run("absent", 2, search, false)
		run("absent-hashed", 2, find, false)
	}
}

func BenchmarkAdd(b *testing.B) {
	const n = 200_000
	value := make([]byte, 100)
	for _, shape := range keyShapes {
		for _, order := range []string{"random", "ascending"} {
			for _, writers := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%s/writers=%d", shape.name, order, writers), func(b *testing.B) {
					var seq atomic.Uint64
					var m *Memtable
					left := 0
					for done := 0; done < b.N; done += n {
						b.StopTimer()
						m = New(n * EntrySize(16, 100))
						left = min(n, b.N-done)
						b.StartTimer()
						var wg sync.WaitGroup
						for w := range writers {
							wg.Go(func() {
								r := rand.New(rand.NewPCG(1, uint64(w)))
								var k []byte
								for range left / writers {
									s := seq.Add(1)
									i := s
									if order == "random" {
										i = r.Uint64()
									}
									k = shape.key(k[:0], i)
									if err := m.Add(xxhash.Sum64(k), s, base.KindSet, k, value); err != nil {
										b.Error(err)
										return
									}
								}
							})
						}
						wg.Wait()
						m.NewIter().First() // sorting pending entries is part of the cost
					}
				})
			}
		}
	}
}

// BenchmarkFill fills a memtable of 4 MiB with random keys and sorts a given number at a time.
func BenchmarkFill(b *testing.B) {
	const n = 30_000
	value := make([]byte, 100)
	for _, shape := range keyShapes {
		for _, run := range []int{1, 64, 512, 4096, 16384, n} {
			b.Run(fmt.Sprintf("%s/sorted=%d", shape.name, run), func(b *testing.B) {
				var k []byte
				var longest time.Duration
				for range b.N {
					m := New(n * EntrySize(16, 100))
					m.pending.limit = n
					r := rand.New(rand.NewPCG(1, 1))
					for i := range n {
						k = shape.key(k[:0], r.Uint64())
						if err := m.Add(xxhash.Sum64(k), uint64(i), base.KindSet, k, value); err != nil {
							b.Fatal(err)
						}
						if (i+1)%run == 0 {
							start := time.Now()
							m.sort()
							longest = max(longest, time.Since(start))
						}
					}
					m.sort()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/add")
				b.ReportMetric(float64(longest.Microseconds()), "us/longest-sort")
			})
		}
	}
}

// BenchmarkSort sorts and inserts maxPending entries with keys like those of a server: a long
// common prefix and a number. With other, one more key shares nothing with them.
func BenchmarkSort(b *testing.B) {
	value := make([]byte, 16)
	for _, other := range []bool{false, true} {
		b.Run(fmt.Sprintf("other=%t", other), func(b *testing.B) {
			var k []byte
			for range b.N {
				b.StopTimer()
				m := New(maxPending * EntrySize(21, 16))
				m.pending.limit = 2 * maxPending
				r := rand.New(rand.NewPCG(1, 1))
				for i := range maxPending {
					k = fmt.Appendf(k[:0], "h\x00\x00\x00\x01key:%012d", r.IntN(100_000))
					if other && i == maxPending/2 {
						k = append(k[:0], "m"...)
					}
					if err := m.Add(xxhash.Sum64(k), uint64(i), base.KindSet, k, value); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				m.sort()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/maxPending, "ns/entry")
		})
	}
}

func BenchmarkIter(b *testing.B) {
	m := filled(b, 200_000, keyShapes[0].key)
	it := m.NewIter()
	b.Run("next", func(b *testing.B) {
		for b.Loop() {
			if !it.Valid() {
				it.First()
			}
			it.Next()
		}
	})
	b.Run("prev", func(b *testing.B) {
		for b.Loop() {
			if !it.Valid() {
				it.Last()
			}
			it.Prev()
		}
	})
}
