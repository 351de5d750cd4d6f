//go:build unix

package store

import (
	"io/fs"
	"syscall"
)

// syncDisks waits until all dirty pages of the system have reached the disks.
func syncDisks() { syscall.Sync() }

func diskBytes(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(info.Size(), s.Blocks*512)
	}
	return info.Size()
}
