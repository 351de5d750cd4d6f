//go:build !purego

package ribbon

import "unsafe"

//go:noescape
func probe(q *quads, hash uint64) (verdict uint8)

//go:noescape
func askTailAt(block *byte, tail *byte, hash uint64) (verdict uint8)

func askTail(block []byte, hash uint64) uint8 {
	return askTailAt(unsafe.SliceData(block), &block[len(block)-TailSize], hash)
}

//go:noescape
func probeMany(q *quads, hashes *uint64, verdicts *uint8, n int)

//go:noescape
func prefetch(p unsafe.Pointer)

func cpuid(leaf uint32) (b, c uint32)

// canProbe is whether this processor has the instructions of probe.
var canProbe = hasProbe()

func hasProbe() bool {
	const popcnt, bmi2 = 1 << 23, 1 << 8
	if _, c := cpuid(1); c&popcnt == 0 {
		return false
	}
	b, _ := cpuid(7)
	return b&bmi2 != 0
}
