//go:build !unix

package vfs

// MaxFiles returns the number of files that the process may have open, here an assumption.
func MaxFiles() int { return 8192 }
