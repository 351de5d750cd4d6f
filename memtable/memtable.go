// Package memtable implements memtables, which keep the newest writes in memory. The entries of a
// memtable lie in one arena, with a hash index for lookups, and a skip list for iterators. Entries
// are inserted into the list when their order is needed. Writes and lookups can run concurrently
// and take no locks. The first iterator waits until all entries are in the list, and so does the
// first Get. Find calls Get if it would pass more than 8 entries of its bucket (128 before all
// entries are in the list), or if entries were not added in the order of their sequence numbers.
//
// Kinds are sstable.KindSet and sstable.KindDelete. The keys of iterators are internal keys, which
// package sstable describes.
package memtable

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/siftdb/sift/internal/base"
)

// ErrFull is returned by Add if the entry does not fit.
var ErrFull = errors.New("memtable: full")

// MaxCapacity is the maximum capacity of a memtable in bytes. It keeps the arena, links included,
// within 32-bit offsets, and within an int where that has 32 bits.
const MaxCapacity = min(math.MaxUint32, math.MaxInt) / 20 * 18

// Memtable is a sorted, growing set of entries. Entries are never removed or changed. All methods
// but Follow are safe for concurrent use. Make one with New.
type Memtable struct {
	index     index
	unordered atomic.Bool // entries were not added in the order of their sequence numbers
	capacity  uint64      // total bytes that can be reserved
	list      list        // last of the fields that readers need: inserts change its end

	pending  pending
	sorted   atomic.Bool   // the order of keys was needed: all entries are in the list
	reserved atomic.Uint64 // bytes reserved
	lastSeq  atomic.Uint64 // the highest sequence number so far
}

// New returns an empty memtable for entries of capacityBytes in total, counted by EntrySize.
// capacityBytes is clamped to 0 to MaxCapacity. A memtable takes about an eighth more memory than
// its capacity; pages that are never written to cost nothing.
func New(capacityBytes int) *Memtable {
	capacity := uint64(max(0, min(capacityBytes, MaxCapacity)))
	m := &Memtable{capacity: capacity, index: newIndex(capacity)}
	m.list.init(capacity)
	m.pending.limit = maxPending
	return m
}

// EntrySize returns the bytes of capacity that an entry takes, given the lengths of its user
// key and value. It saturates at MaxCapacity+1, which never fits.
func EntrySize(keyLen, valueLen int) int {
	n := uint64(keyLen) + uint64(valueLen) + maxEntryOverhead
	if n > MaxCapacity {
		return MaxCapacity + 1
	}
	return int(n)
}

// Reserve reserves n bytes of capacity, or reports false if they are not available. Once the sum of
// EntrySize over a batch is reserved, the batch's Adds cannot fail. A reservation cannot be undone.
func (m *Memtable) Reserve(n int) bool {
	if n < 0 {
		return false
	}
	for {
		r := m.reserved.Load()
		if uint64(n) > m.capacity-r {
			return false
		}
		if m.reserved.CompareAndSwap(r, r+uint64(n)) {
			return true
		}
	}
}

// Add inserts an entry of kind sstable.KindSet or KindDelete, and copies key and value. hash is the
// hash of the user key that callers pass to MayContain and Find. The caller must have reserved
// EntrySize(len(key), len(value)) bytes; without a reservation Add may fail with ErrFull, and may
// make other Adds fail. A tombstone keeps the value that it is given. No two entries may have the
// same key and seq, and no two concurrent Adds the same key.
func (m *Memtable) Add(hash, seq uint64, kind base.Kind, key, value []byte) error {
	l := &m.list
	height := l.newHeight()
	t := newTarget(key, base.Trailer(seq, kind))
	n := l.newNode(height, &t, value)
	if n == 0 {
		return ErrFull
	}
	m.order(seq)
	// Add to the index before the list, so that the index never excludes a key of the list.
	m.index.add(hash, n, l.older(n))
	var s splice
	if !l.searchEnd(&t, height, &s) {
		if m.postpone(n, height) {
			return nil
		}
		l.search(&t, height, &s)
	}
	l.insert(n, height, &t, &s)
	return nil
}

// order notes the sequence number of a new entry.
func (m *Memtable) order(seq uint64) {
	for {
		last := m.lastSeq.Load()
		if seq < last {
			m.unordered.Store(true)
			return
		}
		if m.lastSeq.CompareAndSwap(last, seq) {
			return
		}
	}
}

// MayContain reports false only if no entry was added with the hash. It costs one memory
// access.
func (m *Memtable) MayContain(hash uint64) bool { return m.index.mayContain(hash) }

// Find is Get through the index; hash is the hash with which the key was added. It usually costs
// one cache miss for an absent key and two for a present one, where Get searches the list.
func (m *Memtable) Find(hash uint64, userKey []byte, seq uint64) (value []byte, kind base.Kind, entrySeq uint64, found bool) {
	n := m.index.first(hash)
	if n != 0 && m.unordered.Load() {
		return m.Get(userKey, seq)
	}
	// A bucket is ordered from the last insertion to the first: the first entry of the key with a
	// sequence number of at most seq is the newest such entry.
	for i := 0; n != 0; i++ {
		if i == maxChain && m.sorted.Load() || i == maxUnsortedChain {
			return m.Get(userKey, seq)
		}
		if string(m.list.userKey(n)) == string(userKey) {
			if t := m.list.trailer(n); t>>8 <= seq {
				return m.list.value(n), base.Kind(t), t >> 8, true
			}
		}
		n = *m.list.older(n)
	}
	return nil, 0, 0, false
}

// Get returns the newest entry of the user key with a sequence number of at most seq, which may be
// math.MaxUint64. A tombstone counts as found: its kind is sstable.KindDelete.
// The value aliases the memtable, whose memory is never changed or reused: it remains valid, and
// must not be modified. Get does not allocate, except when it first sorts the entries.
func (m *Memtable) Get(userKey []byte, seq uint64) (value []byte, kind base.Kind, entrySeq uint64, found bool) {
	n := m.inOrder().seekGE(userKey, base.Trailer(min(seq, base.MaxSequence), base.KindSeek))
	if n == 0 || string(m.list.userKey(n)) != string(userKey) {
		return nil, 0, 0, false
	}
	t := m.list.trailer(n)
	return m.list.value(n), base.Kind(t), t >> 8, true
}

// Len returns the number of entries.
func (m *Memtable) Len() int {
	_, entries := m.list.used()
	return entries
}

// Empty reports whether there are no entries.
func (m *Memtable) Empty() bool { return m.Len() == 0 }

// Capacity returns the total bytes that can be reserved.
func (m *Memtable) Capacity() int { return int(m.capacity) }
