//go:build !unix

package vfs

// MaxFiles returns the number of files that the process may have open; on this system a guess.
func MaxFiles() int { return 8192 }
