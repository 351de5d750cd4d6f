//go:build unix

package storage

import (
	"errors"
	"os"
	"syscall"
)

// errHeld is the error for a directory that is already locked: that of flock, as in goleveldb.
const errHeld = syscall.EAGAIN

// syncDir makes a directory's entries durable, if the file system supports that.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
