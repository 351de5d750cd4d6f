package livebench

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/siftdb/sift/filter/live"
)

const items = 1_000_000

var (
	members   = keys("user:")
	strangers = keys("ghost:")
)

func keys(prefix string) [][]byte {
	ks := make([][]byte, items)
	for i := range ks {
		ks[i] = []byte(prefix + strconv.Itoa(i))
	}
	return ks
}

// each runs op over vs, in a different order for each goroutine.
func each(b *testing.B, vs [][]byte, op func([]byte)) {
	b.ReportAllocs()
	var start atomic.Uint64
	b.RunParallel(func(pb *testing.PB) {
		i := start.Add(1) * 0x9e3779b97f4a7c15 >> 40
		for pb.Next() {
			op(vs[i%items])
			i++
		}
	})
}

type bloomLike struct {
	name string
	add  func([]byte)
	has  func([]byte) bool
}

func blooms(fpr float64) []bloomLike {
	var fs []bloomLike
	for _, s := range []live.Scheme{live.Scattered, live.Blocked, live.Guava} {
		f, err := live.NewBloom(live.BloomOptions[[]byte]{Items: items, FPR: fpr, Scheme: s})
		if err != nil {
			panic(err)
		}
		fs = append(fs, bloomLike{"sift" + s.String(), func(v []byte) { f.Add(v) }, f.MayContain})
	}
	g := bloom.NewWithEstimates(items, fpr)
	return append(fs, bloomLike{"bitsandblooms", func(v []byte) { g.Add(v) }, g.Test})
}

func BenchmarkBloom(b *testing.B) {
	for _, fpr := range []float64{0.01, 0.001} {
		for _, f := range blooms(fpr) {
			name := "fpr=" + strconv.FormatFloat(fpr, 'g', -1, 64) + "/" + f.name
			b.Run("Add/"+name, func(b *testing.B) { each(b, members, f.add) })
			for _, v := range members {
				f.add(v)
			}
			b.Run("Present/"+name, func(b *testing.B) { each(b, members, func(v []byte) { f.has(v) }) })
			b.Run("Absent/"+name, func(b *testing.B) { each(b, strangers, func(v []byte) { f.has(v) }) })
		}
	}
}
