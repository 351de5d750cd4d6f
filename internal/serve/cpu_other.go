//go:build !unix

package serve

// cpuSeconds is the process's CPU time; here it is unknown.
func cpuSeconds() (user, system float64) { return 0, 0 }
