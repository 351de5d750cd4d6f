package sstable

import (
	"sync"
	"sync/atomic"
)

// BlockCache keeps decoded data blocks, up to a number of bytes. It may be
// shared by the readers of several databases.
//
// Each index has a slot, an atomic pointer, for each of its blocks, so a hit is one load
// without a lock. The cache only decides which slots are filled. The blocks of a shard form
// a ring; as in the clock algorithm, a hand goes round, clears the mark of blocks that were
// read since it last passed, and evicts the first that was not.
//
// Once a shard is nearly full, a block is admitted only on its second miss, if that comes
// within as many misses as the shard has blocks. A block that is read only once, as by a
// scan or a lookup of a random key, then does not evict one that is read often, and costs
// no memory. 2Q and ARC recognize such blocks by ghost entries in the same way (Johnson and
// Shasha, VLDB '94; Megiddo and Modha, FAST '03); here a ghost entry is the number of the
// miss.
type BlockCache struct {
	capacity atomic.Int64
	shards   []cacheShard
}

type cacheShard struct {
	capacity atomic.Int64
	bytes    atomic.Int64 // written under mu
	mu       sync.Mutex
	hand     *block       // the hand: the next block to examine; nil: empty
	blocks   atomic.Int32 // in the ring; written under mu
	_        [64]byte
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

// SetCapacity changes the capacity in bytes, and evicts what exceeds it. A cache that is to
// grow should be made with its largest capacity.
func (c *BlockCache) SetCapacity(bytes int64) {
	c.capacity.Store(max(bytes, 0))
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.capacity.Store(c.capacity.Load() / int64(len(c.shards)))
		for s.bytes.Load() > s.capacity.Load() {
			s.evictOne()
		}
		s.mu.Unlock()
	}
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
	return &c.shards[(x.cacheSeed+uint(i))&uint(len(c.shards)-1)]
}

// minGhosts is the least number of misses for which a miss is remembered.
const minGhosts = 16

// admit records a miss of block i of the index and reports whether the block should be
// inserted.
func (c *BlockCache) admit(x *index, i int) bool {
	s := c.shard(x, i)
	if capacity := s.capacity.Load(); s.bytes.Load() < capacity-capacity/8 {
		return true
	}
	now := s.misses.Add(1)
	last := x.missed[i].Swap(now)
	// When a few large blocks fill the shard, small ones still get a chance.
	return last != 0 && now-last <= max(uint32(s.blocks.Load()), minGhosts)
}

// insert puts a block into slot i of an index and returns the block that is then in the
// slot, which is another one if it was filled concurrently. A block larger than its shard is
// returned but not kept.
func (c *BlockCache) insert(x *index, i int, b *block) *block {
	s := c.shard(x, i)
	charge := b.memory()
	slot := &x.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if charge > s.capacity.Load() {
		return b
	}
	if other := slot.Load(); other != nil {
		return other // slots are only filled under the shard's lock
	}
	if x.released.Load() {
		return b
	}
	for s.bytes.Load()+charge > s.capacity.Load() {
		s.evictOne()
	}
	b.cached.slot, b.cached.shard, b.cached.charge = slot, s, charge
	s.link(b)
	slot.Store(b)
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

// link inserts a block just behind the hand, so that the hand reaches it last. REQUIRES: mu is
// held.
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
	n.slot.Store(nil)
	// A reader that still holds the block must not keep its neighbors or its table alive.
	n.prev, n.next, n.slot = nil, nil, nil
	s.bytes.Add(-n.charge)
	s.blocks.Add(-1)
}

// release evicts all blocks of an index and keeps more from being inserted.
func (c *BlockCache) release(x *index) {
	x.released.Store(true)
	for i := range x.slots {
		b := x.slots[i].Load()
		if b == nil {
			continue
		}
		s := b.cached.shard
		s.mu.Lock()
		if b.cached.slot != nil {
			s.unlink(b)
		}
		s.mu.Unlock()
	}
}
