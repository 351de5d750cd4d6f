//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package vfs

import "os"

// flockFile has nothing to do: on these systems the POSIX lock keeps out those
// who use flock, and a flock beside it would conflict with the process's own.
func flockFile(*os.File, string, bool) error { return nil }

// unlockFile has nothing to do: closing the file is enough for a POSIX lock.
func unlockFile(*os.File) error { return nil }
