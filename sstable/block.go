package sstable

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/siftdb/sift/internal/base"
)

// A data, index, metaindex or properties block, integers little-endian:
//
//	+------------+-----------------------+-----------------+
//	| entries... | restart offsets 4 B.. | restart count 4 |
//	+------------+-----------------------+-----------------+
//
// and each entry:
//
//	+----------------+------------------+--------------------+-----------+-------+
//	| shared, varint | unshared, varint | value len., varint | key bytes | value |
//	+----------------+------------------+--------------------+-----------+-------+
//
// shared is the number of leading bytes that the key shares with the previous key; only the
// other bytes are stored. Each restart offset points to an entry with shared 0, where a search
// can begin. The first restart offset is 0, and a block without entries has only that one.
//
// A block is invalid if it has no restarts, if its restart offsets do not ascend from 0, if an
// entry reaches into the restart offsets, if shared exceeds the length of the previous key, or
// if the keys do not ascend.
//
// The keys "ab" = "1", "abc" = "2" with a restart interval of 16:
//
//	00 02 01 61 62 31  02 01 01 63 32  00 00 00 00  01 00 00 00
//
// All of this is on disk; do not change.

var (
	errBlockShort   = errors.New("block too short")
	errBlockEmpty   = errors.New("block without entries")
	errRestarts     = errors.New("restart offsets out of order")
	errEntry        = errors.New("malformed entry")
	errEntryKey     = errors.New("entry key shorter than a trailer")
	errKeyOrder     = errors.New("keys out of order")
	errBlockMissing = errors.New("keys of the block contradict the index")
)

// block is a decoded block with validated restart offsets. It is immutable except for the
// cache's bookkeeping.
type block struct {
	data    []byte      // entries, then restart offsets and count
	slots   []uint32    // the hash index, see hashindex.go; nil: none
	entries int         // length of the entries
	shared  uint32      // with a hash index: bytes that each non-restart entry shares
	touched atomic.Bool // read since the clock hand last passed

	restarts int // number of restart offsets, at least 1
	cached   cacheNode
}

// memory returns the number of bytes allocated for the block.
func (b *block) memory() int64 {
	return int64(unsafe.Sizeof(*b)) + int64(cap(b.data)) + 4*int64(cap(b.slots))
}

// init parses data, which the block retains.
func (b *block) init(data []byte) error {
	if len(data) < 8 {
		return errBlockShort
	}
	n := uint64(binary.LittleEndian.Uint32(data[len(data)-4:]))
	if n == 0 || n > uint64(len(data)/4-1) {
		return errRestarts
	}
	b.data, b.restarts = data, int(n)
	b.entries = len(data) - 4 - 4*b.restarts
	before := int64(-1)
	for i := range b.restarts {
		r := int64(binary.LittleEndian.Uint32(data[b.entries+4*i:]))
		if r <= before || i == 0 && r != 0 || i > 0 && r >= int64(b.entries) {
			return errRestarts
		}
		before = r
	}
	return nil
}

// restart returns restart offset i.
func (b *block) restart(i int) int {
	return int(binary.LittleEndian.Uint32(b.data[b.entries+4*i:]))
}

// entry is a decoded entry, as offsets into the block's data.
type entry struct {
	shared int // leading bytes shared with the previous key
	key    int // where the unshared bytes begin
	value  int // where they end and the value begins
	end    int // where the value ends
}

// decode decodes the entry at an offset, which is below b.entries.
func (b *block) decode(at int) (e entry, ok bool) {
	d := b.data[:b.entries]
	if uint(at) < uint(len(d)) && len(d)-at >= 4 {
		// Fast path: each of the three lengths takes one byte.
		w := binary.LittleEndian.Uint32(d[at:])
		if w&0x808080 == 0 {
			e.shared = int(w & 0x7f)
			e.key = at + 3
			e.value = e.key + int(w>>8&0x7f)
			e.end = e.value + int(w>>16&0x7f)
			return e, e.end <= len(d)
		}
	}
	return b.decodeSlow(at)
}

func (b *block) decodeSlow(at int) (e entry, ok bool) {
	d := b.data[:b.entries]
	var v [3]uint64
	for i := range v {
		x, n := binary.Uvarint(d[at:])
		if n <= 0 || x > maxBlockLen {
			return entry{}, false
		}
		v[i] = x
		at += n
	}
	if v[1]+v[2] > uint64(len(d)-at) {
		return entry{}, false
	}
	e.shared = int(v[0])
	e.key = at
	e.value = at + int(v[1])
	e.end = e.value + int(v[2])
	return e, true
}

// restartKey returns the whole key at restart offset i.
func (b *block) restartKey(i int) (key []byte, ok bool) {
	e, ok := b.decode(b.restart(i))
	if !ok || e.shared != 0 {
		return nil, false
	}
	return b.data[e.key:e.value:e.value], true
}

// found is the result of a lookup: an entry of the user key, or none.
type found struct {
	trailer    uint64
	value, end int // of the value in the block's data
	ok         bool
}

// get finds the first entry at or after the internal key (userKey, trailer), the target, and
// returns it if it has that user key. ranOff reports that every entry is before the target.
// get allocates only for keys of more than 256 bytes, in getSlow.
//
// In all but rare cases it does not reconstruct prefix-compressed keys. match is the length of
// the prefix that the previous key, which is before the target, shares with the target. A key
// that shares more than match bytes with the previous key first differs from the target in the
// same byte, so it is before the target, too. For all others the unshared bytes decide.
func (b *block) get(userKey []byte, trailer uint64) (f found, ranOff bool, err error) {
	if b.slots != nil {
		return b.getHashed(userKey, trailer)
	}
	at, err := b.searchRestarts(userKey, trailer)
	if err != nil {
		return found{}, false, err
	}
	start := at
	match, keyLen := 0, 0 // of the previous key: bytes in common with the target, length of the user key
	for at < b.entries {
		e, ok := b.decode(at)
		if !ok {
			return found{}, false, errEntry
		}
		if e.shared > match {
			if match == keyLen {
				// The previous user key is the target's or a prefix of it, and this key
				// shares bytes of the previous key's trailer.
				return b.getSlow(start, userKey, trailer)
			}
			if e.shared > keyLen+base.TrailerLen {
				return found{}, false, errEntry
			}
			keyLen = e.shared + e.value - e.key - base.TrailerLen
			if keyLen <= match {
				return found{}, false, errKeyOrder
			}
			at = e.end
			continue
		}
		if e.value-e.key < base.TrailerLen {
			if e.shared == 0 {
				return found{}, false, errEntryKey
			}
			return found{}, false, errKeyOrder // a prefix of the previous key
		}
		t := binary.LittleEndian.Uint64(b.data[e.value-base.TrailerLen:])
		suffix, rest := b.data[e.key:e.value-base.TrailerLen], userKey[e.shared:]
		n := base.CommonPrefix(suffix, rest)
		switch {
		case n == len(rest) && n == len(suffix):
			if t <= trailer {
				return found{trailer: t, value: e.value, end: e.end, ok: true}, false, nil
			}
		case n == len(rest), n < len(suffix) && suffix[n] > rest[n]:
			return found{}, false, nil
		}
		match = e.shared + n
		keyLen = e.shared + len(suffix)
		at = e.end
	}
	return found{}, true, nil
}

// getSlow is get for the entries from the restart at offset at on. It reconstructs keys.
func (b *block) getSlow(at int, userKey []byte, trailer uint64) (f found, ranOff bool, err error) {
	var buf [256]byte
	key := buf[:0]
	for at < b.entries {
		e, ok := b.decode(at)
		if !ok || e.shared > len(key) {
			return found{}, false, errEntry
		}
		key = append(key[:e.shared], b.data[e.key:e.value]...)
		if len(key) < base.TrailerLen {
			return found{}, false, errEntryKey
		}
		k := key[:len(key)-base.TrailerLen]
		t := binary.LittleEndian.Uint64(key[len(k):])
		n := base.CommonPrefix(k, userKey)
		switch {
		case n == len(userKey) && n == len(k):
			if t <= trailer {
				return found{trailer: t, value: e.value, end: e.end, ok: true}, false, nil
			}
		case n == len(userKey), n < len(k) && k[n] > userKey[n]:
			return found{}, false, nil
		}
		at = e.end
	}
	return found{}, true, nil
}

// searchRestarts returns the offset of the last restart whose key is before the
// internal key, or 0 if there is none.
func (b *block) searchRestarts(userKey []byte, trailer uint64) (at int, err error) {
	lo, hi := 0, b.restarts // restart lo is below the target or 0; hi is not, or is the end
	for hi-lo > 1 {
		mid := int(uint(lo+hi) / 2)
		key, ok := b.restartKey(mid)
		if !ok {
			return 0, errEntry
		}
		if len(key) < base.TrailerLen {
			return 0, errEntryKey
		}
		k := key[:len(key)-base.TrailerLen]
		n := base.CommonPrefix(k, userKey)
		var below bool
		switch {
		case n < len(k) && n < len(userKey):
			below = k[n] < userKey[n]
		case len(k) != len(userKey):
			below = len(k) < len(userKey)
		default:
			below = binary.LittleEndian.Uint64(key[len(k):]) > trailer
		}
		if below {
			lo = mid
		} else {
			hi = mid
		}
	}
	return b.restart(lo), nil
}

// cacheNode is the cache's bookkeeping for a block.
type cacheNode struct {
	index      *index // of its table; nil: not in the cache
	i          int    // the number of the data block
	prev, next *block // its neighbors in the ring; guarded by the shard's mutex
	charge     int64
}

// each calls fn with the entries in order, and returns the first error of fn. key is valid until
// fn returns, value as long as the block.
func (b *block) each(fn func(key, value []byte) error) error {
	var key []byte
	for at := 0; at < b.entries; {
		e, ok := b.decode(at)
		if !ok || e.shared > len(key) {
			return errEntry
		}
		key = append(key[:e.shared], b.data[e.key:e.value]...)
		if err := fn(key, b.data[e.value:e.end:e.end]); err != nil {
			return err
		}
		at = e.end
	}
	return nil
}
