package sstable

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// A block that the cache keeps has a point table: a hash table from user keys to
// entries, so that a lookup reads a slot and an entry where a search would read some
// twenty.
//
// A slot is 0, or has 16 bits of the hash above the entry's offset plus one. It
// stands for the first, that is the newest, entry of a user key. The slot that a key
// would like best is that of the upper bits of its hash; where it is taken, the next
// one is tried. A key that is not in the table is not in the block.
//
// The entry found has to tell its whole key. So the block is written again: every
// entry shares with the one before it either nothing, at a restart, or just the
// bytes that both separators around the block, and so all keys that a lookup may
// look for in it, have in common. It stays an ordinary block, a little longer, of
// which iterators need not know more.

const (
	maxPointData  = 1<<16 - 2 // an offset plus one has 16 bits
	maxPointKey   = 512       // of an internal key
	maxPointProbe = 16        // slots from the one that a key would like best

	// What a block pays for its table at most: an eighth of its length for the
	// slots, and as much for keys that share less.
	maxPointShare = 8
)

// Blocks of the usual sizes are one piece of memory with their slots, so that a
// lookup finds both in one place.
type (
	block32 struct {
		block
		slots [32]uint32
	}
	block64 struct {
		block
		slots [64]uint32
	}
	block96 struct {
		block
		slots [96]uint32
	}
	block128 struct {
		block
		slots [128]uint32
	}
	block192 struct {
		block
		slots [192]uint32
	}
)

// newPointBlock returns a block with at least n slots.
func newPointBlock(n int) *block {
	switch {
	case n <= 32:
		b := new(block32)
		b.block.slots = b.slots[:]
		return &b.block
	case n <= 64:
		b := new(block64)
		b.block.slots = b.slots[:]
		return &b.block
	case n <= 96:
		b := new(block96)
		b.block.slots = b.slots[:]
		return &b.block
	case n <= 128:
		b := new(block128)
		b.block.slots = b.slots[:]
		return &b.block
	case n <= 192:
		b := new(block192)
		b.block.slots = b.slots[:]
		return &b.block
	}
	return &block{slots: make([]uint32, n)}
}

// keep returns the block in memory of its own, for the cache, with a point table if
// it can have one. Its keys should be after the internal key before, nil for none,
// and not after last.
func (b *block) keep(before, last []byte) *block {
	if k := b.pointed(before, last); k != nil {
		return k
	}
	return &block{data: bytes.Clone(b.data), entries: b.entries, restarts: b.restarts}
}

// pointed is keep for a block that can have a table, and nil for others: those that
// would become too long, that have long keys, and those in which anything is wrong,
// which is for a search to come upon.
func (b *block) pointed(before, last []byte) *block {
	shared := 0
	if before != nil {
		shared = commonPrefix(base.UserKey(before), base.UserKey(last))
	}
	size, entries, ok := b.measure(shared, before, last)
	slots := entries + entries/2 + 1
	if !ok || size > min(maxPointData, len(b.data)+len(b.data)/maxPointShare) || 4*slots > len(b.data)/maxPointShare {
		return nil
	}
	k := newPointBlock(slots)
	k.data, k.restarts, k.shared = slices.Grow([]byte(nil), size)[:size], b.restarts, uint32(shared)
	k.entries = size - (len(b.data) - b.entries)
	if !k.fill(b) {
		return nil
	}
	return k
}

// measure returns how long the block is when its entries share so many bytes, and
// how many entries it has. ok reports that they are sound and in order, and have keys
// within the bounds that a table can be made of.
func (b *block) measure(shared int, before, last []byte) (size, entries int, ok bool) {
	w := pointWalk{b: b}
	limit := len(b.data) + len(b.data)/maxPointShare
	size = len(b.data) - b.entries
	for w.next() {
		switch {
		case len(w.key) < shared+base.TrailerLen || !bytes.Equal(w.key[:shared], last[:shared]):
			return 0, 0, false
		case entries > 0 && base.CompareInternal(w.prev, w.key) >= 0:
			return 0, 0, false
		case entries == 0 && before != nil && base.CompareInternal(before, w.key) >= 0:
			return 0, 0, false
		}
		entries++
		head := w.head(shared)
		size += head.len() + head.unshared + head.value
		if size > limit {
			return 0, 0, false
		}
	}
	ok = !w.bad && w.restart == b.restarts && entries > 0 && base.CompareInternal(w.key, last) <= 0
	return size, entries, ok
}

// fill writes what from holds to the block, and its table. It reports false if too
// many keys would like the same slots. REQUIRES: measure has found from to be sound.
func (b *block) fill(from *block) bool {
	w := pointWalk{b: from}
	out := b.data[:0]
	restarts := b.data[b.entries:]
	for entries := 0; w.next(); entries++ {
		at := len(out)
		if w.isRestart {
			binary.LittleEndian.PutUint32(restarts[4*(w.restart-1):], uint32(at))
		}
		userKey := base.UserKey(w.key)
		if entries == 0 || !bytes.Equal(base.UserKey(w.prev), userKey) {
			if !b.point(filter.Hash(userKey), at) {
				return false
			}
		}
		head := w.head(int(b.shared))
		out = head.append(out)
		out = append(out, w.key[head.shared:]...)
		out = append(out, from.data[w.e.value:w.e.end]...)
	}
	binary.LittleEndian.PutUint32(restarts[4*b.restarts:], uint32(b.restarts))
	return len(out) == b.entries
}

// point adds the entry at an offset to the table, and reports false if its key would
// come to lie too far from where it is looked for.
func (b *block) point(hash uint64, at int) bool {
	i := b.slotOf(hash)
	for range maxPointProbe {
		if b.slots[i] == 0 {
			b.slots[i] = slotTag(hash) | uint32(at+1)
			return true
		}
		if i++; i == len(b.slots) {
			i = 0
		}
	}
	return false
}

func (b *block) slotOf(hash uint64) int {
	i, _ := bits.Mul64(hash, uint64(len(b.slots)))
	return int(i)
}

func slotTag(hash uint64) uint32 { return uint32(hash) << 16 }

// getPoint is get by the table. REQUIRES: the block has one; the internal key is
// after the bound before of the block and not after last.
//
// ranOff may be true with entries after the internal key: whoever then looks whether
// the last of the bounds is of the user key finds that it is not.
func (b *block) getPoint(userKey []byte, trailer uint64) (f found, ranOff bool, err error) {
	hash := filter.Hash(userKey)
	shared := int(b.shared)
	if shared > len(userKey) {
		return found{}, true, nil
	}
	rest, tag := userKey[shared:], slotTag(hash)
	for i := b.slotOf(hash); b.slots[i] != 0; {
		if s := b.slots[i]; s&^0xffff == tag {
			for at, first := int(s&0xffff)-1, true; ; first = false {
				if at >= b.entries {
					return found{}, true, nil
				}
				e, ok := b.decode(at)
				if !ok {
					return found{}, false, errEntry
				}
				key := b.data[e.key+shared-e.shared : e.value]
				if len(key) != len(rest)+base.TrailerLen || string(key[:len(rest)]) != string(rest) {
					if first {
						break // another key
					}
					return found{}, false, nil
				}
				if t := binary.LittleEndian.Uint64(key[len(rest):]); t <= trailer {
					return found{trailer: t, value: e.value, end: e.end, ok: true}, false, nil
				}
				at = e.end
			}
		}
		if i++; i == len(b.slots) {
			i = 0
		}
	}
	return found{}, true, nil
}

// pointWalk goes over the entries of a block, with whole keys.
type pointWalk struct {
	b         *block
	e         entry
	prev, key []byte // of the entry before and of this one
	isRestart bool
	restart   int  // restarts passed
	bad       bool // it has stopped at an entry that a table cannot be made of

	turn bool
	bufs [2][maxPointKey]byte
}

// next moves to the next entry.
func (w *pointWalk) next() bool {
	at := w.e.end
	if w.bad || at >= w.b.entries {
		return false
	}
	e, ok := w.b.decode(at)
	n := e.shared + e.value - e.key
	w.isRestart = w.restart < w.b.restarts && w.b.restart(w.restart) == at
	if !ok || e.shared > len(w.key) || w.isRestart && e.shared != 0 || n < base.TrailerLen || n > maxPointKey {
		w.bad = true
		return false
	}
	if w.isRestart {
		w.restart++
	}
	w.turn = !w.turn
	buf := &w.bufs[0]
	if w.turn {
		buf = &w.bufs[1]
	}
	next := append(buf[:0], w.key[:e.shared]...)
	w.prev, w.key, w.e = w.key, append(next, w.b.data[e.key:e.value]...), e
	return true
}

// head returns what stands before the key when it shares so many bytes.
func (w *pointWalk) head(shared int) entryHead {
	if w.isRestart {
		shared = 0
	}
	return entryHead{shared, len(w.key) - shared, w.e.end - w.e.value}
}

// entryHead is what an entry begins with.
type entryHead struct{ shared, unshared, value int }

func (h entryHead) len() int {
	return uvarintLen(h.shared) + uvarintLen(h.unshared) + uvarintLen(h.value)
}

func (h entryHead) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(h.shared))
	dst = binary.AppendUvarint(dst, uint64(h.unshared))
	return binary.AppendUvarint(dst, uint64(h.value))
}
