package leveldb

import (
	stderrors "errors"
	"fmt"
	"os"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/errors"
)

// Errors that reads and writes return.
var (
	ErrNotFound         = errors.ErrNotFound
	ErrReadOnly         = errors.New("leveldb: read-only mode")
	ErrSnapshotReleased = errors.New("leveldb: snapshot released")
	ErrIterReleased     = errors.New("leveldb: iterator released")
	ErrClosed           = errors.New("leveldb: closed")
)

var errTransactionDone = errors.New("leveldb: transaction already closed")

// ErrInternalKeyCorrupted says that an entry's key is damaged. It is for programs that
// look for it; a damaged key is an ErrCorrupted of another cause.
type ErrInternalKeyCorrupted struct {
	Ikey   []byte
	Reason string
}

// Error gives the key and the reason.
func (e *ErrInternalKeyCorrupted) Error() string {
	return fmt.Sprintf("leveldb: internal key %q corrupted: %s", e.Ikey, e.Reason)
}

// ErrManifestCorrupted says that a MANIFEST is damaged. It comes inside an
// errors.ErrCorrupted.
type ErrManifestCorrupted struct {
	Field  string
	Reason string
}

// Error gives the field and the reason.
func (e *ErrManifestCorrupted) Error() string {
	return fmt.Sprintf("leveldb: manifest corrupted (field '%s'): %s", e.Field, e.Reason)
}

// ErrBatchCorrupted says that a dumped batch is damaged. It comes inside an
// errors.ErrCorrupted.
type ErrBatchCorrupted struct {
	Reason string
}

// Error gives the reason.
func (e *ErrBatchCorrupted) Error() string {
	return fmt.Sprintf("leveldb: batch corrupted: %s", e.Reason)
}

// convert converts an error of the store to the one that programs know. It returns other
// errors unchanged.
func convert(err error) error {
	switch {
	case err == nil:
		return nil
	case err == sift.ErrNotFound:
		return ErrNotFound
	case err == sift.ErrReadOnly:
		return ErrReadOnly
	case stderrors.Is(err, sift.ErrClosed):
		return ErrClosed
	}
	var damage *sift.CorruptionError
	switch {
	case stderrors.As(err, &damage):
		fd, _ := parseName(damage.Path)
		return errors.NewErrCorrupted(fd, err)
	case stderrors.Is(err, sift.ErrCorruption):
		return errors.NewErrCorrupted(fdNone, err)
	}
	return err
}

// convertOpen is convert for what Open returns.
func convertOpen(err error) error {
	switch {
	case stderrors.Is(err, sift.ErrExists):
		return os.ErrExist
	case stderrors.Is(err, sift.ErrNotExist):
		return os.ErrNotExist
	}
	return convert(err)
}
