package pebblefilter

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/siftdb/sift/filter"
)

// TestRocksDBBloomBytes checks that RocksDBBloom builds the same bytes as pebble, and gives the
// same answers for absent keys.
func TestRocksDBBloomBytes(t *testing.T) {
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, bits := range []int{1, 2, 5, 10, 13, 20, 44, 100} {
		p := filter.RocksDBBloom(bits)
		w := p.NewWriter()
		for _, n := range []int{0, 1, 2, 50, 63, 64, 65, 1000, 40_000} {
			pw := bloom.FilterPolicy(bits).NewWriter(pebble.TableFilter)
			for i := range n {
				key := make([]byte, rng.IntN(40))
				for j := range key {
					key[j] = byte(rng.Uint32())
				}
				if i%10 == 0 {
					key = fmt.Appendf(nil, "key-%d", i)
				}
				for range 1 + i%2 {
					pw.AddKey(key)
					w.Add(filter.NewKey(key))
				}
			}
			block := pw.Finish(nil)
			units, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(units[0], block) {
				t.Fatalf("%d bits, %d keys: the bytes differ (seed %d)", bits, n, seed)
			}
			if n == 0 {
				continue
			}
			r, err := p.Open(units)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2000 {
				k := fmt.Appendf(nil, "absent %d", i)
				got, want := r.MayContain(filter.NewKey(k)), bloom.FilterPolicy(bits).MayContain(pebble.TableFilter, block, k)
				if got != want {
					t.Fatalf("%d bits, %d keys: %q is %v, %v in pebble (seed %d)", bits, n, k, got, want, seed)
				}
			}
		}
	}
}
