// Package base holds what all packages of the store share: internal keys and their order, the
// corruption error, the iterator interface, and a cursor that decodes untrusted bytes.
package base

import (
	"bytes"
	"encoding/binary"
)

// An internal key is a user key and an 8-byte little-endian trailer:
//
//	+----------------+------------------------------+
//	| user key ...   | sequence << 8 | kind (8 B)   |
//	+----------------+------------------------------+
//
// Internal keys are ordered by user key ascending, then by trailer descending: of equal user
// keys the newest comes first (I6).
//
// Example: the key "a", set at sequence 3, is 61 01 03 00 00 00 00 00 00.

// Kind distinguishes values from tombstones. On disk; do not change.
type Kind uint8

const (
	KindDelete Kind = 0
	KindSet    Kind = 1
	// KindSeek is the kind of separators, on disk, and of seek targets with MaxSequence: the
	// largest known kind, so that no entry with the same key and sequence number sorts before it.
	KindSeek = KindSet
	// KindAny is the kind of seek targets with other sequence numbers: entries of unknown kinds,
	// which are errors, do not sort before it, either.
	KindAny Kind = 0xff
)

const (
	// TrailerLen is the number of bytes that follow the user key.
	TrailerLen = 8
	// MaxSequence is the largest sequence number: 56 bits of ones.
	MaxSequence uint64 = 1<<56 - 1
)

// Trailer packs a sequence number and a kind.
func Trailer(seq uint64, kind Kind) uint64 { return seq<<8 | uint64(kind) }

// AppendInternalKey appends the encoded internal key to dst.
func AppendInternalKey(dst, userKey []byte, seq uint64, kind Kind) []byte {
	dst = append(dst, userKey...)
	return binary.LittleEndian.AppendUint64(dst, Trailer(seq, kind))
}

// UserKey returns the user key of an encoded internal key, which must be at
// least TrailerLen bytes long.
func UserKey(ikey []byte) []byte { return ikey[: len(ikey)-TrailerLen : len(ikey)-TrailerLen] }

// KeyTrailer returns the trailer of an encoded internal key, which must be at
// least TrailerLen bytes long.
func KeyTrailer(ikey []byte) uint64 {
	return binary.LittleEndian.Uint64(ikey[len(ikey)-TrailerLen:])
}

// SplitInternalKey splits an encoded internal key. ok is false if it is too short or has an
// unknown kind.
func SplitInternalKey(ikey []byte) (userKey []byte, seq uint64, kind Kind, ok bool) {
	if len(ikey) < TrailerLen {
		return nil, 0, 0, false
	}
	t := KeyTrailer(ikey)
	kind = Kind(t)
	return UserKey(ikey), t >> 8, kind, kind <= KindSet
}

// CompareInternal compares two encoded internal keys, each at least TrailerLen bytes long.
func CompareInternal(a, b []byte) int {
	if c := bytes.Compare(UserKey(a), UserKey(b)); c != 0 {
		return c
	}
	ta, tb := KeyTrailer(a), KeyTrailer(b)
	switch {
	case ta > tb:
		return -1
	case ta < tb:
		return +1
	}
	return 0
}

// AppendSeparator appends a key s with a <= s < b to dst, for a < b. s is never longer than a, and
// usually shorter.
func AppendSeparator(dst, a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	if n < len(a) && n < len(b) && a[n] < 0xff && a[n]+1 < b[n] {
		dst = append(dst, a[:n+1]...)
		dst[len(dst)-1]++
		return dst
	}
	if n < len(a) && n < len(b) && a[n] < b[n] {
		// Every key with the prefix a[:n+1] sorts before b.
		for i := n + 1; i < len(a)-1; i++ {
			if a[i] != 0xff {
				dst = append(dst, a[:i+1]...)
				dst[len(dst)-1]++
				return dst
			}
		}
	}
	return append(dst, a...)
}

// AppendSuccessor appends a short key s >= a to dst.
func AppendSuccessor(dst, a []byte) []byte {
	for i, c := range a {
		if c != 0xff {
			dst = append(dst, a[:i+1]...)
			dst[len(dst)-1]++
			return dst
		}
	}
	return append(dst, a...)
}

// PrefixEnd returns the smallest key that is greater than every key with the
// given prefix, or nil if there is none.
func PrefixEnd(prefix []byte) []byte { return AppendPrefixEnd(nil, prefix) }

// AppendPrefixEnd appends PrefixEnd(prefix) to dst. If PrefixEnd returns nil, so does it.
func AppendPrefixEnd(dst, prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			dst = append(dst, prefix[:i+1]...)
			dst[len(dst)-1]++
			return dst
		}
	}
	return nil
}
