//go:build unix

package measure

import (
	"io/fs"
	"syscall"
)

// DiskBytes returns the disk space of a file. Of sparse and preallocated files, only allocated
// blocks within the file size count.
func DiskBytes(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(info.Size(), s.Blocks*512)
	}
	return info.Size()
}
