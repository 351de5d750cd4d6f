package sstable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// benchEntries returns n entries with keys of 16 bytes and values of 100 bytes that
// compress to about half.
func benchEntries(n int) []kv {
	rng := rand.New(rand.NewPCG(1, 2))
	list := make([]kv, n)
	value := make([]byte, 100)
	for i := range list {
		for j := 0; j < 50; j += 8 {
			binary.LittleEndian.PutUint64(value[j:], rng.Uint64())
		}
		list[i] = kv{fmt.Sprintf("%016d", 2*i), uint64(i), KindSet, string(value)}
	}
	return list
}

const benchKeys = 70000 // a table of about 5 MiB

func benchTable(b *testing.B, cacheBytes int64, p filter.Policy) *Reader {
	b.Helper()
	data, _ := buildTable(b, benchEntries(benchKeys), &WriterOptions{Filter: p})
	r := openTable(b, data, &ReaderOptions{Cache: NewBlockCache(cacheBytes)})
	it := r.NewIter(nil)
	for ok := it.First(); ok; ok = it.Next() {
	}
	b.ReportAllocs()
	b.ResetTimer()
	return r
}

// benchLookups returns keys in random order: present ones for offset 0, absent ones for 1.
func benchLookups(b *testing.B, offset int) (next func() []byte) {
	b.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	keys := make([][16]byte, 1<<16)
	for i := range keys {
		copy(keys[i][:], fmt.Sprintf("%016d", 2*rng.IntN(benchKeys)+offset))
	}
	i := 0
	b.ResetTimer()
	return func() []byte {
		i++
		return keys[i&(len(keys)-1)][:]
	}
}

// BenchmarkGet measures lookups of present and absent keys in one table, with and without a filter,
// with all blocks in the cache and without a cache.
func BenchmarkGet(b *testing.B) {
	run := func(name string, cacheBytes int64, p filter.Policy, offset int) {
		b.Run(name, func(b *testing.B) {
			r := benchTable(b, cacheBytes, p)
			next := benchLookups(b, offset)
			for b.Loop() {
				key := next()
				if !r.MayContain(filter.NewKey(key)) {
					continue
				}
				if _, _, _, found, err := r.Get(key, base.MaxSequence); err != nil || found != (offset == 0) {
					b.Fatal(found, err)
				}
			}
		})
	}
	run("present/cached", 64<<20, nil, 0)
	run("present/uncached", 0, nil, 0)
	run("present/cached,filter", 64<<20, filter.Bloom(10), 0)
	run("absent/cached,no_filter", 64<<20, nil, 1)
	run("absent/uncached,no_filter", 0, nil, 1)
	run("absent/filter", 64<<20, filter.Bloom(10), 1)
}

// BenchmarkGetParallel is BenchmarkGet of cached keys on all processors.
func BenchmarkGetParallel(b *testing.B) {
	r := benchTable(b, 64<<20, nil)
	b.RunParallel(func(pb *testing.PB) {
		next := benchLookups(b, 0)
		for pb.Next() {
			if _, _, _, found, err := r.Get(next(), base.MaxSequence); err != nil || !found {
				b.Error(found, err)
				return
			}
		}
	})
}

// BenchmarkFindBlock measures a search of the index alone.
func BenchmarkFindBlock(b *testing.B) {
	r := benchTable(b, 0, nil)
	next := benchLookups(b, 0)
	for b.Loop() {
		r.index.Load().find(next(), base.MaxSequence)
	}
}

// BenchmarkFindAmong measures a search of an index where nearly all separators have the same
// number, since the last keys of the table share no prefix with the others.
func BenchmarkFindAmong(b *testing.B) {
	list := benchEntries(benchKeys)
	for i := range 100 {
		list = append(list, kv{fmt.Sprintf("other%d", 100+i), uint64(len(list)), KindSet, list[i].value})
	}
	data, _ := buildTable(b, list, nil)
	r := openTable(b, data, nil)
	if n := len(r.index.Load().shared); n > 0 {
		b.Fatalf("%d bytes are shared", n)
	}
	next := benchLookups(b, 0)
	for b.Loop() {
		r.index.Load().find(next(), base.MaxSequence)
	}
}

// BenchmarkWrite writes a table. The time is per entry.
func BenchmarkWrite(b *testing.B) {
	list := benchEntries(benchKeys)
	for _, c := range []struct {
		name string
		o    WriterOptions
	}{
		{"snappy", WriterOptions{}},
		{"plain", WriterOptions{DisableCompression: true}},
		{"plain,bloom", WriterOptions{DisableCompression: true, Filter: filter.Bloom(10)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var buf bytes.Buffer
			w := NewWriter(&buf, &c.o)
			i := 0
			for b.Loop() {
				if i == len(list) {
					if _, err := w.Finish(); err != nil {
						b.Fatal(err)
					}
					buf.Reset()
					w, i = NewWriter(&buf, &c.o), 0
				}
				e := &list[i]
				i++
				if err := w.Add([]byte(e.key), e.seq, e.kind, []byte(e.value)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkScan moves an iterator over a whole table, forward and backward. The time is
// per entry.
func BenchmarkScan(b *testing.B) {
	for _, c := range []struct {
		name       string
		cacheBytes int64
		o          IterOptions
		back       bool
	}{
		{"cached", 64 << 20, IterOptions{}, false},
		{"cached,backward", 64 << 20, IterOptions{}, true},
		{"uncached", 0, IterOptions{}, false},
		{"uncached,readahead", 0, IterOptions{DontFillCache: true, Readahead: true}, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := benchTable(b, c.cacheBytes, nil)
			it := r.NewIter(&c.o)
			for b.Loop() {
				if c.back {
					if !it.Valid() || !it.Prev() {
						it.Last()
					}
				} else if !it.Valid() || !it.Next() {
					it.First()
				}
			}
			if it.Err() != nil {
				b.Fatal(it.Err())
			}
		})
	}
}

// BenchmarkSeek seeks to a key and reads ten entries.
func BenchmarkSeek(b *testing.B) {
	r := benchTable(b, 64<<20, nil)
	it := r.NewIter(nil)
	next := benchLookups(b, 0)
	var target []byte
	for b.Loop() {
		target = base.AppendInternalKey(target[:0], next(), base.MaxSequence, base.KindSeek)
		if !it.SeekGE(target) {
			b.Fatal(it.Err())
		}
		for range 10 {
			if !it.Next() {
				break
			}
		}
	}
}

// BenchmarkOpen opens a table.
func BenchmarkOpen(b *testing.B) {
	data, _ := buildTable(b, benchEntries(benchKeys), &WriterOptions{Filter: filter.Bloom(10)})
	c := NewBlockCache(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		openTable(b, data, &ReaderOptions{Cache: c})
	}
}

// BenchmarkDecodeIndex decodes the index of 32 MiB of blocks.
func BenchmarkDecodeIndex(b *testing.B) {
	for _, keys := range []struct {
		name string
		key  func(i int) []byte
	}{
		{"binary", func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)*0x8123_4567_89ab) }},
		{"decimal", func(i int) []byte { return fmt.Appendf(nil, "%016d", i*30) }},
	} {
		b.Run(keys.name, func(b *testing.B) {
			w := blockWriter{interval: 1}
			const blocks = 8192
			for i := range blocks {
				s := base.AppendInternalKey(nil, keys.key(i), base.MaxSequence, base.KindSeek)
				w.add(s, w.shared(s), appendHandle(nil, Handle{uint64(i) * 4096, 4091 - uint64(i%7)}))
			}
			data := bytes.Clone(w.finish())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeIndex(data, blocks*4096); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
		})
	}
}
