package redisfilter

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift/filter/live"
)

// Trip is one operation on Redis as Observe receives it, after its last attempt: a
// lookup, an addition, a batch of up to 512 elements, or a step of a rebuild. What goes
// over the wire, command by command, the client's own hooks see (redis.Hook), and with
// them OpenTelemetry.
type Trip struct {
	// Write is whether it changes something.
	Write bool
	// Commands is the number of commands, about one an element, Attempts how often
	// those that failed were sent, 1 if none did.
	Commands, Attempts int
	// Took is the time of all attempts and of the waits between them.
	Took time.Duration
	// LastRetry is the error that was last tried again, nil if none was.
	LastRetry error
	// Err is the first error that is left.
	Err error
}

// Retryable reports whether an error of this package is temporary: the network, a
// failover, slots that move, too few replicas, a rebuild by another client. The operation
// that returned it has already been retried for RetryFor. It returns false for errors that
// remain until something is done about them: ErrMissing, ErrLost, ErrIncompatible,
// ErrFormat, ErrFull, ErrExists, invalid options, and a context that is done.
func Retryable(err error) bool {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrClosed):
		return false
	case errors.Is(err, ErrBusy), errors.Is(err, ErrTaken), errors.Is(err, ErrReplicas):
		return true
	}
	for _, stays := range [...]error{ErrMissing, ErrLost, ErrIncompatible, ErrFormat, ErrFull, ErrExists} {
		if errors.Is(err, stays) {
			return false
		}
	}
	if option := (*live.OptionError)(nil); errors.As(err, &option) {
		return false
	}
	return transient(context.Background(), err)
}

// isNoKey reports whether a server says that a key is missing.
func isNoKey(err error) bool { return redis.HasErrorPrefix(err, "no such key") }
