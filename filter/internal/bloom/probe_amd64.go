//go:build !purego

package bloom

import "golang.org/x/sys/cpu"

// In a loop, the assembly takes 0.6 of the time of the Go code (BenchmarkAbsent of package filter,
// with and without -tags purego).

// probe is MayContain for a filter that has shifts.
//
//go:noescape
func probe(f *Filter, hash uint64) (positive bool)

// probeIn is probe for n lines. REQUIRES: n >= 1.
//
//go:noescape
func probeIn(lines *byte, n int, s *shifts, hash uint64) (positive bool)

// probeMany sets positive[i] to probe(f, hashes[i]) for i < n. REQUIRES: n >= 1.
//
//go:noescape
func probeMany(f *Filter, hashes *uint64, positive *bool, n int)

// canProbe reports whether probe can be used: the CPU has AVX2, and the operating system saves its
// registers.
var canProbe = cpu.X86.HasAVX2
