//go:build !unix

package serve

// cpuSeconds returns 0: on this system the process's CPU time is not known.
func cpuSeconds() (user, system float64) { return 0, 0 }
