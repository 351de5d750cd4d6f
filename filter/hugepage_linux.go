package filter

import (
	"syscall"
	"unsafe"
)

// hugePage is the size of a huge page, and more where they are larger.
const hugePage = 2 << 20

// adviseHuge asks the kernel to back memory that nobody has touched with huge
// pages, where it has them. It is a hint: a kernel that refuses it is right too.
func adviseHuge(b []byte) {
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % hugePage)
	if len(b) < skip+hugePage {
		return
	}
	b = b[skip:]
	_ = syscall.Madvise(b[:len(b)/hugePage*hugePage], syscall.MADV_HUGEPAGE)
}
