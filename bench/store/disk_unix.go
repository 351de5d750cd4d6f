//go:build unix

package store

import "syscall"

// syncDisks waits until all dirty pages of the system have reached the disks.
func syncDisks() { syscall.Sync() }
