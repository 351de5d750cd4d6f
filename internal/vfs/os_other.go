//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package vfs

import (
	"errors"
	"os"
)

// ErrIsDirectory is the cause of errors of operations that need a file.
var ErrIsDirectory = errors.New("is a directory")

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func readOnly(err error) bool { return os.IsPermission(err) }

func lockedByOpen(error) bool { return false }

// lockFile refuses: without a lock two processes could destroy a database.
func lockFile(_ *os.File, name string, _ bool) error {
	return lockError(name, errors.ErrUnsupported)
}

// unlockFile does nothing: closing the file releases its locks.
func unlockFile(*os.File) error { return nil }
