package serve

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/siftdb/sift"
)

// The keys and values of the store. Numbers in keys are big-endian. gen is the generation of a
// database, 4 bytes. No two databases share one, and FLUSHDB assigns one that was never used, so it
// takes no longer for many keys than for one. Entries of old generations are removed in the
// background.
//
//	"k" gen key              the head of a key: its kind, and a string's value
//	"x" gen expiry key       a key's expiry in ms since 1970, 8 bytes, in order
//	"n" gen id               the key of filter id, 8 bytes
//	"f" id "h"               a filter's header: lsn, 8 bytes, and a dump's header
//	"f" id "p" link page     a page of a filter, 2 and 4 bytes; absent: zeros
//	"f" id "d" lsn           a redo entry: changes since the header, in order of lsn
//	"m" "format"             formatVersion
//	"m" "gen"                gen of each database in turn; older versions wrote that
//	                         of the first alone
//	"m" "sync"               empty: written to make all earlier writes durable
//	"m" "keys"               the numbers of keys, see saveCounts
//	"m" "time"               in a group: keys up to here have been seen to be expired,
//	                         ms since 1970, 8 bytes
//	"c" ...                  used by the group itself
//
// A head is a type byte, plus 0x80 if an expiry follows, 8 bytes, in ms since 1970; and then a
// string's bytes, or a filter's id, 8 bytes. The string "hi" that expires at 1000 ms is
//
//	81 00000000000003e8 6869
//
// An entry under "x" that does not agree with the head of its key is old and has no effect.
const (
	spaceHead   = 'k'
	spaceExpiry = 'x'
	spaceName   = 'n'
	spaceFilter = 'f'
	spaceMeta   = 'm'

	partHeader = 'h'
	partPage   = 'p'
	partRedo   = 'd'

	formatVersion = "sift serve 1"
	hasExpiry     = 0x80
)

// kind is what a key holds. On disk; do not change.
type kind byte

const (
	kindNone   kind = 0
	kindString kind = 1
	kindBloom  kind = 2
	kindCuckoo kind = 3
)

func (k kind) String() string {
	switch k {
	case kindString:
		return "string"
	case kindBloom:
		return "MBbloom--"
	case kindCuckoo:
		return "MBbloomCF"
	}
	return "none"
}

// head is a decoded head; payload aliases the value.
type head struct {
	kind    kind
	expiry  int64 // ms since 1970; 0: never
	payload []byte
}

var errHead = errors.New("serve: a value that the server did not write")

func decodeHead(v []byte) (head, error) {
	if len(v) == 0 {
		return head{}, errHead
	}
	h := head{kind: kind(v[0] &^ hasExpiry), payload: v[1:]}
	if v[0]&hasExpiry != 0 {
		if len(v) < 9 {
			return head{}, errHead
		}
		h.expiry = int64(binary.BigEndian.Uint64(v[1:]))
		h.payload = v[9:]
	}
	if h.kind < kindString || h.kind > kindCuckoo || h.kind != kindString && len(h.payload) != 8 {
		return head{}, errHead
	}
	return h, nil
}

func appendHead(dst []byte, h head) []byte {
	if h.expiry == 0 {
		dst = append(dst, byte(h.kind))
	} else {
		dst = append(dst, byte(h.kind)|hasExpiry)
		dst = binary.BigEndian.AppendUint64(dst, uint64(h.expiry))
	}
	return append(dst, h.payload...)
}

// nowMs returns the time in ms since 1970, but never less than the floor of the group's clock.
func (s *Server) nowMs() int64 { return max(time.Now().UnixMilli(), s.clock.floor.Load()) }

// expired reports whether an expiry, 0 for none, has passed. It reads the clock only if necessary.
func (s *Server) expired(expiry int64) bool { return expiry != 0 && expiry <= s.nowMs() }

// expiredNow is expired for a key that a reply reports as absent if it has expired: in a group it
// records that.
func (s *Server) expiredNow(expiry int64) bool {
	over := s.expired(expiry)
	if over {
		s.sawExpired(expiry)
	}
	return over
}

// genLen is the length of a space and a generation in a key.
const genLen = 5

func appendSpace(dst []byte, space byte, gen uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, space), gen)
}

// gen returns the generation of the selected database.
func (w *writes) gen() uint32 { return w.srv.gens[w.db].Load() }

// headKey appends the store's key for a key's head.
func (w *writes) headKey(dst, key []byte) []byte {
	return append(appendSpace(dst, spaceHead, w.gen()), key...)
}

func (w *writes) expiryKey(dst []byte, expiry int64, key []byte) []byte {
	dst = appendSpace(dst, spaceExpiry, w.gen())
	dst = binary.BigEndian.AppendUint64(dst, uint64(expiry))
	return append(dst, key...)
}

func nameKey(gen uint32, id uint64) []byte {
	return binary.BigEndian.AppendUint64(appendSpace(nil, spaceName, gen), id)
}

func filterKey(id uint64, part byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{spaceFilter}, id), part)
}

func pageKey(id uint64, link, page int) []byte {
	k := binary.BigEndian.AppendUint16(filterKey(id, partPage), uint16(link))
	return binary.BigEndian.AppendUint32(k, uint32(page))
}

func redoKey(id, lsn uint64) []byte {
	return binary.BigEndian.AppendUint64(filterKey(id, partRedo), lsn)
}

// look calls fn with a key's head, which is valid during the call. If the key does not exist or has
// expired, look does not call fn, and found is false.
func (w *writes) look(key []byte, fn func(head) error) (found bool, err error) {
	err = w.view(key, func(v []byte) error {
		h, err := decodeHead(v)
		if err != nil {
			return err
		}
		if w.srv.expiredNow(h.expiry) {
			return nil
		}
		found = true
		if len(h.payload) > shortBytes || w.srv.largeValues.any.Load() {
			w.srv.noteSize(key, len(h.payload))
		}
		return fn(h)
	})
	return found, err
}

// view calls fn with the encoded head of a key, if the key exists. It sees the changes of the
// transaction that is being executed.
func (w *writes) view(key []byte, fn func(v []byte) error) error {
	w.keyBuf = w.headKey(w.keyBuf[:0], key)
	if w.overlay != nil {
		if at, ok := w.overlay[string(w.keyBuf)]; ok {
			if v := w.headAt(at); v != nil {
				return fn(v)
			}
			return nil
		}
	}
	err := w.srv.db.View(w.keyBuf, fn)
	if errors.Is(err, sift.ErrNotFound) {
		return nil
	}
	return err
}

// kindOf returns what a key holds and its expiry.
func (w *writes) kindOf(key []byte) (k kind, expiry int64, err error) {
	_, err = w.look(key, func(h head) error {
		k, expiry = h.kind, h.expiry
		return nil
	})
	return k, expiry, err
}
