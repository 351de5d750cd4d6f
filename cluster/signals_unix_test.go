//go:build !windows

package cluster

import "syscall"

// What pauses a process, and has it go on.
var stopSignal, contSignal = syscall.SIGSTOP, syscall.SIGCONT
