package filter

import "unsafe"

// lineAlign is the alignment that spares a probe its second cache line.
const lineAlign = 64

// alignedBytes returns n zero bytes that begin on a cache line.
func alignedBytes(n int) []byte {
	b := make([]byte, n+lineAlign-1)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % lineAlign)
	return b[off : off+n : off+n]
}

// aligned returns data if it begins on a cache line, else a copy that does.
func aligned(data []byte) []byte {
	if uintptr(unsafe.Pointer(unsafe.SliceData(data)))%lineAlign == 0 {
		return data
	}
	c := alignedBytes(len(data))
	copy(c, data)
	return c
}

// hashBatch is how many keys MayContainMany takes at a time.
const hashBatch = 32
