//go:build !linux && !darwin

package memlimit

// systemLimit returns 0: there is no known way to find out on this system.
func systemLimit() int64 { return 0 }

// AddressSpace returns 0: the process may use all addresses that there are.
func AddressSpace() int64 { return 0 }
