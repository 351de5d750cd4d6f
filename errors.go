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
	// ErrReadOnly: a write to a database that was opened read-only.
	ErrReadOnly = errors.New("sift: read-only")
	// ErrTryAgain: there is no room for a write, because a flush, a compaction or
	// the making of a log failed; the failure is wrapped. Nothing of a write that
	// returns it is there. The background goes on trying, so the same write may
	// succeed later, as when a disk was full.
	ErrTryAgain = errors.New("sift: no room for writes now")
	// ErrReopen: the log or the MANIFEST could not be written, so what they hold
	// is not known until they are read again; the failure is wrapped. Reads go on,
	// and every write fails with this until the database is closed and opened.
	ErrReopen = errors.New("sift: writing has failed, reopen the database")
	// ErrBatchTooLarge: a write of a batch beyond the bounds that the comment of
	// Batch gives. Nothing of it has been written, and the database goes on.
	ErrBatchTooLarge = errors.New("sift: batch is too large")
	// ErrConflict: a transaction was not committed, since what it has read has been
	// written by others. Run it again.
	ErrConflict = errors.New("sift: transaction conflict")
	// ErrTxLimit: a transaction has outgrown Options.TxBytes or outlived
	// Options.TxLifetime, and was not committed.
	ErrTxLimit = errors.New("sift: transaction limit")

	// errCheckAgain: the leader cannot tell whether there is a conflict.
	errCheckAgain = errors.New("sift: check again")
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
