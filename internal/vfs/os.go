package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// OS is the file system of the host.
//
// Create replaces an existing file and never truncates it, so that other names of the old
// file (in a checkpoint, say) and readers that have it open are not affected. On Windows an
// open file can be neither removed nor replaced: Create, Remove and Rename then fail without
// effect.
//
// Lock excludes other processes, including those that run LevelDB, goleveldb or RocksDB, and
// other users in this process. While it is held, this process must not open the lock file in
// any other way: closing any descriptor of a file drops all POSIX locks that the process has
// on it.
//
// Files are *os.File, except mapped tables (mappedFile) and, on Linux, logs (mappedLog). The Sync
// of an *os.File is fsync, on macOS F_FULLFSYNC, or fsync if the file system lacks that.
var OS osFS

type osFS struct{}

const (
	filePerm    = 0o644
	privatePerm = 0o600
	dirPerm     = 0o755
)

func (osFS) Create(name string) (File, error)        { return create(name, filePerm) }
func (osFS) createPrivate(name string) (File, error) { return create(name, privatePerm) }

func create(name string, perm fs.FileMode) (File, error) {
	const flag = os.O_RDWR | os.O_CREATE | os.O_EXCL
	f, err := os.OpenFile(name, flag, perm)
	if os.IsExist(err) {
		if fi, serr := os.Lstat(name); serr == nil && fi.IsDir() {
			return nil, err // os.Remove would remove an empty directory
		}
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		f, err = os.OpenFile(name, flag, perm)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (osFS) Open(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (osFS) Remove(name string) error             { return os.Remove(name) }
func (osFS) Rename(oldname, newname string) error { return rename(oldname, newname) }
func (osFS) Link(oldname, newname string) error   { return os.Link(oldname, newname) }
func (osFS) MkdirAll(dir string) error            { return os.MkdirAll(dir, dirPerm) }

func (osFS) List(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		if p := (*fs.PathError)(nil); errors.As(err, &p) {
			p.Op = "list" // not readdirent
		}
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) Size(name string) (int64, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	if fi.IsDir() {
		return 0, &fs.PathError{Op: "size", Path: name, Err: ErrIsDirectory}
	}
	return fi.Size(), nil
}

func (osFS) SyncDir(dir string) error { return syncDir(dir) }

// The locks that this process holds. POSIX locks belong to the process, not to the
// descriptor: a second lock within the process would be granted, and closing its descriptor
// would drop the first. So holders of a shared lock also share a descriptor.
var held struct {
	sync.Mutex
	locks []*osLock
}

type osLock struct {
	f         *os.File
	info      os.FileInfo // identifies the file, whatever its name
	exclusive bool
	refs      int
}

func (osFS) Lock(name string, exclusive bool) (io.Closer, error) {
	held.Lock()
	defer held.Unlock()
	if info, err := os.Stat(name); err == nil {
		for _, l := range held.locks {
			if !os.SameFile(info, l.info) {
				continue
			}
			if exclusive || l.exclusive {
				return nil, &LockedError{Name: name, PID: os.Getpid()}
			}
			l.refs++
			return &lockHandle{lock: l}, nil
		}
	}

	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil && !exclusive && readOnly(err) {
		// A database on read-only media can be read without a lock: nobody can write there.
		f, err = os.Open(name)
		if os.IsNotExist(err) {
			return noLock{}, nil
		}
	}
	if err != nil {
		if lockedByOpen(err) {
			err = &LockedError{Name: name}
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = lockFile(f, name, exclusive)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	l := &osLock{f: f, info: info, exclusive: exclusive, refs: 1}
	held.locks = append(held.locks, l)
	return &lockHandle{lock: l}, nil
}

// lockHandle is one use of a lock; the last one to be closed releases the lock. Closing a
// handle again does nothing.
type lockHandle struct {
	once sync.Once
	lock *osLock
	err  error
}

func (h *lockHandle) Close() error {
	h.once.Do(func() {
		held.Lock()
		defer held.Unlock()
		l := h.lock
		if l.refs--; l.refs > 0 {
			return
		}
		held.locks = slices.DeleteFunc(held.locks, func(o *osLock) bool { return o == l })
		// Closing releases both kinds of locks, but a flock only once a child that is being forked
		// has closed its copy, too.
		h.err = errors.Join(unlockFile(l.f), l.f.Close())
	})
	return h.err
}

// noLock represents a lock that cannot be taken and is not needed.
type noLock struct{}

func (noLock) Close() error { return nil }

// lockError returns the error for a failure to lock; a lock that is held is a LockedError.
func lockError(name string, err error) error {
	return fmt.Errorf("lock %s: %w", filepath.Clean(name), err)
}
