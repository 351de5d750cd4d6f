//go:build !windows

package cluster

import "syscall"

// These pause a process, and resume it.
var stopSignal, contSignal = syscall.SIGSTOP, syscall.SIGCONT
