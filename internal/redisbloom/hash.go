package redisbloom

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

const (
	murmurMul   = 0xc6a4a7935bd1e995
	murmurShift = 47
	// bloomSeed seeds the first hash of a Bloom filter; the second is seeded
	// with the first.
	bloomSeed = 0xc6a4a7935bd1e995
	// altMul spreads a fingerprint over the bucket numbers.
	altMul = 0x5bd1e995
)

// murmur64A is Austin Appleby's MurmurHash64A for little-endian machines.
func murmur64A(data []byte, seed uint64) uint64 {
	h := seed ^ uint64(len(data))*murmurMul
	for ; len(data) >= 8; data = data[8:] {
		k := binary.LittleEndian.Uint64(data) * murmurMul
		k = (k ^ k>>murmurShift) * murmurMul
		h = (h ^ k) * murmurMul
	}
	if len(data) > 0 {
		var tail uint64
		for i, c := range data {
			tail |= uint64(c) << (8 * i)
		}
		h = (h ^ tail) * murmurMul
	}
	h = (h ^ h>>murmurShift) * murmurMul
	return h ^ h>>murmurShift
}

// hashPair is the hash of an item for a Bloom filter.
type hashPair struct{ a, b uint64 }

func redisPair(item []byte) hashPair {
	a := murmur64A(item, bloomSeed)
	return hashPair{a, murmur64A(item, a)}
}

// tightPair derives both words from one strong hash, the second one with the
// finalizer of MurmurHash3.
func tightPair(item []byte) hashPair {
	a := xxhash.Sum64(item)
	b := (a ^ a>>33) * 0xff51afd7ed558ccd
	b = (b ^ b>>33) * 0xc4ceb9fe1a85ec53
	return hashPair{a, b ^ b>>33}
}

// scale maps a hash evenly to 0..n-1 by its high bits.
func scale(hash, n uint64) uint64 {
	hi, _ := bits.Mul64(hash, n)
	return hi
}
