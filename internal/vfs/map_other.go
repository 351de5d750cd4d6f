//go:build !linux && !darwin

package vfs

// Memory returns 0: how much memory the machine has is only asked where files are
// mapped.
func Memory() int64 { return 0 }
