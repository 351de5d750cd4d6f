//go:build !purego

package bloom

// probe is MayContain for a filter with shifts.
//
//go:noescape
func probe(f *Filter, hash uint64) (maybe bool)

// probeIn is probe for n lines, at least one.
//
//go:noescape
func probeIn(lines *line, n uint64, s *shifts, hash uint64) (maybe bool)

// probeMany sets maybe[i] to probe(f, hashes[i]) for i < n, n at least 1.
//
//go:noescape
func probeMany(f *Filter, hashes *uint64, maybe *bool, n int)

func cpuid(leaf uint32) (b, c uint32)

func xgetbv() (enabled uint32)

// canProbe is whether this processor has the instructions of probe, AVX2, and the
// system keeps its registers.
var canProbe = hasProbe()

func hasProbe() bool {
	const osxsave, avx, avx2, registers = 1 << 27, 1 << 28, 1 << 5, 6
	if _, c := cpuid(1); c&osxsave == 0 || c&avx == 0 || xgetbv()&registers != registers {
		return false
	}
	b, _ := cpuid(7)
	return b&avx2 != 0
}
