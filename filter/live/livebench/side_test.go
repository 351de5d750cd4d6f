package livebench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	items = 1_000_000
	// turn is the number of operations of a contestant per turn: enough for the part of
	// the filter that fits into the cache to be there most of the time.
	turn = 100_000
)

var (
	members    = keys("user:")
	nonMembers = keys("ghost:")
)

func keys(prefix string) [][]byte {
	ks := make([][]byte, items)
	for i := range ks {
		ks[i] = []byte(prefix + strconv.Itoa(i))
	}
	return ks
}

// A contestant does the same work as the others, one operation per element.
type contestant struct {
	name string
	op   func(v []byte)
	// peers are the names of the filters to compare with: those of other packages, of
	// the same kind and size. They have no peers themselves.
	peers []string
}

// sideBySide lets contestants take turns over vs, b.N turns each, with a number of
// goroutines in each turn. The order is random, so that none always comes after the same
// other one, or is always the first to read the elements.
func sideBySide(b *testing.B, workers int, vs [][]byte, cs ...contestant) {
	times := make([][]time.Duration, len(cs))
	order := rand.New(rand.NewPCG(1, 2))
	for i := range b.N {
		part := vs[i*turn%len(vs):][:turn]
		for _, j := range order.Perm(len(cs)) {
			c := cs[j]
			start := time.Now()
			if workers == 1 {
				for _, v := range part {
					c.op(v)
				}
			} else {
				var wg sync.WaitGroup
				for w := range workers {
					wg.Go(func() {
						for _, v := range part[w*turn/workers : (w+1)*turn/workers] {
							c.op(v)
						}
					})
				}
				wg.Wait()
			}
			times[j] = append(times[j], time.Since(start))
		}
	}
	b.ReportMetric(0, "ns/op")
	medians := map[string]float64{}
	for j, c := range cs {
		slices.Sort(times[j])
		medians[c.name] = float64(times[j][len(times[j])/2].Nanoseconds()) / turn
		b.ReportMetric(medians[c.name], c.name+"-ns")
	}
	for _, c := range cs {
		for _, peer := range c.peers {
			if medians[peer] > 0 { // it takes part
				b.ReportMetric(medians[peer]/medians[c.name], c.name+"/"+peer)
			}
		}
	}
}

func eachWorkers(b *testing.B, name string, f func(b *testing.B, workers int)) {
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprintf("%s/goroutines=%d", name, workers), func(b *testing.B) { f(b, workers) })
	}
}
