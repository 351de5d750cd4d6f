//go:build !amd64 || purego

package ribbon

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// canProbe is true: the portable implementation needs no special instructions.
const canProbe = true

// probe returns the verdict of the first plane.
func probe(q *quads, hash uint64) (verdict uint8) {
	h := hash * mulStart
	start, _ := bits.Mul64(h, q.starts)
	segment := start/width + start>>chunkShift
	if segment >= uint64(q.count) ||
		start%bucketStarts < uint64(q.bumpEnd) && bumps(q.thresholds, start>>bucketShift, start) {
		return Elsewhere
	}
	d := (*[2 * 8 * PlaneColumns]byte)(unsafe.Add(q.data, segment*(8*PlaneColumns)))
	s, coeff, print := start%width, coeffOf(hash), uint32(h>>printShift)
	lo, hi := coeff<<s, coeff>>1>>(width-1-s)
	le := binary.LittleEndian
	x0 := le.Uint64(d[0:])&lo ^ le.Uint64(d[32:])&hi
	x1 := le.Uint64(d[8:])&lo ^ le.Uint64(d[40:])&hi
	x2 := le.Uint64(d[16:])&lo ^ le.Uint64(d[48:])&hi
	x3 := le.Uint64(d[24:])&lo ^ le.Uint64(d[56:])&hi
	bad := uint32(bits.OnesCount64(x0)) ^ print
	bad |= uint32(bits.OnesCount64(x1)) ^ print>>1
	bad |= uint32(bits.OnesCount64(x2)) ^ print>>2
	bad |= uint32(bits.OnesCount64(x3)) ^ print>>3
	return uint8(^bad & Passed)
}

// ProbeTail returns the verdict of the first plane of a block that has not been verified; see
// TailSize. If sizes contradict each other, the first plane does not have four columns in each
// segment, or there are fewer than two layers, it returns Elsewhere.
// REQUIRES: len(block) >= TailSize.
func ProbeTail(block []byte, hash uint64) (verdict uint8) { return probeTailPlain(block, hash) }

// ahead is the number of hashes whose memory probeMany prefetches together: a core can have about
// ten outstanding cache misses.
const ahead = 12

// probeMany sets verdicts[i] to probe(q, hashes[i]) for i < n. REQUIRES: n >= 1; q.count > 0.
func probeMany(q *quads, hashes *uint64, verdicts *uint8, n int) {
	list := unsafe.Slice(hashes, n)
	for i, h := range list {
		if i%ahead == 0 {
			for _, h := range list[i:min(i+ahead, n)] {
				start := startOf(h, q.starts)
				d := unsafe.Add(q.data, (start/width+start>>chunkShift)*(8*PlaneColumns))
				prefetch(d)
				prefetch(unsafe.Add(d, 2*8*PlaneColumns-1))
			}
		}
		unsafe.Slice(verdicts, n)[i] = probe(q, h)
	}
}

// fetch prefetches the memory that probe reads.
func fetch(q *quads, hash uint64) {
	start := startOf(hash, q.starts)
	segment := start/width + start>>chunkShift
	if segment >= uint64(q.count) {
		return
	}
	d := unsafe.Add(q.data, segment*(8*PlaneColumns))
	prefetch(d)
	prefetch(unsafe.Add(d, 2*8*PlaneColumns-1))
}

// prefetch loads the cache line of p, which must be valid. Go has no portable prefetch.
//
//go:noinline
func prefetch(p unsafe.Pointer) { _ = *(*byte)(p) }
