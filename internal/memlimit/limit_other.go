//go:build !linux && !darwin

package memlimit

// systemLimit returns 0: the limit is unknown on this system.
func systemLimit() int64 { return 0 }

// AddressSpace returns 0: the address space is not limited.
func AddressSpace() int64 { return 0 }
