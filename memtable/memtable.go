// Package memtable holds the newest writes in memory: a skip list in one arena,
// with a filter over its keys. Reads take no lock, and neither do writes: any
// number of goroutines may read and insert at once.
package memtable

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/siftdb/sift/internal/base"
)

// ErrFull reports that an entry does not fit.
var ErrFull = errors.New("memtable: full")

// MaxCapacity is the largest capacity that New honours, in bytes: with the room
// for towers and the filter beside it, the arena stays within 32-bit offsets
// (and within an int where that has 32 bits).
const MaxCapacity = min(math.MaxUint32, math.MaxInt) / 20 * 18

// Memtable is a sorted, growing set of entries. Entries are never removed or
// changed. All methods are safe for concurrent use.
type Memtable struct {
	list     list
	filter   filter
	capacity uint64        // what Reserve gives out
	reserved atomic.Uint64 // what it has given out
}

// New returns an empty memtable with room for entries of capacityBytes
// together, each counted with EntrySize. A caller with a batch that is larger
// than its usual memtable makes one to measure. The memory that it takes is
// about a tenth more, of which pages that are never written to cost nothing.
func New(capacityBytes int) *Memtable {
	capacity := uint64(max(0, min(capacityBytes, MaxCapacity)))
	m := &Memtable{capacity: capacity, filter: newFilter(capacity)}
	m.list.init(capacity)
	return m
}

// EntrySize returns the bytes that an entry counts for against the capacity,
// given the lengths of its user key and value. It saturates at MaxCapacity+1,
// which never fits.
func EntrySize(keyLen, valueLen int) int {
	n := uint64(keyLen) + uint64(valueLen) + maxEntryOverhead
	if n > MaxCapacity {
		return MaxCapacity + 1
	}
	return int(n)
}

// Reserve sets n bytes aside and reports whether they were there. After
// Reserve(the sum of EntrySize over a batch) the batch's Adds cannot fail.
// A reservation cannot be given back.
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

// Add inserts an entry, copying key and value; hash is the hash of the user key
// that MayContain will be asked with. The caller has reserved EntrySize(len(key),
// len(value)) bytes; without a reservation Add may fail with ErrFull, and may
// make other callers' Adds fail. No two entries have key, seq and kind in common.
func (m *Memtable) Add(hash, seq uint64, kind base.Kind, key, value []byte) error {
	// The filter knows the key before the list does, so that it never excludes one.
	m.filter.add(hash)
	if !m.list.insert(key, base.Trailer(seq, kind), value) {
		return ErrFull
	}
	return nil
}

// MayContain reports false only if no entry was added with the hash. It costs
// one memory access; Get after it is a search.
func (m *Memtable) MayContain(hash uint64) bool { return m.filter.mayContain(hash) }

// Get returns the newest entry of the user key with a sequence number of at
// most seq. The value aliases the memtable, which never changes or reuses its
// memory: it stays valid for as long as it is referenced. It does not allocate.
func (m *Memtable) Get(userKey []byte, seq uint64) (value []byte, kind base.Kind, entrySeq uint64, found bool) {
	n := m.list.seekGE(userKey, base.Trailer(seq, base.KindSeek))
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

// Bytes returns how many bytes the entries take. It is at most what they were
// reserved with, plus the towers of the skip list.
func (m *Memtable) Bytes() int {
	bytes, _ := m.list.used()
	return bytes
}

// Capacity returns the bytes that Reserve gives out in all.
func (m *Memtable) Capacity() int { return int(m.capacity) }
