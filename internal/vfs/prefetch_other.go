//go:build !linux

package vfs

import "os"

// prefetch implements Prefetch for a file of the host.
func prefetch(*os.File, int64, int64) bool { return false }
