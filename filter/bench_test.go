package filter_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/siftdb/sift/filter"
)

// The policies that the benchmarks compare. The comparison with pebble's own
// filters is in pebblefilter.
var benchPolicies = []filter.Policy{
	filter.Bloom(10),
	filter.Bloom(20),
	filter.Fuse(8),
	filter.Ribbon(10),
	filter.RocksDBBloom(10),
}

// benchKeys returns n random keys of 16 bytes.
func benchKeys(seed uint64, n int) [][]byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	buf := make([]byte, 16*n)
	keys := make([][]byte, n)
	for i := range keys {
		k := buf[16*i : 16*i+16 : 16*i+16]
		binary.LittleEndian.PutUint64(k, rng.Uint64())
		binary.LittleEndian.PutUint64(k[8:], rng.Uint64())
		keys[i] = k
	}
	return keys
}

func buildReader(b *testing.B, p filter.Policy, keys [][]byte) filter.Reader {
	b.Helper()
	w := p.NewWriter()
	for _, k := range keys {
		w.Add(filter.NewKey(k))
	}
	units, err := w.Finish()
	if err != nil {
		b.Fatal(err)
	}
	r, err := p.Open(units)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// BenchmarkBuild measures the time per key to hash, add and finish.
func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		keys := benchKeys(1, n)
		for _, p := range benchPolicies {
			b.Run(fmt.Sprintf("keys=%d/%s", n, p.Name()), func(b *testing.B) {
				for i := 0; i < b.N; i += n {
					w := p.NewWriter()
					for _, k := range keys {
						w.Add(filter.NewKey(k))
					}
					if _, err := w.Finish(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkAbsent measures the time to hash one absent key and probe for it, in a filter that fits
// in the cache and in one that does not.
func BenchmarkAbsent(b *testing.B) { benchProbe(b, 2) }

// BenchmarkPresent measures the same for keys that were added.
func BenchmarkPresent(b *testing.B) { benchProbe(b, 1) }

var found int

func benchProbe(b *testing.B, seed uint64) {
	for _, n := range []int{100_000, 20_000_000} {
		if n > 1_000_000 && testing.Short() {
			continue
		}
		keys := benchKeys(1, n)
		probed := benchKeys(seed, min(n, 1<<16))
		for _, p := range benchPolicies {
			r := buildReader(b, p, keys)
			b.Run(fmt.Sprintf("keys=%d/%s", n, p.Name()), func(b *testing.B) {
				for i := range b.N {
					if r.MayContain(filter.NewKey(probed[i%len(probed)])) {
						found++
					}
				}
			})
			b.Run(fmt.Sprintf("keys=%d/%s/batch=64", n, p.Name()), func(b *testing.B) {
				var batch [64]filter.Key
				var positive [64]bool
				for i := 0; i < b.N; i += len(batch) {
					for j := range batch {
						batch[j] = filter.NewKey(probed[(i+j)%len(probed)])
					}
					r.MayContainMany(batch[:], positive[:])
				}
			})
		}
	}
}
