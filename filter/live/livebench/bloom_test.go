package livebench

import (
	"fmt"
	"sync"
	"testing"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/siftdb/sift/filter/live"
)

type bloomLike struct {
	name string
	add  func([]byte)
	has  func([]byte)
}

func newBlooms(items uint, fpr float64, lock bool) []bloomLike {
	var fs []bloomLike
	for _, s := range []live.Scheme{live.Scattered, live.Blocked, live.Guava} {
		f, err := live.NewBloom(live.BloomOptions[[]byte]{Items: uint64(items), FPR: fpr, Scheme: s})
		if err != nil {
			panic(err)
		}
		fs = append(fs, bloomLike{s.String(), func(v []byte) { f.Add(v) }, func(v []byte) { f.MayContain(v) }})
	}
	g := bloom.NewWithEstimates(items, fpr)
	add, has := func(v []byte) { g.Add(v) }, func(v []byte) { g.Test(v) }
	if lock {
		var mu sync.RWMutex
		add = func(v []byte) {
			mu.Lock()
			g.Add(v)
			mu.Unlock()
		}
		has = func(v []byte) {
			mu.RLock()
			g.Test(v)
			mu.RUnlock()
		}
	}
	return append(fs, bloomLike{"bitsandblooms", add, has})
}

func BenchmarkBloom(b *testing.B) {
	for _, fpr := range []float64{0.01, 0.001} {
		eachWorkers(b, fmt.Sprintf("fpr=%v", fpr), func(b *testing.B, workers int) {
			fs := newBlooms(items, fpr, workers > 1)
			var add, has []contestant
			for _, f := range fs {
				add = append(add, contestant{f.name, f.add})
				has = append(has, contestant{f.name, f.has})
			}
			b.Run("Add", func(b *testing.B) { sideBySide(b, workers, members, add...) })
			for _, f := range fs {
				for _, v := range members {
					f.add(v)
				}
			}
			b.Run("Present", func(b *testing.B) { sideBySide(b, workers, members, has...) })
			b.Run("Absent", func(b *testing.B) { sideBySide(b, workers, strangers, has...) })
		})
	}
}

// BenchmarkBloomLarge has filters far larger than the cache: 64 million elements'
// worth, which 50 turns fill to a part only.
func BenchmarkBloomLarge(b *testing.B) {
	eachWorkers(b, "fpr=0.01", func(b *testing.B, workers int) {
		var add, has []contestant
		for _, f := range newBlooms(64*items, 0.01, workers > 1) {
			add = append(add, contestant{f.name, f.add})
			has = append(has, contestant{f.name, f.has})
		}
		b.Run("Add", func(b *testing.B) { sideBySide(b, workers, members, add...) })
		b.Run("Present", func(b *testing.B) { sideBySide(b, workers, members, has...) })
	})
}
