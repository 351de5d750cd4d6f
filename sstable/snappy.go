package sstable

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/golang/snappy"
)

// A snappy block is the varint of its decoded length and a sequence of elements. The low two
// bits of an element's tag are its type:
//
//	0  literal  length-1 in the tag's high six bits, where 60 to 63 mean that
//	            length-1 is in the next 1 to 4 bytes, little-endian; then the bytes
//	1  copy     length-4 in bits 2 to 4, offset in bits 5 to 7 and the next byte
//	2  copy     length-1 in the high six bits, offset in the next 2 bytes
//	3  copy     like 2, with 4 bytes of offset
//
// A copy appends length bytes from offset bytes before the end of the output on; source and
// destination may overlap. A block is invalid if an offset is 0 or reaches before the start of
// the output, if an element is truncated, or if the output does not have the decoded length
// (github.com/google/snappy, format_description.txt). "abababab!!" can be encoded as
// the nine bytes
//
//	0a  04 61 62  09 02  04 21 21
//
// a literal of 2 bytes, a copy of 6 at offset 2, and a literal of 2.

// maxDecodedLen is an upper bound on the decoded length of n bytes of snappy: the densest element
// decodes 3 bytes to 64.
func maxDecodedLen(n uint64) uint64 { return (n/3 + 1) * 64 }

// appendSnappy appends the decoded contents of a snappy block to dst. The memory that it allocates
// is bounded by a multiple of the block's size.
func appendSnappy(dst, block []byte) ([]byte, error) {
	n, k := binary.Uvarint(block)
	if k <= 0 || n > math.MaxUint32 {
		return nil, snappy.ErrCorrupt
	}
	if n > maxDecodedLen(uint64(len(block))) || n > maxBlockLen {
		return nil, fmt.Errorf("%w: %d bytes of %d", errSnappyLen, n, len(block))
	}
	from, to := len(dst), len(dst)+int(n)
	dst = slices.Grow(dst, int(n))[:to]
	return dst, decodeSnappy(dst[from:to:to], block[k:])
}

// decodeSnappy decodes the elements, which must fill dst exactly.
//
// Table blocks consist of many short elements. Far from both ends, decodeFast copies a
// fixed number of bytes per element, more than needed; the next element overwrites the
// excess. This is 1.5 times as fast as github.com/golang/snappy on decimal keys with
// half-compressible values (BenchmarkSnappy).
func decodeSnappy(dst, src []byte) error {
	d, s := 0, 0
	for s < len(src) {
		if len(dst)-d >= maxElement && len(src)-s >= 1+maxElement {
			d, s = decodeFast(dst, src, d, s) // ends before the end of src
		}
		tag := src[s]
		s++
		var b [4]byte
		var more, length int // bytes after the tag
		if length = int(tag >> 2); tag&3 != 0 {
			more = 1 << (tag & 3) >> 1
		} else if length >= 60 {
			more = length - 59
		}
		if more > len(src)-s {
			return snappy.ErrCorrupt
		}
		copy(b[:], src[s:s+more])
		s += more
		w := binary.LittleEndian.Uint32(b[:])
		if w >= maxBlockLen {
			return snappy.ErrCorrupt // on any platform
		}
		offset := int(w)
		switch {
		case tag&3 == 0 && more > 0:
			length = int(w)
		case tag&3 == 1:
			length, offset = length&7+3, offset|int(tag>>5)<<8
		}
		length++
		switch {
		case length > len(dst)-d:
			return snappy.ErrCorrupt
		case tag&3 == 0:
			if length > len(src)-s {
				return snappy.ErrCorrupt
			}
			copy(dst[d:d+length], src[s:])
			s += length
		case offset == 0 || offset > d:
			return snappy.ErrCorrupt
		default:
			for i := range length {
				dst[d+i] = dst[d-offset+i]
			}
		}
		d += length
	}
	if d != len(dst) {
		return snappy.ErrCorrupt
	}
	return nil
}

// maxElement is the maximum number of bytes that decodeFast reads or writes for an element, without
// the tag: 64, plus the 15 by which the last copy of 16 may exceed them, plus one so that no
// pointer ever points past the end of its object, which the garbage collector does not allow.
const maxElement = 64 + 16

// decodeFast decodes elements from src[s:] into dst[d:], up to an element that it does not handle:
// one near the end of src or dst, a long literal, one of type 3, or an invalid one. It returns the
// positions that it has reached. REQUIRES: d <= len(dst)-maxElement, s < len(src)-maxElement.
//
// For any input it reads only src[s:s+1+maxElement] and dst[d-offset:], which is in dst because
// 1 <= offset <= d, and writes only dst[d:d+maxElement]. It checks d and s before each element.
func decodeFast(dst, src []byte, d, s int) (int, int) {
	to, from := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	dEnd, sEnd := len(dst)-maxElement, len(src)-maxElement
	for d <= dEnd && s < sEnd {
		w := binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(from, s))[:])
		p := unsafe.Add(to, d)
		var q unsafe.Pointer
		var length int
		switch w & 3 {
		case 0:
			length = int(w>>2&63) + 1
			if length > 60 {
				return d, s
			}
			q = unsafe.Add(from, s+1)
			s += 1 + length
		case 1:
			length = int(w>>2&7) + 4
			offset := int(w&0xe0<<3 | w>>8&0xff)
			if uint(offset-1) >= uint(d) {
				return d, s
			}
			s += 2
			if offset < 16 {
				repeat(p, offset, length)
				d += length
				continue
			}
			q = unsafe.Add(p, -offset)
		case 2:
			length = int(w>>2&63) + 1
			offset := int(w >> 8 & 0xffff)
			if uint(offset-1) >= uint(d) {
				return d, s
			}
			s += 3
			if offset < 16 {
				repeat(p, offset, length)
				d += length
				continue
			}
			q = unsafe.Add(p, -offset)
		default:
			return d, s
		}
		d += length
		copy16(p, q)
		if length > 16 {
			copy16(unsafe.Add(p, 16), unsafe.Add(q, 16))
			copy16(unsafe.Add(p, 32), unsafe.Add(q, 32))
			copy16(unsafe.Add(p, 48), unsafe.Add(q, 48))
		}
	}
	return d, s
}

func copy16(p, q unsafe.Pointer) { *(*[16]byte)(p) = *(*[16]byte)(q) }

// repeat fills the length bytes from p on with repetitions of the offset bytes before p. It may
// write up to 15 bytes more. REQUIRES: 0 < offset < 16, length <= 64.
func repeat(p unsafe.Pointer, offset, length int) {
	if offset == 1 {
		x := uint64(*(*byte)(unsafe.Add(p, -1))) * 0x0101010101010101
		for ; length > 0; length -= 8 {
			binary.LittleEndian.PutUint64((*[8]byte)(p)[:], x)
			p = unsafe.Add(p, 8)
		}
		return
	}
	// Each of these copies doubles the repeated pattern. It writes 16 bytes, of which only the
	// first offset ones are right; the next copy overwrites the others. Together these copies
	// advance by less than 32 bytes.
	for offset < 16 && length > 0 {
		copy16(p, unsafe.Add(p, -offset))
		p = unsafe.Add(p, offset)
		length -= offset
		offset *= 2
	}
	for ; length > 0; length -= 16 {
		copy16(p, unsafe.Add(p, -offset))
		p = unsafe.Add(p, 16)
	}
}
