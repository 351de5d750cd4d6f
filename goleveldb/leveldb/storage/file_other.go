//go:build !unix

package storage

// errHeld is the error for a directory that is locked.
var errHeld = ErrLocked

// syncDir does nothing: directories cannot be synced.
func syncDir(string) error { return nil }
