//go:build !purego

package bloom

import "golang.org/x/sys/cpu"

// probe is MayContain for a filter with shifts.
//
//go:noescape
func probe(f *Filter, hash uint64) (maybe bool)

// probeIn is probe for n lines, at least one.
//
//go:noescape
func probeIn(lines *byte, n int, s *shifts, hash uint64) (maybe bool)

// probeMany sets maybe[i] to probe(f, hashes[i]) for i < n, n at least 1.
//
//go:noescape
func probeMany(f *Filter, hashes *uint64, maybe *bool, n int)

// canProbe reports whether the CPU has the instructions of probe, and the operating
// system saves their registers.
var canProbe = cpu.X86.HasAVX2
