package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// Causes of errors of in-memory file systems, besides those of package fs.
var (
	ErrNotDirectory = errors.New("not a directory")
	ErrNotEmpty     = errors.New("directory not empty")
	ErrReadOnly     = errors.New("file is open for reading")
	ErrNegative     = errors.New("negative offset")
)

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Elements splits a name into its elements. The root has none.
func Elements(name string) []string {
	name = filepath.ToSlash(filepath.Clean(string(filepath.Separator) + name[len(filepath.VolumeName(name)):]))
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}
