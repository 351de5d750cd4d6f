package live

import (
	"errors"
	"fmt"
)

var (
	// ErrFormat matches every error of a reader of saved filters whose input is
	// not what the writer wrote: cut off, damaged, or something else.
	ErrFormat = errors.New("live: not a saved filter, or a damaged one")
	// ErrTooLarge matches the error of a reader whose input claims to need more
	// memory than the caller allowed.
	ErrTooLarge = errors.New("live: saved filter is larger than allowed")
	// ErrIncompatible matches the error of Merge, and of readers, for filters
	// that differ in a parameter that both must share.
	ErrIncompatible = errors.New("live: filters differ")
	// ErrFull is returned by an Add that has no room. Nothing was changed: all
	// that the filter held, it still holds.
	ErrFull = errors.New("live: filter is full")
)

func formatError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

func incompatible(what string, a, b any) error {
	return fmt.Errorf("%w: %s: %v and %v", ErrIncompatible, what, a, b)
}

// OptionError is the error of a constructor whose options make no filter, and of
// Parse and Build for a configuration that does not.
type OptionError struct {
	// Field is the option, or options: "FPR", "Items".
	Field string
	// Problem says what is wrong with it.
	Problem string
}

// Error returns the option and what is wrong with it.
func (e *OptionError) Error() string { return e.Field + " " + e.Problem }

func optionError(field, format string, args ...any) error {
	return fmt.Errorf("live: %w", &OptionError{field, fmt.Sprintf(format, args...)})
}

func tooLarge(words uint64, left int64) error {
	return fmt.Errorf("%w: %d words of 8 bytes, %d bytes are left of the limit", ErrTooLarge, words, left)
}
