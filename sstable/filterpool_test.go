package sstable

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/offheap"
)

// TestFilterPool allocates and frees memory of many sizes: allocations do not overlap,
// are aligned and zero, and the counts are correct.
func TestFilterPool(t *testing.T) {
	var p FilterPool
	rng := rand.New(rand.NewPCG(5, 6))
	type held struct {
		filterMem
		mark byte
	}
	var list []held
	var want int64
	slabs := map[*filterSlab]bool{}
	for i := range 6000 {
		if len(list) > 300 && rng.IntN(5) < 2 || i > 5000 && len(list) > 0 {
			k := rng.IntN(len(list))
			h := list[k]
			for _, b := range h.bytes {
				if b != h.mark {
					t.Fatalf("an allocation of %d bytes was overwritten by another", h.size)
				}
			}
			p.put(h.filterMem)
			want -= int64(h.size)
			list[k] = list[len(list)-1]
			list = list[:len(list)-1]
		} else {
			n := 1 + rng.IntN(40<<10)
			if i%500 == 0 {
				n = maxSlabAlloc + rng.IntN(2<<20)
			}
			h := held{p.get(n), byte(i)}
			if len(h.bytes) != n || uintptr(unsafe.Pointer(&h.bytes[0]))%filterLine != 0 {
				t.Fatalf("an allocation of %d bytes has %d, at %p", n, len(h.bytes), &h.bytes[0])
			}
			if n := bytes.Count(h.bytes, []byte{0}); n != h.size {
				t.Fatalf("%d of %d bytes are zero", n, h.size)
			}
			for j := range h.bytes {
				h.bytes[j] = h.mark
			}
			if h.slab != nil {
				slabs[h.slab] = true
			}
			want += int64(n)
			list = append(list, h)
		}
		if p.HeldBytes() != want {
			t.Fatalf("HeldBytes is %d, want %d", p.HeldBytes(), want)
		}
	}
	for _, h := range list {
		p.put(h.filterMem)
	}
	if len(slabs) < 3 {
		t.Errorf("only %d slabs", len(slabs))
	}
	if p.held != 0 || p.live != 0 {
		t.Errorf("in the end %d bytes are held, %d live", p.held, p.live)
	}
	if p.cur != nil && p.slab != p.cur.used {
		t.Errorf("%d bytes are counted in slabs, %d are in the last", p.slab, p.cur.used)
	}
}

// TestMoveFilter drops most tables of a pool, so that it is sparse, and moves the filters of the
// others: their answers must not change, and the pool must no longer be sparse.
func TestMoveFilter(t *testing.T) {
	var pool FilterPool
	const keys = 30_000
	list := numbered(keys)
	data, _ := buildTable(t, list, &WriterOptions{Filter: filter.Ribbon(10)})
	var readers []*Reader
	for i := range 400 {
		r, err := NewReader(bytes.NewReader(data), int64(len(data)), &ReaderOptions{Path: fmt.Sprint(i), FilterPool: &pool})
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	if pool.Sparse() {
		t.Fatal("a full pool is sparse")
	}
	probe := func(r *Reader) (falsePositives int) {
		for i := range keys {
			if !r.MayContain(filter.NewKey([]byte(list[i].key))) {
				t.Fatalf("key %d is excluded", i)
			}
			if r.MayContain(filter.NewKey(fmt.Appendf(nil, "absent%d", i))) {
				falsePositives++
			}
		}
		return falsePositives
	}
	want := probe(readers[0])
	held := pool.HeldBytes()
	var kept []*Reader
	for i, r := range readers {
		if i%8 == 0 {
			kept = append(kept, r)
			continue
		}
		r.Release()
		r.Release() // does nothing
	}
	if got := pool.HeldBytes(); got*8 != held {
		t.Errorf("%d bytes are held, of %d before", got, held)
	}
	if !pool.Sparse() {
		t.Fatal("a pool with an eighth of its filters is not sparse")
	}
	moved := 0
	for _, r := range kept {
		before := r.Filter()
		if err := r.MoveFilter(); err != nil {
			t.Fatal(err)
		}
		if r.Filter() != before {
			moved++
		}
		if got := probe(r); got != want || r.HeldFilterSteps() != len(r.FilterSteps()) {
			t.Fatalf("after moving: %d false positives, want %d, %d steps held", got, want, r.HeldFilterSteps())
		}
	}
	if pool.Sparse() || moved < len(kept)/2 {
		t.Errorf("%d of %d filters were moved, sparse: %v", moved, len(kept), pool.Sparse())
	}
	if got := pool.HeldBytes(); got*8 != held {
		t.Errorf("after moving: %d bytes are held, of %d before", got, held)
	}
	// Steps are loaded and dropped; the count stays correct.
	r := kept[0]
	for _, n := range []int{1, 2, 5, 4, 7, 6, 0, 3, 2, len(r.FilterSteps())} {
		if err := r.LoadFilterSteps(n); err != nil {
			t.Fatal(err)
		}
	}
	if got := pool.HeldBytes(); got*8 != held {
		t.Errorf("after dropping and loading: %d bytes are held, of %d before", got, held)
	}
	for _, r := range kept {
		r.Release()
	}
	if got := pool.HeldBytes(); got != 0 {
		t.Errorf("in the end %d bytes are held", got)
	}
}

// readersOfSparseSlabs opens a table n times, and releases seven of eight readers. It returns the
// others.
func readersOfSparseSlabs(t *testing.T, pool *FilterPool, data []byte, n int) (kept []*Reader) {
	t.Helper()
	var readers []*Reader
	for range n {
		readers = append(readers, openTable(t, data, &ReaderOptions{FilterPool: pool}))
	}
	for i, r := range readers {
		if i%8 == 0 {
			kept = append(kept, r)
		} else {
			r.Release()
		}
	}
	return kept
}

// TestMoveChangedFilter checks that a filter whose memory has been corrupted is dropped when it is
// moved, so that MayContain returns true.
func TestMoveChangedFilter(t *testing.T) {
	var pool FilterPool
	list := numbered(30_000)
	data, _ := buildTable(t, list, &WriterOptions{Filter: filter.Ribbon(10)})
	dropped := 0
	for _, r := range readersOfSparseSlabs(t, &pool, data, 400) {
		r.filter.Load().units[0].bytes[1000] ^= 0x10
		if err := r.MoveFilter(); err == nil {
			continue // its slab is not sparse
		}
		dropped++
		if state, err := r.FilterStatus(); state != FilterDamaged || err == nil || r.Filter() != nil {
			t.Fatalf("after the error: state %v, %v", state, err)
		}
		for _, e := range list {
			if !r.MayContain(filter.NewKey([]byte(e.key))) {
				t.Fatalf("%s is excluded", e.key)
			}
		}
	}
	if dropped == 0 {
		t.Error("no filter was dropped")
	}
}

// TestFilterPoolLimit checks that filters may take exactly the limit, and that a claim of no bytes
// always succeeds.
func TestFilterPoolLimit(t *testing.T) {
	var p FilterPool
	p.SetLimit(1000)
	p.get(400)
	for _, tt := range []struct {
		n  int64
		ok bool
	}{{601, false}, {600, true}, {1, false}, {0, true}, {-100, true}, {1, false}} {
		if ok := p.claim(tt.n); ok != tt.ok {
			t.Errorf("claim(%d) = %t", tt.n, ok)
		}
	}
	if p.unclaim(-100); p.claimed != 600 {
		t.Errorf("%d bytes are claimed", p.claimed)
	}
	p.unclaim(600)
	p.SetLimit(-1)
	if p.claim(1) || !p.claim(0) {
		t.Error("with a negative limit, claim(1) succeeds or claim(0) fails")
	}
	p.SetLimit(0)
	if !p.claim(1 << 40) {
		t.Error("claim fails without a limit")
	}
}

// claimWatcher records the maximum of the bytes held and claimed in a pool, at each read.
type claimWatcher struct {
	io.ReaderAt
	pool *FilterPool
	most int64
}

func (w *claimWatcher) ReadAt(p []byte, off int64) (int, error) {
	w.pool.mu.Lock()
	w.most = max(w.most, w.pool.held+w.pool.claimed)
	w.pool.mu.Unlock()
	return w.ReaderAt.ReadAt(p, off)
}

// TestClaimsCountOnce checks that the memory of a filter counts once while it is loaded unit by
// unit, so that other filters are not refused although they fit.
func TestClaimsCountOnce(t *testing.T) {
	data, _ := buildTable(t, numbered(30_000), &WriterOptions{Filter: filter.Ribbon(16)})
	var pool FilterPool
	file := &claimWatcher{ReaderAt: bytes.NewReader(data), pool: &pool}
	r, err := NewReader(file, int64(len(data)), &ReaderOptions{FilterPool: &pool, MaxFilterUnits: -1})
	if err != nil {
		t.Fatal(err)
	}
	if n := r.NumFilterUnits(); n < 3 {
		t.Fatalf("a filter of %d units", n)
	}
	all := len(r.FilterSteps())
	for _, n := range []int{all, 0, all - 1, all, 0, 1, 2, 0, all} {
		want, empty := r.room(n, r.held()), r.HeldFilterSteps() == 0
		file.most = 0
		if err := r.LoadFilterSteps(n); err != nil {
			t.Fatal(err)
		}
		if empty && file.most != want || pool.claimed != 0 || r.claimed != 0 {
			t.Errorf("%d steps: up to %d bytes count, want %d; %d and %d are claimed in the end", n, file.most, want, pool.claimed, r.claimed)
		}
	}
}

// TestFilterSlabs checks which allocations come from slabs, the size of slabs, and that they are
// used completely.
func TestFilterSlabs(t *testing.T) {
	var p FilterPool
	p.get(smallPool - filterLine)
	if m := p.get(filterLine); m.slab != nil {
		t.Error("a pool of smallPool bytes has a slab")
	}
	if m := p.get(1); m.slab == nil {
		t.Error("a larger pool has no slab")
	}
	if m := p.get(maxSlabAlloc + 1); m.slab == nil || m.slab == p.cur || len(m.slab.rest) != 0 {
		t.Error("an allocation of more than maxSlabAlloc has no slab for itself")
	}
	if rest := len(p.cur.rest); rest != smallSlab-filterLine {
		t.Errorf("%d bytes are left after one line", rest)
	}
	p.get(filterLine)
	if rest := len(p.cur.rest); rest != smallSlab-2*filterLine {
		t.Errorf("%d bytes are left after two lines", rest)
	}
	cur := p.cur
	p.get(maxSlabAlloc)
	if m := p.get(len(cur.rest)); m.slab != cur || len(cur.rest) != 0 {
		t.Errorf("an allocation that fits does not use the rest of a slab; %d bytes are left", len(cur.rest))
	}
	for _, tt := range []struct {
		held, limit int64
		size        int
	}{
		{largeSlab - 1, 0, smallSlab}, {largeSlab, 0, largeSlab},
		{largeSlab, largeShare*largeSlab - 1, smallSlab}, {largeSlab, largeShare * largeSlab, largeSlab},
	} {
		p := FilterPool{held: tt.held - filterLine, limit: tt.limit}
		p.get(filterLine)
		if got := len(p.cur.rest) + filterLine; got != tt.size {
			t.Errorf("with %d bytes held and a limit of %d a slab has %d bytes, want %d", tt.held, tt.limit, got, tt.size)
		}
	}
}

// TestSparse checks that a pool is sparse if it wastes more than a small slab and more than a
// fifth.
func TestSparse(t *testing.T) {
	for _, tt := range []struct {
		slab, live int64
		sparse     bool
	}{
		{5 * smallSlab, 4 * smallSlab, false}, {5*smallSlab + 5, 4*smallSlab + 4, false}, {5*smallSlab + 5, 4*smallSlab + 3, true},
		{2 * smallSlab, smallSlab, false}, {2*smallSlab + 1, smallSlab, true}, {10 * smallSlab, 8 * smallSlab, false},
	} {
		p := FilterPool{slab: tt.slab, live: tt.live}
		if got := p.Sparse(); got != tt.sparse {
			t.Errorf("%d live bytes of %d: sparse %t", tt.live, tt.slab, got)
		}
	}
	cur, full, thin := &filterSlab{used: 1000, live: 1}, &filterSlab{used: 1000, live: 800}, &filterSlab{used: 1000, live: 799}
	p := FilterPool{cur: cur}
	for _, tt := range []struct {
		slab   *filterSlab
		sparse bool
	}{{nil, false}, {cur, false}, {full, false}, {thin, true}} {
		if got := p.sparse(filterMem{slab: tt.slab}); got != tt.sparse {
			t.Errorf("%+v: sparse %t", tt.slab, got)
		}
	}
}

// TestOffHeap checks that slabs are outside the heap where that is possible, and are freed once no
// reader and no lookup can use them. If there are many, the pool itself calls the garbage
// collector.
func TestOffHeap(t *testing.T) {
	if !offheap.Available {
		t.Skip("no memory outside the heap on this system")
	}
	var pool FilterPool
	var list []filterMem
	for range 100 {
		list = append(list, pool.get(1<<20))
	}
	const heap = smallPool // the first filters stay there
	off, unused := pool.OffHeap()
	if off < 100<<20-heap || off > 100<<20-heap+largeSlab/2 || unused != off-(100<<20-heap) {
		t.Fatalf("%d bytes are outside the heap, %d of them unused", off, unused)
	}
	held := newHeldFilter(&firstByte{list[50].bytes}, list[50:51], 1, nil)
	list[50].bytes[0] = 1
	for i := range list {
		pool.put(list[i])
	}
	list = nil
	for begin := time.Now(); off > 4*largeSlab; off, unused = pool.OffHeap() {
		if time.Since(begin) > time.Minute {
			t.Fatalf("%d bytes are outside the heap, %d of them unused, and nothing is held", off, unused)
		}
		time.Sleep(time.Millisecond)
	}
	if !held.MayContain(filter.Key{}) {
		t.Fatal("the memory of a dropped filter changes while a lookup uses it")
	}
}

// TestGarbageLeftOver checks that slabs that become garbage during a collection, or in place of
// garbage that was freed, are collected too.
func TestGarbageLeftOver(t *testing.T) {
	if !offheap.Available {
		t.Skip("no memory outside the heap on this system")
	}
	const much = 2*smallSlab + 1
	pool := &FilterPool{off: new(offSlabs), collecting: true}
	pool.off.allocated(2 * much)
	pool.retired = 2 * much
	state := func() (more, collecting bool) {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return pool.muchGarbage(), pool.collecting
	}
	pool.collected(2 * much)
	if more, collecting := state(); more || collecting {
		t.Errorf("garbage in use is collected again: %t, %t", more, collecting)
	}
	pool.off.freed(much)
	pool.off.allocated(much)
	if more, _ := state(); !more {
		t.Error("garbage that came after other garbage was freed is not collected")
	}
	pool.collecting = true
	pool.collected(much)
	if more, collecting := state(); !more || !collecting {
		t.Errorf("garbage that came during a collection is not collected: %t, %t", more, collecting)
	}
}

// TestMuchGarbage checks that garbage slabs outside the heap may take an eighth of the limit or,
// without one, of the other slabs, and 8 MiB in any case.
func TestMuchGarbage(t *testing.T) {
	for _, c := range []struct {
		limit, inUse, garbage int64 // MiB
	}{
		{0, 0, 8}, {0, 64, 8}, {0, 80, 10}, {64, 80, 8}, {160, 80, 20}, {160, 0, 20}, {1, 0, 8}, {-1, 80, 10},
	} {
		p := &FilterPool{off: new(offSlabs), limit: c.limit << 20, inUse: c.inUse << 20}
		p.off.allocated((c.inUse + c.garbage) << 20)
		if p.muchGarbage() {
			t.Errorf("limit %d MiB, %d MiB in use: %d MiB of garbage are collected", c.limit, c.inUse, c.garbage)
		}
		p.off.allocated(1)
		if !p.muchGarbage() {
			t.Errorf("limit %d MiB, %d MiB in use: more than %d MiB of garbage are not collected", c.limit, c.inUse, c.garbage)
		}
	}
}

// firstByte is a filter that excludes nothing if its first byte is 1. Its lookups are slow.
type firstByte struct{ bytes []byte }

func (f *firstByte) MayContain(filter.Key) bool {
	for range 5 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	return f.bytes[0] == 1
}

func (f *firstByte) MayContainMany([]filter.Key, []bool) {}
func (f *firstByte) FPR() float64                        { return 0 }
func (f *firstByte) SizeBytes() int                      { return len(f.bytes) }

// TestCapacity checks that filters in the heap get half of the memory of a process. Filters outside
// the heap get all of it except what their slabs leave unused: at least a quarter of what exceeds
// 16 MiB, so that the capacity does not change when filters are loaded and dropped.
func TestCapacity(t *testing.T) {
	var pool FilterPool
	for _, memory := range []int64{0, 1 << 20, 2 * smallPool, 64 << 20, 1 << 30} {
		want := memory / 2
		if offheap.Available && memory >= 2*smallPool {
			want = memory - smallPool - max(0, memory/4-4<<20)
		}
		if got := pool.Capacity(memory, 2); got != want {
			t.Errorf("filters get %d of %d bytes, want %d", got, memory, want)
		}
	}
	if !offheap.Available {
		return
	}
	if got := (&FilterPool{denied: true}).Capacity(1<<30, 2); got != 1<<29 {
		t.Errorf("filters in the heap get %d bytes of 1 GiB", got)
	}
	for range 4 {
		pool.get(1 << 20)
	}
	first, second := pool.get(1<<20), pool.get(1<<20)
	for _, m := range []filterMem{{}, first, second} {
		if m.size > 0 {
			pool.put(m)
		}
		_, unused := pool.OffHeap()
		if got, want := pool.Capacity(16<<20, 2), max(16<<20-smallPool-unused, 8<<20); got != want || unused < int64(m.size) {
			t.Errorf("with %d unused bytes, filters get %d, want %d", unused, got, want)
		}
	}
	before := pool.Capacity(1<<30, 2)
	for range 2 {
		var list []filterMem
		for range 150 {
			list = append(list, pool.get(640<<10))
		}
		for _, m := range list {
			pool.put(m)
			if got := pool.Capacity(1<<30, 2); got != before {
				t.Fatalf("filters get %d bytes, and %d while some are dropped", before, got)
			}
		}
	}
}

// TestOffHeapLookups checks that lookups continue while filters outside the heap are loaded,
// dropped and moved, and their slabs are freed.
func TestOffHeapLookups(t *testing.T) {
	pool := FilterPool{held: smallPool}
	const keys = 20_000
	list := numbered(keys)
	data, _ := buildTable(t, list, &WriterOptions{Filter: filter.Ribbon(10)})
	var readers []*Reader
	for range 300 {
		readers = append(readers, openTable(t, data, &ReaderOptions{FilterPool: &pool}))
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			many := make([]filter.Key, 64)
			positive := make([]bool, len(many))
			for !stop.Load() {
				r := readers[rng.IntN(len(readers))]
				for i := range many {
					many[i] = filter.NewKey([]byte(list[rng.IntN(keys)].key))
					r.PrefetchFilter(many[i].Hash)
					if !r.MayContain(many[i]) {
						t.Error("a key is excluded")
					}
				}
				if f := r.Filter(); f != nil {
					if f.MayContainMany(many, positive); slices.Contains(positive, false) || f.SizeBytes() == 0 || f.FPR() == 0 {
						t.Error("a key is excluded, or the filter takes no memory")
					}
				}
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			runtime.GC()
		}
	})
	rng := rand.New(rand.NewPCG(7, 8))
	for begin := time.Now(); time.Since(begin) < time.Second; {
		r := readers[rng.IntN(len(readers))]
		if err := r.LoadFilterSteps(rng.IntN(len(r.FilterSteps()) + 1)); err != nil {
			t.Fatal(err)
		}
		if pool.Sparse() {
			for _, r := range readers {
				if err := r.MoveFilter(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	for _, r := range readers {
		r.Release()
	}
	if off, unused := pool.OffHeap(); off != unused {
		t.Errorf("%d bytes are outside the heap, %d of them unused, after all filters were released", off, unused)
	}
}

// TestProveFilter checks that ProveFilter finds damage in a filter that is not in memory, reads a
// filter once, and keeps nothing of it.
func TestProveFilter(t *testing.T) {
	data, _ := buildTable(t, numbered(20_000), &WriterOptions{Filter: filter.Ribbon(16)})
	in := &countingReader{ReaderAt: bytes.NewReader(data)}
	r, err := NewReader(in, int64(len(data)), &ReaderOptions{MaxFilterUnits: -1})
	if err != nil {
		t.Fatal(err)
	}
	units := r.NumFilterUnits()
	for i, want := range []int{units, 0} {
		before := in.n.Load()
		if err := r.ProveFilter(); err != nil {
			t.Fatal(err)
		}
		if n := int(in.n.Load() - before); n != want || r.Filter() != nil {
			t.Errorf("call %d makes %d reads, want %d", i, n, want)
		}
	}
	if state, err := r.FilterStatus(); state != FilterOK || err != nil {
		t.Error(state, err)
	}
	damaged := bytes.Clone(data)
	h := r.filterUnits[1]
	damaged[h.Offset+h.Length/2] ^= 1
	r = openTable(t, damaged, &ReaderOptions{MaxFilterUnits: -1})
	if err := r.ProveFilter(); err != nil {
		t.Fatal(err)
	}
	if state, err := r.FilterStatus(); state != FilterDamaged || err == nil || r.NumFilterUnits() != 1 || units < 2 {
		t.Errorf("%v, %v, %d units of %d", state, err, r.NumFilterUnits(), units)
	}
}
