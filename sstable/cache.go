package sstable

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// BlockCache keeps decoded data blocks, up to a number of bytes. It may be
// shared by the readers of several databases, and is safe for concurrent use.
//
// A block in the cache has a slot, an atomic pointer, so a hit is a few loads without a lock. The
// slots of 32 consecutive blocks of a table exist as long as one of them is filled. Eviction is by
// the clock algorithm: the blocks of a shard form a ring, and a hand clears the mark of blocks that
// were read since it last passed, and evicts the first one that was not.
//
// Once a shard is nearly full, a block is admitted only on its second miss, if that comes
// within as many misses as the shard has blocks. A block that is read only once, as by a
// scan or a lookup of a random key, then does not evict one that is read often, and costs
// no memory. 2Q and ARC recognize such blocks by ghost entries in the same way (Johnson and
// Shasha, VLDB '94; Megiddo and Modha, FAST '03); here a ghost entry is the number of the
// miss, in a table with one place for each block's hash.
type BlockCache struct {
	capacity atomic.Int64
	shards   []cacheShard
}

// slots holds the cached blocks of a group. All are in the same shard.
type slots struct {
	blocks [indexGroupLen]atomic.Pointer[block]
	filled int      // number of filled slots; guarded by the shard's mu
	_      [24]byte // pads to 288 bytes, a size class
}

const slotsBytes = int64(unsafe.Sizeof(slots{}))

type cacheShard struct {
	capacity atomic.Int64
	ghosts   atomic.Pointer[[]atomic.Uint64] // part of a block's hash<<32 | number of its last miss
	bytes    atomic.Int64                    // of blocks and slots; written under mu
	mu       sync.Mutex
	hand     *block       // the hand: the next block to examine; nil: empty
	blocks   atomic.Int32 // in the ring; written under mu
	_        [56]byte
	misses   atomic.Uint32 // misses while the shard was nearly full
	_        [60]byte
}

// maxShards and minShardBytes: more shards mean less contention, but a shard should hold many
// blocks.
const (
	minShardBytes = 1 << 20
	maxShards     = 64
)

// NewBlockCache returns a cache with a capacity in bytes. With a capacity of 0 or less it
// holds nothing.
func NewBlockCache(bytes int64) *BlockCache {
	n := 1
	for n < maxShards && bytes/int64(2*n) >= minShardBytes {
		n *= 2
	}
	c := &BlockCache{shards: make([]cacheShard, n)}
	c.SetCapacity(bytes)
	return c
}

// SetCapacity changes the capacity in bytes, and evicts what exceeds it. The number of shards
// does not change, so a cache that will grow should be created with its largest capacity.
func (c *BlockCache) SetCapacity(bytes int64) {
	c.capacity.Store(max(bytes, 0))
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.capacity.Store(c.capacity.Load() / int64(len(c.shards)))
		for s.bytes.Load() > s.capacity.Load() {
			s.evictOne()
		}
		s.resizeGhosts()
		s.mu.Unlock()
	}
}

// resizeGhosts keeps the number of ghost entries between what the capacity requires and twice
// that. If it changes the number it forgets them. REQUIRES: mu is held.
func (s *cacheShard) resizeGhosts() {
	n := int(min(max(s.capacity.Load()/ghostShare, 4*minGhosts), maxGhosts))
	if old := s.ghosts.Load(); old != nil && n <= len(*old) && len(*old) <= 2*n {
		return
	}
	ghosts := make([]atomic.Uint64, n+n/4)
	s.ghosts.Store(&ghosts)
}

// Capacity returns the capacity in bytes.
func (c *BlockCache) Capacity() int64 { return c.capacity.Load() }

// Bytes returns the size in bytes of the cached blocks as allocated, bookkeeping included.
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

// shard returns the shard that holds block i of the index.
func (c *BlockCache) shard(x *index, i int) *cacheShard {
	return &c.shards[(uint(x.id)*0x9e3779b1+uint(i/indexGroupLen))&uint(len(c.shards)-1)]
}

const (
	// minGhosts is the least number of misses for which a miss is remembered.
	minGhosts = 16
	// ghostShare is the number of bytes of capacity per ghost entry: some four entries per
	// block, so that few overwrite one that is still useful.
	ghostShare = 1 << 10
	// maxGhosts bounds the ghost entries of a shard, which are allocated before the cache fills: a
	// capacity may stand for "no limit". It suffices for 1 GiB per shard, on 32-bit systems 32 MiB.
	maxGhosts = min(1<<20, math.MaxInt>>16)
)

// admit records a miss of block i of the index and reports whether the block should be
// inserted.
func (c *BlockCache) admit(x *index, i int) bool {
	s := c.shard(x, i)
	if capacity := s.capacity.Load(); s.bytes.Load() < capacity-capacity/8 {
		return true
	}
	hash := (x.id<<32 + uint64(i)) * 0x9e3779b97f4a7c15
	hash = (hash ^ hash>>32) * 0x9e3779b97f4a7c15
	ghosts := *s.ghosts.Load()
	at, _ := bits.Mul64(hash, uint64(len(ghosts)))
	tag := hash << 32 // the other bits
	now := s.misses.Add(1)
	last := ghosts[at].Swap(tag | uint64(now))
	// If a few large blocks fill the shard, small ones still get a chance.
	return last>>32 == tag>>32 && now-uint32(last) <= max(uint32(s.blocks.Load()), minGhosts)
}

// inCache returns data block i of an index, or nil if it is not in the cache.
func (x *index) inCache(i int) *block {
	if g := x.cached[i/indexGroupLen].Load(); g != nil {
		return g.blocks[i%indexGroupLen].Load()
	}
	return nil
}

// insert puts a block into the slot of block i of an index and returns the block that is then in
// the slot, which is another one if it was filled concurrently. A block larger than its shard is
// returned but not kept.
func (c *BlockCache) insert(x *index, i int, b *block) *block {
	s := c.shard(x, i)
	charge := b.memory()
	s.mu.Lock()
	defer s.mu.Unlock()
	if charge+slotsBytes > s.capacity.Load() {
		return b
	}
	if other := x.inCache(i); other != nil {
		return other // slots are only filled under the shard's lock
	}
	if x.released.Load() {
		return b
	}
	for s.bytes.Load()+charge+slotsBytes > s.capacity.Load() {
		s.evictOne()
	}
	b.cached.index, b.cached.i, b.cached.charge = x, i, charge
	s.link(b)
	if x.released.Load() {
		s.unlink(b) // release may have passed this slot before it was filled
	}
	return b
}

// maxPasses bounds how many blocks the hand passes before it evicts one regardless, and
// thus how long the lock is held.
const maxPasses = 256

// evictOne advances the hand to a block that was not read since the hand last passed it,
// and evicts that block. REQUIRES: mu is held, the ring is not empty.
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
	// A reader that still holds the block must not keep its neighbors or its index alive.
	n.prev, n.next, n.index = nil, nil, nil
	s.bytes.Add(-n.charge)
	s.blocks.Add(-1)
}

// release evicts all blocks of an index and keeps more from being inserted.
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
