package siphash

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"testing"
)

const (
	k0 = 0x0706050403020100
	k1 = 0x0f0e0d0c0b0a0908
)

// reference returns the SipHash-c-d of b under the key (k0, k1), as the paper defines it.
func reference(c, d int, b []byte) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[3]
			v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
			v[0] += v[3]
			v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
			v[2] += v[1]
			v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	padded := make([]byte, len(b)/8*8+8)
	copy(padded, b)
	padded[len(padded)-1] = byte(len(b))
	for i := 0; i < len(padded); i += 8 {
		m := binary.LittleEndian.Uint64(padded[i:])
		v[3] ^= m
		rounds(c)
		v[0] ^= m
	}
	v[2] ^= 0xff
	rounds(d)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// TestSum compares the reference with the paper's test vectors for SipHash-2-4, and Sum13 with the
// reference.
func TestSum(t *testing.T) {
	b := make([]byte, 200)
	for i := range b {
		b[i] = byte(i)
	}
	for n, want := range map[int]uint64{0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 15: 0xa129ca6149be45e5} {
		if got := reference(2, 4, b[:n]); got != want {
			t.Errorf("SipHash-2-4 of %d bytes is %016x, want %016x", n, got, want)
		}
	}
	if got := Sum13(k0, k1, nil); got != 0xabac0158050fc4dc {
		t.Errorf("the hash of no bytes is %016x", got)
	}
	for n := range b {
		if got, want := Sum13(k0, k1, b[:n]), reference(1, 3, b[:n]); got != want {
			t.Errorf("%d bytes: %016x, want %016x", n, got, want)
		}
	}
}

func BenchmarkSum13(b *testing.B) {
	for _, n := range []int{8, 16, 32, 128} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			data := make([]byte, n)
			var sum uint64
			for i := range b.N {
				data[0] = byte(i)
				sum += Sum13(k0, k1, data)
			}
			if sum == 1 {
				b.Fatal(sum)
			}
		})
	}
}
