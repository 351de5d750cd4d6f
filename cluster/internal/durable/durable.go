// Package durable writes files and creates directories that survive a power cut.
package durable

import (
	"errors"
	"path/filepath"

	"github.com/siftdb/sift/internal/vfs"
)

// tempSuffix ends the name of a file that is to replace another.
const tempSuffix = ".tmp"

// MkdirAll creates a directory and any missing parents. Its own name is durable afterwards; the
// names of its parents may not be.
func MkdirAll(dir string) error {
	if err := vfs.OS.MkdirAll(dir); err != nil {
		return err
	}
	return vfs.OS.SyncDir(filepath.Dir(dir))
}

// Replace replaces the contents of the file at path atomically: after a crash they are either the
// new or the old ones. Once Replace returns nil, they are durable.
func Replace(path string, data []byte) error {
	if err := WriteFile(path+tempSuffix, data); err != nil {
		return err
	}
	if err := vfs.OS.Rename(path+tempSuffix, path); err != nil {
		return err
	}
	return vfs.OS.SyncDir(filepath.Dir(path))
}

// WriteFile creates a file and syncs it, but not its directory. A crash may leave it incomplete.
func WriteFile(path string, data []byte) error {
	f, err := vfs.OS.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
