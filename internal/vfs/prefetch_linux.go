package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// prefetch implements Prefetch for a file of the host.
func prefetch(f *os.File, off, n int64) bool {
	return control(f, func(fd uintptr) error { return unix.Fadvise(int(fd), off, n, unix.FADV_WILLNEED) }) == nil
}
