// Package vfs abstracts the file system, with few operations, so that tests can record, fail or
// interrupt each of them.
package vfs

import (
	"fmt"
	"io"
	"os"
)

// FS is a file system. Names are paths in the host's syntax. All methods are safe for concurrent
// use. Errors match fs.ErrNotExist and fs.ErrExist through errors.Is where they apply.
type FS interface {
	// Create creates an empty file for writing, replacing an existing one.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// Rename renames a file, replacing an existing file.
	Rename(oldname, newname string) error
	// Link gives a file a second name; newname must not exist.
	Link(oldname, newname string) error
	// MkdirAll creates a directory and any missing parents.
	MkdirAll(dir string) error
	// List returns the base names in a directory, sorted.
	List(dir string) ([]string, error)
	// Size returns the length of a file in bytes.
	Size(name string) (int64, error)
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes a lock on the named file, which it creates if necessary, until
	// the closer is closed. An exclusive lock excludes all others; shared locks
	// exclude exclusive ones. It does not wait: if the lock is held, the error
	// is a *LockedError.
	Lock(name string, exclusive bool) (io.Closer, error)
}

// CreatePrivate is Create for a file that only its owner may read, on file systems with owners.
func CreatePrivate(fsys FS, name string) (File, error) {
	if p, ok := fsys.(interface {
		createPrivate(name string) (File, error)
	}); ok {
		return p.createPrivate(name)
	}
	return fsys.Create(name)
}

// CreateLog is Create for a log, a file that grows by small writes. What is written to it
// survives the end of the process without a Sync. After its first Sync it may be longer than
// its contents, padded with zeros, until it is closed; a crash leaves the padding.
func CreateLog(fsys FS, name string) (File, error) {
	if l, ok := fsys.(interface {
		CreateLog(name string) (File, error)
	}); ok {
		return l.CreateLog(name)
	}
	return fsys.Create(name)
}

// OpenMapped is Open for an immutable file. Where the file system can map it, short reads of
// bytes that have been read before take no system call. mapped reports whether the file is
// mapped; its mapping is then one of mappings until it is closed or Unmap unmaps it.
func OpenMapped(fsys FS, name string, mappings *Mappings) (f File, mapped bool, err error) {
	m, ok := fsys.(interface {
		openMapped(name string, mappings *Mappings) (f File, mapped bool, err error)
	})
	if !ok {
		f, err = fsys.Open(name)
		return f, false, err
	}
	return m.openMapped(name, mappings)
}

// Unmap turns a mapped file into an ordinary one. It does nothing for others. It may be
// called during reads, and does not wait for them.
func Unmap(f File) {
	if m, ok := f.(interface{ unmap() }); ok {
		m.unmap()
	}
}

// Prefetch asks the system to read n bytes of a file into the page cache, unless they are known to
// be there, and does not wait for them. It returns false where that is not possible.
func Prefetch(f File, off, n int64) bool {
	switch f := f.(type) {
	case interface{ prefetch(off, n int64) bool }:
		return f.prefetch(off, n)
	case *os.File:
		return prefetch(f, off, n)
	}
	return false
}

// File is an open file. Write appends. ReadAt may be called concurrently, even with Close, after
// which calls fail.
type File interface {
	io.Writer
	io.ReaderAt
	io.Closer
	// Sync makes everything that was written to the file durable.
	Sync() error
}

// LockedError reports that a lock is held, and by whom, if known.
type LockedError struct {
	Name string // the lock file
	PID  int    // the process that holds it; 0 if unknown
}

// Error names the holder of the lock.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s: locked by another user of the database", e.Name)
	}
	return fmt.Sprintf("%s: locked by process %d", e.Name, e.PID)
}
