// Package siphash implements SipHash-1-3, a keyed hash: an attacker who does not know the key can
// neither predict hashes nor find collisions. It takes one round per word and three at the end, as
// in the hash tables of Rust, Ruby and Python.
//
// Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012.
package siphash

import (
	"encoding/binary"
	"math/bits"
)

// Sum13 returns the SipHash-1-3 of b under the key (k0, k1). With the key bytes 00 01 … 0f, that is
// k0 = 0x0706050403020100 and k1 = 0x0f0e0d0c0b0a0908, the hash of no bytes is 0xabac0158050fc4dc.
func Sum13(k0, k1 uint64, b []byte) uint64 {
	v0 := k0 ^ 0x736f6d6570736575
	v1 := k1 ^ 0x646f72616e646f6d
	v2 := k0 ^ 0x6c7967656e657261
	v3 := k1 ^ 0x7465646279746573
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		m := binary.LittleEndian.Uint64(b)
		v3 ^= m
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0 ^= m
	}
	if len(b) >= 4 {
		last |= uint64(binary.LittleEndian.Uint32(b))
		for i, c := range b[4:] {
			last |= uint64(c) << (32 + 8*i)
		}
	} else {
		for i, c := range b {
			last |= uint64(c) << (8 * i)
		}
	}
	v3 ^= last
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0 ^= last

	v2 ^= 0xff
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	return v0 ^ v1 ^ v2 ^ v3
}

// round is SipRound of the paper.
func round(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
