//go:build !windows

package vfs

import "os"

func rename(oldname, newname string) error { return os.Rename(oldname, newname) }
