// Package cache is a map of reference-counted values. A Cacher decides which values stay when
// nothing refers to them.
//
// A database of this module does not use it: it only takes the capacity of its Cacher.
package cache

import (
	"sync"
	"unsafe"

	"github.com/syndtr/goleveldb/leveldb/util"
)

// Value is a cached value. If it is a util.Releaser, it is released when it is dropped.
type Value any

// Cacher decides which values stay in a Cache. It is safe for concurrent use.
type Cacher interface {
	// Capacity returns the capacity.
	Capacity() int
	// SetCapacity sets the capacity.
	SetCapacity(capacity int)
	// Promote records that a node was used.
	Promote(n *Node)
	// Ban drops a node and never accepts it again.
	Ban(n *Node)
	// Evict drops a node.
	Evict(n *Node)
}

// Stats counts what a Cache holds and has done.
type Stats struct {
	Buckets     int
	Nodes       int64
	Size        int64
	GrowCount   int32
	ShrinkCount int32
	HitCount    int64
	MissCount   int64
	SetCount    int64
	DelCount    int64
}

type nodeKey struct{ ns, key uint64 }

type nodeMap struct{ by map[nodeKey]*Node }

// Cache is a map from a namespace and a key to values. It is safe for concurrent use.
type Cache struct {
	// inUse is held shared by Get: Close waits for the calls in progress, whose values it then
	// drops.
	inUse  sync.RWMutex
	mu     sync.Mutex
	nodes  *nodeMap
	stats  Stats
	cacher Cacher
	closed bool
}

// NewCache returns an empty Cache. If cacher is nil, values stay as long as something refers to
// them.
func NewCache(cacher Cacher) *Cache {
	return &Cache{nodes: &nodeMap{map[nodeKey]*Node{}}, cacher: cacher}
}

// Node is an entry of a Cache.
type Node struct {
	// CacheData belongs to the Cacher.
	CacheData unsafe.Pointer

	cache   *Cache
	key     nodeKey
	mu      sync.Mutex // held while the value is created
	size    int
	value   Value
	ref     int32 // guarded by cache.mu
	onDel   []func()
	removed bool
}

// NS returns the namespace.
func (n *Node) NS() uint64 { return n.key.ns }

// Key returns the key.
func (n *Node) Key() uint64 { return n.key.key }

// Size returns the size.
func (n *Node) Size() int { return n.size }

// Value returns the value.
func (n *Node) Value() Value { return n.value }

// Ref returns the number of references.
func (n *Node) Ref() int32 {
	n.cache.mu.Lock()
	defer n.cache.mu.Unlock()
	return n.ref
}

// GetHandle returns a handle to the node.
func (n *Node) GetHandle() *Handle {
	n.cache.mu.Lock()
	defer n.cache.mu.Unlock()
	n.ref++
	return &Handle{node: n}
}

// unref drops a reference, and the value with the last one.
func (n *Node) unref() {
	c := n.cache
	c.mu.Lock()
	n.ref--
	last := n.ref == 0 && !n.removed
	if last {
		c.remove(n)
	}
	c.mu.Unlock()
	if last {
		n.drop()
	}
}

// remove removes a node from the map. REQUIRES: mu.
func (c *Cache) remove(n *Node) {
	n.removed = true
	delete(c.nodes.by, n.key)
	c.stats.Nodes--
	c.stats.Size -= int64(n.size)
	c.stats.DelCount++
}

// drop releases the value of a node that was removed.
func (n *Node) drop() {
	if r, ok := n.value.(util.Releaser); ok {
		r.Release()
	}
	n.value = nil
	for _, f := range n.onDel {
		f()
	}
	n.onDel = nil
}

// Handle is a reference to a node.
type Handle struct {
	once sync.Once
	node *Node
}

// Value returns the value, nil after Release.
func (h *Handle) Value() Value {
	if h.node == nil {
		return nil
	}
	return h.node.value
}

// Release drops the reference. Calling it again does nothing.
func (h *Handle) Release() {
	h.once.Do(func() {
		h.node.unref()
		h.node = nil
	})
}

// Get returns a handle to a value. If the value is missing, setFunc creates it; Get returns nil
// if setFunc is nil or returns a nil value.
func (c *Cache) Get(ns, key uint64, setFunc func() (size int, value Value)) *Handle {
	c.inUse.RLock()
	defer c.inUse.RUnlock()
	k := nodeKey{ns, key}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	n := c.nodes.by[k]
	if n == nil {
		c.stats.MissCount++
		if setFunc == nil {
			c.mu.Unlock()
			return nil
		}
		n = &Node{cache: c, key: k}
		c.nodes.by[k] = n
		c.stats.Nodes++
	} else {
		c.stats.HitCount++
	}
	n.ref++
	c.mu.Unlock()
	n.mu.Lock()
	if n.value == nil && setFunc != nil {
		size, value := setFunc()
		if value != nil {
			c.mu.Lock()
			n.size, n.value = size, value
			c.stats.SetCount++
			c.stats.Size += int64(size)
			c.mu.Unlock()
		}
	}
	missing := n.value == nil
	n.mu.Unlock()
	if missing {
		n.unref()
		return nil
	}
	if c.cacher != nil {
		c.cacher.Promote(n)
	}
	return &Handle{node: n}
}

// Delete drops a value, and reports whether there was one. delFunc, if not nil, is called when
// nothing refers to the value any more; at once if there was none.
func (c *Cache) Delete(ns, key uint64, delFunc func()) bool {
	c.mu.Lock()
	n := c.nodes.by[nodeKey{ns, key}]
	if c.closed {
		c.mu.Unlock()
		return false
	}
	if n == nil {
		c.mu.Unlock()
		if delFunc != nil {
			delFunc()
		}
		return false
	}
	if delFunc != nil {
		n.onDel = append(n.onDel, delFunc)
	}
	n.ref++
	c.mu.Unlock()
	if c.cacher != nil {
		c.cacher.Ban(n)
	}
	n.unref()
	return true
}

// Evict makes the Cacher drop a value. It reports whether there was one.
func (c *Cache) Evict(ns, key uint64) bool {
	c.mu.Lock()
	n := c.nodes.by[nodeKey{ns, key}]
	if n == nil || c.closed {
		c.mu.Unlock()
		return false
	}
	n.ref++
	c.mu.Unlock()
	if c.cacher != nil {
		c.cacher.Evict(n)
	}
	n.unref()
	return true
}

// EvictNS makes the Cacher drop the values of a namespace.
func (c *Cache) EvictNS(ns uint64) { c.evict(func(k nodeKey) bool { return k.ns == ns }) }

// EvictAll makes the Cacher drop all values.
func (c *Cache) EvictAll() { c.evict(func(nodeKey) bool { return true }) }

func (c *Cache) evict(which func(nodeKey) bool) {
	if c.cacher == nil {
		return
	}
	c.mu.Lock()
	var nodes []*Node
	if !c.closed {
		nodes = c.held(which)
	}
	c.mu.Unlock()
	for _, n := range nodes {
		c.cacher.Evict(n)
		n.unref()
	}
}

// held returns the selected nodes, each with a reference for the caller. REQUIRES: mu.
func (c *Cache) held(which func(nodeKey) bool) (nodes []*Node) {
	for k, n := range c.nodes.by {
		if which(k) {
			n.ref++
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Close waits for calls of Get, so their setFunc must not call it. Then it drops what the Cacher
// holds, and with force also values that are still referred to. Afterwards Get, Delete, Evict,
// EvictNS, EvictAll and Close do nothing.
func (c *Cache) Close(force bool) {
	c.inUse.Lock()
	c.mu.Lock()
	var nodes []*Node
	if !c.closed {
		nodes = c.held(func(nodeKey) bool { return true })
	}
	c.closed = true
	c.mu.Unlock()
	c.inUse.Unlock()
	for _, n := range nodes {
		if c.cacher != nil {
			c.cacher.Evict(n)
		}
		if force {
			c.mu.Lock()
			removed := n.removed
			if !removed {
				c.remove(n)
			}
			c.mu.Unlock()
			if !removed {
				n.drop()
			}
		}
		n.unref()
	}
}

// Capacity returns the Cacher's capacity, 0 without one.
func (c *Cache) Capacity() int {
	if c.cacher == nil {
		return 0
	}
	return c.cacher.Capacity()
}

// SetCapacity sets the Cacher's capacity.
func (c *Cache) SetCapacity(capacity int) {
	if c.cacher != nil {
		c.cacher.SetCapacity(capacity)
	}
}

// Nodes returns the number of values.
func (c *Cache) Nodes() int { return int(c.GetStats().Nodes) }

// Size returns the sum of the values' sizes.
func (c *Cache) Size() int { return int(c.GetStats().Size) }

// GetStats returns the statistics.
func (c *Cache) GetStats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// NamespaceGetter is a Cache restricted to one namespace.
type NamespaceGetter struct {
	Cache *Cache
	NS    uint64
}

// Get is Cache.Get in the namespace.
func (g *NamespaceGetter) Get(key uint64, setFunc func() (size int, value Value)) *Handle {
	return g.Cache.Get(g.NS, key, setFunc)
}
