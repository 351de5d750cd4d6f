package pebblefilter

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/siftdb/sift/filter"
)

// benchPolicies are put side by side through pebble's interface.
func benchPolicies() []pebble.FilterPolicy {
	return []pebble.FilterPolicy{
		bloom.FilterPolicy(10),
		New(filter.Bloom(10)),
		New(filter.Fuse(8)),
		New(filter.Ribbon(10)),
		New(filter.RocksDBBloom(10)),
	}
}

func benchName(p pebble.FilterPolicy) string {
	if own, ok := p.(*policy); ok {
		return own.block.Policy().Name()
	}
	return "pebble"
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

// BenchmarkBuild is the time to hash, add and finish, for one key.
func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		keys := benchKeys(1, n)
		for _, p := range benchPolicies() {
			b.Run(fmt.Sprintf("keys=%d/%s", n, benchName(p)), func(b *testing.B) {
				for i := 0; i < b.N; i += n {
					w := p.NewWriter(pebble.TableFilter)
					for _, k := range keys {
						w.AddKey(k)
					}
					w.Finish(nil)
				}
			})
		}
	}
}

var found int

// BenchmarkAbsent is the time to ask for one absent key: always the same filter,
// and one of 4000 in turn, which together do not fit in a cache.
func BenchmarkAbsent(b *testing.B) {
	const n = 25_000
	keys := benchKeys(1, n)
	asked := benchKeys(2, 1<<18)
	for _, filters := range []int{1, 4000} {
		for _, p := range benchPolicies() {
			b.Run(fmt.Sprintf("filters=%d/%s", filters, benchName(p)), func(b *testing.B) {
				w := p.NewWriter(pebble.TableFilter)
				for _, k := range keys {
					w.AddKey(k)
				}
				blocks := [][]byte{w.Finish(nil)}
				for len(blocks) < filters {
					blocks = append(blocks, append([]byte(nil), blocks[0]...))
				}
				x := uint64(1)
				b.ResetTimer()
				for i := range b.N {
					x = x*6364136223846793005 + 1442695040888963407
					block := blocks[(x>>32*uint64(len(blocks)))>>32]
					if p.MayContain(pebble.TableFilter, block, asked[i%len(asked)]) {
						found++
					}
				}
			})
		}
	}
}
