//go:build !amd64 || purego

package ribbon

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// The portable probe, and the reference for the one in assembly.

const canProbe = true

func probe(t *Table, hash uint64) (verdict uint8) {
	h := hash * mulStart
	start, _ := bits.Mul64(h, t.starts)
	segment := start/width + start>>chunkShift
	if segment >= t.quads || bumps(t.thresholds, start>>bucketShift, start) {
		return elsewhere
	}
	q := (*[2 * 8 * PlaneColumns]byte)(unsafe.Add(t.quad, segment*(8*PlaneColumns)))
	s, coeff, print := start%width, coeffOf(hash), uint32(h>>printShift)
	lo, hi := coeff<<s, coeff>>1>>(width-1-s)
	le := binary.LittleEndian
	x0 := le.Uint64(q[0:])&lo ^ le.Uint64(q[32:])&hi
	x1 := le.Uint64(q[8:])&lo ^ le.Uint64(q[40:])&hi
	x2 := le.Uint64(q[16:])&lo ^ le.Uint64(q[48:])&hi
	x3 := le.Uint64(q[24:])&lo ^ le.Uint64(q[56:])&hi
	bad := uint32(bits.OnesCount64(x0)) ^ print
	bad |= uint32(bits.OnesCount64(x1)) ^ print>>1
	bad |= uint32(bits.OnesCount64(x2)) ^ print>>2
	bad |= uint32(bits.OnesCount64(x3)) ^ print>>3
	return uint8(^bad & passed)
}

func prefetchQuads(t *Table, hashes *uint64, n int) {
	for _, h := range unsafe.Slice(hashes, n) {
		start := startOf(h, t.starts)
		segment := start/width + start>>chunkShift
		q := unsafe.Add(t.quad, segment*(8*PlaneColumns))
		prefetch(q)
		prefetch(unsafe.Add(q, 2*8*PlaneColumns-1))
	}
}

// prefetch reads a byte, so that it is in the cache soon.
//
//go:noinline
func prefetch(p unsafe.Pointer) { _ = *(*byte)(p) }
