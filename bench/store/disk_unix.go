//go:build unix

package store

import (
	"io/fs"
	"syscall"
)

// syncDisks waits until all that was written has reached the disks.
func syncDisks() { syscall.Sync() }

func diskBytes(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(info.Size(), s.Blocks*512)
	}
	return info.Size()
}
