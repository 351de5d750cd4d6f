// Package ribbon is bumped ribbon retrieval over 64-bit hashes: the algorithm
// behind filter.Ribbon, without names, versions or checksums.
//
// P. C. Dillinger, L. Hübschle-Schneider, P. Sanders, S. Walzer, "Fast Succinct
// Retrieval and Approximate Membership using Ribbon", SEA 2022.
//
// A filter is the solution Z of a system of linear equations over GF(2). Each key
// gives one equation for each column of Z: the sum of those of 64 consecutive rows
// that its coefficients select is a bit of its fingerprint. An absent key satisfies
// each equation with probability 1/2, so c columns have a false positive rate of
// 2^-c, and any c of the columns are a filter.
//
// The rows are divided into layers. All keys try the first one, which has 6 % fewer
// rows than there are keys. Keys whose equation contradicts those before it are bumped to the
// next layer, together with their class: of each bucket of 128 starts either no key
// is bumped, or those of the leftmost 17 starts, of the leftmost 38, or all. These
// thresholds, 2 bits a bucket, tell a probe the one layer to ask. The last layer
// bumps nothing: it has a few rows to spare and is tried with one seed after another.
package ribbon

import "math/bits"

// What is named on disk here belongs to filter.Ribbon's format; do not change.
const (
	// width is the number of rows that an equation spans, and the number of rows
	// of a segment. On disk.
	width = 64

	// bucketStarts is the number of start rows that share a threshold: with fewer,
	// thresholds cost more than they save; with more, bumping is too coarse to fill
	// the rows. On disk.
	bucketStarts = 1 << bucketShift
	bucketShift  = 7

	// chunkStarts is the number of start rows that are solved together. A chunk has
	// one segment more than its starts fill, for the windows of its last starts. On disk.
	chunkStarts   = 1 << chunkShift
	chunkShift    = 17
	chunkSegments = chunkStarts/width + 1

	// The starts of a bucket form three classes: from class0 on, from class1 on, and
	// the rest. Threshold t bumps class t and those after it. On disk.
	class0, class1 = 38, 17
	numClasses     = 3

	// PlaneColumns is the number of columns of every plane but the last. A probe
	// of an absent key ends in the first plane 15 times out of 16.
	PlaneColumns = 4
	// MaxColumns is the number of bits of a fingerprint.
	MaxColumns = 24
)

// Odd multipliers from the digits of pi. On disk.
const (
	mulStart = 0x243f6a8885a308d3
	mulNext  = 0xa4093822299f31d1
	mulSeed  = 0x9216d5d98979fb1b
)

// A key has a hash of its own in each layer, which decides start, coefficients and
// fingerprint. In the first layer it is the hash that was added.

// nextHash turns the hash of one layer into that of the next.
func nextHash(h uint64) uint64 { return fold(h^mulSeed, mulNext) }

// lastHash turns the hash of the last layer into the one under a seed.
func lastHash(h uint64, seed uint8) uint64 {
	return fold(h^(uint64(seed)+2)*mulSeed, mulNext)
}

// fold multiplies to 128 bits and adds the halves without carry.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// startOf spreads hashes over [0, starts).
func startOf(h, starts uint64) uint64 {
	s, _ := bits.Mul64(h*mulStart, starts)
	return s
}

// coeffOf selects rows from the start on. The start itself is always one of them.
func coeffOf(h uint64) uint64 { return h | 1 }

// printOf is the fingerprint. Bit j belongs to column j.
func printOf(h uint64) uint32 { return uint32(h * mulStart >> printShift) }

// printShift leaves out the lowest bits of a product, which are those of the hash,
// and stays below the highest, which decide the start.
const printShift = 8

// Columns are the columns of a plane: Count for each segment, but one fewer for the
// first Cut segments. They are stored segment by segment, 8 bytes a column, the byte
// of the lowest rows first.
type Columns struct {
	First int // the fingerprint bit of the plane's first column
	Count int
	Cut   int
}

// Size is the length in bytes of so many segments.
func (c Columns) Size(segments int) int {
	return (segments*c.Count - min(segments, c.Cut)) * 8
}

// position returns the index of the first word of a segment, and the number of words.
func (c Columns) position(segment uint64) (at, n uint64) {
	at, n = segment*uint64(c.Count), uint64(c.Count)
	if cut := uint64(c.Cut); segment >= cut {
		return at - cut, n
	}
	return at - segment, n - 1
}
