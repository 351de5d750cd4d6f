// Package bloom implements a blocked Bloom filter: all probes of a key are in one cache line of 64
// bytes. It works on 64-bit hashes and raw bytes; names, versions and checksums are up to the
// caller.
//
// The line of a hash is the high half of hash × number of lines, so the number of lines need not be
// a power of two, and no division is needed. The bit positions in the line come from the hash times
// an odd constant: nine bits per probe, from the top down; from the eighth probe on a second
// constant is used. The line depends on the top bits of the hash, the positions on all of them, so
// the two are practically independent (TestFPR measures it).
//
// Bit p of a line, 0 <= p < 512, is bit p%8 of its byte p/8.
//
// Sources: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", WEA 2007
// (blocked Bloom filters); Lemire, "Fast Random Integer Generation in an Interval", ACM TOMACS 29,
// 2019 (the choice of the line).
package bloom

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

const (
	// LineSize is the size of a line in bytes.
	LineSize = 64
	// LineBits is the size of a line in bits.
	LineBits = 8 * LineSize
	// MaxProbes is the largest number of probes: two products of seven.
	MaxProbes = 2 * probesPerProduct

	probesPerProduct = 7 // nine bits each: 63 of a product's 64

	// The multipliers that turn a hash into bit positions: the fractional part of the golden ratio,
	// and xxHash's second prime. On disk; do not change.
	mul1 = 0x9e3779b97f4a7c15
	mul2 = 0xc2b2ae3d27d4eb4f
)

type line = [LineSize]byte

// lines reinterprets data as lines. An incomplete last line is dropped.
func lines(data []byte) []line {
	return unsafe.Slice((*line)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/LineSize)
}

// Filter is a Bloom filter for lookups. Its methods may be called concurrently. The zero value
// excludes no hash.
type Filter struct {
	lines  []line
	probes int32
	shifts *shifts // nil if Probe cannot be used
}

// shifts holds for each probe by how much the product is shifted left, so that the probe's nine
// bits are at the top of a doubleword: the upper doubleword of a quadword for the first four
// probes, the lower one for the others.
type shifts [8]uint64

// shiftsOf holds the shifts for each number of probes from minVectorProbes on. Lanes beyond the
// last probe repeat the fifth.
var shiftsOf = func() (all [probesPerProduct + 1]shifts) {
	for probes := range all {
		for i := range all[probes] {
			if i < 4 {
				all[probes][i] = uint64(9 * i)
			} else {
				k := i
				if k >= probes {
					k = 4 // again
				}
				all[probes][i] = uint64(9*k - 32)
			}
		}
	}
	return all
}()

// minVectorProbes is the smallest number of probes that Probe supports.
const minVectorProbes = 5

// Over returns the filter over data, which it aliases: one or more whole lines, built with the same
// number of probes. It does not verify data. REQUIRES: 1 <= probes <= MaxProbes.
func Over(data []byte, probes int) Filter {
	f := Filter{lines: lines(data), probes: int32(probes)}
	if canProbe && probes >= minVectorProbes && probes <= probesPerProduct && len(f.lines) > 0 {
		f.shifts = &shiftsOf[probes]
	}
	return f
}

// HasProbe reports whether Probe can be used: the CPU has AVX2, and the number of probes is 5 to 7.
func (f *Filter) HasProbe() bool { return f.shifts != nil }

// Probe is MayContain with fewer instructions, so that more cache misses overlap.
// REQUIRES: HasProbe().
func (f *Filter) Probe(hash uint64) bool { return probe(f, hash) }

// MayContain reports whether all bits of the hash are set. False is certain: the hash was not
// added. It reads one line and has no branch that depends on what it reads, so that the cache
// misses of successive calls overlap.
func (f *Filter) MayContain(hash uint64) bool {
	n := uint64(len(f.lines))
	i, _ := bits.Mul64(hash, n)
	if i >= n { // only without lines; also eliminates the bounds check
		return true
	}
	l := &f.lines[i]
	g := hash * mul1
	miss := uint64(0)
	if f.probes != 6 {
		return has(l, hash, f.probes)
	}
	// Unrolled for six probes, the number for 10 bits per key: has takes 1.2 to 1.4 times as long
	// (BenchmarkAbsent and BenchmarkPresent of package filter, -tags purego).
	miss |= unset(l, g>>55)
	miss |= unset(l, g>>46)
	miss |= unset(l, g>>37)
	miss |= unset(l, g>>28)
	miss |= unset(l, g>>19)
	miss |= unset(l, g>>10)
	return miss == 0
}

// MayContainIn is Over(data, probes).MayContain(hash).
func MayContainIn(data []byte, probes int, hash uint64) bool {
	if uint(probes-minVectorProbes) > probesPerProduct-minVectorProbes || !canProbe || len(data) < LineSize {
		return mayContainIn(data, probes, hash)
	}
	return probeIn(unsafe.SliceData(data), len(data)/LineSize, &shiftsOf[uint(probes)%uint(len(shiftsOf))], hash)
}

func mayContainIn(data []byte, probes int, hash uint64) bool {
	f := Filter{lines: lines(data), probes: int32(probes)}
	return f.MayContain(hash)
}

// has reports whether the probes of hash all hit set bits of l.
func has(l *line, hash uint64, probes int32) bool {
	var miss uint64
	g := hash * mul1
	for k := min(probes, probesPerProduct); k > 0; k-- {
		miss |= unset(l, g>>55)
		g <<= 9
	}
	if probes > probesPerProduct {
		g = hash * mul2
		for k := probes - probesPerProduct; k > 0; k-- {
			miss |= unset(l, g>>55)
			g <<= 9
		}
	}
	return miss == 0
}

// unset returns 0 if bit pos%LineBits of l is set. It is inlined: a load without a bounds check,
// and on amd64 a BTS.
func unset(l *line, pos uint64) uint64 {
	i := pos >> 3 & 56
	w := binary.LittleEndian.Uint64(l[i : i+8])
	return (w | 1<<(pos&63)) ^ w
}

// batch is the number of hashes whose lines are loaded together: enough for as many outstanding
// cache misses as a core can have, few enough for the stack.
const batch = 32

// MayContainMany sets positive[i] to MayContain(hashes[i]). It loads the lines of a batch before it
// tests their bits, so that the cache misses overlap. REQUIRES: len(positive) >= len(hashes).
func (f *Filter) MayContainMany(hashes []uint64, positive []bool) {
	if positive = positive[:len(hashes)]; f.shifts != nil {
		for len(hashes) > 0 {
			n := min(len(hashes), batch)
			probeMany(f, &hashes[0], &positive[0], n)
			hashes, positive = hashes[n:], positive[n:]
		}
		return
	}
	for len(hashes) >= batch && len(positive) >= batch {
		f.mayContainBatch((*[batch]uint64)(hashes), (*[batch]bool)(positive))
		hashes, positive = hashes[batch:], positive[batch:]
	}
	positive = positive[:len(hashes)]
	for i, h := range hashes {
		positive[i] = f.MayContain(h)
	}
}

func (f *Filter) mayContainBatch(hashes *[batch]uint64, positive *[batch]bool) {
	var at [batch]*line
	var first [batch]uint64 // the results of the first probes
	ls := f.lines
	n := uint64(len(ls))
	for j, h := range hashes {
		i, _ := bits.Mul64(h, n)
		if i >= n { // only without lines
			setAll(positive)
			return
		}
		l := &ls[i]
		at[j] = l
		first[j] = unset(l, h*mul1>>55)
	}
	if f.probes != 6 {
		for j, h := range hashes {
			positive[j] = has(at[j], h, f.probes)
		}
		return
	}
	for j, h := range hashes {
		l := at[j]
		g := h * mul1
		miss := first[j]
		miss |= unset(l, g>>46)
		miss |= unset(l, g>>37)
		miss |= unset(l, g>>28)
		miss |= unset(l, g>>19)
		miss |= unset(l, g>>10)
		positive[j] = miss == 0
	}
}

func setAll(positive *[batch]bool) {
	for j := range positive {
		positive[j] = true
	}
}

// Build sets the bits of the hashes in data, which holds whole lines, zeroed before the first call.
// Further calls add more hashes. REQUIRES: 1 <= probes <= MaxProbes.
func Build(data []byte, hashes []uint64, probes int) {
	ls := lines(data)
	for len(hashes) >= batch {
		setBatch(ls, (*[batch]uint64)(hashes), int32(probes))
		hashes = hashes[batch:]
	}
	n := uint64(len(ls))
	for _, h := range hashes {
		i, _ := bits.Mul64(h, n)
		if i < n {
			set(&ls[i], h, int32(probes))
		}
	}
}

// setBatch sets the bits of a batch. It reads from each line before it writes to any: the cache
// misses of loads overlap, while stores reach the cache in order. That saves some 15% of the time
// to build a filter of a million keys (BenchmarkBuild of package filter). The result only keeps the
// compiler from removing the reads.
//
//go:noinline
func setBatch(ls []line, hashes *[batch]uint64, probes int32) (read byte) {
	var at [batch]*line
	n := uint64(len(ls))
	for j, h := range hashes {
		i, _ := bits.Mul64(h, n)
		if i >= n { // only without lines
			return 0
		}
		at[j] = &ls[i]
		read |= ls[i][0]
	}
	if probes != 6 {
		for j, h := range hashes {
			set(at[j], h, probes)
		}
		return read
	}
	for j, h := range hashes {
		l := at[j]
		g := h * mul1
		l[g>>58] |= 1 << (g >> 55 & 7)
		l[g>>49&63] |= 1 << (g >> 46 & 7)
		l[g>>40&63] |= 1 << (g >> 37 & 7)
		l[g>>31&63] |= 1 << (g >> 28 & 7)
		l[g>>22&63] |= 1 << (g >> 19 & 7)
		l[g>>13&63] |= 1 << (g >> 10 & 7)
	}
	return read
}

// set sets the bits of hash in l.
func set(l *line, hash uint64, probes int32) {
	g := hash * mul1
	for k := min(probes, probesPerProduct); k > 0; k-- {
		l[g>>58] |= 1 << (g >> 55 & 7)
		g <<= 9
	}
	if probes > probesPerProduct {
		g = hash * mul2
		for k := probes - probesPerProduct; k > 0; k-- {
			l[g>>58] |= 1 << (g >> 55 & 7)
			g <<= 9
		}
	}
}

// FPR returns the probability that a random hash has all its bits set: the mean over all lines of
// (fraction of set bits)^probes. It reads all lines.
func (f *Filter) FPR() float64 {
	if len(f.lines) == 0 {
		return 1
	}
	var byOnes [LineBits + 1]int // number of lines by set bits
	for i := range f.lines {
		l := &f.lines[i]
		ones := 0
		for j := 0; j < LineSize; j += 8 {
			ones += bits.OnesCount64(binary.LittleEndian.Uint64(l[j : j+8]))
		}
		byOnes[ones]++
	}
	sum := 0.0
	for ones, count := range byOnes {
		p := 1.0
		for range f.probes {
			p *= float64(ones) / LineBits
		}
		sum += p * float64(count)
	}
	return sum / float64(len(f.lines))
}
