package sstable

import (
	"sync"
	"sync/atomic"
)

// BlockCache keeps decoded data blocks, up to a number of bytes. It may be
// shared by the readers of several databases.
//
// Every reader has a slot for each of its blocks, an atomic pointer, so a hit is
// one load and takes no lock. The cache only decides which slots are filled: the
// blocks of a shard sit in a ring, the clock, whose hand passes over those that
// were read since it last came by and evicts the others.
//
// Once a shard is nearly full, a block gets in only if it was missed not long before:
// within as many misses as the shard has blocks. One that is read once and not
// again, as in a scan or a lookup of a random key, then neither takes the place
// of one that is read often nor costs the memory of a new block. 2Q and ARC tell
// such blocks by ghosts in the same way (Johnson and Shasha, VLDB '94; Megiddo and
// Modha, FAST '03); here a ghost is the number of the miss.
type BlockCache struct {
	capacity int64
	shards   []cacheShard
}

type cacheShard struct {
	capacity int64
	bytes    atomic.Int64 // written under mu
	mu       sync.Mutex
	hand     *block       // the next to be looked at; nil: empty
	blocks   atomic.Int32 // in the ring; written under mu
	_        [64]byte
	misses   atomic.Uint32 // while it was full
	_        [60]byte
}

// minShardBytes keeps a shard large enough for many blocks.
const (
	minShardBytes = 1 << 20
	maxShards     = 64
)

// NewBlockCache returns a cache of the given number of bytes. One of 0 or fewer
// bytes holds nothing.
func NewBlockCache(bytes int64) *BlockCache {
	n := 1
	for n < maxShards && bytes/int64(2*n) >= minShardBytes {
		n *= 2
	}
	c := &BlockCache{capacity: max(bytes, 0), shards: make([]cacheShard, n)}
	for i := range c.shards {
		c.shards[i].capacity = c.capacity / int64(n)
	}
	return c
}

// Capacity returns the number of bytes that the cache may hold.
func (c *BlockCache) Capacity() int64 { return c.capacity }

// Bytes returns the number of bytes that it holds: its blocks as they were
// allocated, and what is needed to keep track of them.
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

// shard returns the shard of the reader's block i.
func (c *BlockCache) shard(r *Reader, i int) *cacheShard {
	return &c.shards[(r.cacheSeed+uint(i))&uint(len(c.shards)-1)]
}

// minGhosts is how many misses ago a block may at least have been missed.
const minGhosts = 16

// admit notes that the reader's block i was missed and reports whether it should
// be inserted.
func (c *BlockCache) admit(r *Reader, i int) bool {
	s := c.shard(r, i)
	if s.bytes.Load() < s.capacity-s.capacity/8 {
		return true
	}
	now := s.misses.Add(1)
	last := r.missed[i].Swap(now)
	// Where a few large blocks fill the shard, small ones have a chance, too.
	return last != 0 && now-last <= max(uint32(s.blocks.Load()), minGhosts)
}

// insert puts a block into slot i of a reader and returns the block that is in
// the slot then: another one if it was filled meanwhile. A block that is larger
// than its shard is returned but not kept.
func (c *BlockCache) insert(r *Reader, i int, b *block) *block {
	s := c.shard(r, i)
	charge := b.memory()
	if charge > s.capacity {
		return b
	}
	slot := &r.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := slot.Load(); other != nil {
		return other // slots are filled under the shard's lock only
	}
	if r.released.Load() {
		return b
	}
	for s.bytes.Load()+charge > s.capacity {
		s.evictOne()
	}
	b.cached.slot, b.cached.shard, b.cached.charge = slot, s, charge
	s.link(b)
	slot.Store(b)
	if r.released.Load() {
		s.unlink(b) // release may have passed the slot before it was filled
	}
	return b
}

// maxPasses bounds how many blocks the hand passes over before it takes one all
// the same, and with that how long the lock is held.
const maxPasses = 256

// evictOne moves the hand on to a block that was not read since it last came by,
// and takes it out. REQUIRES: mu is held, the ring is not empty.
func (s *cacheShard) evictOne() {
	for i := 0; i < maxPasses && s.hand.touched.Load(); i++ {
		s.hand.touched.Store(false)
		s.hand = s.hand.cached.next
	}
	s.unlink(s.hand)
}

// link puts a block where the hand will come last. REQUIRES: mu is held.
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

// unlink takes a block out of the ring and its slot. REQUIRES: mu is held, the
// block is in the ring.
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
	// Whoever still reads the block must not keep its neighbours or its reader alive.
	n.prev, n.next, n.slot = nil, nil, nil
	s.bytes.Add(-n.charge)
	s.blocks.Add(-1)
}

// release takes out all blocks of a reader, and lets it add no more.
func (c *BlockCache) release(r *Reader) {
	r.released.Store(true)
	for i := range r.slots {
		b := r.slots[i].Load()
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
