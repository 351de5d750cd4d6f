package ribbon_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/siftdb/sift/filter"
)

// These benchmarks put Ribbon(10) beside pebble's bloom(10), in turns within one
// run: the machine's noise hits both, and what counts is the ratio.

// turns runs ours and theirs in short turns and reports the best of each, for one
// of n operations, the ratio of the two, and the median of the turns' ratios.
func turns(b *testing.B, n int, ours, theirs func(turn int)) {
	o, t := math.Inf(1), math.Inf(1)
	var ratios []float64
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		ours(i)
		mid := time.Now()
		theirs(i)
		end := time.Now()
		x, y := float64(mid.Sub(start))/float64(n), float64(end.Sub(mid))/float64(n)
		o, t = min(o, x), min(t, y)
		ratios = append(ratios, x/y)
	}
	slices.Sort(ratios)
	b.ReportMetric(o, "ns/key")
	b.ReportMetric(t, "other-ns/key")
	b.ReportMetric(o/t, "ratio")
	b.ReportMetric(ratios[len(ratios)/2], "median-ratio")
}

func keys(seed uint64, n int) [][]byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	all := make([]byte, 0, 16*n)
	k := make([][]byte, n)
	for i := range k {
		all = binary.LittleEndian.AppendUint64(all, rng.Uint64())
		all = binary.LittleEndian.AppendUint64(all, rng.Uint64())
		k[i] = all[16*i : 16*i+16 : 16*i+16]
	}
	return k
}

func buildOurs(b *testing.B, p filter.Policy, keys [][]byte) [][]byte {
	w := p.NewWriter()
	for _, k := range keys {
		w.Add(filter.NewKey(k))
	}
	units, err := w.Finish()
	if err != nil {
		b.Fatal(err)
	}
	return units
}

func buildTheirs(keys [][]byte) []byte {
	w := bloom.FilterPolicy(10).NewWriter(pebble.TableFilter)
	for _, k := range keys {
		w.AddKey(k)
	}
	return w.Finish(nil)
}

func BenchmarkBuildAgainstPebble(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		k := keys(1, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			turns(b, n, func(int) { buildOurs(b, filter.Ribbon(10), k) }, func(int) { buildTheirs(k) })
		})
	}
}

var sink int

// BenchmarkProbeAgainstPebble asks one filter that is in the cache, and filters of
// 100k and of 2M keys that are not: a quarter of a GiB of them.
func BenchmarkProbeAgainstPebble(b *testing.B) {
	const perTurn = 1 << 14
	for _, where := range []struct {
		name       string
		n, filters int
	}{{"hot", 100_000, 1}, {"small", 100_000, 2048}, {"large", 2_000_000, 128}} {
		n := where.n
		p := filter.Ribbon(10)
		present := keys(1, n)
		var readers []filter.Reader
		var blocks [][]byte
		units, block := buildOurs(b, p, present), buildTheirs(present)
		for range where.filters {
			var u [][]byte
			for _, x := range units {
				u = append(u, slices.Clone(x))
			}
			r, err := p.Open(u)
			if err != nil {
				b.Fatal(err)
			}
			readers = append(readers, r)
			blocks = append(blocks, slices.Clone(block))
		}
		for _, asked := range []struct {
			name string
			keys [][]byte
		}{{"absent", keys(2, 64*perTurn)}, {"present", present[:5*perTurn]}} {
			policy := bloom.FilterPolicy(10)
			at := func(turn int) (k [][]byte, step int) {
				return asked.keys[turn*perTurn%len(asked.keys):][:perTurn], turn * 31
			}
			one := func(turn int) {
				k, step := at(turn)
				for i := range k {
					if readers[(i*7919+step)&(len(readers)-1)].MayContain(filter.NewKey(k[i])) {
						sink++
					}
				}
			}
			b.Run(where.name+"/"+asked.name, func(b *testing.B) {
				turns(b, perTurn, one, func(turn int) {
					k, step := at(turn)
					for i := range k {
						if policy.MayContain(pebble.TableFilter, blocks[(i*7919+step)&(len(blocks)-1)], k[i]) {
							sink++
						}
					}
				})
			})
			// One at a time: each probe's place hangs on the answer before.
			b.Run(where.name+"/"+asked.name+"/alone", func(b *testing.B) {
				turns(b, perTurn, func(turn int) {
					k, step := at(turn)
					d := 0
					for i := range k {
						if readers[(i*7919+step+d)&(len(readers)-1)].MayContain(filter.NewKey(k[(i+d)&(perTurn-1)])) {
							d ^= 1
						}
					}
					sink += d
				}, func(turn int) {
					k, step := at(turn)
					d := 0
					for i := range k {
						if policy.MayContain(pebble.TableFilter, blocks[(i*7919+step+d)&(len(blocks)-1)], k[(i+d)&(perTurn-1)]) {
							d ^= 1
						}
					}
					sink += d
				})
			})
			// In batches of 64 keys with their hashes, the other being one by one in
			// a loop, and one at a time.
			hashed := make([]filter.Key, len(asked.keys))
			for i, k := range asked.keys {
				hashed[i] = filter.NewKey(k)
			}
			many := func(turn int) {
				k, step := hashed[turn*perTurn%len(hashed):][:perTurn], turn*31
				var maybe [64]bool
				for i := 0; i < len(k); i += 64 {
					readers[(i/64+step)&(len(readers)-1)].MayContainMany(k[i:i+64], maybe[:])
				}
			}
			b.Run(where.name+"/"+asked.name+"/manyloop", func(b *testing.B) {
				turns(b, perTurn, many, func(turn int) {
					k, step := hashed[turn*perTurn%len(hashed):][:perTurn], turn*31
					for i := range k {
						if readers[(i/64+step)&(len(readers)-1)].MayContain(k[i]) {
							sink++
						}
					}
				})
			})
			b.Run(where.name+"/"+asked.name+"/manyalone", func(b *testing.B) {
				turns(b, perTurn, many, func(turn int) {
					k, step := hashed[turn*perTurn%len(hashed):][:perTurn], turn*31
					d := 0
					for i := range k {
						if readers[(i/64+step)&(len(readers)-1)].MayContain(k[(i+d)&(perTurn-1)]) {
							d ^= 1
						}
					}
					sink += d
				})
			})
		}
	}
}
