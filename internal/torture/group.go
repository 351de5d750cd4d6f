package torture

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// GroupHistory is the oracle of several concurrent writers. No two writes have a key in
// common. A write that returned before another began precedes it.
type GroupHistory struct {
	mu     sync.Mutex
	writes []write
}

// Begin records that a write is about to start, and returns its number.
func (g *GroupHistory) Begin(edits []Edit, sync bool, ops int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes = append(g.writes, write{edits: edits, sync: sync, started: ops, ended: never})
	return len(g.writes) - 1
}

// End records that write i was acknowledged.
func (g *GroupHistory) End(i, ops int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes[i].ended, g.writes[i].outcome = ops, acked
}

// Began returns how many writes had begun within the first ops operations.
func (g *GroupHistory) Began(ops int) (n int) {
	for _, w := range g.writes {
		if w.started < ops {
			n++
		}
	}
	return n
}

// Keys returns all keys, sorted.
func (g *GroupHistory) Keys() []string {
	var keys []string
	for _, w := range g.writes {
		for _, e := range w.edits {
			keys = append(keys, e.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Found compares the contents after a power cut with the history.
func (g *GroupHistory) Found(contents map[string]string, ops int) (writes int, err error) {
	there := make([]bool, len(g.writes))
	began := -1 // when the last write found began
	for i, w := range g.writes {
		n := 0
		for _, e := range w.edits {
			if v, ok := contents[e.Key]; ok && v != e.Value {
				return 0, fmt.Errorf("%q is %.20q, want %.20q", e.Key, v, e.Value)
			} else if ok {
				n++
			}
		}
		if n != 0 && n != len(w.edits) {
			return 0, fmt.Errorf("%d of the %d keys of a batch are there: %q", n, len(w.edits), w.edits[0].Key)
		}
		if there[i] = n > 0; there[i] {
			writes++
			began = max(began, w.started)
			if w.started >= ops {
				return 0, fmt.Errorf("a write that had not begun is there: %q", w.edits[0].Key)
			}
		}
	}
	for i, w := range g.writes {
		if there[i] || w.outcome != acked {
			continue
		}
		if w.sync && w.ended <= ops {
			return 0, fmt.Errorf("a durable write is lost: %q", w.edits[0].Key)
		}
		if w.ended <= began {
			return 0, fmt.Errorf("a hole: %q is lost, and a write that began after it returned is there", w.edits[0].Key)
		}
	}
	return writes, nil
}

// runGroup writes from several goroutines, some with sync and some without, while syncs
// of the log are slow, so that the other writers queue.
func runGroup(e *Env, n int) {
	const writers = 6
	faulty := vfstest.Inject(e.Mem)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(e.Rng.Uint64(), 1))
	faulty.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpSync && strings.HasSuffix(filepath.Base(op.Name), ".log") {
			mu.Lock()
			pause := time.Duration(rng.IntN(200)) * time.Microsecond
			mu.Unlock()
			time.Sleep(pause)
		}
		return nil
	})
	e.FS = faulty
	e.Open()
	if e.dead() {
		return
	}
	g := &GroupHistory{}
	e.Oracle = g
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		rng := rand.New(rand.NewPCG(e.Rng.Uint64(), uint64(w)))
		wg.Go(func() {
			for i := range n / writers {
				var b sift.Batch
				var edits []Edit
				for j := range 1 + rng.IntN(3) {
					d := Edit{Key: fmt.Sprintf("%d/%04d/%d", w, i, j), Value: strings.Repeat("x", rng.IntN(100)+1)}
					edits = append(edits, d)
					b.Put([]byte(d.Key), []byte(d.Value))
				}
				sync := rng.IntN(3) == 0
				id := g.Begin(edits, sync, e.ops())
				if errs[w] = e.DB.Write(&b, &sift.WriteOptions{NoSync: !sync}); errs[w] != nil {
					return
				}
				g.End(id, e.ops())
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		e.failed("Write", err)
	}
	if err := e.DB.Close(); err != nil {
		e.broken("Close: %w", err)
	}
	e.DB = nil
}
