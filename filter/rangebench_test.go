package filter_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/siftdb/sift/filter"
)

// BenchmarkRange builds range filters, and probes them for absent ranges, next to Ribbon filters
// probed for absent keys: one filter that stays in cache, and several that do not.
func BenchmarkRange(b *testing.B) {
	b.Run("build", func(b *testing.B) {
		const n = 1 << 20
		rng := rand.New(rand.NewPCG(1, 1))
		keys := make([]uint64, n)
		for i := range keys {
			keys[i] = rng.Uint64()
		}
		w := filter.Range(12, 0).NewWriter()
		for b.Loop() {
			for _, k := range keys {
				w.Add(nil, k)
			}
			if _, err := w.Finish(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed())/float64(b.N)/n, "ns/key")
	})
	sizes := []struct {
		name          string
		filters, keys int
		groups        int // of queries; so many that the lines they read do not fit in the cache, either
	}{{"hot", 1, 1 << 14, 64}, {"large", 6, 8 << 20, 4096}}
	if testing.Short() {
		sizes[1].keys, sizes[1].groups = 1<<18, 64
	}
	for _, size := range sizes {
		var ranges []filter.RangeReader
		var points []filter.Reader
		rng := rand.New(rand.NewPCG(1, 1))
		total := 0
		for range size.filters {
			w, p := filter.Range(12, 0).NewWriter(), filter.Ribbon(10).NewWriter()
			var key [8]byte
			for range size.keys {
				x := rng.Uint64()
				w.Add(nil, x)
				binary.BigEndian.PutUint64(key[:], x)
				p.Add(filter.NewKey(key[:]))
			}
			block, err := w.Finish()
			if err != nil {
				b.Fatal(err)
			}
			r, err := filter.Range(12, 0).Open(block)
			if err != nil {
				b.Fatal(err)
			}
			units, err := p.Finish()
			if err != nil {
				b.Fatal(err)
			}
			q, err := filter.Ribbon(10).Open(units)
			if err != nil {
				b.Fatal(err)
			}
			ranges, points = append(ranges, r), append(points, q)
			total += r.SizeBytes()
		}
		name := func(what string) string { return fmt.Sprintf("%s/%s", size.name, what) }
		const batch = 256
		numbers := make([]uint64, size.groups*batch)
		keys := make([]filter.Key, len(numbers))
		for i := range numbers {
			x := rng.Uint64() >> 1
			numbers[i] = x
			keys[i] = filter.NewKey(binary.BigEndian.AppendUint64(nil, x))
		}
		positive := make([]bool, batch)
		each := func(what string, probe func(group, filter int)) {
			b.Run(name(what), func(b *testing.B) {
				for i := range b.N {
					probe(i*7%size.groups*batch, i%size.filters)
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/batch, "ns/query")
				b.ReportMetric(float64(total)/(1<<20), "MiB")
			})
		}
		each("range", func(group, f int) {
			for i, x := range numbers[group : group+batch] {
				positive[i] = ranges[f].MayContainRange(nil, x, x+9)
			}
		})
		each("point", func(group, f int) {
			for i, k := range keys[group : group+batch] {
				positive[i] = points[f].MayContain(k)
			}
		})
	}
}
