// Package storage defines Storage, which holds the files of a database: in a directory, in memory,
// or where an implementation in a program keeps them.
package storage

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// FileType is a kind of file, or several kinds OR'ed.
type FileType int

// The kinds of files.
const (
	TypeManifest FileType = 1 << iota
	TypeJournal
	TypeTable
	TypeTemp

	TypeAll = TypeManifest | TypeJournal | TypeTable | TypeTemp
)

// String returns the name of the kind.
func (t FileType) String() string {
	switch t {
	case TypeManifest:
		return "manifest"
	case TypeJournal:
		return "journal"
	case TypeTable:
		return "table"
	case TypeTemp:
		return "temp"
	}
	return fmt.Sprintf("<unknown:%d>", int(t))
}

// Errors of storages.
var (
	ErrInvalidFile = errors.New("leveldb/storage: invalid file for argument")
	ErrLocked      = errors.New("leveldb/storage: already locked")
	ErrClosed      = errors.New("leveldb/storage: closed")
)

// ErrCorrupted means that a file is damaged; see errors.ErrCorrupted.
type ErrCorrupted struct {
	Fd  FileDesc // the file; zero if it is unknown
	Err error    // the cause
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

// Syncer makes written data durable.
type Syncer interface {
	Sync() error
}

// Reader is a file that is open for reading.
type Reader interface {
	io.ReadSeeker
	io.ReaderAt
	io.Closer
}

// Writer is a file that is open for writing. Sync makes the file's name durable, too.
type Writer interface {
	io.WriteCloser
	Syncer
}

// Locker is a lock on a storage.
type Locker interface {
	// Unlock releases the lock.
	Unlock()
}

// FileDesc names a file.
type FileDesc struct {
	Type FileType
	Num  int64
}

// String returns the name that the file has in a directory.
func (fd FileDesc) String() string {
	switch fd.Type {
	case TypeManifest:
		return fmt.Sprintf("MANIFEST-%06d", fd.Num)
	case TypeJournal:
		return fmt.Sprintf("%06d.log", fd.Num)
	case TypeTable:
		return fmt.Sprintf("%06d.ldb", fd.Num)
	case TypeTemp:
		return fmt.Sprintf("%06d.tmp", fd.Num)
	}
	return fmt.Sprintf("%#x-%d", int(fd.Type), fd.Num)
}

// Zero reports whether fd is the zero FileDesc.
func (fd FileDesc) Zero() bool { return fd == FileDesc{} }

// FileDescOk reports whether fd names a file: whether it has exactly one kind and a non-negative
// number.
func FileDescOk(fd FileDesc) bool {
	switch fd.Type {
	case TypeManifest, TypeJournal, TypeTable, TypeTemp:
		return fd.Num >= 0
	}
	return false
}

// parseName is the inverse of String. It also accepts LevelDB's old extension of tables, but no
// other spelling of the number: such files are not the database's.
func parseName(name string) (fd FileDesc, ok bool) {
	digits, isManifest := strings.CutPrefix(name, "MANIFEST-")
	if isManifest {
		fd.Type = TypeManifest
	} else {
		var ext string
		digits, ext, _ = strings.Cut(name, ".")
		switch ext {
		case "log":
			fd.Type = TypeJournal
		case "ldb", "sst":
			fd.Type = TypeTable
		case "tmp":
			fd.Type = TypeTemp
		default:
			return FileDesc{}, false
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || digits != fmt.Sprintf("%06d", n) {
		return FileDesc{}, false
	}
	fd.Num = int64(n)
	return fd, true
}

// Storage holds the files of a database. It is safe for concurrent use. After Close its
// methods return ErrClosed.
type Storage interface {
	// Lock locks the storage until the lock is released. If it is locked already, the error is
	// ErrLocked.
	Lock() (Locker, error)

	// Log writes a line to a log for humans, or does nothing.
	Log(str string)

	// SetMeta makes fd the file that GetMeta returns, atomically and durably.
	SetMeta(fd FileDesc) error

	// GetMeta returns the file that SetMeta has set. The error is os.ErrNotExist if none has been
	// set, or the file does not exist, and an *ErrCorrupted if it is not known because of damage.
	GetMeta() (FileDesc, error)

	// List returns the files of the given kinds.
	List(ft FileType) ([]FileDesc, error)

	// Open opens a file for reading. The error is os.ErrNotExist if there is none.
	Open(fd FileDesc) (Reader, error)

	// Create creates an empty file for writing. It replaces an existing one.
	Create(fd FileDesc) (Writer, error)

	// Remove removes a file.
	Remove(fd FileDesc) error

	// Rename renames a file. It replaces an existing one.
	Rename(oldfd, newfd FileDesc) error

	// Close releases the storage. It may be called again.
	Close() error
}
