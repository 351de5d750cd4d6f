package sstable

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// BlockCache caches decoded data blocks, up to a capacity in bytes. The readers of several
// databases can share one. It is safe for concurrent use. Make one with NewBlockCache.
//
// A block in the cache has a slot, an atomic pointer, so a hit takes a few loads and no lock. The
// slots of 32 consecutive blocks of a table are allocated while at least one of them is filled.
// Eviction follows the clock algorithm: the blocks of a shard form a ring. A hand passes blocks
// that were read since its last pass, and clears their marks; it evicts the first one that was not
// read.
//
// Once a shard is nearly full, it admits a block only on its second miss, and only if there were
// no more misses in between than the shard has blocks. So a block that is read only once, by a scan
// or a lookup of a random key, does not evict one that is read often, and takes no memory. 2Q and
// ARC recognize such blocks by ghost entries in the same way (Johnson and Shasha, VLDB '94; Megiddo
// and Modha, FAST '03). Here a ghost entry is the number of a block's last miss, in a table that
// the block's hash indexes.
type BlockCache struct {
	capacity atomic.Int64
	shards   []cacheShard
}

// slots are the slots of a group of blocks, all in the same shard.
type slots struct {
	blocks [indexGroupLen]atomic.Pointer[block]
	filled int      // number of filled slots; guarded by the shard's mu
	_      [24]byte // pads to 288 bytes, a size class
}

const slotsBytes = int64(unsafe.Sizeof(slots{}))

// cacheShard is a part of a BlockCache. The padding keeps misses on a cache line of its own.
type cacheShard struct {
	capacity atomic.Int64
	ghosts   atomic.Pointer[[]atomic.Uint64] // see makeGhosts; nil: none yet
	bytes    atomic.Int64                    // of blocks and slots; written under mu
	mu       sync.Mutex
	hand     *block       // the next block to examine; nil: the ring is empty
	blocks   atomic.Int32 // number of blocks in the ring; written under mu
	_        [56]byte
	misses   atomic.Uint32 // misses while the shard was nearly full
	_        [60]byte
}

// More shards mean less contention, but a shard needs many blocks for good eviction.
const (
	minShardBytes = 1 << 20
	maxShards     = 64
)

// NewBlockCache returns a cache with a capacity in bytes. With a capacity of 0 or less it caches
// nothing. The capacity is divided among up to 64 shards, of at least 1 MiB if there are several.
// A block larger than a shard is not cached.
func NewBlockCache(bytes int64) *BlockCache {
	n := 1
	for n < maxShards && bytes/int64(2*n) >= minShardBytes {
		n *= 2
	}
	c := &BlockCache{shards: make([]cacheShard, n)}
	c.SetCapacity(bytes)
	return c
}

// SetCapacity changes the capacity in bytes, and evicts the excess. The number of shards does not
// change, so a cache that will grow should be created with its largest capacity.
func (c *BlockCache) SetCapacity(bytes int64) {
	c.capacity.Store(max(bytes, 0))
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.capacity.Store(c.capacity.Load() / int64(len(c.shards)))
		for s.bytes.Load() > s.capacity.Load() {
			s.evictOne()
		}
		s.dropGhosts()
		s.mu.Unlock()
	}
}

// numGhosts returns how many ghost entries the capacity requires.
func (s *cacheShard) numGhosts() int64 { return max(s.capacity.Load()/ghostShare, 4*minGhosts) }

// dropGhosts drops the ghost entries if they are fewer than the capacity requires, or more than
// twice as many. REQUIRES: mu is held.
func (s *cacheShard) dropGhosts() {
	if g := s.ghosts.Load(); g != nil {
		if have, n := int64(len(*g)), s.numGhosts(); n > have || have > 2*n {
			s.ghosts.Store(nil)
		}
	}
}

// makeGhosts returns the ghost entries, which it makes if there are none. Each is a part of a
// block's hash << 32 | the number of its last miss. makeGhosts returns nil if the shard is not
// nearly full: a huge capacity can mean "no limit", and must not take memory in proportion.
func (s *cacheShard) makeGhosts() *[]atomic.Uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.ghosts.Load()
	if g == nil && s.nearlyFull() {
		n := s.numGhosts()
		ghosts := make([]atomic.Uint64, n+n/4)
		g = &ghosts
		s.ghosts.Store(g)
	}
	return g
}

// nearlyFull reports whether the shard admits blocks only on their second miss.
func (s *cacheShard) nearlyFull() bool {
	capacity := s.capacity.Load()
	return s.bytes.Load() >= capacity-capacity/8
}

// Capacity returns the capacity in bytes.
func (c *BlockCache) Capacity() int64 { return c.capacity.Load() }

// Bytes returns the number of bytes allocated for the cached blocks, bookkeeping included.
func (c *BlockCache) Bytes() int64 {
	var n int64
	for i := range c.shards {
		n += c.shards[i].bytes.Load()
	}
	return n
}

// touch marks the block as read.
func (b *block) touch() {
	if !b.touched.Load() {
		b.touched.Store(true)
	}
}

// shard returns the shard of block i of the index.
func (c *BlockCache) shard(x *index, i int) *cacheShard {
	return &c.shards[(uint(x.id)*0x9e3779b1+uint(i/indexGroupLen))&uint(len(c.shards)-1)]
}

const (
	// minGhosts is the minimum number of misses between two misses of a block for which it is
	// admitted, however few blocks the shard has.
	minGhosts = 16
	// ghostShare is the number of bytes of capacity per ghost entry: some four entries per
	// block, so that few entries overwrite one that is still useful.
	ghostShare = 1 << 10
)

// admit records a miss of block i of the index and reports whether the block should be
// inserted.
func (c *BlockCache) admit(x *index, i int) bool {
	s := c.shard(x, i)
	if !s.nearlyFull() {
		return true
	}
	table := s.ghosts.Load()
	if table == nil {
		if table = s.makeGhosts(); table == nil {
			return true
		}
	}
	ghosts := *table
	hash := (x.id<<32 + uint64(i)) * 0x9e3779b97f4a7c15
	hash = (hash ^ hash>>32) * 0x9e3779b97f4a7c15
	at, _ := bits.Mul64(hash, uint64(len(ghosts)))
	tag := hash << 32 // at depends mostly on the other bits
	now := s.misses.Add(1)
	last := ghosts[at].Swap(tag | uint64(now))
	// minGhosts gives small blocks a chance if a few large ones fill the shard.
	return last>>32 == tag>>32 && now-uint32(last) <= max(uint32(s.blocks.Load()), minGhosts)
}

// inCache returns data block i, or nil if it is not in the cache. REQUIRES: x.cached is not nil.
func (x *index) inCache(i int) *block {
	if g := x.cached[i/indexGroupLen].Load(); g != nil {
		return g.blocks[i%indexGroupLen].Load()
	}
	return nil
}

// refuses reports whether the cache cannot hold n bytes of data as block i of the index, or takes
// no more blocks of it. The caller then need not copy the block.
func (c *BlockCache) refuses(x *index, i, n int) bool {
	least := int64(unsafe.Sizeof(block{})) + int64(n) + slotsBytes
	return x.released.Load() || least > c.shard(x, i).capacity.Load()
}

// insert caches b as block i of an index and returns it. If another goroutine was faster, it
// returns the block that is already in the slot. It does not cache blocks that exceed their shard's
// capacity, nor those of a released index.
func (c *BlockCache) insert(x *index, i int, b *block) (kept *block, cached bool) {
	s := c.shard(x, i)
	charge := b.memory()
	s.mu.Lock()
	defer s.mu.Unlock()
	if charge+slotsBytes > s.capacity.Load() {
		return b, false
	}
	if other := x.inCache(i); other != nil {
		return other, true // still true below: slots are filled only under the shard's lock
	}
	if x.released.Load() {
		return b, false
	}
	for s.bytes.Load()+charge+slotsBytes > s.capacity.Load() {
		s.evictOne()
	}
	b.cached.index, b.cached.i, b.cached.charge = x, i, charge
	s.link(b)
	if x.released.Load() {
		s.unlink(b) // a concurrent release may have checked this slot before it was filled
	}
	return b, true
}

// maxPasses is the number of blocks that the hand passes before it evicts the next one even if it
// was read. It bounds the time for which the lock is held.
const maxPasses = 256

// evictOne advances the hand to a block that was not read since the hand last passed it,
// or past maxPasses blocks, and evicts the block there. REQUIRES: mu is held, the ring is not
// empty.
func (s *cacheShard) evictOne() {
	for i := 0; i < maxPasses && s.hand.touched.Load(); i++ {
		s.hand.touched.Store(false)
		s.hand = s.hand.cached.next
	}
	s.unlink(s.hand)
}

// link inserts a block into its slot, and into the ring just behind the hand, so that the hand
// reaches it last. REQUIRES: mu is held.
func (s *cacheShard) link(b *block) {
	n := &b.cached
	if s.hand == nil {
		n.prev, n.next = b, b
		s.hand = b
	} else {
		n.prev, n.next = s.hand.cached.prev, s.hand
		n.prev.cached.next, n.next.cached.prev = b, b
	}
	s.bytes.Add(n.charge)
	s.blocks.Add(1)
	group := &n.index.cached[n.i/indexGroupLen]
	g := group.Load()
	if g == nil {
		g = new(slots)
		group.Store(g)
		s.bytes.Add(slotsBytes)
	}
	g.filled++
	g.blocks[n.i%indexGroupLen].Store(b)
}

// unlink removes a block from the ring and from its slot. REQUIRES: mu is held, the block
// is in the ring.
func (s *cacheShard) unlink(b *block) {
	n := &b.cached
	if n.next == b {
		s.hand = nil
	} else {
		n.prev.cached.next, n.next.cached.prev = n.next, n.prev
		if s.hand == b {
			s.hand = n.next
		}
	}
	group := &n.index.cached[n.i/indexGroupLen]
	g := group.Load()
	g.blocks[n.i%indexGroupLen].Store(nil)
	if g.filled--; g.filled == 0 {
		group.Store(nil)
		s.bytes.Add(-slotsBytes)
	}
	// A reader that still uses the block must not keep its neighbors and its index alive.
	n.prev, n.next, n.index = nil, nil, nil
	s.bytes.Add(-n.charge)
	s.blocks.Add(-1)
}

// release evicts all blocks of an index and prevents further insertions.
func (c *BlockCache) release(x *index) {
	x.released.Store(true)
	for group := range x.cached {
		if x.cached[group].Load() == nil {
			continue
		}
		first := group * indexGroupLen
		s := c.shard(x, first)
		s.mu.Lock()
		for i := first; i < min(first+indexGroupLen, x.n); i++ {
			if b := x.inCache(i); b != nil {
				s.unlink(b)
			}
		}
		s.mu.Unlock()
	}
}
