package livebench

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	linvon "github.com/linvon/cuckoo-filter"
	panmari "github.com/panmari/cuckoofilter"
	seiflotfy "github.com/seiflotfy/cuckoofilter"
	"github.com/siftdb/sift/filter/live"
)

// cuckooLike is a filter with space for a million elements.
type cuckooLike struct {
	name          string
	peers         []string
	add, has, del func([]byte) bool
}

// newCuckoos returns filters of package live, and filters of other packages with fingerprints
// of the same size or, for 9 bits, one bit less.
func newCuckoos(lock bool) []cuckooLike {
	var cs []cuckooLike
	for _, c := range []struct {
		name  string
		fpr   float64
		peers []string
	}{{"sift9bit", 0.03, []string{"seiflotfy8bit"}}, {"sift16bit", 0.001, []string{"panmari16bit", "linvon16bit"}}} {
		f, err := live.NewCuckoo(live.CuckooOptions[[]byte]{Items: items, FPR: c.fpr})
		if err != nil {
			panic(err)
		}
		add := func(v []byte) bool { _, err := f.Add(v); return err == nil }
		cs = append(cs, cuckooLike{c.name, c.peers, add, f.MayContain, f.Delete})
	}
	s := seiflotfy.NewFilter(items) // 2^20 slots
	p := panmari.NewFilter(items)
	l := linvon.NewFilter(4, 16, items, linvon.TableTypeSingle)
	return append(cs,
		withLock(lock, cuckooLike{"seiflotfy8bit", nil, s.Insert, s.Lookup, s.Delete}),
		withLock(lock, cuckooLike{"panmari16bit", nil, p.Insert, p.Lookup, p.Delete}),
		withLock(lock, cuckooLike{"linvon16bit", nil, l.Add, l.Contain, l.Delete}))
}

// withLock puts a lock around a filter that is not safe for concurrent use.
func withLock(lock bool, c cuckooLike) cuckooLike {
	if !lock {
		return c
	}
	var mu sync.RWMutex
	write := func(op func([]byte) bool) func([]byte) bool {
		return func(v []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			return op(v)
		}
	}
	has := c.has
	c.add, c.del = write(c.add), write(c.del)
	c.has = func(v []byte) bool {
		mu.RLock()
		defer mu.RUnlock()
		return has(v)
	}
	return c
}

func contestants(cs []cuckooLike, op func(c cuckooLike) func(v []byte)) []contestant {
	var out []contestant
	for _, c := range cs {
		out = append(out, contestant{c.name, op(c), c.peers})
	}
	return out
}

func BenchmarkCuckoo(b *testing.B) {
	eachWorkers(b, "full", func(b *testing.B, workers int) {
		cs := newCuckoos(workers > 1)
		for _, c := range cs {
			for _, v := range members {
				c.add(v)
			}
		}
		has := contestants(cs, func(c cuckooLike) func([]byte) { return func(v []byte) { c.has(v) } })
		b.Run("Present", func(b *testing.B) { sideBySide(b, workers, members, has...) })
		b.Run("Absent", func(b *testing.B) { sideBySide(b, workers, nonMembers, has...) })
	})
	eachWorkers(b, "half", func(b *testing.B, workers int) {
		cs := newCuckoos(workers > 1)
		for _, c := range cs {
			for _, v := range members[:items/2] {
				c.add(v)
			}
		}
		both := contestants(cs, func(c cuckooLike) func([]byte) {
			return func(v []byte) {
				c.add(v)
				c.del(v)
			}
		})
		b.Run("AddDelete", func(b *testing.B) { sideBySide(b, workers, nonMembers, both...) })
	})
}

// BenchmarkCuckooFill fills filters from empty to the million elements that they are made for,
// including the last ones, which are expensive.
func BenchmarkCuckooFill(b *testing.B) {
	eachWorkers(b, "1M", func(b *testing.B, workers int) {
		times := map[string][]time.Duration{}
		failed := map[string]int{}
		for range max(1, min(b.N, 9)) {
			for _, c := range newCuckoos(workers > 1) {
				start := time.Now()
				fails := make([]int, workers)
				var wg sync.WaitGroup
				for w := range workers {
					wg.Go(func() {
						for _, v := range members[w*items/workers : (w+1)*items/workers] {
							if !c.add(v) {
								fails[w]++
							}
						}
					})
				}
				wg.Wait()
				times[c.name] = append(times[c.name], time.Since(start))
				for _, n := range fails {
					failed[c.name] += n
				}
			}
		}
		b.ReportMetric(0, "ns/op")
		for name, ts := range times {
			slices.Sort(ts)
			b.ReportMetric(float64(ts[len(ts)/2].Nanoseconds())/items, name+"-ns")
			b.ReportMetric(float64(failed[name]), fmt.Sprint(name, "-failed"))
		}
	})
}
