//go:build !amd64 || purego

package bloom

// canProbe is false: no filter has shifts, and the functions below are never called.
const canProbe = false

func probe(f *Filter, hash uint64) (positive bool) { return f.MayContain(hash) }

func probeIn(lines *byte, n int, s *shifts, hash uint64) (positive bool) { return true }

func probeMany(f *Filter, hashes *uint64, positive *bool, n int) {}
