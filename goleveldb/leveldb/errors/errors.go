// Package errors defines the errors that several packages return.
package errors

import (
	"errors"
	"fmt"

	"github.com/syndtr/goleveldb/leveldb/storage"
	"github.com/syndtr/goleveldb/leveldb/util"
)

// Errors that several packages return.
var (
	ErrNotFound    = New("leveldb: not found")
	ErrReleased    = util.ErrReleased
	ErrHasReleaser = util.ErrHasReleaser
)

// New is errors.New of the standard library.
func New(text string) error { return errors.New(text) }

// ErrCorrupted says that a file is damaged.
type ErrCorrupted struct {
	Fd  storage.FileDesc // the file; zero if it is not known
	Err error            // what is wrong with it
}

// Error gives the cause and the file.
func (e *ErrCorrupted) Error() string {
	if e.Fd.Zero() {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v [file=%v]", e.Err, e.Fd)
}

// Unwrap returns the cause.
func (e *ErrCorrupted) Unwrap() error { return e.Err }

// NewErrCorrupted returns an *ErrCorrupted.
func NewErrCorrupted(fd storage.FileDesc, err error) error { return &ErrCorrupted{fd, err} }

// IsCorrupted reports whether the error says that something is damaged: whether it is
// an *ErrCorrupted of this package or of package storage.
func IsCorrupted(err error) bool {
	switch err.(type) {
	case *ErrCorrupted, *storage.ErrCorrupted:
		return true
	}
	return false
}

// ErrMissingFiles says that files are missing. It comes inside an ErrCorrupted.
type ErrMissingFiles struct {
	Fds []storage.FileDesc
}

// Error says that files are missing.
func (e *ErrMissingFiles) Error() string { return "file missing" }

// SetFd sets the file of an *ErrCorrupted and returns it; other errors it returns as
// they are.
func SetFd(err error, fd storage.FileDesc) error {
	if e, ok := err.(*ErrCorrupted); ok {
		e.Fd = fd
	}
	return err
}
