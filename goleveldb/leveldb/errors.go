package leveldb

import (
	stderrors "errors"
	"fmt"
	"os"

	"github.com/siftdb/sift"

	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/storage"
)

// Errors that reads and writes return. They are not wrapped, so they can be compared with ==.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.ErrNotFound
	// ErrReadOnly: the database was opened read-only, or SetReadOnly was called.
	ErrReadOnly = errors.New("leveldb: read-only mode")
	// ErrSnapshotReleased: the snapshot has been released.
	ErrSnapshotReleased = errors.New("leveldb: snapshot released")
	// ErrIterReleased: the iterator has been released.
	ErrIterReleased = errors.New("leveldb: iterator released")
	// ErrClosed: the database has been closed.
	ErrClosed = errors.New("leveldb: closed")
)

var errTransactionDone = errors.New("leveldb: transaction already closed")

// ErrInternalKeyCorrupted means that an entry's key is damaged. It exists for programs
// that check for it; this module never returns it.
type ErrInternalKeyCorrupted struct {
	Ikey   []byte
	Reason string
}

// Error returns the key and the reason.
func (e *ErrInternalKeyCorrupted) Error() string {
	return fmt.Sprintf("leveldb: internal key %q corrupted: %s", e.Ikey, e.Reason)
}

// ErrManifestCorrupted means that a MANIFEST is damaged. It exists for programs that
// check for it; this module never returns it.
type ErrManifestCorrupted struct {
	Field  string
	Reason string
}

// Error returns the field and the reason.
func (e *ErrManifestCorrupted) Error() string {
	return fmt.Sprintf("leveldb: manifest corrupted (field '%s'): %s", e.Field, e.Reason)
}

// ErrBatchCorrupted means that a dumped batch is damaged. It is wrapped in an
// errors.ErrCorrupted.
type ErrBatchCorrupted struct {
	Reason string
}

// Error returns the reason.
func (e *ErrBatchCorrupted) Error() string {
	return fmt.Sprintf("leveldb: batch corrupted: %s", e.Reason)
}

// convert converts an error of the store to the corresponding error of this API. It
// returns other errors unchanged.
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
	var stored *storage.ErrCorrupted
	switch {
	case stderrors.As(err, &damage):
		fd, _ := parseName(damage.Path)
		return errors.NewErrCorrupted(fd, err)
	case stderrors.Is(err, sift.ErrCorruption):
		return errors.NewErrCorrupted(fdNone, err)
	case stderrors.As(err, &stored): // of a Storage
		return errors.NewErrCorrupted(stored.Fd, err)
	}
	return err
}

// convertOpen is convert for errors of Open.
func convertOpen(err error) error {
	switch {
	case stderrors.Is(err, sift.ErrExists):
		return os.ErrExist
	case stderrors.Is(err, sift.ErrNotExist):
		return os.ErrNotExist
	}
	return convert(err)
}
