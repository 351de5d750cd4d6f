package funnel

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// The primes of XXH64.
const (
	prime1 = 0x9e3779b185ebca87
	prime2 = 0xc2b2ae3d27d4eb4f
	prime3 = 0x165667b19e3779f9
	prime4 = 0x85ebca77c2b2ae63
	prime5 = 0x27d4eb2f165667c5
)

// Sum64 is XXH64, seed 0, of the bytes of v. Saved filters depend on it.
//
// Strings and slices of less than 32 bytes need only the last steps of the algorithm and are hashed
// here. Without that, with elements of ten bytes, a lookup takes 1.02 to 1.09 times as long
// (BenchmarkKinds of package live), since the assembly of package xxhash takes its arguments in
// memory.
func (k *Key[T]) Sum64(v T) uint64 {
	if k.kind != Bytes {
		return k.sum64Slow(v)
	}
	s := *(*string)(unsafe.Pointer(&v)) // a slice also begins with a pointer and a length
	if len(s) >= 32 {
		return xxhash.Sum64String(s)
	}
	h := prime5 + uint64(len(s))
	p, i := unsafe.Pointer(unsafe.StringData(s)), 0
	for ; i+8 <= len(s); i += 8 {
		h ^= bits.RotateLeft64(binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(p, i))[:])*prime2, 31) * prime1
		h = bits.RotateLeft64(h, 27)*prime1 + prime4
	}
	if i+4 <= len(s) {
		h ^= uint64(binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(p, i))[:])) * prime1
		h = bits.RotateLeft64(h, 23)*prime2 + prime3
		i += 4
	}
	for ; i < len(s); i++ {
		h ^= uint64(*(*byte)(unsafe.Add(p, i))) * prime5
		h = bits.RotateLeft64(h, 11) * prime1
	}
	return avalanche(h)
}

// sum64 is XXH64, seed 0, of b.
func sum64(b []byte) uint64 { return (&Key[[]byte]{kind: Bytes}).Sum64(b) }

// sum64Of8 is sum64 of the eight bytes of v, little-endian.
func sum64Of8(v uint64) uint64 {
	const start = (prime5 + 8) & (1<<64 - 1)
	h := start ^ bits.RotateLeft64(v*prime2, 31)*prime1
	return avalanche(bits.RotateLeft64(h, 27)*prime1 + prime4)
}

func avalanche(h uint64) uint64 {
	h = (h ^ h>>33) * prime2
	h = (h ^ h>>29) * prime3
	return h ^ h>>32
}

// Mix is a bijection in which every bit of the input changes half of the output
// (David Stafford's variant 13 of the finalizer of MurmurHash3). Saved filters
// depend on it.
func Mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
