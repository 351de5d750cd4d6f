//go:build !amd64 || purego

package ribbon

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// The portable probe, and the reference for the one in assembly.

const canProbe = true

func probe(q *quads, hash uint64) (verdict uint8) {
	h := hash * mulStart
	start, _ := bits.Mul64(h, q.starts)
	segment := start/width + start>>chunkShift
	if segment >= uint64(q.count) ||
		start%bucketStarts < uint64(q.ask) && bumps(q.thresholds, start>>bucketShift, start) {
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

// AskTail says what the first plane does of a hash, from a block of at least TailSize
// bytes that are not known to be good. Where lengths do not fit, or the first plane
// has not four columns in each segment, it says Elsewhere.
func AskTail(block []byte, hash uint64) (verdict uint8) { return askTailPlain(block, hash) }

// ahead is how far probeMany asks for memory ahead of the probes: a processor has
// some ten cache misses under way at most.
const ahead = 12

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

// prefetch reads a byte, so that it is in the cache soon.
//
//go:noinline
func prefetch(p unsafe.Pointer) { _ = *(*byte)(p) }
