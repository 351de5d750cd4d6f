package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// ringBytes walks the rings of the cache, checks their structure and returns the sum of their bytes
// and blocks.
func ringBytes(t *testing.T, c *BlockCache) (sum int64, blocks int) {
	t.Helper()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n := int64(0)
		groups := map[*atomic.Pointer[slots]]bool{}
		for b := s.hand; b != nil; {
			if b.cached.index.inCache(b.cached.i) != b || b.cached.next.cached.prev != b {
				t.Error("a block of the ring is not in its slot, or the ring is broken")
			}
			n += b.cached.charge
			blocks++
			groups[&b.cached.index.cached[b.cached.i/indexGroupLen]] = true
			if b = b.cached.next; b == s.hand {
				break
			}
		}
		n += slotsBytes * int64(len(groups))
		if n != s.bytes.Load() || n > s.capacity.Load() {
			t.Errorf("shard %d holds %d bytes, counts %d, has a capacity of %d", i, n, s.bytes.Load(), s.capacity.Load())
		}
		sum += n
		s.mu.Unlock()
	}
	return sum, blocks
}

// TestCache checks that hits cost no read, that the bytes stay within the capacity, and that a
// released table leaves no blocks.
func TestCache(t *testing.T) {
	list := numbered(3000)
	data, info := buildTable(t, list, &WriterOptions{BlockBytes: 1000})
	for _, capacity := range []int64{-1, 0, 1, 3000, 20000, 1 << 20, 8 << 20} {
		c := NewBlockCache(capacity)
		var io BlockIO
		r := openTable(t, data, &ReaderOptions{Cache: c, IO: &io})
		r2 := openTable(t, data, &ReaderOptions{Cache: c, IO: &io})
		for range 2 {
			for _, e := range list {
				for _, r := range []*Reader{r, r2} {
					if err := checkGet(r, []kv{e}, e.key, e.seq); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		sum, blocks := ringBytes(t, c)
		if sum != c.Bytes() || c.Capacity() != max(capacity, 0) {
			t.Errorf("capacity %d: %d bytes in the ring, Bytes is %d", capacity, sum, c.Bytes())
		}
		n := io.Load()
		switch {
		case capacity <= 1 && (n.Hits != 0 || n.Reads != 12000):
			t.Errorf("capacity %d: %+v", capacity, n)
		case capacity >= 1<<20 && (n.Reads != 2*info.NumDataBlocks || n.Reads+n.Hits != 12000 || n.Bytes != 2*info.DataBytes || blocks != int(n.Reads)):
			t.Errorf("capacity %d: %+v, %d blocks in the table, %d cached", capacity, n, info.NumDataBlocks, blocks)
		}
		r.Release()
		if _, left := ringBytes(t, c); capacity >= 1<<20 && left != int(info.NumDataBlocks) {
			t.Errorf("capacity %d: %d blocks of the other table are left", capacity, left)
		}
		r2.Release()
		r2.Release()
		if sum, left := ringBytes(t, c); left != 0 || sum != 0 || c.Bytes() != 0 {
			t.Errorf("capacity %d: %d blocks are left, %d bytes", capacity, left, c.Bytes())
		}
		if err := checkGet(r, list, list[7].key, list[7].seq); err != nil || c.Bytes() != 0 {
			t.Errorf("after Release: %v, %d bytes cached", err, c.Bytes())
		}
	}
}

// TestCacheKeepsWhatIsRead checks that blocks that are read repeatedly survive a scan of a table
// larger than the cache.
func TestCacheKeepsWhatIsRead(t *testing.T) {
	list := numbered(20000)
	data, info := buildTable(t, list, &WriterOptions{BlockBytes: 1000})
	c := NewBlockCache(100 << 10)
	var io BlockIO
	r := openTable(t, data, &ReaderOptions{Cache: c, IO: &io})
	hot, hotReads := list[:200], uint64(0)
	for i, e := range list {
		if err := checkGet(r, []kv{e}, e.key, e.seq); err != nil {
			t.Fatal(err)
		}
		before := io.Load().Reads
		h := hot[i%len(hot)]
		if err := checkGet(r, []kv{h}, h.key, h.seq); err != nil {
			t.Fatal(err)
		}
		hotReads += io.Load().Reads - before
	}
	if hotReads > 40 {
		t.Errorf("%d reads of the blocks that are read repeatedly", hotReads)
	}
	// A full cache admits a block on its second miss.
	if n := io.Load(); n.Reads > 2*info.NumDataBlocks+20 {
		t.Errorf("%d reads for %d blocks", n.Reads, info.NumDataBlocks)
	}
}

// firstKey returns the first user key of data block i, bypassing the cache.
func firstKey(t *testing.T, r *Reader, i int) []byte {
	t.Helper()
	var b block
	data, err := r.readBlock(r.index.Load().handle(i), "data block")
	if err == nil {
		err = b.init(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	key, _ := b.restartKey(0)
	return base.UserKey(key)
}

// TestCacheAdmits checks that a cache that is not full admits every block; a full one only those
// that it misses twice within as many misses as it has blocks.
func TestCacheAdmits(t *testing.T) {
	list := numbered(20000)
	data, info := buildTable(t, list, &WriterOptions{BlockBytes: 1000})
	c := NewBlockCache(100 << 10)
	var io BlockIO
	r := openTable(t, data, &ReaderOptions{Cache: c, IO: &io})
	blocks := int(info.NumDataBlocks)
	get := func(i int) {
		t.Helper()
		if _, _, _, _, err := r.Get(firstKey(t, r, i), base.MaxSequence); err != nil {
			t.Fatal(err)
		}
	}
	cached := func(i int) bool { return r.index.Load().isCached(i) }
	for i := range blocks {
		get(i)
	}
	_, held := ringBytes(t, c)
	if held < 50 || held >= blocks/2 || int32(held) != c.shards[0].blocks.Load() || !cached(5) {
		t.Fatalf("%d of %d blocks are cached, its own count is %d", held, blocks, c.shards[0].blocks.Load())
	}
	seldom := blocks - 1
	for !cached(seldom) {
		seldom--
		if seldom == 0 {
			break
		}
	}
	if seldom > held {
		t.Errorf("block %d was admitted, though the cache was full after %d", seldom, held)
	}
	get(blocks - 1)
	if !cached(blocks - 1) {
		t.Error("a block that was missed just before was not admitted")
	}
	for i := held + 2; i <= 2*held+4; i++ {
		get(i)
	}
	if get(held + 2); cached(held + 2) {
		t.Error("a block was admitted whose last miss was more misses ago than the cache has blocks")
	}
	if get(held + 2); !cached(held + 2) {
		t.Error("a block was not admitted on its second miss in a row")
	}
	r.Release()
	r = openTable(t, data, &ReaderOptions{Cache: c, IO: &io})
	if get(7); !cached(7) {
		t.Error("an empty cache did not admit a block on its first miss")
	}
}

// TestCacheLargeBlocks checks that a block that does not fit, or that alone fills the cache, does
// not keep small ones out.
func TestCacheLargeBlocks(t *testing.T) {
	for _, large := range []int{200 << 10, 95 << 10} {
		value := make([]byte, large)
		for i := range value {
			value[i] = byte(i * i >> 3)
		}
		list := append([]kv{{"a", 1, KindSet, string(value)}}, numbered(2000)...)
		data, info := buildTable(t, list, &WriterOptions{BlockBytes: 1000})
		c := NewBlockCache(100 << 10)
		r := openTable(t, data, &ReaderOptions{Cache: c})
		get := func(i int) {
			t.Helper()
			if _, _, _, _, err := r.Get(firstKey(t, r, i), base.MaxSequence); err != nil {
				t.Fatal(err)
			}
		}
		get(0)
		if held := r.index.Load().isCached(0); held != (large < 100<<10) {
			t.Fatalf("a block of %d bytes is cached: %v", large, held)
		}
		for range 3 {
			for i := 1; i <= 10; i++ {
				get(i)
			}
		}
		for i := 1; i <= 10; i++ {
			if !r.index.Load().isCached(i) {
				t.Errorf("after a block of %d bytes, block %d of %d, which was read three times, is not cached", large, i, info.NumDataBlocks)
			}
		}
	}
}

// TestBuffer checks that values in a buffer are correct, that lookups in one block read it once,
// and that a damaged block does not leave the buffer with a block that it does not hold.
func TestBuffer(t *testing.T) {
	list := numbered(2000)
	data, info := buildTable(t, list, &WriterOptions{BlockBytes: 1000})
	damaged := bytes.Clone(data)
	var io BlockIO
	r := openTable(t, damaged, &ReaderOptions{IO: &io})
	var buf Buffer
	for _, e := range list {
		v, _, seq, found, err := r.GetIn(&buf, []byte(e.key), base.MaxSequence)
		if err != nil || !found || seq != e.seq || string(v) != e.value {
			t.Fatalf("%q: %q, sequence %d, %t, %v", e.key, v, seq, found, err)
		}
	}
	if n := io.Load(); n.Reads != info.NumDataBlocks || n.Hits != uint64(len(list))-n.Reads {
		t.Errorf("%+v for %d keys in %d blocks", n, len(list), info.NumDataBlocks)
	}
	h := r.index.Load().handle(1)
	damaged[h.Offset+3] ^= 1
	inFirst, inSecond := base.UserKey(r.index.Load().separator(new(separatorBuf), 0)), base.UserKey(r.index.Load().separator(new(separatorBuf), 1))
	for range 2 {
		if _, _, _, _, err := r.GetIn(&buf, inFirst, base.MaxSequence); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, _, _, err := r.GetIn(&buf, inSecond, base.MaxSequence); !errors.Is(err, base.ErrCorruption) {
				t.Fatalf("error is %v", err)
			}
		}
	}
	buf.Release()
	buf.Release()
	before := io.Load().Reads
	if _, _, _, _, err := r.GetIn(&buf, inFirst, base.MaxSequence); err != nil || io.Load().Reads != before+1 {
		t.Errorf("after Release: %v, %d reads", err, io.Load().Reads-before)
	}
}

// TestCacheConcurrent checks concurrent lookups and scans, with releases in between, when the cache
// is too small for the tables.
func TestCacheConcurrent(t *testing.T) {
	list := numbered(2000)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 500, Filter: filter.Bloom(10)})
	c := NewBlockCache(60 << 10)
	var tables sync.WaitGroup
	for table := range 6 {
		r := openTable(t, data, &ReaderOptions{Cache: c})
		var users sync.WaitGroup
		for g := range 3 {
			users.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(table), uint64(g)))
				for i := range 2000 {
					e := list[rng.IntN(len(list))]
					v, _, _, found, err := r.Get([]byte(e.key), base.MaxSequence)
					if err != nil || !found || string(v) != e.value {
						t.Errorf("Get(%q): %q, %v, %v", e.key, v, found, err)
						return
					}
					if g == 0 && i == 1000 {
						r.Release()
					}
				}
				if err := checkScan(r, list, &IterOptions{DontFillCache: g == 1}); err != nil {
					t.Error(err)
				}
			})
		}
		tables.Go(func() {
			users.Wait()
			for i := range r.index.Load().numBlocks() {
				if r.index.Load().isCached(i) {
					t.Error("a released table has a block in the cache")
				}
			}
		})
	}
	tables.Wait()
	if sum, blocks := ringBytes(t, c); sum != 0 || blocks != 0 || c.Bytes() != 0 {
		t.Errorf("%d blocks are left, %d bytes", blocks, c.Bytes())
	}
}

// TestDontFillCache checks that a scan with DontFillCache uses cached blocks, adds none, and does
// not allocate.
func TestDontFillCache(t *testing.T) {
	list := numbered(3000)
	data, info := buildTable(t, list, nil)
	c := NewBlockCache(1 << 20)
	var io BlockIO
	r := openTable(t, data, &ReaderOptions{Cache: c, IO: &io})
	it := r.NewIter(&IterOptions{DontFillCache: true, Readahead: true})
	defer it.Close()
	scan := func() {
		for ok := it.First(); ok; ok = it.Next() {
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
	scan()
	if c.Bytes() != 0 {
		t.Errorf("%d bytes cached", c.Bytes())
	}
	if n := io.Load(); n.Reads >= info.NumDataBlocks/4 || n.Bytes < info.DataBytes {
		t.Errorf("%+v reading ahead over %d blocks, %d bytes", n, info.NumDataBlocks, info.DataBytes)
	}
	if n := testing.AllocsPerRun(5, scan); n > 0 {
		t.Errorf("%v allocations per scan", n)
	}
	if err := checkScan(r, list, nil); err != nil {
		t.Fatal(err)
	}
	before := io.Load()
	scan()
	if after := io.Load(); after.Reads != before.Reads || after.Hits-before.Hits != info.NumDataBlocks {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// TestNoAllocations checks that neither a filter probe nor a Get in a cached block allocates, even
// if keys are long or have many versions.
func TestNoAllocations(t *testing.T) {
	var list []kv
	for i := range 200 {
		list = append(list, kv{fmt.Sprintf("%s%06d", bytes.Repeat([]byte("x"), 300), i), 9, KindSet, "value"})
	}
	for i := range 100 { // versions: lookups reconstruct keys
		list = append(list, kv{list[0].key[:200], uint64(1000 + i), KindSet, "value"})
	}
	list = sortEntries(list)
	data, _ := buildTable(t, list, &WriterOptions{Filter: filter.Bloom(10)})
	r := openTable(t, data, &ReaderOptions{Cache: NewBlockCache(1 << 20)})
	if r.Filter() == nil {
		t.Fatal("no filter")
	}
	present, absent, versions := []byte(list[150].key), []byte(list[150].key+"?"), []byte(list[0].key)
	for _, k := range [][]byte{present, absent, versions} {
		if _, _, _, _, err := r.Get(k, base.MaxSequence); err != nil {
			t.Fatal(err)
		}
	}
	var ok bool
	if n := testing.AllocsPerRun(100, func() { ok = r.MayContain(filter.NewKey(present)) }); n != 0 || !ok {
		t.Errorf("MayContain: %v allocations, %v", n, ok)
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _, ok, _ = r.Get(present, base.MaxSequence) }); n != 0 || !ok {
		t.Errorf("Get of a key: %v allocations, %v", n, ok)
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _, ok, _ = r.Get(absent, base.MaxSequence) }); n != 0 || ok {
		t.Errorf("Get of an absent key: %v allocations, %v", n, ok)
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _, ok, _ = r.Get(versions, 1005) }); n != 0 || !ok {
		t.Errorf("Get of an old version: %v allocations, %v", n, ok)
	}
}

// TestCacheSlots checks that slots take memory only where blocks are cached, and count as part of
// the cache.
func TestCacheSlots(t *testing.T) {
	list := numbered(9000)
	data, info := buildTable(t, list, &WriterOptions{BlockBytes: 250})
	if info.NumDataBlocks < 5*indexGroupLen {
		t.Fatalf("only %d blocks", info.NumDataBlocks)
	}
	c := NewBlockCache(1 << 20)
	r := openTable(t, data, &ReaderOptions{Cache: c})
	x := r.index.Load()
	before := x.bytesHeld()
	for _, i := range []int{3, 5, 4 * indexGroupLen} {
		if _, _, _, _, err := r.Get(firstKey(t, r, i), base.MaxSequence); err != nil {
			t.Fatal(err)
		}
	}
	for group := range x.cached {
		if held := x.cached[group].Load() != nil; held != (group == 0 || group == 4) {
			t.Errorf("group %d has slots: %t", group, held)
		}
	}
	ringBytes(t, c)
	if x.bytesHeld() != before {
		t.Errorf("the index takes %d bytes, %d before", x.bytesHeld(), before)
	}
	c.SetCapacity(0)
	for group := range x.cached {
		if x.cached[group].Load() != nil {
			t.Errorf("group %d has slots but no blocks", group)
		}
	}
	if c.Bytes() != 0 {
		t.Errorf("%d bytes are left", c.Bytes())
	}
}

// TestSlotsBytes checks that slotsBytes is what the heap allocates for slots.
func TestSlotsBytes(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("pointers do not have 8 bytes")
	}
	const n = 10_000
	made := make([]*slots, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range made {
		made[i] = new(slots)
	}
	runtime.ReadMemStats(&after)
	if got := int64(after.TotalAlloc-before.TotalAlloc) / n; got != slotsBytes {
		t.Errorf("slots take %d bytes and count as %d", got, slotsBytes)
	}
	runtime.KeepAlive(made)
}

// emptyIndex returns an index of n blocks for the cache.
func emptyIndex(n int) *index {
	return &index{packedIndex: packedIndex{n: n}, id: 1, cached: make([]atomic.Pointer[slots], (n+indexGroupLen-1)/indexGroupLen)}
}

// TestCacheBounds checks that blocks that fill the cache exactly are cached, and that those that
// exceed it by one byte are not.
func TestCacheBounds(t *testing.T) {
	for _, tt := range []struct {
		bytes  int64
		shards int
	}{{0, 1}, {2*minShardBytes - 1, 1}, {2 * minShardBytes, 2}, {maxShards * minShardBytes, maxShards}, {8 * maxShards * minShardBytes, maxShards}} {
		if n := len(NewBlockCache(tt.bytes).shards); n != tt.shards {
			t.Errorf("a cache of %d bytes has %d shards, want %d", tt.bytes, n, tt.shards)
		}
	}
	charge := (&block{data: make([]byte, 1000)}).memory()
	for _, tt := range []struct {
		capacity int64
		held     []bool // of two blocks of one group, inserted one after the other
	}{
		{charge + slotsBytes - 1, []bool{false, false}},
		{charge + slotsBytes, []bool{false, true}},
		{2*charge + 2*slotsBytes - 1, []bool{false, true}},
		{2*charge + 2*slotsBytes, []bool{true, true}},
	} {
		c, x := NewBlockCache(tt.capacity), emptyIndex(2)
		for i := range tt.held {
			c.insert(x, i, &block{data: make([]byte, 1000)})
		}
		for i, want := range tt.held {
			if got := x.inCache(i) != nil; got != want {
				t.Errorf("%d bytes: block %d is cached: %t", tt.capacity, i, got)
			}
		}
	}
	c, x := NewBlockCache(2*charge+2*slotsBytes), emptyIndex(2*indexGroupLen)
	for _, i := range []int{indexGroupLen - 1, indexGroupLen} {
		c.insert(x, i, &block{data: make([]byte, 1000)})
	}
	c.SetCapacity(c.Bytes())
	if x.inCache(indexGroupLen-1) == nil || x.inCache(indexGroupLen) == nil {
		t.Error("lowering the capacity to the bytes in use evicts blocks")
	}
	c.SetCapacity(c.Bytes() - 1)
	if x.inCache(indexGroupLen-1) != nil || x.inCache(indexGroupLen) == nil {
		t.Error("a capacity of one byte less does not evict just the first block")
	}
	if c.release(x); c.Bytes() != 0 {
		t.Errorf("%d bytes of a released index are left", c.Bytes())
	}
}

// TestAdmitBounds checks from which byte on a cache is nearly full, and for how many misses it
// remembers one.
func TestAdmitBounds(t *testing.T) {
	const capacity = 8000
	for _, tt := range []struct {
		held   int64
		blocks int32 // in the cache
		missed uint32
		ok     bool
	}{
		{capacity*7/8 - 1, 0, 1 << 20, true},
		{capacity * 7 / 8, 0, minGhosts - 1, true},
		{capacity * 7 / 8, 0, minGhosts, false},
		{capacity * 7 / 8, 100, 99, true},
		{capacity * 7 / 8, 100, 100, false},
	} {
		c, x := NewBlockCache(capacity), emptyIndex(2)
		s := &c.shards[0]
		s.bytes.Store(tt.held)
		s.blocks.Store(tt.blocks)
		first := c.admit(x, 0)
		if first != (tt.held < capacity*7/8) {
			t.Errorf("%d bytes: a first miss is admitted: %t", tt.held, first)
		}
		s.misses.Add(tt.missed)
		if got := c.admit(x, 0); got != tt.ok {
			t.Errorf("%d bytes, %d blocks, after %d other misses: admitted %t", tt.held, tt.blocks, tt.missed, got)
		}
	}
}

// TestGhosts checks that the ghost entries are dropped only if there are fewer than required, or
// more than twice as many.
func TestGhosts(t *testing.T) {
	const n = 1000
	c := NewBlockCache(n * ghostShare)
	s := &c.shards[0]
	ghosts := func() *[]atomic.Uint64 {
		s.bytes.Store(s.capacity.Load())
		defer s.bytes.Store(0) // there are no blocks to evict
		return s.makeGhosts()
	}
	for _, tt := range []struct {
		entries int64
		kept    bool
	}{{n, true}, {n + n/4, true}, {n + n/4 + 1, false}, {(n+n/4+1)*5/8 + 1, true}, {4 * minGhosts, false}} {
		before := ghosts()
		c.SetCapacity(tt.entries * ghostShare)
		if kept := s.ghosts.Load() == before; kept != tt.kept {
			t.Errorf("%d ghosts required, %d present: kept %t", tt.entries, len(*before), kept)
		}
	}
	c = NewBlockCache(2 * n * ghostShare)
	s = &c.shards[0]
	before := ghosts()
	if c.SetCapacity(int64(len(*before)) / 2 * ghostShare); s.ghosts.Load() != before {
		t.Error("twice as many ghosts as required are dropped")
	}
	if c.SetCapacity((int64(len(*before))/2 - 1) * ghostShare); s.ghosts.Load() == before {
		t.Error("more than twice as many ghosts as required are kept")
	}
	s.bytes.Store(s.capacity.Load() - s.capacity.Load()/8 - 1)
	if s.ghosts.Store(nil); s.makeGhosts() != nil {
		t.Error("a shard that is not nearly full has ghosts")
	}
}

// TestGhostsOfHugeCapacity checks that a capacity that stands for no limit takes no memory before
// the cache fills, whether it is the first one or a later one.
func TestGhostsOfHugeCapacity(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, x := NewBlockCache(math.MaxInt64), emptyIndex(1)
	small := NewBlockCache(minShardBytes)
	small.SetCapacity(math.MaxInt64)
	for _, c := range []*BlockCache{c, small} {
		if !c.admit(x, 0) {
			t.Error("an empty cache does not admit a block")
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("two empty caches take %d bytes", n)
	}
}

// TestEvictionIsBounded checks that the hand passes at most maxPasses recently read blocks.
func TestEvictionIsBounded(t *testing.T) {
	const n = maxPasses + 50
	c, x := NewBlockCache(minShardBytes), emptyIndex(n)
	for i := range n {
		b := &block{data: make([]byte, 10)}
		c.insert(x, i, b)
		b.touch()
	}
	c.shards[0].evictOne()
	passed, gone := 0, -1
	for i := range n {
		switch b := x.inCache(i); {
		case b == nil:
			gone = i
		case !b.touched.Load():
			passed++
		}
	}
	if passed != maxPasses || gone != maxPasses {
		t.Errorf("the hand has passed %d blocks and evicted block %d", passed, gone)
	}
}

// TestBlockLargerThanCache checks that lookups in a block that does not fit in the cache read it
// once if they share a Buffer.
func TestBlockLargerThanCache(t *testing.T) {
	list := numbered(2000)
	data, _ := buildTable(t, list, &WriterOptions{BlockBytes: 1 << 20, DisableCompression: true})
	var io BlockIO
	r := openTable(t, data, &ReaderOptions{Cache: NewBlockCache(4 << 10), IO: &io})
	var buf Buffer
	defer buf.Release()
	for _, e := range list[:100] {
		if _, _, _, found, err := r.GetIn(&buf, []byte(e.key), base.MaxSequence); err != nil || !found {
			t.Fatal(e.key, found, err)
		}
	}
	if n := io.Load().Reads; n != 1 {
		t.Errorf("100 lookups in one block with one buffer read it %d times", n)
	}
}

// TestUncachedBlocksAreNotCopied checks that a block that the cache cannot hold, because it is too
// large or because the table has been released, is not copied for the cache.
func TestUncachedBlocksAreNotCopied(t *testing.T) {
	const size, reads = 2 << 20, 8
	value := string(make([]byte, size))
	data, _ := buildTable(t, []kv{{"a", 1, KindSet, value}, {"b", 1, KindSet, value}}, nil)
	for _, tt := range []struct {
		desc     string
		capacity int64
		release  bool
	}{
		{"larger than a shard", 8 << 20, false},
		{"of a released table", 8 * maxShards << 20, true}, // shards of 8 MiB
	} {
		r := openTable(t, data, &ReaderOptions{Cache: NewBlockCache(tt.capacity)})
		if tt.release {
			r.Release()
		}
		var buf Buffer
		it := r.NewIter(nil)
		read := func(key string) {
			_, _, _, found, err := r.GetIn(&buf, []byte(key), base.MaxSequence)
			if err != nil || !found {
				t.Fatal(key, found, err)
			}
			if !it.SeekGE(kv{key: key, seq: base.MaxSequence, kind: KindSet}.ikey()) {
				t.Fatal(key, it.Err())
			}
		}
		read("a")
		read("b")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range reads / 2 {
			read("a")
			read("b")
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > size {
			t.Errorf("%s: %d lookups and seeks have allocated %d bytes", tt.desc, reads, n)
		}
		buf.Release()
		it.Close()
	}
}
