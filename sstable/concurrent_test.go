package sstable

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// TestPoolConcurrent runs the methods of a pool, each by itself, beside allocations: in the end
// nothing is held. The race detector checks that each takes the lock.
func TestPoolConcurrent(t *testing.T) {
	var p FilterPool
	var off offSlabs
	p.SetLimit(1 << 30)
	kept := p.get(2 * smallPool) // there are slabs from now on
	allocate := func() { p.put(p.get(64 << 10)) }
	claim := func() { p.claim(64); p.unclaim(64) }
	grow := func() { off.allocated(1) }
	for _, methods := range [][2]func(){
		{allocate, allocate},
		{claim, claim},
		{func() { p.SetLimit(1 << 30) }, func() { p.Limit() }},
		{p.failed, func() { p.Refused() }},
		{func() { p.Refused() }, func() { p.Refused() }},
		{allocate, func() { p.HeldBytes() }},
		{allocate, func() { p.Sparse() }},
		{allocate, func() { p.OffHeap() }},
		{allocate, func() { p.Capacity(1<<30, 2) }},
		{allocate, func() { p.sparse(filterMem{slab: new(filterSlab)}) }},
		{allocate, func() {
			if p.off != nil { // never changes; nil where the system gives no memory outside the heap
				p.collected(0)
			}
		}},
		{grow, func() { off.freed(1) }},
		{grow, func() { off.collected(1) }},
		{grow, func() { off.load() }},
	} {
		var wg sync.WaitGroup
		for _, method := range methods {
			for range 2 {
				wg.Go(func() {
					for range 2000 {
						method()
					}
				})
			}
		}
		wg.Wait()
	}
	p.put(kept)
	if p.held != 0 || p.live != 0 || p.claimed != 0 || off.bytes != 2*2*2000 {
		t.Errorf("%d bytes are held, %d live, %d claimed; %d of slabs", p.held, p.live, p.claimed, off.bytes)
	}
}

// TestFilterConcurrent loads, moves and inspects a filter from several goroutines: no key is
// excluded, and the pool does not count anything in the end.
func TestFilterConcurrent(t *testing.T) {
	var pool FilterPool
	list := numbered(20_000)
	data, _ := buildTable(t, list, &WriterOptions{Filter: filter.Ribbon(10)})
	kept := readersOfSparseSlabs(t, &pool, data, 500)
	steps := len(kept[0].FilterSteps())
	for _, r := range kept {
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(7, uint64(g)))
				for range 3 {
					if err := r.MoveFilter(); err != nil {
						t.Error(err)
					}
					if err := r.LoadFilterSteps(rng.IntN(steps + 1)); err != nil {
						t.Error(err)
					}
					if e := list[rng.IntN(len(list))]; !r.MayContain(filter.NewKey([]byte(e.key))) {
						t.Errorf("%s is excluded", e.key)
					}
				}
			})
		}
		wg.Wait()
		r.Release()
	}
	if n := pool.HeldBytes(); n != 0 {
		t.Errorf("in the end %d bytes are held", n)
	}
}

// TestDamagedFilterConcurrent inspects a filter while one of its units turns out to be damaged.
// Each goroutine calls one method once: a further call would order the first one before the load,
// if it takes the lock at all, and so hide from the race detector that it releases it too early.
func TestDamagedFilterConcurrent(t *testing.T) {
	data, _ := buildTable(t, numbered(40_000), &WriterOptions{Filter: filter.Ribbon(10)})
	h := openTable(t, data, nil).filterUnits[1]
	damaged := bytes.Clone(data)
	damaged[h.Offset+100] ^= 1
	for range 30 {
		r := openTable(t, damaged, &ReaderOptions{MaxFilterUnits: -1})
		var wg sync.WaitGroup
		for _, inspect := range []func(){
			func() { r.FilterSteps() },
			func() { r.FilterStatus() },
			func() { r.NumFilterUnits() },
			func() { r.FilterUnits() },
		} {
			wg.Go(inspect)
		}
		all := len(r.FilterSteps())
		if err := r.LoadFilterSteps(all); !errors.Is(err, base.ErrCorruption) {
			t.Errorf("loading a damaged unit: %v", err)
		}
		wg.Wait()
		if n := len(r.FilterSteps()); n >= all {
			t.Errorf("%d of %d steps can be loaded", n, all)
		}
	}
}

// TestProveFilterConcurrent verifies a damaged filter from several goroutines, each of which then
// asks for its state.
func TestProveFilterConcurrent(t *testing.T) {
	data, _ := buildTable(t, numbered(40_000), &WriterOptions{Filter: filter.Ribbon(10)})
	h := openTable(t, data, nil).filterUnits[1]
	damaged := bytes.Clone(data)
	damaged[h.Offset+100] ^= 1
	for range 30 {
		r := openTable(t, damaged, &ReaderOptions{MaxFilterUnits: -1})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := r.ProveFilter(); err != nil {
					t.Error(err)
				}
				if state, err := r.FilterStatus(); state != FilterDamaged || !errors.Is(err, base.ErrCorruption) {
					t.Errorf("the filter is %v: %v", state, err)
				}
			})
		}
		wg.Wait()
	}
}

// TestRangeFilterConcurrent loads a range filter in several sizes from several goroutines: no range
// that holds a key is excluded, and what is in memory is what the last call has loaded.
func TestRangeFilterConcurrent(t *testing.T) {
	const keys = 1000
	data, key := sparseNumbers(t, keys)
	r, err := NewReader(bytes.NewReader(data.Bytes()), int64(data.Len()), &ReaderOptions{MaxFilterUnits: -1})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(g)))
			for range 200 {
				bits := 0
				if n := rng.IntN(9); n > 0 {
					bits = 6 + n
				}
				if err := r.LoadRangeBits(bits); err != nil {
					t.Error(err)
				}
				if i := rng.IntN(keys); !r.MayContainRange(key(i*1000), key(i*1000+1)) {
					t.Errorf("key %d is excluded", i)
				}
			}
		})
	}
	wg.Wait()
	if err := r.LoadRangeBits(9); err != nil || r.HeldRangeBits() != 9 {
		t.Errorf("%d bits per key are in memory, %v", r.HeldRangeBits(), err)
	}
}

// TestIndexConcurrent reads an evicted index from several goroutines, while the table is released
// or the index is evicted again: the pool counts one index, and none in the end.
func TestIndexConcurrent(t *testing.T) {
	list := unshortened(500)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 300})
	for round := range 200 {
		pool := new(IndexPool)
		r := openTable(t, data, &ReaderOptions{Cache: NewBlockCache(80 << 10), IndexPool: pool})
		one := pool.HeldBytes()
		pool.SetLimit(1)
		pool.SetLimit(0)
		if r.index.Load() != nil {
			t.Fatal("the index is not evicted")
		}
		start := make(chan struct{})
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				<-start
				e := list[(round+g)%len(list)]
				if v, _, _, found, err := r.Get([]byte(e.key), base.MaxSequence); err != nil || !found || string(v) != e.value {
					t.Errorf("Get(%q): %q, %v, %v", e.key, v, found, err)
				}
			})
		}
		evicts := round%3 > 0
		switch round % 3 {
		case 1:
			wg.Go(func() { <-start; r.Release() })
		case 2:
			wg.Go(func() { <-start; pool.SetLimit(1); pool.SetLimit(0) })
		}
		close(start)
		wg.Wait()
		if n := pool.HeldBytes(); n != one && !evicts {
			t.Fatalf("%d bytes are held, want the %d of one index", n, one)
		}
		r.Release()
		if n := pool.HeldBytes(); n != 0 || len(pool.ring) != 0 {
			t.Fatalf("%d bytes and %d indexes are left", n, len(pool.ring))
		}
	}
}
