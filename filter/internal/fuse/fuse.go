// Package fuse implements the 3-wise binary fuse filter. It deals in 64-bit hashes
// and raw bytes, without names, versions or checksums.
//
// A filter is an array of fingerprints of w bits, cut into segments of a power
// of two. A hash has one slot in each of three segments in a row, and the
// fingerprints in its three slots xor to the fingerprint of the hash. An absent
// hash is a false positive with probability 2^-w.
//
// Source: Graf, Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor
// Filters", ACM Journal of Experimental Algorithmics 27, 2022.
package fuse

import (
	"encoding/binary"
	"math"
	"math/bits"
)

const (
	// MinWidth and MaxWidth bound the bits of a fingerprint.
	MinWidth, MaxWidth = 4, 16
	// MaxSegmentLog is the log2 of the longest segment.
	MaxSegmentLog = 18
	// MaxSeeds is how many seeds Build tries.
	MaxSeeds = 200
	// Pad is how many bytes a probe may read beyond the fingerprints.
	Pad = 4

	// The multipliers of the slots and of the fingerprint, and the step from
	// seed to seed: the fractional parts of the golden ratio, of √2 and of √3,
	// made odd. On disk; do not change.
	mulSlots       = 0x9e3779b97f4a7c15
	mulFingerprint = 0x6a09e667f3bcc909
	seedStep       = 0xbb67ae8584caa73b
)

// Shape is the form of a filter's array.
type Shape struct {
	Segments   uint32 // in which a hash may have its first slot; two more follow
	SegmentLog uint8  // log2 of the slots of a segment
	Width      uint8  // bits of a fingerprint
}

// Slots is the number of fingerprints. A shape without segments has none.
func (s Shape) Slots() uint64 {
	if s.Segments == 0 {
		return 0
	}
	return (uint64(s.Segments) + 2) << s.SegmentLog
}

// Bytes is the size of the array.
func (s Shape) Bytes() uint64 { return (s.Slots()*uint64(s.Width) + 7) / 8 }

// ShapeFor returns the shape for numKeys different hashes, in the proportions
// that the paper found, with the array longer by growPercent: segments of 2^x
// slots, x = ⌊log(n)/log(3.33) + 2.25⌋, and max(1.125, 0.875 + 0.25 × log(10^6)/log(n))
// slots a key. All in integers, so that every machine finds the same.
func ShapeFor(numKeys uint64, width int, growPercent uint64) Shape {
	if numKeys == 0 {
		return Shape{Width: uint8(width)}
	}
	const (
		one         = 1 << 32     // of numbers with 32 bits after the point
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

// log2 returns the logarithm of x >= 1 to the base 2, with 32 bits after the
// point, by squaring the fraction for one bit after the other.
func log2(x uint64) uint64 {
	n := bits.Len64(x) - 1
	log := uint64(n) << 32
	x <<= 63 - n // one bit before the point
	for bit := uint64(1) << 31; bit > 0; bit >>= 1 {
		x, _ = bits.Mul64(x, x) // two bits before the point
		if x>>63 == 1 {
			log |= bit
		} else {
			x <<= 1
		}
	}
	return log
}

// Filter probes an array of fingerprints.
type Filter struct {
	data  []byte // Pad bytes longer than the array
	first uint64 // slots in which a hash may have its first one
	seed  uint64
	mask  uint64 // slots of a segment, less one
	width uint64
	log   uint8
}

// Over returns the filter over data, which it aliases: the array that Build has
// filled, with at least Pad bytes after it. A filter without segments excludes every
// key.
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

// mix gives each seed its own placement of the hashes.
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

// at returns the fingerprint in a slot, with undefined bits above it. A slot beyond
// the data has 0.
func at(data []byte, slot, width uint64) uint32 {
	bit := slot * width
	i := bit >> 3
	if i+4 > uint64(len(data)) || i+4 < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(data[i:i+4]) >> (bit & 7)
}

// MayContain reports whether the fingerprints in the slots of the hash xor to
// its own. No branch depends on what it reads.
func (f *Filter) MayContain(hash uint64) bool {
	if f.first == 0 {
		return false
	}
	h := mix(hash, f.seed)
	a, b, c := slots(h, f.first, f.mask, f.log)
	if f.width == 8 {
		n := uint64(len(f.data))
		if a >= n || b >= n || c >= n { // not reached: spares the bounds checks
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

// MayContainMany sets maybe[i] to MayContain(hashes[i]). The loop over a batch
// has no branch, so that the cache misses of its hashes overlap.
func (f *Filter) MayContainMany(hashes []uint64, maybe []bool) {
	for len(hashes) >= batch && len(maybe) >= batch && f.first > 0 {
		f.mayContainBatch((*[batch]uint64)(hashes), (*[batch]bool)(maybe))
		hashes, maybe = hashes[batch:], maybe[batch:]
	}
	maybe = maybe[:len(hashes)]
	for i, h := range hashes {
		maybe[i] = f.MayContain(h)
	}
}

func (f *Filter) mayContainBatch(hashes *[batch]uint64, maybe *[batch]bool) {
	var xor [batch]uint32
	for j, hash := range hashes {
		h := mix(hash, f.seed)
		a, b, c := slots(h, f.first, f.mask, f.log)
		xor[j] = at(f.data, a, f.width) ^ at(f.data, b, f.width) ^ at(f.data, c, f.width) ^ fingerprint(h, f.width)
	}
	for j, x := range xor {
		maybe[j] = x&(1<<(f.width&31)-1) == 0
	}
}
