// Package util provides the key ranges, releasers, buffers and checksums that the other packages
// share.
package util

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// SetReleaser panics with these errors.
var (
	ErrReleased    = errors.New("leveldb: resource already relesed") // spelled as in goleveldb
	ErrHasReleaser = errors.New("leveldb: releaser already defined")
)

// Releaser is something that holds resources.
type Releaser interface {
	// Release releases the resources. Calling it again does nothing.
	Release()
}

// ReleaseSetter is something that releases another Releaser together with itself.
type ReleaseSetter interface {
	// SetReleaser sets what is released together with the receiver; nil unsets it. It panics with
	// ErrReleased if the receiver has been released, and with ErrHasReleaser if there is a releaser
	// already.
	SetReleaser(releaser Releaser)
}

// BasicReleaser implements Releaser and ReleaseSetter, for embedding.
type BasicReleaser struct {
	releaser Releaser
	released bool
}

// Released reports whether Release has been called.
func (r *BasicReleaser) Released() bool { return r.released }

// Release implements Releaser.
func (r *BasicReleaser) Release() {
	if r.released {
		return
	}
	r.released = true
	if r.releaser != nil {
		r.releaser.Release()
		r.releaser = nil
	}
}

// SetReleaser implements ReleaseSetter.
func (r *BasicReleaser) SetReleaser(releaser Releaser) {
	switch {
	case r.released:
		panic(ErrReleased)
	case r.releaser != nil && releaser != nil:
		panic(ErrHasReleaser)
	}
	r.releaser = releaser
}

// NoopReleaser is a Releaser that holds nothing.
type NoopReleaser struct{}

// Release implements Releaser.
func (NoopReleaser) Release() {}

// Range is a range of keys.
type Range struct {
	// Start is the inclusive lower bound; nil means no bound.
	Start []byte
	// Limit is the exclusive upper bound; nil means no bound.
	Limit []byte
}

// BytesPrefix returns the range of the keys with a prefix, in bytewise order.
func BytesPrefix(prefix []byte) *Range {
	n := len(prefix)
	for n > 0 && prefix[n-1] == 0xff {
		n--
	}
	if n == 0 {
		return &Range{Start: prefix}
	}
	limit := bytes.Clone(prefix[:n])
	limit[n-1]++
	return &Range{Start: prefix, Limit: limit}
}

// CRC is a CRC-32C.
type CRC uint32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewCRC returns the checksum of b.
func NewCRC(b []byte) CRC { return CRC(0).Update(b) }

// Update returns the checksum of c's data followed by b.
func (c CRC) Update(b []byte) CRC { return CRC(crc32.Update(uint32(c), castagnoli, b)) }

// Value returns the checksum as LevelDB stores it: rotated right by 15 bits, then increased by a
// constant.
func (c CRC) Value() uint32 { return uint32(c>>15|c<<17) + 0xa282ead8 }

// Hash is LevelDB's hash of bytes, which its Bloom filters use: murmur-like, 32 bits.
func Hash(data []byte, seed uint32) uint32 {
	const m = 0xc6a4a793
	h := seed ^ uint32(len(data))*m
	for ; len(data) >= 4; data = data[4:] {
		h += binary.LittleEndian.Uint32(data)
		h *= m
		h ^= h >> 16
	}
	if len(data) > 0 {
		for i, b := range data {
			h += uint32(b) << (8 * i)
		}
		h *= m
		h ^= h >> 24
	}
	return h
}
