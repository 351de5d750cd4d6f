package offheap

import "golang.org/x/sys/unix"

// Available reports whether Alloc can return memory.
const Available = true

// Alloc returns n zero bytes that begin on a page, or nil if there are none to be had. The kernel
// backs them with huge pages, as they are touched, where it has any.
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
		// It would cut a mapping in two, and there are as many as there may be. The addresses stay.
		_ = unix.Madvise(b, unix.MADV_DONTNEED)
	}
}
