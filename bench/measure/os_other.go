//go:build !linux

package measure

import (
	"runtime"
	"time"
)

func cpuTime() time.Duration { return processTime() }

func procIO() ProcIO { return ProcIO{} }

func readMachineTime() machineTime { return machineTime{} }

// RSS returns zeros: it is only known on Linux, from /proc.
func RSS() (now, peak int64) { return 0, 0 }

// ResetPeak returns false: there is no peak to reset.
func ResetPeak() bool { return false }

func hardware() (cpu string, cache, memory int64) { return runtime.GOARCH, 0, 0 }

func system() string { return runtime.GOOS }

// FileSystem returns "": it is only known on Linux.
func FileSystem(string) string { return "" }
