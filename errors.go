package sift

import (
	"errors"

	"github.com/siftdb/sift/internal/base"
)

// Returned by reads and writes of an open database.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("sift: not found")
	// ErrClosed: the database, snapshot or iterator has been closed, or the transaction has
	// ended.
	ErrClosed = errors.New("sift: closed")
	// ErrReadOnly: the database, or the transaction, was opened read-only.
	ErrReadOnly = errors.New("sift: read-only")
	// ErrTryAgain: there is no room for a write because a flush, a compaction or the creation of a
	// log failed, and the error wraps the cause; or the caller's code, such as a callback of
	// Events, the Logger or the FS, panicked. Nothing was written. The database retries flushes
	// and compactions in the background, and the creation of a log with the next write, so the same
	// write may succeed later, for example once the disk has free space.
	ErrTryAgain = errors.New("sift: no room for writes now")
	// ErrReopen: the log or the MANIFEST could not be written, so their contents are
	// unknown until they are read again; the error wraps the cause. Reads still work, but
	// every write fails with this error until the database is closed and opened again.
	ErrReopen = errors.New("sift: writing has failed, reopen the database")
	// ErrBatchTooLarge: a batch exceeds the limits that Batch documents. Nothing was
	// written.
	ErrBatchTooLarge = errors.New("sift: batch is too large")
	// ErrConflict: a transaction was not committed because other writes have changed what
	// it read. Run it again.
	ErrConflict = errors.New("sift: transaction conflict")
	// ErrTxLimit: a transaction exceeded Options.TxBytes or Options.TxLifetime, and none of its
	// writes was applied.
	ErrTxLimit = errors.New("sift: transaction limit")

	// errCheckAgain: the leader cannot tell whether there is a conflict; the transaction must
	// check again.
	errCheckAgain = errors.New("sift: check again")
)

// Returned by Open, and by Check, Repair, Checkpoint and LockDirectory.
var (
	// ErrLocked: a process, perhaps this one, has the database open. The message and the
	// *LockedError that errors.As finds name the process if it is known.
	ErrLocked = errors.New("sift: database is in use")
	// ErrExists: Options.ErrorIfExists is set and the database exists, or the directory of a
	// Checkpoint is not empty.
	ErrExists = errors.New("sift: database exists")
	// ErrNotExist: the database does not exist, and Options.ErrorIfMissing or ReadOnly is
	// set, or Check or Repair was called. Such an error need not match fs.ErrNotExist.
	ErrNotExist = errors.New("sift: database does not exist")
)

// Returned wherever a file is read.
var (
	// ErrCorruption is matched by every error about damaged data. errors.As with a *CorruptionError
	// finds the file and the offset, where they are known. An error about an intact block of an
	// unknown type matches ErrUnsupported as well.
	ErrCorruption = base.ErrCorruption
	// ErrUnsupported is matched by errors about files that are well formed but of a kind that
	// sift does not support, such as a table in RocksDB's format, or a MANIFEST with another
	// comparator.
	ErrUnsupported = base.ErrUnsupported
)

// CorruptionError reports where damaged bytes were found. It matches ErrCorruption. Fields:
//
//	Path   string  the file; "" if it is unknown
//	Offset int64   offset of the damaged part in the file; -1 for the whole file
//	What   string  the part that is damaged, "data block" for example
//	Err    error   what is wrong with it
type CorruptionError = base.CorruptionError
