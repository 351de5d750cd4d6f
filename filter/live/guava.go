package live

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Guava's format, which com.google.common.hash.BloomFilter's writeTo writes and
// readFrom reads. Big-endian.
//
//	+------------+----------+-----------+-----------------------+
//	| strategy 1 | hashes 1 | longs 4   | bits, 8 bytes a long  |
//	+------------+----------+-----------+-----------------------+
//
//	strategy  0 MURMUR128_MITZ_32, 1 MURMUR128_MITZ_64
//	hashes    1 to 255
//	longs     1 to 2³¹-1
//
// Bit i is bit i mod 64, counted from the least significant, of long i / 64.
// There is no magic number, no name of the funnel, no checksum and no end marker.
// Bytes after the last long are not part of the filter.
//
// A filter of 64 bits and one hash that holds the string "user:0", whose bit is
// 37, is 01 01 00000001 0000002000000000.
const guavaHeaderSize = 6

// GuavaUTF16 is the Funnel for Guava's unencodedCharsFunnel: two bytes,
// little-endian, for each UTF-16 code unit. No Funnel is needed for Guava's
// stringFunnel(UTF_8), integerFunnel (a Bloom of int32), longFunnel (int64) and
// byteArrayFunnel ([]byte).
func GuavaUTF16(dst []byte, s string) []byte {
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			dst = binary.LittleEndian.AppendUint16(dst, uint16(0xd800+r>>10))
			dst = binary.LittleEndian.AppendUint16(dst, uint16(0xdc00+r&0x3ff))
			continue
		}
		dst = binary.LittleEndian.AppendUint16(dst, uint16(r))
	}
	return dst
}

// WriteGuava writes a filter of one of Guava's schemes in Guava's format, for
// BloomFilter.readFrom with a funnel that gives the same bytes. For any other Scheme the error
// matches ErrIncompatible.
func (f *Bloom[T]) WriteGuava(w io.Writer) (int64, error) {
	var h [guavaHeaderSize]byte
	switch f.scheme {
	case Guava:
		h[0] = 1
	case GuavaMitz32:
		h[0] = 0
	default:
		return 0, incompatible("schemes of the filter and of Guava", f.scheme, Guava)
	}
	h[1] = uint8(f.hashes)
	binary.BigEndian.PutUint32(h[2:], uint32(len(f.words)))
	n, err := w.Write(h[:])
	if err != nil {
		return int64(n), err
	}
	m, err := writeWords(w, binary.BigEndian, f.words)
	return int64(n) + m, err
}

// ReadGuava reads a filter that Guava wrote. o.Funnel may be nil for strings, byte slices
// and integers; Guava does not store which funnel it used. The errors are those of ReadBloom.
// The format has no checksum: ReadGuava does not detect flipped bits. It reads nothing after
// the filter.
func ReadGuava[T any](r io.Reader, o ReadOptions[T]) (*Bloom[T], error) {
	key, err := newKey(o.Funnel)
	if err != nil {
		return nil, err
	}
	t, err := readGuava(newSource(r, o.MaxBytes, key.Kind()))
	if err != nil {
		return nil, fmt.Errorf("read Guava filter: %w", err)
	}
	return &Bloom[T]{key, t}, nil
}

func readGuava(s *source) (table, error) {
	var h [guavaHeaderSize]byte
	if err := readFull(s, h[:]); err != nil {
		return table{}, err
	}
	scheme, longs := Guava, binary.BigEndian.Uint32(h[2:])
	switch {
	case h[0] == 0:
		scheme = GuavaMitz32
	case h[0] != 1:
		return table{}, formatError("strategy %d", h[0])
	}
	if h[1] == 0 {
		return table{}, formatError("no hashes")
	}
	if longs == 0 || longs > math.MaxInt32 {
		return table{}, formatError("%d longs", int32(longs))
	}
	if err := s.take(uint64(longs)); err != nil {
		return table{}, err
	}
	words, err := readWords(s, binary.BigEndian, uint64(longs))
	if err != nil {
		return table{}, err
	}
	return tableOf(scheme, words, int(h[1]), 0), nil
}
