package livebench

import (
	"fmt"
	"sync"
	"testing"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/cespare/xxhash/v2"
	"github.com/greatroar/blobloom"
	holiman "github.com/holiman/bloomfilter/v2"
	"github.com/siftdb/sift/filter/live"
)

type bloomLike struct {
	name     string
	peers    []string
	add, has func([]byte)
}

// locked puts a lock around a filter that is not safe for concurrent use.
func locked(lock bool, add, has func([]byte)) (func([]byte), func([]byte)) {
	if !lock {
		return add, has
	}
	var mu sync.RWMutex
	return func(v []byte) {
			mu.Lock()
			add(v)
			mu.Unlock()
		}, func(v []byte) {
			mu.RLock()
			has(v)
			mu.RUnlock()
		}
}

func newBlooms(items uint64, fpr float64, lock bool) []bloomLike {
	var fs []bloomLike
	for _, ours := range []struct {
		name     string
		scheme   live.Scheme
		unshared bool
		peers    []string
	}{
		{"Scattered", live.Scattered, false, []string{"bitsandblooms", "holiman"}},
		{"Blocked", live.Blocked, false, []string{"bitsandblooms", "holiman", "blobloom", "blobloomSync"}},
		{"Guava", live.Guava, false, []string{"bitsandblooms"}},
		{"UnsharedScattered", live.Scattered, true, []string{"bitsandblooms", "holiman"}},
		{"UnsharedBlocked", live.Blocked, true, []string{"bitsandblooms", "holiman", "blobloom"}},
		{"UnsharedGuava", live.Guava, true, []string{"bitsandblooms"}},
	} {
		if lock && ours.unshared { // several goroutines
			continue
		}
		f, err := live.NewBloom(live.BloomOptions[[]byte]{Items: items, FPR: fpr, Scheme: ours.scheme, Unshared: ours.unshared})
		if err != nil {
			panic(err)
		}
		fs = append(fs, bloomLike{ours.name, ours.peers, func(v []byte) { f.Add(v) }, func(v []byte) { f.MayContain(v) }})
	}
	g := bloom.NewWithEstimates(uint(items), fpr)
	add, has := locked(lock, func(v []byte) { g.Add(v) }, func(v []byte) { g.Test(v) })
	fs = append(fs, bloomLike{"bitsandblooms", nil, add, has})

	h, err := holiman.NewOptimal(items, fpr)
	if err != nil {
		panic(err)
	}
	add, has = locked(lock, func(v []byte) { h.AddHash(xxhash.Sum64(v)) }, func(v []byte) { h.ContainsHash(xxhash.Sum64(v)) })
	fs = append(fs, bloomLike{"holiman", nil, add, has})

	config := blobloom.Config{Capacity: items, FPRate: fpr}
	safe := blobloom.NewSyncOptimized(config)
	fs = append(fs, bloomLike{"blobloomSync", nil, func(v []byte) { safe.Add(xxhash.Sum64(v)) }, func(v []byte) { safe.Has(xxhash.Sum64(v)) }})
	if lock {
		return fs
	}
	plain := blobloom.NewOptimized(config)
	return append(fs, bloomLike{"blobloom", nil, func(v []byte) { plain.Add(xxhash.Sum64(v)) }, func(v []byte) { plain.Has(xxhash.Sum64(v)) }})
}

func bloomContestants(fs []bloomLike) (add, has []contestant) {
	for _, f := range fs {
		add = append(add, contestant{f.name, f.add, f.peers})
		has = append(has, contestant{f.name, f.has, f.peers})
	}
	return add, has
}

func BenchmarkBloom(b *testing.B) {
	for _, fpr := range []float64{0.01, 0.001} {
		eachWorkers(b, fmt.Sprintf("fpr=%v", fpr), func(b *testing.B, workers int) {
			fs := newBlooms(items, fpr, workers > 1)
			add, has := bloomContestants(fs)
			b.Run("Add", func(b *testing.B) { sideBySide(b, workers, members, add...) })
			for _, f := range fs {
				for _, v := range members {
					f.add(v)
				}
			}
			b.Run("Present", func(b *testing.B) { sideBySide(b, workers, members, has...) })
			b.Run("Absent", func(b *testing.B) { sideBySide(b, workers, nonMembers, has...) })
		})
	}
}

// BenchmarkBloomLarge measures filters far larger than the cache: they are made for 64 million
// elements, and the one million fills only a part of them.
func BenchmarkBloomLarge(b *testing.B) {
	eachWorkers(b, "fpr=0.01", func(b *testing.B, workers int) {
		add, has := bloomContestants(newBlooms(64*items, 0.01, workers > 1))
		b.Run("Add", func(b *testing.B) { sideBySide(b, workers, members, add...) })
		b.Run("Present", func(b *testing.B) { sideBySide(b, workers, members, has...) })
	})
}
