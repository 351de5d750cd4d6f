// Package memdb is an ordered map in memory.
package memdb

import (
	"bytes"
	"math/rand/v2"
	"sync"

	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/iterator"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Errors that the package returns.
var (
	ErrNotFound     = errors.ErrNotFound
	ErrIterReleased = errors.New("leveldb/memdb: iterator released")
)

// maxHeight bounds the levels of the skip list. Each level has about a quarter of the nodes of the
// level below.
const maxHeight = 12

// node is an entry of the skip list. Its key does not change.
type node struct {
	key, value []byte
	next       []*node
	deleted    bool
}

// DB is an ordered map, a skip list. It is safe for concurrent use.
type DB struct {
	cmp comparer.BasicComparer

	mu       sync.RWMutex
	head     node
	height   int
	entries  int
	size     int // of the keys and values
	used     int // size, plus the bytes of deleted and overwritten entries
	capacity int
}

// New returns an empty DB that is ordered by cmp. capacity, in bytes, is the initial value for
// Capacity and Free. It is not a limit: the DB grows beyond it.
func New(cmp comparer.BasicComparer, capacity int) *DB {
	return &DB{cmp: cmp, head: node{next: make([]*node, maxHeight)}, height: 1, capacity: capacity}
}

// findGE returns the first node whose key is >= key, or nil. If prev is not nil, it receives the
// last node before that one on each level. REQUIRES: mu.
func (p *DB) findGE(key []byte, prev *[maxHeight]*node) *node {
	at := &p.head
	for h := p.height - 1; ; h-- {
		for at.next[h] != nil && p.cmp.Compare(at.next[h].key, key) < 0 {
			at = at.next[h]
		}
		if prev != nil {
			prev[h] = at
		}
		if h == 0 {
			return at.next[0]
		}
	}
}

// findLT returns the last node whose key is < key, or the last node if all is set; nil if there is
// none. REQUIRES: mu.
func (p *DB) findLT(key []byte, all bool) *node {
	at := &p.head
	for h := p.height - 1; h >= 0; h-- {
		for at.next[h] != nil && (all || p.cmp.Compare(at.next[h].key, key) < 0) {
			at = at.next[h]
		}
	}
	if at == &p.head {
		return nil
	}
	return at
}

// Put sets key to value. Both are copied. The error is always nil.
func (p *DB) Put(key []byte, value []byte) error {
	kv := append(append(make([]byte, 0, len(key)+len(value)), key...), value...)
	key, value = kv[:len(key):len(key)], kv[len(key):]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used += len(kv)
	p.capacity = max(p.capacity, p.used)
	var prev [maxHeight]*node
	if n := p.findGE(key, &prev); n != nil && p.cmp.Compare(n.key, key) == 0 {
		p.size += len(value) - len(n.value)
		n.value = value
		return nil
	}
	height := 1
	for height < maxHeight && rand.Uint32()%4 == 0 {
		height++
	}
	for ; p.height < height; p.height++ {
		prev[p.height] = &p.head
	}
	n := &node{key: key, value: value, next: make([]*node, height)}
	for h := range height {
		n.next[h] = prev[h].next[h]
		prev[h].next[h] = n
	}
	p.entries++
	p.size += len(kv)
	return nil
}

// Delete removes key. It returns ErrNotFound if there is no such key.
func (p *DB) Delete(key []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var prev [maxHeight]*node
	n := p.findGE(key, &prev)
	if n == nil || p.cmp.Compare(n.key, key) != 0 {
		return ErrNotFound
	}
	for h := range n.next {
		prev[h].next[h] = n.next[h]
	}
	n.deleted = true
	p.entries--
	p.size -= len(n.key) + len(n.value)
	return nil
}

// Contains reports whether there is a value for key.
func (p *DB) Contains(key []byte) bool {
	_, err := p.Get(key)
	return err == nil
}

// Get returns the value of key, or ErrNotFound. The value must not be changed, and stays valid.
func (p *DB) Get(key []byte) (value []byte, err error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if n := p.findGE(key, nil); n != nil && p.cmp.Compare(n.key, key) == 0 {
		return n.value, nil
	}
	return nil, ErrNotFound
}

// Find returns the first entry whose key is >= key, or ErrNotFound. The slices must not be changed,
// and stay valid.
func (p *DB) Find(key []byte) (rkey, value []byte, err error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if n := p.findGE(key, nil); n != nil {
		return n.key, n.value, nil
	}
	return nil, nil, ErrNotFound
}

// Capacity returns the capacity in bytes, or the most bytes that have been in use if that is more.
func (p *DB) Capacity() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.capacity
}

// Size returns the total length of all keys and values.
func (p *DB) Size() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.size
}

// Free returns how many bytes are left of the capacity. Deleted and overwritten entries count
// as used.
func (p *DB) Free() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.capacity - p.used
}

// Len returns the number of entries.
func (p *DB) Len() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.entries
}

// Reset removes all entries.
func (p *DB) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := p.head.next[0]; n != nil; n = n.next[0] {
		n.deleted = true
	}
	clear(p.head.next)
	p.height, p.entries, p.size, p.used = 1, 0, 0, 0
}

// NewIterator returns an iterator over the keys of a range; nil means all keys. It sees later
// changes, and must be released.
func (p *DB) NewIterator(slice *util.Range) iterator.Iterator {
	it := &dbIter{p: p}
	if slice != nil {
		it.start, it.limit = bytes.Clone(slice.Start), bytes.Clone(slice.Limit)
	}
	return it
}

// dbIter is at a node, before the first one, or after the last one.
type dbIter struct {
	util.BasicReleaser
	p            *DB
	start, limit []byte
	node         *node // nil if at no entry
	value        []byte
	atEnd        bool // if at no entry: after the last one, not before the first
	err          error
}

// set makes n the current node if it is within the range. REQUIRES: p.mu.
func (it *dbIter) set(n *node, forward bool) bool {
	if n != nil && (it.limit != nil && it.p.cmp.Compare(n.key, it.limit) >= 0 || it.start != nil && it.p.cmp.Compare(n.key, it.start) < 0) {
		n = nil
	}
	it.node, it.value, it.atEnd = n, nil, n == nil && forward
	if n != nil {
		it.value = n.value
	}
	return n != nil
}

func (it *dbIter) ready() bool {
	if it.Released() {
		it.err = ErrIterReleased
		return false
	}
	return true
}

func (it *dbIter) First() bool { return it.Seek(it.start) }

func (it *dbIter) Last() bool {
	if !it.ready() {
		return false
	}
	it.p.mu.RLock()
	defer it.p.mu.RUnlock()
	return it.set(it.p.findLT(it.limit, it.limit == nil), false)
}

func (it *dbIter) Seek(key []byte) bool {
	if !it.ready() {
		return false
	}
	it.p.mu.RLock()
	defer it.p.mu.RUnlock()
	if it.start != nil && it.p.cmp.Compare(key, it.start) < 0 {
		key = it.start
	}
	if key == nil {
		return it.set(it.p.head.next[0], true)
	}
	return it.set(it.p.findGE(key, nil), true)
}

func (it *dbIter) Next() bool {
	switch {
	case !it.ready() || it.atEnd:
		return false
	case it.node == nil:
		return it.First()
	}
	it.p.mu.RLock()
	defer it.p.mu.RUnlock()
	n := it.node.next[0]
	if it.node.deleted {
		n = it.p.findGE(it.node.key, nil)
		if n != nil && it.p.cmp.Compare(n.key, it.node.key) == 0 {
			n = n.next[0]
		}
	}
	return it.set(n, true)
}

func (it *dbIter) Prev() bool {
	switch {
	case !it.ready():
		return false
	case it.node == nil:
		return it.atEnd && it.Last()
	}
	it.p.mu.RLock()
	defer it.p.mu.RUnlock()
	return it.set(it.p.findLT(it.node.key, false), false)
}

func (it *dbIter) Valid() bool { return it.node != nil }

func (it *dbIter) Key() []byte {
	if it.node == nil {
		return nil
	}
	return it.node.key
}

func (it *dbIter) Value() []byte { return it.value }

func (it *dbIter) Error() error { return it.err }

// Release implements iterator.Iterator.
func (it *dbIter) Release() {
	it.node, it.value = nil, nil
	it.BasicReleaser.Release()
}
