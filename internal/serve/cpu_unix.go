//go:build unix

package serve

import "syscall"

// cpuSeconds returns the process's CPU time.
func cpuSeconds() (user, system float64) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(u.Utime), seconds(u.Stime)
}
