package filter

import (
	"syscall"
	"unsafe"
)

// hugePage is the size of a huge page, and more where they are larger.
const hugePage = 2 << 20

// adviseHuge asks the kernel to back fresh zero bytes with huge pages, where it has
// them. Memory that the heap has used before has small pages by now, if only because
// it was cleared: they are given back, so that the next touch finds zeros in large
// ones. Both are hints: a kernel that refuses them is right too.
func adviseHuge(b []byte) {
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % hugePage)
	if len(b) < skip+hugePage {
		return
	}
	b = b[skip:]
	b = b[:len(b)/hugePage*hugePage]
	if syscall.Madvise(b, syscall.MADV_HUGEPAGE) == nil {
		_ = syscall.Madvise(b, syscall.MADV_DONTNEED)
	}
}
