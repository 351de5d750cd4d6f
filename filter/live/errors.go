package live

import (
	"errors"
	"fmt"
)

var (
	// ErrFormat is matched by every error about input that is truncated, damaged, or not a saved
	// filter.
	ErrFormat = errors.New("live: not a saved filter, or a damaged one")
	// ErrTooLarge is matched by the error of a reader whose input needs more memory than the
	// caller allows or the system can address.
	ErrTooLarge = errors.New("live: saved filter is larger than allowed")
	// ErrIncompatible is matched by the error of Merge and of readers for filters that differ in a
	// parameter that must be the same.
	ErrIncompatible = errors.New("live: filters differ")
	// ErrFull is returned by Add if the filter has no space for the element. The filter
	// is unchanged.
	ErrFull = errors.New("live: filter is full")
)

func formatError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

func incompatible(what string, a, b any) error {
	return fmt.Errorf("%w: %s: %v and %v", ErrIncompatible, what, a, b)
}

// OptionError reports invalid options of a constructor, or an invalid configuration given to Parse
// or Build. The returned errors wrap it: use errors.As.
type OptionError struct {
	// Field is the option or options, such as "FPR".
	Field string
	// Problem describes what is wrong with it.
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
