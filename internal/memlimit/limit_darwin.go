package memlimit

import "golang.org/x/sys/unix"

func systemLimit() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

// AddressSpace returns 0: the address space is not limited.
func AddressSpace() int64 { return 0 }
