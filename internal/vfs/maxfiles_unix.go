//go:build unix

package vfs

import (
	"math"

	"golang.org/x/sys/unix"
)

// MaxFiles returns the number of files that the process may have open.
func MaxFiles() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 256
	}
	// The type of Cur depends on the system, and "infinity" may be negative.
	if n := uint64(limit.Cur); n < math.MaxInt32 {
		return int(n)
	}
	return math.MaxInt32
}
