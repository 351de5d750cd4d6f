// Package fuse implements the 3-wise binary fuse filter. It works on 64-bit hashes and raw bytes;
// names, versions and checksums are up to the caller.
//
// A filter is an array of slots of w bits, divided into segments whose length is a power of two. A
// hash has one slot in each of three consecutive segments, and the contents of these slots xor to
// its fingerprint. An absent hash is a false positive with probability 2^-w.
//
// Source: Graf, Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", ACM Journal of
// Experimental Algorithmics 27, 2022.
package fuse

import (
	"encoding/binary"
	"math"
	"math/bits"
)

const (
	// MinWidth and MaxWidth bound the bits per fingerprint.
	MinWidth, MaxWidth = 4, 16
	// MaxSegmentLog is log2 of the maximum number of slots per segment.
	MaxSegmentLog = 18
	// MaxSeeds is the number of seeds that Build tries.
	MaxSeeds = 200
	// Pad is the number of bytes after the array that a filter needs, since lookups read whole
	// words.
	Pad = 4

	// The multipliers for slots and fingerprints, and the increment from seed to seed: the
	// fractional parts of the golden ratio, √2 and √3, made odd. On disk; do not change.
	mulSlots       = 0x9e3779b97f4a7c15
	mulFingerprint = 0x6a09e667f3bcc909
	seedStep       = 0xbb67ae8584caa73b
)

// Shape describes the array of a filter.
type Shape struct {
	Segments   uint32 // segments in which a hash may have its first slot; two more follow
	SegmentLog uint8  // log2 of the number of slots per segment
	Width      uint8  // bits per fingerprint
}

// Slots returns the number of slots, 0 if Segments is 0.
func (s Shape) Slots() uint64 {
	if s.Segments == 0 {
		return 0
	}
	return (uint64(s.Segments) + 2) << s.SegmentLog
}

// Bytes returns the size of the array, without Pad.
func (s Shape) Bytes() uint64 { return (s.Slots()*uint64(s.Width) + 7) / 8 }

// ShapeFor returns the shape for n = numKeys distinct hashes. As in the paper, a segment has 2^x
// slots, x = ⌊log(n)/log(3.33) + 2.25⌋, here at most 2^MaxSegmentLog, and there are max(1.125,
// 0.875 + 0.25 × log(10^6)/log(n)) slots per key; growPercent adds to these. The arithmetic is in
// integers, so the result is the same on every machine.
func ShapeFor(numKeys uint64, width int, growPercent uint64) Shape {
	if numKeys == 0 {
		return Shape{Width: uint8(width)}
	}
	const (
		one         = 1 << 32     // 1 in fixed point, with 32 fractional bits
		log3_33     = 7454010993  // log2(3.33)
		quarterLog6 = 21401358791 // log2(10^6) / 4
	)
	numKeys = min(numKeys, 1<<50)
	log := log2(numKeys)
	segmentLog := min((log<<8/log3_33+576)>>8, MaxSegmentLog)
	factor := uint64(9 * one / 8)
	if numKeys > 1 {
		factor = max(factor, 7*one/8+(quarterLog6<<24/log)<<8)
	}
	hi, lo := bits.Mul64(numKeys, factor)
	numSlots := hi<<32 | lo>>32
	numSlots += numSlots / 100 * growPercent
	segments := (numSlots + 1<<segmentLog - 1) >> segmentLog
	return Shape{
		Segments:   uint32(min(max(segments, 3)-2, math.MaxUint32-2)),
		SegmentLog: uint8(segmentLog),
		Width:      uint8(width),
	}
}

// log2 returns the base-2 logarithm of x >= 1 in fixed point, with 32 fractional bits. Each
// squaring of the mantissa yields one bit.
func log2(x uint64) uint64 {
	n := bits.Len64(x) - 1
	log := uint64(n) << 32
	x <<= 63 - n // one integer bit
	for bit := uint64(1) << 31; bit > 0; bit >>= 1 {
		x, _ = bits.Mul64(x, x) // two integer bits
		if x>>63 == 1 {
			log |= bit
		} else {
			x <<= 1
		}
	}
	return log
}

// Filter is a fuse filter for lookups. Its methods may be called concurrently. The zero value
// excludes every hash.
type Filter struct {
	data  []byte // the array and at least Pad bytes
	first uint64 // slots in which a hash may have its first slot
	seed  uint64
	mask  uint64 // slots per segment, minus 1
	width uint64
	log   uint8
}

// Over returns the filter over data, which it aliases: an array that Build returned for s and seed,
// followed by at least Pad bytes. If s has no segments, the filter excludes every hash. Over does
// not verify data; lookups in invalid data give arbitrary answers, but do not panic.
func Over(data []byte, s Shape, seed uint8) Filter {
	return Filter{
		data:  data,
		first: uint64(s.Segments) << s.SegmentLog,
		seed:  uint64(seed) * seedStep,
		mask:  uint64(1)<<s.SegmentLog - 1,
		width: uint64(s.Width),
		log:   s.SegmentLog,
	}
}

// mix rehashes a hash, differently for each seed.
func mix(hash, seed uint64) uint64 {
	hi, lo := bits.Mul64(hash^seed, mulSlots)
	return hi ^ lo
}

// slots returns the three slots of a mixed hash.
func slots(h, first, mask uint64, log uint8) (a, b, c uint64) {
	a, _ = bits.Mul64(h, first)
	b = (a + mask + 1) ^ h>>18&mask
	c = (a + 2*(mask+1)) ^ h&mask
	return a, b, c
}

// fingerprint returns the fingerprint of a mixed hash, in the low width bits.
func fingerprint(h, width uint64) uint32 { return uint32(h * mulFingerprint >> (64 - width&63)) }

// at returns the contents of a slot, with undefined bits above them, or 0 if the slot is beyond
// data.
func at(data []byte, slot, width uint64) uint32 {
	bit := slot * width
	i := bit >> 3
	if i+4 > uint64(len(data)) || i+4 < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(data[i:i+4]) >> (bit & 7)
}

// MayContain reports whether the slots of the hash xor to its fingerprint. False is certain: the
// hash was not added. No branch depends on what it reads.
func (f *Filter) MayContain(hash uint64) bool {
	if f.first == 0 {
		return false
	}
	h := mix(hash, f.seed)
	a, b, c := slots(h, f.first, f.mask, f.log)
	if f.width == 8 {
		n := uint64(len(f.data))
		if a >= n || b >= n || c >= n { // only in invalid data; eliminates the bounds checks
			return true
		}
		return f.data[a]^f.data[b]^f.data[c] == byte(fingerprint(h, 8))
	}
	x := at(f.data, a, f.width) ^ at(f.data, b, f.width) ^ at(f.data, c, f.width) ^ fingerprint(h, f.width)
	return x&(1<<(f.width&31)-1) == 0
}

// MayContainIn is Over(data, s, seed).MayContain(hash).
func MayContainIn(data []byte, s Shape, seed uint8, hash uint64) bool {
	f := Over(data, s, seed)
	return f.MayContain(hash)
}

// batch is the number of hashes whose slots are loaded together.
const batch = 16

// MayContainMany sets positive[i] to MayContain(hashes[i]). No branch in the loop over a batch
// depends on what it reads, so the cache misses overlap. REQUIRES: len(positive) >= len(hashes).
func (f *Filter) MayContainMany(hashes []uint64, positive []bool) {
	for len(hashes) >= batch && len(positive) >= batch && f.first > 0 {
		f.mayContainBatch((*[batch]uint64)(hashes), (*[batch]bool)(positive))
		hashes, positive = hashes[batch:], positive[batch:]
	}
	positive = positive[:len(hashes)]
	for i, h := range hashes {
		positive[i] = f.MayContain(h)
	}
}

func (f *Filter) mayContainBatch(hashes *[batch]uint64, positive *[batch]bool) {
	var xor [batch]uint32
	for j, hash := range hashes {
		h := mix(hash, f.seed)
		a, b, c := slots(h, f.first, f.mask, f.log)
		xor[j] = at(f.data, a, f.width) ^ at(f.data, b, f.width) ^ at(f.data, c, f.width) ^ fingerprint(h, f.width)
	}
	for j, x := range xor {
		positive[j] = x&(1<<(f.width&31)-1) == 0
	}
}
