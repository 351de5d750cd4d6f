package memlimit

import (
	"os"

	"golang.org/x/sys/unix"
)

func systemLimit() int64 {
	limit := cgroupLimit(os.DirFS("/"))
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		limit = lesser(limit, int64(uint64(info.Totalram)*uint64(info.Unit)))
	}
	return lesser(limit, AddressSpace())
}

// AddressSpace returns the limit of the process's address space in bytes, as set by ulimit -v,
// or 0 if there is none.
func AddressSpace() int64 {
	var space unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &space) != nil || space.Cur >= 1<<60 {
		return 0
	}
	return int64(space.Cur)
}
