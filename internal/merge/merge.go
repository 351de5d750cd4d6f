// Package merge merges sorted sequences of entries: Iter merges any iterators, Level chains the
// tables of a level.
package merge

import (
	"encoding/binary"
	"errors"

	"github.com/siftdb/sift/internal/base"
)

// Iter merges iterators in internal-key order. Of equal internal keys, that of the earlier
// child comes first, so newer children must come first.
//
// The children form a heap in the direction of travel, the child with the next entry on top.
// Each child's key is cached next to it, with its first eight bytes as a number, so that few
// comparisons read the key itself.
type Iter struct {
	children []child
	heap     []int32 // indices of the children that are at an entry
	runnerUp int     // position in heap of the second-best child; 0: unknown
	reverse  bool
	err      error
}

var _ base.Iterator = (*Iter)(nil)

// Prefetcher is an iterator that can start the reads of a move without waiting for them, so that
// the reads of several children overlap. The next move must be the one that was prepared.
type Prefetcher interface {
	PrefetchFirst()
	PrefetchGE(ikey []byte)
}

type child struct {
	it     base.Iterator
	key    []byte // it.Key(), while in the heap
	prefix uint64
}

// New returns an iterator over the entries of the children, newest child first. Close closes
// the children.
func New(children ...base.Iterator) *Iter {
	m := &Iter{children: make([]child, len(children)), heap: make([]int32, 0, len(children))}
	for i, it := range children {
		m.children[i].it = it
	}
	return m
}

// overlapping returns the children whose reads can overlap. A single child gains nothing from
// prefetching.
func (m *Iter) overlapping() []child {
	if len(m.children) == 1 {
		return nil
	}
	return m.children
}

// First moves to the first entry.
func (m *Iter) First() bool {
	m.begin(false)
	for i := range m.overlapping() {
		if p, ok := m.children[i].it.(Prefetcher); ok {
			p.PrefetchFirst()
		}
	}
	for i := range m.children {
		if !m.enter(i, m.children[i].it.First()) {
			return false
		}
	}
	return m.heapify()
}

// Last moves to the last entry.
func (m *Iter) Last() bool {
	m.begin(true)
	for i := range m.children {
		if !m.enter(i, m.children[i].it.Last()) {
			return false
		}
	}
	return m.heapify()
}

// SeekGE moves to the first entry at or after the encoded internal key.
func (m *Iter) SeekGE(ikey []byte) bool {
	m.begin(false)
	for i := range m.overlapping() {
		if p, ok := m.children[i].it.(Prefetcher); ok {
			p.PrefetchGE(ikey)
		}
	}
	for i := range m.children {
		if !m.enter(i, m.children[i].it.SeekGE(ikey)) {
			return false
		}
	}
	return m.heapify()
}

// SeekLT moves to the last entry before the encoded internal key.
func (m *Iter) SeekLT(ikey []byte) bool {
	m.begin(true)
	for i := range m.children {
		if !m.enter(i, m.children[i].it.SeekLT(ikey)) {
			return false
		}
	}
	return m.heapify()
}

// Next moves to the next entry. REQUIRES: Valid(), and the last absolute move was First or SeekGE.
func (m *Iter) Next() bool {
	if m.err != nil {
		return false
	}
	return m.advance(m.children[m.heap[0]].it.Next())
}

// Prev moves to the previous entry. REQUIRES: Valid(), and the last absolute move was Last or
// SeekLT.
func (m *Iter) Prev() bool {
	if m.err != nil {
		return false
	}
	return m.advance(m.children[m.heap[0]].it.Prev())
}

// advance restores the heap after the child on top has moved.
func (m *Iter) advance(ok bool) bool {
	c := &m.children[m.heap[0]]
	if !ok {
		if err := c.it.Err(); err != nil {
			return m.fail(err)
		}
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
		m.runnerUp = 0
		m.down(0)
		return last > 0
	}
	c.set()
	if len(m.heap) == 1 {
		return true
	}
	// Runs of entries from one child are common. While a child stays on top, the runner-up
	// does not change and one comparison suffices.
	if m.runnerUp == 0 {
		m.runnerUp = 1
		if len(m.heap) > 2 && m.before(m.heap[2], m.heap[1]) {
			m.runnerUp = 2
		}
	}
	if m.before(m.heap[m.runnerUp], m.heap[0]) {
		// Swap the two; the former top sinks from the runner-up's position.
		r := m.runnerUp
		m.heap[0], m.heap[r] = m.heap[r], m.heap[0]
		m.runnerUp = 0
		m.down(r)
	}
	return true
}

func (m *Iter) begin(reverse bool) {
	m.heap, m.runnerUp, m.reverse, m.err = m.heap[:0], 0, reverse, nil
}

// enter inserts a child that has just moved into the heap if it is at an entry. It returns
// false on an error.
func (m *Iter) enter(i int, ok bool) bool {
	c := &m.children[i]
	if !ok {
		if err := c.it.Err(); err != nil {
			return m.fail(err)
		}
		return true
	}
	c.set()
	m.heap = append(m.heap, int32(i))
	return true
}

func (m *Iter) fail(err error) bool {
	m.heap, m.err = m.heap[:0], err
	return false
}

func (c *child) set() {
	c.key = c.it.Key()
	user := c.key[:len(c.key)-base.TrailerLen]
	// An internal key has at least eight bytes.
	c.prefix = binary.BigEndian.Uint64(c.key)
	if len(user) < 8 {
		c.prefix &= ^(^uint64(0) >> (8 * len(user)))
	}
}

// before reports whether the entry of child a comes before that of child b in
// the direction of travel.
func (m *Iter) before(a, b int32) bool {
	x, y := &m.children[a], &m.children[b]
	if x.prefix != y.prefix {
		return (x.prefix < y.prefix) != m.reverse
	}
	if c := base.CompareInternal(x.key, y.key); c != 0 {
		return (c < 0) != m.reverse
	}
	return (a < b) != m.reverse
}

func (m *Iter) heapify() bool {
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	return len(m.heap) > 0
}

func (m *Iter) down(i int) {
	for {
		least := 2*i + 1
		if least >= len(m.heap) {
			return
		}
		if r := least + 1; r < len(m.heap) && m.before(m.heap[r], m.heap[least]) {
			least = r
		}
		if !m.before(m.heap[least], m.heap[i]) {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}

// Valid reports whether the iterator is at an entry.
func (m *Iter) Valid() bool { return len(m.heap) > 0 }

// Key returns the encoded internal key.
func (m *Iter) Key() []byte { return m.children[m.heap[0]].key }

// Value returns the value.
func (m *Iter) Value() []byte { return m.children[m.heap[0]].it.Value() }

// Err returns the error of the child that stopped the last move, or nil.
func (m *Iter) Err() error { return m.err }

// Close closes the children and returns their errors.
func (m *Iter) Close() error {
	var err error
	for i := range m.children {
		if cerr := m.children[i].it.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
	}
	m.heap = m.heap[:0]
	return err
}
