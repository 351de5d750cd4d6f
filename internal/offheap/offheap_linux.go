package offheap

import "golang.org/x/sys/unix"

// Available reports whether Alloc can return memory.
const Available = true

// Alloc returns n zeroed, page-aligned bytes, or nil if the system refuses. The kernel backs them
// with huge pages, as they are touched, where it has any.
func Alloc(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // refused by kernels without huge pages
	return b
}

// Free frees what Alloc returned. Reading it afterwards may crash the process.
func Free(b []byte) {
	if unix.Munmap(b) != nil {
		// It would split a mapping, and the process may have no more. Free the pages only.
		_ = unix.Madvise(b, unix.MADV_DONTNEED)
	}
}
