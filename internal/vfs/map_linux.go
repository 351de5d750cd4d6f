package vfs

import "golang.org/x/sys/unix"

// Memory returns the bytes of memory that the machine has, 0 if unknown.
func Memory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(uint64(info.Totalram) * uint64(info.Unit))
}
