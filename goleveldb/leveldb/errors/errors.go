// Package errors defines errors that several packages return.
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

// ErrCorrupted means that a file is damaged.
type ErrCorrupted struct {
	Fd  storage.FileDesc // the file; zero if it is unknown
	Err error            // the cause
}

// Error returns the cause and the file.
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

// IsCorrupted reports whether the error means damage: whether it is an *ErrCorrupted
// of this package or of package storage. It does not unwrap err.
func IsCorrupted(err error) bool {
	switch err.(type) {
	case *ErrCorrupted, *storage.ErrCorrupted:
		return true
	}
	return false
}

// ErrMissingFiles means that files are missing. It exists for programs that check
// for it; this module never returns it.
type ErrMissingFiles struct {
	Fds []storage.FileDesc
}

// Error implements error.
func (e *ErrMissingFiles) Error() string { return "file missing" }

// SetFd sets the file of an *ErrCorrupted and returns it. It returns other errors
// unchanged.
func SetFd(err error, fd storage.FileDesc) error {
	if e, ok := err.(*ErrCorrupted); ok {
		e.Fd = fd
	}
	return err
}
