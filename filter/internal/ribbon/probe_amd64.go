//go:build !purego

package ribbon

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

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

// canProbe is whether this processor has the instructions of probe.
var canProbe = cpu.X86.HasPOPCNT && cpu.X86.HasBMI2
