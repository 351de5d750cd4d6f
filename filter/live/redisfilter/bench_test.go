package redisfilter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// bitwise is the filter of most tutorials, with which the layouts are compared: seven commands
// per element, pipelined, over 64 keys.
type bitwise struct {
	c redis.UniversalClient
	g generation
	f *Bloom[string]
}

func (b *bitwise) do(vs []string, get bool) {
	ctx := context.Background()
	_, err := b.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		var bits []uint64
		for _, v := range vs {
			shard, h := b.g.place(b.f.key.Sum64(v))
			key := "{bits:" + strconv.Itoa(shard) + "}"
			for _, bit := range b.g.appendBits(bits[:0], h) {
				if get {
					p.GetBit(ctx, key, int64(bit))
				} else {
					p.SetBit(ctx, key, int64(bit), 1)
				}
			}
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
}

// BenchmarkLayouts adds and looks up 100 elements per round trip, in turns, in a cluster of three
// masters. It reports the median time per element, and the rate and the servers' CPU time
// relative to seven SETBIT or GETBIT.
func BenchmarkLayouts(b *testing.B) {
	c := newCluster(b, 3, 0)
	client := c.client(redis.ClusterOptions{})
	ctx := context.Background()
	const n, part, turn = 100_000, 100, 2000
	o := Options[string]{Items: n, FPR: 0.0082, Shards: 64}
	blocked := open(b, client, "blocked", o)
	o.Layout = Scattered
	scattered := open(b, client, "scattered", o)
	bits := &bitwise{client, scattered.config.Load().read, scattered}
	bits.g.hashes = 7
	redisson := must(OpenRedisson(ctx, client, "redisson", RedissonOptions[string]{Items: n, FPR: 0.0082}))
	vs, positive := members(0, n), make([]bool, part)
	add := func(f Filter[string]) func([]string) {
		return func(vs []string) {
			if err := f.AddMany(ctx, vs, positive); err != nil {
				panic(err)
			}
		}
	}
	has := func(f Filter[string]) func([]string) {
		return func(vs []string) {
			if err := f.MayContainMany(ctx, vs, positive); err != nil {
				panic(err)
			}
		}
	}
	type contestant struct {
		name string
		op   func([]string)
	}
	for _, bm := range []struct {
		name string
		cs   []contestant
	}{
		{"Add", []contestant{{"bits", func(vs []string) { bits.do(vs, false) }}, {"blocked", add(blocked)}, {"scattered", add(scattered)}, {"redisson", add(redisson)}}},
		{"Has", []contestant{{"bits", func(vs []string) { bits.do(vs, true) }}, {"blocked", has(blocked)}, {"scattered", has(scattered)}, {"redisson", has(redisson)}}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			times := make([][]float64, len(bm.cs))
			cpu := make([]float64, len(bm.cs))
			for i := range b.N {
				mine := vs[i*turn%n:][:turn]
				for j, ct := range bm.cs {
					before, start := c.cpuSeconds(), time.Now()
					for k := 0; k < turn; k += part {
						ct.op(mine[k : k+part])
					}
					times[j] = append(times[j], float64(time.Since(start).Nanoseconds())/turn)
					cpu[j] += c.cpuSeconds() - before
				}
			}
			b.ReportMetric(0, "ns/op")
			median := func(j int) float64 { slices.Sort(times[j]); return times[j][len(times[j])/2] }
			for j, ct := range bm.cs {
				b.ReportMetric(median(j), ct.name+"-ns")
				b.ReportMetric(median(0)/median(j), ct.name+"-speed")
				b.ReportMetric(cpu[j]/cpu[0], ct.name+"-serverCPU")
			}
		})
	}
}

// cpuSeconds returns the CPU time of all nodes so far.
func (c *cluster) cpuSeconds() float64 {
	sum := 0.0
	for _, a := range c.admin {
		for line := range strings.Lines(a.Info(context.Background(), "cpu").Val()) {
			var v float64
			for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
				if _, err := fmt.Sscanf(line, name+":%f", &v); err == nil {
					sum += v
				}
			}
		}
	}
	return sum
}
