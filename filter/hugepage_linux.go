package filter

import (
	"syscall"
	"unsafe"
)

const (
	hugePage     = 2 << 20 // the size of a huge page
	madvCollapse = 25      // MADV_COLLAPSE, which package syscall does not name
)

// collapse asks the kernel to back b with huge pages now (MADV_COLLAPSE, from Linux 6.1 on).
// REQUIRES: b is zero. Unlike MADV_HUGEPAGE it does not mark the address range, so later uses
// of the memory by the heap are not affected. Errors are ignored: huge pages only save time.
func collapse(b []byte) {
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % hugePage)
	if len(b) < skip+hugePage {
		return
	}
	b = b[skip:]
	b = b[:len(b)/hugePage*hugePage]
	for i := 0; i < len(b); i += hugePage {
		b[i] = 0 // the kernel collapses only ranges with a page that has been touched
	}
	_ = syscall.Madvise(b, madvCollapse)
}
