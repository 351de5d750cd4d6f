package sift

import (
	"errors"

	"github.com/siftdb/sift/internal/base"
)

// Returned by reads and writes of an open database.
var (
	// ErrNotFound: the key is not in the database.
	ErrNotFound = errors.New("sift: not found")
	// ErrClosed: the database, snapshot or iterator has been closed.
	ErrClosed = errors.New("sift: closed")
	// ErrReadOnly: a write to a database that was opened read-only, or that
	// has become read-only after a failed write; the failure is wrapped.
	ErrReadOnly = errors.New("sift: read-only")
	// ErrBatchTooLarge: a write of a batch beyond the bounds that the comment of
	// Batch gives. Nothing of it has been written, and the database goes on.
	ErrBatchTooLarge = errors.New("sift: batch is too large")
)

// Returned by Open.
var (
	// ErrLocked: another process, or this one, has the database open. The
	// message says who as far as is known.
	ErrLocked = errors.New("sift: database is in use")
	// ErrExists: Options.ErrorIfExists is set and there is a database.
	ErrExists = errors.New("sift: database exists")
	// ErrNotExist: Options.ErrorIfMissing or ReadOnly is set and there is no
	// database.
	ErrNotExist = errors.New("sift: database does not exist")
)

// Returned wherever a file is read.
var (
	// ErrCorruption matches every report of damaged bytes; errors.As with a
	// *CorruptionError gives the file and the offset.
	ErrCorruption = base.ErrCorruption
	// ErrUnsupported matches a report of a file that is well formed but of a
	// kind that sift does not read, such as a table of RocksDB's own format.
	ErrUnsupported = base.ErrUnsupported
)

// CorruptionError says where damaged bytes were found. It matches ErrCorruption.
type CorruptionError = base.CorruptionError
