package memtable

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"unsafe"

	"github.com/siftdb/sift/internal/base"
)

// list is a skip list. Its nodes lie in one arena and refer to each other by offset, so that the
// garbage collector sees a single object without pointers.
//
// A node's offset n is a multiple of four. Around it lie, in host byte order:
//
//	offset          bytes  field
//	n - 4*(i+1)     4      next node of level i; 0 at the end of the list
//	n               4      a node shortly before this one in the list
//	n + 4           4      the next older node in its bucket of the index; 0 if there is none
//	n + 8           4      length of the user key
//	n + 12          4      length of the value
//	n + 16          k + 8  encoded internal key
//	n + 24 + k      v      value
//
// A writer fills in a node and adds it to the index. Then the node is linked, at once or later
// (sort.go), with a compare-and-swap of its predecessor's next on each level, from level 0 up. That
// publishes it: readers reach it through an atomic load of the same word. Afterwards only its links
// change. Nodes are never removed, so a node that once preceded a key always does.
type list struct {
	// arena is a pointer, not a slice: bounds checks would make lookups take 1.1 to 1.2 times as
	// long (BenchmarkGet).
	arena  unsafe.Pointer
	limit  uint64        // no entry ends beyond this offset
	height atomic.Uint32 // levels in use, at least 1

	// Keeps the fields that readers need off the cache line of those that inserts change: see
	// BenchmarkCounters of package epoch, as for all padding.
	_ [64]byte

	// alloc is the number of entries << 32 | the next free offset / 4.
	alloc atomic.Uint64
	// towers is the number of bytes left for links above level 0. It runs out only by bad luck:
	// new nodes then get no such links, and searches take longer.
	towers atomic.Int64
	// tails are the last nodes of the levels, possibly slightly out of date. Ascending inserts
	// start there and need no search.
	tails [maxHeight]atomic.Uint32
}

const (
	// maxHeight is the maximum number of levels. Each has about a quarter of the nodes of the one
	// below, and 4^14 nodes exceed the arena.
	maxHeight = 14

	offPrev   = 0
	offOlder  = 4
	offKeyLen = 8
	offValLen = 12
	offKey    = 16

	// maxEntryOverhead is the maximum size of an entry apart from user key, value and links above
	// level 0: one link, the header, the trailer and padding.
	maxEntryOverhead = 4 + offKey + base.TrailerLen + 3

	head = 4 * (maxHeight + 1) // the node before all others; it has no entry
	tail = 0                   // the end of the list
)

func (l *list) init(capacity uint64) {
	const headEnd = head + offKey
	towers := capacity/16 + 1024 // a node has 1/3 of a link above level 0 on average: about 1/23 of the smallest EntrySize
	l.limit = headEnd + capacity + towers
	// A few more bytes, so that the address of an empty value at the very end is inside the arena.
	arena := make([]uint64, l.limit/8+2)
	l.arena = unsafe.Pointer(unsafe.SliceData(arena))
	l.alloc.Store(headEnd / 4)
	l.towers.Store(int64(towers))
	l.height.Store(1)
	for i := range l.tails {
		l.tails[i].Store(head)
	}
}

// used returns the size of all nodes in bytes, and their number.
func (l *list) used() (bytes, entries int) {
	a := l.alloc.Load()
	return int(a<<32>>30) - head - offKey, int(a >> 32)
}

// word returns the atomic word at an offset, a multiple of four.
func (l *list) word(off uint32) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Add(l.arena, uintptr(off)))
}

// link returns the word with the next node of n on a level.
func (l *list) link(n uint32, level int) *atomic.Uint32 { return l.word(n - 4 - 4*uint32(level)) }

func (l *list) next(n uint32, level int) uint32 { return l.link(n, level).Load() }

// older returns the field of a node that refers to the next older node in its bucket.
func (l *list) older(n uint32) *uint32 { return (*uint32)(unsafe.Add(l.arena, uintptr(n+offOlder))) }

// length returns one of the two lengths of a node.
func (l *list) length(n, field uint32) uint32 {
	return *(*uint32)(unsafe.Add(l.arena, uintptr(n+field)))
}

// set writes a word of a node. REQUIRES: no other goroutine can reach the node.
func (l *list) set(off, v uint32) { *(*uint32)(unsafe.Add(l.arena, uintptr(off))) = v }

// setHeight stores the height of a pending node where its lowest link will be.
func (l *list) setHeight(n uint32, height int) { l.set(n-4, uint32(height)) }

func (l *list) pendingHeight(n uint32) int { return int(l.next(n, 0)) }

func (l *list) bytes(off, n uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(l.arena, uintptr(off))), int(n))
}

func (l *list) userKey(n uint32) []byte { return l.bytes(n+offKey, l.length(n, offKeyLen)) }

func (l *list) key(n uint32) []byte {
	return l.bytes(n+offKey, l.length(n, offKeyLen)+base.TrailerLen)
}

func (l *list) trailer(n uint32) uint64 {
	return binary.LittleEndian.Uint64(l.bytes(n+offKey+l.length(n, offKeyLen), base.TrailerLen))
}

func (l *list) value(n uint32) []byte {
	return l.bytes(n+offKey+base.TrailerLen+l.length(n, offKeyLen), l.length(n, offValLen))
}

// target is an internal key to search for.
type target struct {
	prefix  uint64 // the user key's keyPrefix
	key     []byte // the user key
	trailer uint64
}

func newTarget(key []byte, trailer uint64) target {
	return target{prefix: keyPrefix(key), key: key, trailer: trailer}
}

// keyPrefix returns the first eight bytes of a key as a big-endian number. It pads shorter keys
// with zeros.
func keyPrefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// before reports whether a node other than head is before the target. The first eight bytes of the
// key, which usually share a cache line with the node's header, decide most comparisons.
func (l *list) before(n uint32, t *target) bool {
	// A node's key has at least eight bytes, including the trailer.
	p := binary.BigEndian.Uint64((*[8]byte)(unsafe.Add(l.arena, uintptr(n+offKey)))[:])
	keyLen := l.length(n, offKeyLen)
	if keyLen < 8 {
		p &= ^(^uint64(0) >> (8 * keyLen))
	}
	if p != t.prefix {
		return p < t.prefix
	}
	if c := bytes.Compare(l.bytes(n+offKey, keyLen), t.key); c != 0 {
		return c < 0
	}
	return l.trailer(n) > t.trailer
}

// walk moves along a level from n, a node before the target, to the last such node, and returns it
// and its successor. stop is a node of the level that is known not to be before the target, or
// tail.
func (l *list) walk(n uint32, level int, stop uint32, t *target) (prev, next uint32) {
	for {
		next = l.next(n, level)
		if next == stop || !l.before(next, t) {
			return n, next
		}
		n = next
	}
}

// seek returns the last node before the target, or head if there is none, and the first node at or
// after it, or tail if there is none.
func (l *list) seek(t *target) (prev, next uint32) {
	prev, next = head, tail
	for level := int(l.height.Load()) - 1; level >= 0; level-- {
		prev, next = l.walk(prev, level, next, t)
	}
	return prev, next
}

// seekGE returns the first node at or after the internal key, or tail if there is none.
func (l *list) seekGE(userKey []byte, trailer uint64) uint32 {
	t := newTarget(userKey, trailer)
	_, next := l.seek(&t)
	return next
}

// seekLT returns the last node before the internal key, or tail if there is none.
func (l *list) seekLT(userKey []byte, trailer uint64) uint32 {
	t := newTarget(userKey, trailer)
	prev, _ := l.seek(&t)
	return orTail(prev)
}

// last returns the last node, or tail if there is none.
func (l *list) last() uint32 {
	n := uint32(head)
	for level := int(l.height.Load()) - 1; level >= 0; level-- {
		for next := l.next(n, level); next != tail; next = l.next(n, level) {
			n = next
		}
	}
	return orTail(n)
}

// prevOf returns the node before n, or tail if n is the first.
func (l *list) prevOf(n uint32) uint32 {
	p := l.word(n + offPrev).Load()
	for {
		next := l.next(p, 0)
		if next == n {
			return orTail(p)
		}
		p = next
	}
}

func orTail(n uint32) uint32 {
	if n == head {
		return tail
	}
	return n
}

// splice is a position in the list: for each level, a node before the position, and the node that
// came next when the level was searched.
type splice struct{ prev, next [maxHeight]uint32 }

// atHead returns the splice before all nodes.
func atHead() (s splice) {
	for level := range s.prev {
		s.prev[level] = head
	}
	return s
}

// insert links a node at the splice of its key, and moves the splice past the node.
func (l *list) insert(n uint32, height int, t *target, s *splice) {
	for level := range height {
		p, q := s.prev[level], s.next[level]
		for {
			l.link(n, level).Store(q)
			if level == 0 {
				l.word(n + offPrev).Store(p)
			}
			if l.link(p, level).CompareAndSwap(q, n) {
				break
			}
			// Another writer was faster; p is still before the key.
			p, q = l.walk(p, level, tail, t)
		}
		if q == tail {
			l.tails[level].Store(n)
		} else if level == 0 {
			// Any node before q is correct, and n is close. If two writers insert before q
			// concurrently, the later store wins, which may cost readers a step.
			l.word(q + offPrev).Store(n)
		}
		s.prev[level], s.next[level] = n, q
	}
}

// search sets s to the splice of a target on the levels below height.
func (l *list) search(t *target, height int, s *splice) {
	p, q := uint32(head), uint32(tail)
	// The list is at least as high as the new node: see newHeight.
	for level := int(l.height.Load()) - 1; level >= 0; level-- {
		p, q = l.walk(p, level, q, t)
		if level < height {
			s.prev[level], s.next[level] = p, q
		}
	}
}

// searchFrom moves s, a splice before the target, to the target, in few steps if that is near. It
// updates the levels up to the first one on which the next node is not before the target. On higher
// levels the splice is still correct, unless nodes were inserted there, which insert detects.
func (l *list) searchFrom(t *target, s *splice) {
	level := 0
	for top := int(l.height.Load()) - 1; level < top; level++ {
		if next := l.next(s.prev[level], level); next == tail || !l.before(next, t) {
			break // on higher levels the next node is no earlier
		}
	}
	p, q, moved := uint32(head), uint32(tail), false
	for ; level >= 0; level-- {
		if !moved {
			p = s.prev[level]
		}
		p, q = l.walk(p, level, q, t)
		moved = moved || p != s.prev[level]
		s.prev[level], s.next[level] = p, q
	}
}

// searchEnd is search for a target after all nodes, in constant time. It returns false for other
// targets, and possibly if the tails are out of date.
func (l *list) searchEnd(t *target, height int, s *splice) bool {
	for level := range height {
		n := l.tails[level].Load()
		if n != head && (level == 0 || n != s.prev[level-1]) && !l.before(n, t) {
			return false
		}
		if l.next(n, level) != tail {
			return false
		}
		s.prev[level], s.next[level] = n, tail
	}
	return true
}

// heightOf derives a node's height from a random number: each further level has a probability of
// 1/4.
func heightOf(random uint64) int {
	return 1 + bits.TrailingZeros64(random|1<<(2*(maxHeight-1)))/2
}

// newHeight chooses a node's height at random, and makes the list at least as high.
func (l *list) newHeight() int {
	h := heightOf(rand.Uint64())
	if h == 1 {
		return 1
	}
	if l.towers.Add(-4*int64(h-1)) < 0 {
		l.towers.Add(4 * int64(h-1))
		return 1
	}
	for {
		have := l.height.Load()
		if uint32(h) <= have || l.height.CompareAndSwap(have, uint32(h)) {
			return h
		}
	}
}

// newNode allocates a node and fills it in, except for its links. It returns 0 if the arena is
// full.
func (l *list) newNode(height int, t *target, value []byte) uint32 {
	key := t.key
	size := uint64(len(key)) + uint64(len(value)) + offKey + base.TrailerLen + 4*uint64(height)
	size = (size + 3) / 4
	var start uint64
	for {
		a := l.alloc.Load()
		start = a & (1<<32 - 1)
		if size > l.limit/4-start {
			return 0
		}
		if l.alloc.CompareAndSwap(a, a+size+1<<32) {
			break
		}
	}
	n := uint32(4*start) + 4*uint32(height)
	l.set(n+offKeyLen, uint32(len(key)))
	l.set(n+offValLen, uint32(len(value)))
	copy(l.userKey(n), key)
	binary.LittleEndian.PutUint64(l.bytes(n+offKey+uint32(len(key)), base.TrailerLen), t.trailer)
	copy(l.value(n), value)
	return n
}
