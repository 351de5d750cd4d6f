package filter

import (
	"errors"
	"fmt"
)

var (
	// ErrUnknownFamily is matched by the error of Open for a family that this package
	// does not know. The caller proceeds as if there were no filter.
	ErrUnknownFamily = errors.New("filter: unknown family")
	// ErrDamaged is matched by every error that Open returns for corrupt bytes, except that
	// ErrSecret is matched if the corrupt bytes are those that identify a keyed filter's secret.
	ErrDamaged = errors.New("filter: damaged block")

	errTooManyKeys = errors.New("filter: too many keys for one filter")
)

// damaged makes an error that matches ErrDamaged.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}
