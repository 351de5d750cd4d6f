package torture

import (
	"fmt"
	"sync"
	"testing"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// cutsPerWorkload is the minimum number of power cuts per workload and round: after every
// operation one that loses all unsynced data, one that keeps it, and random ones in between.
const cutsPerWorkload = 1060

// TestCut cuts the power after every operation of every workload. The database must then open, and
// hold everything that was durable and a prefix of the other writes.
func TestCut(t *testing.T) { runCut(short(t)) }

func runCut(p *plan) {
	var mu sync.Mutex
	var total CutStats
	ops, runs := 0, 0
	p.rounds(func(seed uint64) {
		p.each(len(Workloads), func(i int) error {
			w := Workloads[i]
			e := NewEnv(seed)
			// Later rounds write more, so that trees get deeper.
			w.Run(e, w.Writes*(1+int(seed-p.seed)%4))
			if e.Err != nil {
				return fmt.Errorf("%s, seed %d: %w", w.Name, seed, e.Err)
			}
			c := NewCuts(e)
			err := c.everywhere(p)
			mu.Lock()
			defer mu.Unlock()
			total.add(c.Stats)
			ops += e.Mem.NumOps()
			runs++
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", w.Name, seed, err)
			}
			return nil
		})
	})
	p.t.Logf("%d power cuts after each of %d operations of %d runs of %d workloads: %d tore a log, %d lost writes that had begun",
		total.Images, ops, runs, len(Workloads), total.Torn, total.Losses)
	if !p.full() && !p.t.Failed() && total.Images < 20000 {
		p.t.Errorf("%d images are fewer than 20,000", total.Images)
	}
}

// everywhere cuts the power after each operation, in several ways.
func (c *Cuts) everywhere(p *plan) error {
	last := c.Env.Mem.NumOps()
	tears := max(1, (cutsPerWorkload+last)/(last+1)-2)
	for ops := range last + 1 {
		if p.over() {
			return nil
		}
		ways := []vfstest.Survival{vfstest.LoseUnsynced, vfstest.KeepUnsynced}
		for i := range tears {
			ways = append(ways, vfstest.TearUnsynced(uint64(ops*64+i)+c.Env.Rng.Uint64()<<32))
		}
		for _, s := range ways {
			if err := c.Cut(ops, s); err != nil {
				for _, op := range c.Env.Mem.Ops(ops-12, ops) {
					p.t.Log(op)
				}
				keepDisk(p.t, c.Env.Mem.CrashImage(ops, s), c.Env.Dir, fmt.Sprintf("cut-%d-%d", ops, s))
				return err
			}
		}
	}
	return nil
}
