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
	var space unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &space) == nil && space.Cur < 1<<60 {
		limit = lesser(limit, int64(space.Cur))
	}
	return limit
}
