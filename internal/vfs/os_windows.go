package vfs

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// ErrIsDirectory is the cause of errors of operations that need a file.
var ErrIsDirectory error = windows.ERROR_DIRECTORY

// syncDir only checks that the directory exists: Windows has no call for it. NTFS journals changes
// to directories, and rename writes them through.
func syncDir(dir string) error {
	fi, err := os.Stat(dir)
	if err == nil && !fi.IsDir() {
		err = &fs.PathError{Op: "sync", Path: dir, Err: windows.ERROR_DIRECTORY}
	}
	return err
}

// renamePatience is how long rename waits for other programs, such as virus scanners, that have one
// of the files open and do not share its deletion.
const renamePatience = time.Second

// rename is os.Rename, except that it returns when the new name is on disk: nothing is synced after
// the last rename of an operation; and that it waits for programs that use the files for a moment.
func rename(oldname, newname string) error {
	from, err := windows.UTF16PtrFromString(oldname)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	to, err := windows.UTF16PtrFromString(newname)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	begin := time.Now()
	for pause := time.Millisecond; ; pause *= 2 {
		err = windows.MoveFileEx(from, to, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
		if err == nil {
			return nil
		}
		inUse := errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_SHARING_VIOLATION)
		if !inUse || time.Since(begin) > renamePatience {
			return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
		}
		time.Sleep(pause)
	}
}

func readOnly(err error) bool {
	return errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_WRITE_PROTECT)
}

// lockedByOpen reports whether another process has the file open exclusively, which is how
// goleveldb locks.
func lockedByOpen(err error) bool { return errors.Is(err, windows.ERROR_SHARING_VIOLATION) }

// lockFile locks every byte of the file.
func lockFile(f *os.File, name string, exclusive bool) error {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, ^uint32(0), ^uint32(0), new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return &LockedError{Name: name}
	}
	if err != nil {
		return lockError(name, err)
	}
	return nil
}

// unlockFile does nothing: closing the file releases its locks.
func unlockFile(*os.File) error { return nil }
