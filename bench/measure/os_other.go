//go:build !linux

package measure

import (
	"runtime"
	"time"
)

func cpuTime() time.Duration { return processTime() }

func procIO() ProcIO { return ProcIO{} }

func readMachineTime() machineTime { return machineTime{} }

// RSS returns zeros: only Linux tells, in /proc.
func RSS() (now, peak int64) { return 0, 0 }

// ResetPeak returns false: there is no peak to reset.
func ResetPeak() bool { return false }

func hardware() (cpu string, cache, memory int64) { return runtime.GOARCH, 0, 0 }

func system() string { return runtime.GOOS }

// FileSystem returns "": only the mounts of Linux are read.
func FileSystem(string) string { return "" }
