//go:build !linux && !darwin

package memlimit

// systemLimit returns 0: there is no known way to find out on this system.
func systemLimit() int64 { return 0 }
