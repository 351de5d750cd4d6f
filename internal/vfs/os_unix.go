//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// ErrIsDirectory is the cause of errors of operations that need a file.
var ErrIsDirectory error = syscall.EISDIR

// syncDir makes a directory's entries durable. A file system that cannot sync directories returns
// EINVAL or ENOTSUP, which is not an error here.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// readOnly reports whether err says that a file cannot be opened for writing.
func readOnly(err error) bool {
	return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EROFS)
}

// lockedByOpen reports whether opening failed because the file is locked.
func lockedByOpen(error) bool { return false }

// lockFile takes a POSIX lock over the whole file, as LevelDB and RocksDB do,
// and then, where the system needs it, a flock to exclude programs that use
// flock, as goleveldb does. Closing the file releases both.
func lockFile(f *os.File, name string, exclusive bool) error {
	kind := int16(syscall.F_RDLCK)
	if exclusive {
		kind = syscall.F_WRLCK
	}
	err := fcntlLock(f, syscall.F_SETLK, &syscall.Flock_t{Type: kind, Whence: io.SeekStart})
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EAGAIN) {
		locked := &LockedError{Name: name}
		holder := syscall.Flock_t{Type: kind, Whence: io.SeekStart}
		if fcntlLock(f, syscall.F_GETLK, &holder) == nil && holder.Type != syscall.F_UNLCK && holder.Pid > 0 {
			locked.PID = int(holder.Pid)
		}
		return locked
	}
	if err != nil {
		return lockError(name, err)
	}
	return flockFile(f, name, exclusive)
}

func fcntlLock(f *os.File, cmd int, lk *syscall.Flock_t) error {
	return control(f, func(fd uintptr) error { return syscall.FcntlFlock(fd, cmd, lk) })
}

// control calls fn with f's descriptor, which stays open until fn returns, and calls it again if a
// signal interrupts it.
func control(f *os.File, fn func(fd uintptr) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = conn.Control(func(fd uintptr) {
		for {
			if ferr = fn(fd); ferr != syscall.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return ferr
}
