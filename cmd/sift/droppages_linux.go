package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// dropPages drops a file from the page cache. gone is false if it stays in memory: while it is
// mapped, or if the file system is in memory.
func dropPages(path string) (gone bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	fd := int(f.Fd())
	// Only clean pages can be dropped.
	if err := errors.Join(f.Sync(), unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)); err != nil {
		return false, err
	}
	_, err = unix.Preadv2(fd, [][]byte{make([]byte, 1)}, 0, unix.RWF_NOWAIT)
	return err == unix.EAGAIN, nil // a read would have to wait for the disk
}
