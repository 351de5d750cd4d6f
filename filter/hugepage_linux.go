package filter

import (
	"syscall"
	"unsafe"
)

const (
	hugePage     = 2 << 20 // the size of a huge page
	madvCollapse = 25      // MADV_COLLAPSE, which package syscall does not name
)

// collapse asks the kernel to back zero bytes with huge pages now, where it has them.
// It is a request about the pages that are there (MADV_COLLAPSE, from Linux 6.1 on), and
// not a property of the addresses: it does not outlive the bytes when the heap puts them
// to another use. A kernel that refuses it is right too.
func collapse(b []byte) {
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % hugePage)
	if len(b) < skip+hugePage {
		return
	}
	b = b[skip:]
	b = b[:len(b)/hugePage*hugePage]
	for i := 0; i < len(b); i += hugePage {
		b[i] = 0 // where nothing has been touched there is nothing to collapse
	}
	_ = syscall.Madvise(b, madvCollapse)
}
