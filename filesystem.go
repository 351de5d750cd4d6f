package sift

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/siftdb/sift/internal/manifest"
	"github.com/siftdb/sift/internal/vfs"
)

// FS is a file system for databases; see Options.FS. Names are paths in the host's syntax. All
// methods must be safe for concurrent use.
//
//	Create(name string) (File, error)      a new empty file, replacing, not truncating, an old one
//	Open(name string) (File, error)        a file for reading
//	Remove(name string) error              a file or an empty directory
//	Rename(oldname, newname string) error  replaces an existing file
//	Link(oldname, newname string) error    a hard link, for Checkpoint and Repair
//	MkdirAll(dir string) error             a directory and its parents
//	List(dir string) ([]string, error)     the base names in a directory, sorted
//	Size(name string) (int64, error)       the length of a file in bytes
//	SyncDir(dir string) error              makes creations, renames and removals durable
//	Lock(name string, exclusive bool) (io.Closer, error)
//
// Link fails if newname exists. Lock creates the file if it is missing, and holds the lock until
// the io.Closer is closed; shared locks exclude only exclusive ones. It does not wait: if the lock
// is held, its error is a *LockedError. Other errors match fs.ErrNotExist and fs.ErrExist where
// they apply. Durability depends on Sync and SyncDir; SyncDir is also called for all parents of
// a new database's directory, and may fail there with fs.ErrPermission or syscall.EROFS. Only the
// host's file system maps logs and tables into memory, and protects the secret of KeyedFilters from
// other users.
type FS = vfs.FS

// File is an open file of an FS: an io.Writer that appends, an io.ReaderAt and an
// io.Closer with Sync() error. ReadAt may be called concurrently, even with Close, after
// which it fails.
type File = vfs.File

// LockedError is the error of FS.Lock for a lock that is held. Its fields:
//
//	Name string  the lock file
//	PID  int     the process that holds it; 0 if unknown
type LockedError = vfs.LockedError

// NewMemFS returns an empty file system in memory, for Options.FS. Databases in it
// last as long as it does.
func NewMemFS() FS { return vfs.NewRAM() }

// OpenMemory opens an empty database in memory, for tests and caches. It behaves like one from
// Open. Options.Memory does not limit the size of its files. The contents are gone after Close. o
// may be nil. o.FS is ignored, and o.Lock must be nil; with o.ReadOnly or o.ErrorIfMissing, the
// error matches ErrNotExist. For a database in memory that can be reopened, set Options.FS to a
// NewMemFS and call Open.
func OpenMemory(o *Options) (*DB, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.FS = NewMemFS()
	return Open("db", &opts)
}

// DirLock is the lock on a database directory. An exclusive one excludes all other users of the
// directory, a shared one those that write, in this process or another, including LevelDB and
// goleveldb.
type DirLock struct {
	dir       string
	exclusive bool
	closer    io.Closer
}

// LockDirectory locks a directory of the host's file system while no database is open in it; see
// Options.Lock. If the directory is missing, an exclusive LockDirectory creates it, and a shared
// one returns an error that matches fs.ErrNotExist. A shared lock suffices for Options.ReadOnly.
// LockDirectory does not wait: if the directory is locked, the error matches ErrLocked.
func LockDirectory(dir string, exclusive bool) (*DirLock, error) {
	dir = cleanDir(dir)
	if exclusive {
		if err := vfs.OS.MkdirAll(dir); err != nil {
			return nil, err
		}
	} else if dir == "" { // its LOCK would be that of the working directory
		return nil, &fs.PathError{Op: "lock", Path: dir, Err: fs.ErrNotExist}
	}
	closer, err := lockDir(vfs.OS, dir, exclusive)
	if err != nil {
		return nil, err
	}
	return &DirLock{dir: dir, exclusive: exclusive, closer: closer}, nil
}

// Close releases the lock. Close the databases that use the lock first. Closing it again does
// nothing.
func (l *DirLock) Close() error { return l.closer.Close() }

// cleanDir returns the name of a directory in the form that filepath.Join gives it in the names of
// its files. With another name, such as link/../db where link is a symbolic link, the files could
// be in a directory other than the one that is created, listed and synced. An empty name stays
// empty: it does not stand for the working directory.
func cleanDir(dir string) string {
	if dir == "" {
		return ""
	}
	return filepath.Clean(dir)
}

func lockDir(fsys vfs.FS, dir string, exclusive bool) (io.Closer, error) {
	lock, err := fsys.Lock(filepath.Join(dir, manifest.MakeName(manifest.KindLock, 0)), exclusive)
	if locked := (*vfs.LockedError)(nil); errors.As(err, &locked) {
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return lock, err
}

// lockDir locks a directory, unless Options.Lock is set, which must be a lock on it.
func (o *Options) lockDir(dir string, exclusive bool) (io.Closer, error) {
	if o.Lock == nil {
		return lockDir(o.FS, dir, exclusive)
	}
	if filepath.Clean(o.Lock.dir) != filepath.Clean(dir) {
		return nil, fmt.Errorf("sift: Options.Lock is for %s, and the database is %s", o.Lock.dir, dir)
	}
	if exclusive && !o.Lock.exclusive {
		return nil, fmt.Errorf("sift: Options.Lock on %s is not exclusive, so the database can only be opened with ReadOnly", dir)
	}
	return callersLock{}, nil
}

// callersLock is a lock that belongs to the caller of Open: Close does not release it.
type callersLock struct{}

func (callersLock) Close() error { return nil }
