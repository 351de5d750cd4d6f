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

// AskTail says what the first plane does of a hash, from a block of at least TailSize
// bytes that are not known to be good. Where lengths do not fit, or the first plane
// has not four columns in each segment, it says Elsewhere.
func AskTail(block []byte, hash uint64) (verdict uint8) {
	return askTailAt(unsafe.SliceData(block), &block[len(block)-TailSize], hash)
}

//go:noescape
func probeMany(q *quads, hashes *uint64, verdicts *uint8, n int)

//go:noescape
func fetch(q *quads, hash uint64)

//go:noescape
func prefetch(p unsafe.Pointer)

// canProbe is whether this processor has the instructions of probe. AskTail looks at it
// in assembly.
var canProbe = cpu.X86.HasPOPCNT && cpu.X86.HasBMI2
