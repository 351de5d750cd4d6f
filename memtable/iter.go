package memtable

import "github.com/siftdb/sift/internal/base"

// Iter iterates over the entries of a memtable, tombstones included, in the order of internal keys.
// It sees the entries that were added before its last move, and possibly later ones. It cannot
// fail. A move returns Valid. Keys and values alias the memtable: they remain valid after moves and
// Close, and must not be modified. An Iter is not safe for concurrent use; a memtable can have any
// number of them.
type Iter struct {
	m    *Memtable
	list *list // of m
	node uint32
}

var _ base.Iterator = (*Iter)(nil)

// NewIter returns an unpositioned iterator. Its first move must be First, Last or a seek. It need
// not be closed.
func (m *Memtable) NewIter() *Iter { return &Iter{m: m, list: &m.list} }

// First moves to the first entry.
func (it *Iter) First() bool {
	return it.at(it.m.inOrder().next(head, 0))
}

// Last moves to the last entry.
func (it *Iter) Last() bool {
	return it.at(it.m.inOrder().last())
}

// SeekGE moves to the first entry at or after the encoded internal key.
func (it *Iter) SeekGE(ikey []byte) bool {
	return it.at(it.m.inOrder().seekGE(base.UserKey(ikey), base.KeyTrailer(ikey)))
}

// SeekLT moves to the last entry before the encoded internal key.
func (it *Iter) SeekLT(ikey []byte) bool {
	return it.at(it.m.inOrder().seekLT(base.UserKey(ikey), base.KeyTrailer(ikey)))
}

// Next moves to the next entry. REQUIRES: Valid(); otherwise the program may crash with a fault
// that it cannot recover from. The same holds for Prev, Key and Value.
func (it *Iter) Next() bool { return it.at(it.list.next(it.node, 0)) }

// Prev moves to the previous entry. REQUIRES: Valid().
func (it *Iter) Prev() bool { return it.at(it.list.prevOf(it.node)) }

func (it *Iter) at(n uint32) bool {
	it.node = n
	return n != tail
}

// Valid reports whether the iterator is at an entry.
func (it *Iter) Valid() bool { return it.node != tail }

// Key returns the encoded internal key. REQUIRES: Valid().
func (it *Iter) Key() []byte { return it.list.key(it.node) }

// Value returns the value. REQUIRES: Valid().
func (it *Iter) Value() []byte { return it.list.value(it.node) }

// Err returns nil.
func (it *Iter) Err() error { return nil }

// Close makes the iterator invalid and returns nil.
func (it *Iter) Close() error {
	it.node = tail
	return nil
}
