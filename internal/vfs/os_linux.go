package vfs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// flockFile takes a flock, which on Linux is independent of POSIX locks. On NFS it is
// emulated by a POSIX lock and would conflict with the one that is held; there, the POSIX
// lock also excludes users of flock.
func flockFile(f *os.File, name string, exclusive bool) error {
	how := unix.LOCK_SH | unix.LOCK_NB
	if exclusive {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	err := control(f, func(fd uintptr) error {
		var st unix.Statfs_t
		if unix.Fstatfs(int(fd), &st) == nil && int64(st.Type) == unix.NFS_SUPER_MAGIC {
			return nil
		}
		return unix.Flock(int(fd), how)
	})
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return &LockedError{Name: name}
	}
	if err != nil {
		return lockError(name, err)
	}
	return nil
}

// unlockFile releases the flock, for all copies of the descriptor.
func unlockFile(f *os.File) error {
	return control(f, func(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_UN) })
}
