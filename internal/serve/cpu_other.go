//go:build !unix

package serve

// cpuSeconds is how long the process has run; it is not known here.
func cpuSeconds() (user, system float64) { return 0, 0 }
