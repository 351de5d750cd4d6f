// Package comparer defines orders of keys.
package comparer

import "bytes"

// BasicComparer orders keys.
type BasicComparer interface {
	// Compare returns a negative number, 0 or a positive number if a is before, equal
	// to or after b. Only identical keys may be equal, and the empty key is before all
	// others.
	Compare(a, b []byte) int
}

// Comparer is an order with a name, which databases record, and with short separators
// for indexes.
type Comparer interface {
	BasicComparer

	// Name identifies the order. Names that begin with "leveldb." are reserved.
	Name() string

	// Separator appends to dst a short x with a <= x < b. It may return nil if that is
	// a itself.
	Separator(dst, a, b []byte) []byte

	// Successor appends to dst a short x >= b. It may return nil if that is b itself.
	Successor(dst, b []byte) []byte
}

type bytesComparer struct{}

// DefaultComparer is the bytewise order, that of bytes.Compare.
var DefaultComparer = bytesComparer{}

// Compare implements BasicComparer.
func (bytesComparer) Compare(a, b []byte) int { return bytes.Compare(a, b) }

// Name implements Comparer.
func (bytesComparer) Name() string { return "leveldb.BytewiseComparator" }

// Separator implements Comparer.
func (bytesComparer) Separator(dst, a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	if n < len(a) && n < len(b) && a[n] < 0xff && a[n]+1 < b[n] {
		dst = append(dst, a[:n+1]...)
		dst[len(dst)-1]++
		return dst
	}
	return nil
}

// Successor implements Comparer.
func (bytesComparer) Successor(dst, b []byte) []byte {
	for i, c := range b {
		if c != 0xff {
			dst = append(dst, b[:i+1]...)
			dst[len(dst)-1]++
			return dst
		}
	}
	return nil
}
