package base

import (
	"errors"
	"fmt"
)

// ErrCorruption matches, through errors.Is, every error that reports damaged
// bytes in a file.
var ErrCorruption = errors.New("corruption")

// ErrUnsupported matches, through errors.Is, every error that reports a well-formed file of a
// kind that sift does not support.
var ErrUnsupported = errors.New("unsupported")

// CorruptionError locates damaged bytes in a file. It matches ErrCorruption through errors.Is.
type CorruptionError struct {
	Path   string // the file; "" if unknown
	Offset int64  // offset of the damaged part in the file; -1 for the whole file
	What   string // the part that is damaged, "data block" for example
	Err    error  // what is wrong with it
}

// Error gives path, offset, part and cause on one line.
func (e *CorruptionError) Error() string {
	at := ""
	if e.Offset >= 0 {
		at = fmt.Sprintf(" at offset %d", e.Offset)
	}
	return InFile(e.Path, fmt.Errorf("corrupt %s%s: %v", e.What, at, e.Err)).Error()
}

// InFile puts the path of a file before an error, if it is known.
func InFile(path string, err error) error {
	if path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Unwrap returns the cause.
func (e *CorruptionError) Unwrap() error { return e.Err }

// Is reports whether target is ErrCorruption.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorruption }
