package cache

import (
	"container/list"
	"sync"
	"unsafe"
)

// lru is a Cacher that evicts the least recently used values.
type lru struct {
	mu       sync.Mutex
	capacity int
	used     int
	order    list.List // of *lruEntry; the most recently used in front
	entries  map[*Node]*list.Element
}

type lruEntry struct {
	handle *Handle
	node   *Node
}

// NewLRU returns a Cacher that evicts the least recently used values when the sum of the sizes
// exceeds capacity.
func NewLRU(capacity int) Cacher {
	return &lru{capacity: capacity, entries: map[*Node]*list.Element{}}
}

// Capacity implements Cacher.
func (l *lru) Capacity() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.capacity
}

// SetCapacity implements Cacher.
func (l *lru) SetCapacity(capacity int) {
	l.mu.Lock()
	l.capacity = capacity
	evicted := l.shrink()
	l.mu.Unlock()
	release(evicted)
}

// shrink drops entries until the rest fits. The caller must call release with the handles after it
// has unlocked mu. REQUIRES: mu.
func (l *lru) shrink() (evicted []*Handle) {
	for l.used > l.capacity && l.order.Len() > 0 {
		evicted = append(evicted, l.take(l.order.Back()))
	}
	return evicted
}

// take removes an entry. REQUIRES: mu.
func (l *lru) take(e *list.Element) *Handle {
	entry := l.order.Remove(e).(*lruEntry)
	delete(l.entries, entry.node)
	l.used -= entry.node.Size()
	return entry.handle
}

func release(handles []*Handle) {
	for _, h := range handles {
		h.Release()
	}
}

// bannedMark is the CacheData of a node that is not accepted again.
var bannedMark = unsafe.Pointer(new(byte))

// Promote implements Cacher.
func (l *lru) Promote(n *Node) {
	l.mu.Lock()
	var evicted []*Handle
	if e := l.entries[n]; e != nil {
		l.order.MoveToFront(e)
	} else if n.CacheData == nil && n.Size() <= l.capacity {
		l.entries[n] = l.order.PushFront(&lruEntry{n.GetHandle(), n})
		l.used += n.Size()
		evicted = l.shrink()
	}
	l.mu.Unlock()
	release(evicted)
}

// Ban implements Cacher.
func (l *lru) Ban(n *Node) { l.drop(n, true) }

// Evict implements Cacher.
func (l *lru) Evict(n *Node) { l.drop(n, false) }

func (l *lru) drop(n *Node, ban bool) {
	l.mu.Lock()
	var h *Handle
	if e := l.entries[n]; e != nil {
		h = l.take(e)
	}
	if ban {
		n.CacheData = bannedMark
	}
	l.mu.Unlock()
	if h != nil {
		h.Release()
	}
}
