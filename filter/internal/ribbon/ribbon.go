// Package ribbon implements the bumped ribbon filter (BuRR) over 64-bit hashes, which is the
// algorithm of filter.Ribbon. Names, versions and checksums are up to the caller.
//
// Source: Dillinger, Hübschle-Schneider, Sanders, Walzer, "Fast Succinct Retrieval and Approximate
// Membership using Ribbon", SEA 2022.
//
// A filter is the solution Z of a system of linear equations over GF(2). Each key gives one
// equation per column of Z: its coefficients select some of 64 consecutive rows, whose sum is one
// bit of its fingerprint. An absent key satisfies each equation with probability 1/2, so c columns
// have a false positive rate of 2^-c, and any c of the columns are a filter.
//
// The rows are divided into layers. All keys try the first layer, which has 6% fewer rows than
// there are keys. A key whose equation contradicts the equations before it is bumped to the next
// layer, together with its class: in each bucket of 128 start rows, either no key is bumped, or
// those of the leftmost 17 start rows, or of the leftmost 38, or all. These thresholds, 2 bits per
// bucket, determine the layer of a key. The last layer bumps no keys: it has a few spare rows, and
// construction tries one seed after another.
package ribbon

import "math/bits"

// Constants marked "on disk" are part of filter.Ribbon's format; do not change them.
const (
	// width is the number of rows that an equation spans, and that a segment has. On disk.
	width = 64

	// bucketStarts is the number of start rows that share a threshold. With fewer, thresholds take
	// more space than they save; with more, bumping is too coarse to fill the rows. On disk.
	bucketStarts = 1 << bucketShift
	bucketShift  = 7

	// chunkStarts is the number of start rows whose equations are solved together. A chunk has one
	// segment more than its starts fill, which the equations of its last starts reach into.
	// On disk.
	chunkStarts   = 1 << chunkShift
	chunkShift    = 17
	chunkSegments = chunkStarts/width + 1

	// The starts of a bucket form three classes: 0 from class0 on, 1 from class1 on, 2 before that.
	// Threshold t bumps class t and those after it; 3 bumps none. On disk.
	class0, class1 = 38, 17
	numClasses     = 3

	// PlaneColumns is the number of columns of every plane but the last. The first plane excludes
	// 15 of 16 absent keys.
	PlaneColumns = 4
	// MaxColumns is the maximum number of columns: the number of bits of a fingerprint.
	MaxColumns = 24
)

// Odd multipliers from the hexadecimal digits of pi. On disk.
const (
	mulStart = 0x243f6a8885a308d3
	mulNext  = 0xa4093822299f31d1
	mulSeed  = 0x9216d5d98979fb1b
)

// A key has a different hash in each layer, which determines its start, coefficients and
// fingerprint there. In the first layer it is the hash that was added.

// nextHash returns the hash in the next layer, given that in a layer.
func nextHash(h uint64) uint64 { return fold(h^mulSeed, mulNext) }

// lastHash returns the hash under a seed of the last layer, given the hash in that layer.
func lastHash(h uint64, seed uint8) uint64 {
	return fold(h^(uint64(seed)+2)*mulSeed, mulNext)
}

// fold returns the xor of the halves of the 128-bit product.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// startOf returns the first row of a hash's equation, in [0, starts).
func startOf(h, starts uint64) uint64 {
	s, _ := bits.Mul64(h*mulStart, starts)
	return s
}

// coeffOf returns the coefficients of the 64 rows from the start on; bit 0, the start's, is set.
func coeffOf(h uint64) uint64 { return h | 1 }

// printOf returns the fingerprint in its low MaxColumns bits. Bit j belongs to column j.
func printOf(h uint64) uint32 { return uint32(h * mulStart >> printShift) }

// printShift excludes from the fingerprint the lowest bits of the product, which depend only on
// those of the hash. The highest bits, which determine the start, are above the fingerprint.
const printShift = 8

// Columns describes the columns of a plane: Count per segment, but one fewer in the first Cut
// segments. They are stored segment by segment, 8 bytes per column, the byte of the lowest rows
// first.
type Columns struct {
	First int // the fingerprint bit of the first column
	Count int // columns per segment
	Cut   int // segments with one column fewer
}

// Size returns the size in bytes of the first segments of a plane.
func (c Columns) Size(segments int) int {
	return (segments*c.Count - min(segments, c.Cut)) * 8
}

// position returns the index of the first word of a segment in the plane, and its number of words.
func (c Columns) position(segment uint64) (at, n uint64) {
	at, n = segment*uint64(c.Count), uint64(c.Count)
	if cut := uint64(c.Cut); segment >= cut {
		return at - cut, n
	}
	return at - segment, n - 1
}
