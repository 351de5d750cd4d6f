//go:build !purego

package ribbon

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// In a loop, the assembly takes 0.8 of the time of the Go code for absent keys (BenchmarkAbsent of
// package filter, with and without -tags purego).

// probe returns the verdict of the first plane.
//
//go:noescape
func probe(q *quads, hash uint64) (verdict uint8)

// probeTailAt is ProbeTail, given the addresses of the block and its tail.
//
//go:noescape
func probeTailAt(block *byte, tail *byte, hash uint64) (verdict uint8)

// ProbeTail returns the verdict of the first plane of a block that has not been verified; see
// TailSize. If sizes contradict each other, the first plane does not have four columns in each
// segment, there are fewer than two layers, or the CPU lacks an instruction, it returns Elsewhere.
// REQUIRES: len(block) >= TailSize.
func ProbeTail(block []byte, hash uint64) (verdict uint8) {
	return probeTailAt(unsafe.SliceData(block), &block[len(block)-TailSize], hash)
}

// probeMany sets verdicts[i] to probe(q, hashes[i]) for i < n. REQUIRES: n >= 1; q.count > 0.
//
//go:noescape
func probeMany(q *quads, hashes *uint64, verdicts *uint8, n int)

// fetch prefetches the memory that probe reads.
//
//go:noescape
func fetch(q *quads, hash uint64)

// prefetch prefetches the cache line of p, which may be invalid.
//
//go:noescape
func prefetch(p unsafe.Pointer)

// canProbe reports whether the CPU has the instructions of probe. ProbeTail reads it in assembly.
var canProbe = cpu.X86.HasPOPCNT && cpu.X86.HasBMI2
