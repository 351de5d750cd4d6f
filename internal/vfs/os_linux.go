package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// flockFile takes a flock, which on Linux knows nothing of POSIX locks. On NFS
// it is made of POSIX locks and would conflict with the one that is held; there
// the one also keeps out those who use flock.
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

// syncFile leaves out what fsync writes beyond need: fdatasync makes the data
// durable and of the metadata all that reading it back takes, which includes
// the file's length and its blocks, but not its times. With a file that grows
// by small appends, that saves nothing on some file systems and a second write
// to the journal on others.
func syncFile(f *os.File) error {
	if err := control(f, func(fd uintptr) error { return unix.Fdatasync(int(fd)) }); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}
