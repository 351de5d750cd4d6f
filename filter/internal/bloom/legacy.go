package bloom

import (
	"encoding/binary"
	"math/bits"
)

// The legacy Bloom filter of RocksDB, which pebble writes, too: the line is a 32-bit hash modulo
// the number of lines, and the bits in the line come from double hashing. Bit p of a line is bit
// p%8 of its byte p/8, as in Filter.

// LegacyMaxProbes is the largest number of probes that RocksDB writes.
const LegacyMaxProbes = 30

// LegacyHash returns the hash of a key for the legacy filter: that of LevelDB's Bloom filters,
// seed included, except that the one to three bytes after the last whole word are signed (RocksDB,
// util/hash.cc).
func LegacyHash(b []byte) uint32 {
	const (
		seed = 0xbc9f1d34
		mul  = 0xc6a4a793
	)
	h := seed ^ uint32(len(b))*mul
	for len(b) >= 4 {
		h += binary.LittleEndian.Uint32(b)
		h *= mul
		h ^= h >> 16
		b = b[4:]
	}
	if len(b) == 0 {
		return h
	}
	if len(b) > 2 {
		h += uint32(int8(b[2])) << 16
	}
	if len(b) > 1 {
		h += uint32(int8(b[1])) << 8
	}
	h += uint32(int8(b[0]))
	h *= mul
	h ^= h >> 24
	return h
}

// LegacyProbes returns the number of probes for a number of bits per key: bitsPerKey × 0.69, the
// optimum of a classic Bloom filter, rounded down, in [1, LegacyMaxProbes].
func LegacyProbes(bitsPerKey int) int {
	return min(max(int(float64(bitsPerKey)*0.69), 1), LegacyMaxProbes)
}

// LegacyNumLines returns the number of lines for numKeys keys: an odd number, so that the remainder
// depends on all bits of the hash, or 0 without keys.
func LegacyNumLines(numKeys int, bitsPerKey int) uint64 {
	if numKeys == 0 {
		return 0
	}
	return (uint64(numKeys)*uint64(bitsPerKey)+LineBits-1)/LineBits | 1
}

// Legacy is a legacy filter for lookups. Its methods may be called concurrently. The zero value
// excludes no hash.
type Legacy struct {
	lines  []line
	inv    uint64 // 2^64 / number of lines, rounded up
	probes int32
}

// LegacyOver returns the filter over data, which it aliases: whole lines, fewer than 2^32, built
// with the same number of probes. Over no lines it excludes no hash.
func LegacyOver(data []byte, probes int) Legacy {
	ls := lines(data)
	if len(ls) == 0 {
		return Legacy{}
	}
	return Legacy{lines: ls, inv: ^uint64(0)/uint64(len(ls)) + 1, probes: int32(probes)}
}

// MayContain reports whether all bits of the hash are set. False is certain: the hash was not
// added. As in Filter.MayContain, no branch depends on what it reads.
func (f *Legacy) MayContain(hash uint32) bool {
	// The remainder without a division, exact for 32 bits: Lemire, Kaser, Kurz, "Faster Remainder
	// by Direct Computation", Software: Practice and Experience 49, 2019. With one line, inv is 0
	// and so is the remainder.
	i, _ := bits.Mul64(f.inv*uint64(hash), uint64(len(f.lines)))
	if i >= uint64(len(f.lines)) {
		return true
	}
	return legacyHas(&f.lines[i], hash, f.probes)
}

// LegacyMayContainIn is LegacyOver(data, probes).MayContain(hash), with a division.
func LegacyMayContainIn(data []byte, probes int, hash uint32) bool {
	ls := lines(data)
	if len(ls) == 0 {
		return true
	}
	i := uint64(hash % uint32(len(ls)))
	if i >= uint64(len(ls)) {
		return true
	}
	return legacyHas(&ls[i], hash, int32(probes))
}

func legacyHas(l *line, hash uint32, probes int32) bool {
	h, delta := uint64(hash), uint64(bits.RotateLeft32(hash, 15))
	var miss uint64
	for k := probes; k > 0; k-- {
		miss |= unset(l, h)
		h += delta // only the low 9 bits matter: the sum need not wrap at 32 bits
	}
	return miss == 0
}

// MayContainMany sets positive[i] to MayContain(hashes[i]). The cache misses overlap as in
// Filter.MayContainMany. REQUIRES: len(positive) >= len(hashes).
func (f *Legacy) MayContainMany(hashes []uint32, positive []bool) {
	for len(hashes) >= batch && len(positive) >= batch && len(f.lines) > 0 {
		f.mayContainBatch((*[batch]uint32)(hashes), (*[batch]bool)(positive))
		hashes, positive = hashes[batch:], positive[batch:]
	}
	positive = positive[:len(hashes)]
	for i, h := range hashes {
		positive[i] = f.MayContain(h)
	}
}

func (f *Legacy) mayContainBatch(hashes *[batch]uint32, positive *[batch]bool) {
	var at [batch]*line
	var first [batch]uint64 // the results of the first probes
	for j, h := range hashes {
		i, _ := bits.Mul64(f.inv*uint64(h), uint64(len(f.lines)))
		if i >= uint64(len(f.lines)) {
			setAll(positive) // unreachable: i is a remainder
			return
		}
		l := &f.lines[i]
		at[j] = l
		first[j] = unset(l, uint64(h))
	}
	for j, h := range hashes {
		l := at[j]
		x, delta := uint64(h), uint64(bits.RotateLeft32(h, 15))
		miss := first[j]
		for k := f.probes; k > 1; k-- {
			x += delta
			miss |= unset(l, x)
		}
		positive[j] = miss == 0
	}
}

// LegacyBuild sets the bits of hashes in data. It uses the low 32 bits of each hash. data holds
// whole lines, zeroed before the first call.
func LegacyBuild(data []byte, hashes []uint64, probes int) {
	f := LegacyOver(data, probes)
	for _, h := range hashes {
		hash := uint32(h)
		i, _ := bits.Mul64(f.inv*uint64(hash), uint64(len(f.lines)))
		if i >= uint64(len(f.lines)) {
			return
		}
		l := &f.lines[i]
		delta := bits.RotateLeft32(hash, 15)
		for range f.probes {
			l[hash>>3&63] |= 1 << (hash & 7)
			hash += delta
		}
	}
}

// FPR estimates the false positive rate from lookups of 131,072 fixed pseudorandom hashes. It
// cannot be computed from the fraction of set bits, because double hashing modulo 512 produces too
// few patterns.
func (f *Legacy) FPR() float64 {
	if len(f.lines) == 0 {
		return 1
	}
	const probed = 1 << 17
	found := 0
	x := uint64(0)
	for range probed {
		x += mul1 // a Weyl sequence, mixed
		h := (x ^ x>>32) * mul2
		if f.MayContain(uint32(h >> 32)) {
			found++
		}
	}
	return float64(found) / probed
}
