//go:build cgo && rocksdbbloom

package rocksdbbloom

import (
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/siftdb/sift/bench/data"
	"github.com/siftdb/sift/filter"
)

const (
	bitsPerKey = 10
	filterKeys = 100_000
	probedKeys = 1 << 13 // few, so that the cache is left to the filters
	coldBytes  = 256 << 20
)

// ours holds copies of one Bloom filter of sift, and the keys to probe them for.
type ours struct {
	readers []filter.BytesReader
	keys    [][]byte
}

// newOurs returns copies of a filter over keys, in huge pages or in plain memory.
func newOurs(tb testing.TB, keys *data.Keys, copies int, huge bool) (o *ours, lines int) {
	tb.Helper()
	p := filter.Bloom(bitsPerKey)
	w := p.NewWriter()
	for i := range keys.Len() {
		w.Add(filter.NewKey(keys.At(i)))
	}
	units, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	const line = 64
	unit := units[0]
	size := (len(unit) + line - 1) / line * line
	var arena []byte
	if huge {
		arena = filter.AlignedBytes(copies * size)
	} else {
		arena = make([]byte, copies*size+line)
		arena = arena[-uintptr(unsafe.Pointer(unsafe.SliceData(arena)))%line:]
	}
	o = new(ours)
	for range copies {
		b := arena[:len(unit):len(unit)]
		copy(b, unit)
		arena = arena[size:]
		r, err := p.Open([][]byte{b})
		if err != nil {
			tb.Fatal(err)
		}
		o.readers = append(o.readers, r.(filter.BytesReader))
	}
	return o, len(unit) / line
}

// probe is like Filters.Probe.
func (o *ours) probe(targets []Target) (positive int) {
	readers, keys := o.readers, o.keys
	for _, q := range targets {
		if readers[q.Filter].MayContainBytes(keys[q.Key]) {
			positive++
		}
	}
	return positive
}

// randomTargets returns n random targets.
func randomTargets(seed uint64, n, filters, keys int) []Target {
	rng := data.Rand(seed)
	list := make([]Target, n)
	for i := range list {
		list[i] = Target{Filter: uint16(rng.IntN(filters)), Key: uint16(rng.IntN(keys))}
	}
	return list
}

// made returns the keys of a filter, and absent keys to probe it for.
func made(tb testing.TB, probed int) (present, absent *data.Keys) {
	tb.Helper()
	set, err := data.MadeUp(data.Random, max(filterKeys, probed), 0, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return data.Collect(filterKeys, set.Key), data.Collect(probed, set.Absent)
}

// TestFilters checks that RocksDB's filter gives no false negatives, and its known false positive
// rate at 10 bits per key.
func TestFilters(t *testing.T) {
	if !Vector() {
		t.Error("the probe was compiled without AVX2")
	}
	const probed = 1 << 20
	present, absent := made(t, probed)
	keys := NewKeys(present)
	f, err := NewFilters(keys, filterKeys*bitsPerKey/512+1, bitsPerKey, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	if n := f.ProbeAll(keys); n != filterKeys {
		t.Errorf("%d of the %d keys of a filter pass it", n, filterKeys)
	}
	if fpr := float64(f.ProbeAll(NewKeys(absent))) / probed; fpr < 0.0088 || fpr > 0.0104 {
		t.Errorf("false positive rate %.4f, want 0.0096", fpr)
	}
}

// BenchmarkBeside probes our Bloom filter and RocksDB's of the same size for random keys of the
// same set, hashing included, in short alternating turns: one filter of 100,000 keys in cache, and
// 256 MB of them out of cache, in huge and in plain pages. It reports the best time of each, and
// the median of the ratios of our time to RocksDB's.
func BenchmarkBeside(b *testing.B) {
	const turn = 1 << 16
	present, absent := made(b, probedKeys)
	some := data.Collect(probedKeys, func(dst []byte, i int) []byte { return append(dst, present.At(i*7%filterKeys)...) })
	theirKeys := NewKeys(present)
	for _, where := range []struct {
		name   string
		copies int
		huge   bool
	}{
		{"hot", 1, true},
		{"cold/huge", coldBytes / (filterKeys * bitsPerKey / 8), true},
		{"cold/plain", coldBytes / (filterKeys * bitsPerKey / 8), false},
	} {
		o, lines := newOurs(b, present, where.copies, where.huge)
		theirs, err := NewFilters(theirKeys, lines, bitsPerKey, where.copies, where.huge)
		if err != nil {
			b.Fatal(err)
		}
		for _, probed := range []struct {
			name string
			keys *data.Keys
		}{{"absent", absent}, {"present", some}} {
			theirProbed := NewKeys(probed.keys)
			o.keys = nil
			for i := range probed.keys.Len() {
				o.keys = append(o.keys, probed.keys.At(i))
			}
			b.Run(where.name+"/"+probed.name, func(b *testing.B) {
				var best [2]float64
				var ratios []float64
				for b.Loop() {
					var took [2]float64
					for i := range took {
						side := (i + len(ratios)) % 2
						targets := randomTargets(uint64(2*len(ratios)+i), turn, where.copies, probedKeys)
						start := time.Now()
						if side == 0 {
							o.probe(targets)
						} else {
							theirs.Probe(theirProbed, targets)
						}
						took[side] = float64(time.Since(start).Nanoseconds()) / turn
					}
					for i, t := range took {
						if len(ratios) == 0 || t < best[i] {
							best[i] = t
						}
					}
					ratios = append(ratios, took[0]/took[1])
				}
				slices.Sort(ratios)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(best[0], "sift-ns")
				b.ReportMetric(best[1], "rocksdb-ns")
				b.ReportMetric(ratios[len(ratios)/2], "sift/rocksdb")
			})
		}
	}
}
