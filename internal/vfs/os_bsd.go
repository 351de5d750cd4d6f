//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package vfs

import "os"

// flockFile does nothing: on these systems POSIX locks also exclude users of flock, and a
// flock would conflict with the process's own POSIX lock.
func flockFile(*os.File, string, bool) error { return nil }

// unlockFile does nothing: closing the file releases a POSIX lock.
func unlockFile(*os.File) error { return nil }
