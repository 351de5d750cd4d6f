//go:build !unix

package vfs

// MaxFiles returns how many files the process may have open, as far as it is known.
func MaxFiles() int { return 8192 }
