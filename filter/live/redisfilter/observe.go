package redisfilter

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift/filter/live"
)

// Trip describes one operation on Redis, after its last attempt: a lookup, an addition, a
// batch of up to 512 elements, or a step of a rebuild. Single commands are visible to the
// client's own hooks (redis.Hook), and so to OpenTelemetry.
type Trip struct {
	// Write reports whether the operation is a write.
	Write bool
	// Commands is the number of commands: about one per element of a Bloom, fewer with the
	// other filters. Attempts is the number of attempts, 1 if no command was retried.
	Commands, Attempts int
	// Took is the time of all attempts and of the waits between them.
	Took time.Duration
	// LastRetry is the error of the last command that was retried, or nil.
	LastRetry error
	// Err is the first error that remains, or nil.
	Err error
}

// Retryable reports whether an error of this package is temporary: of the network, a
// failover, slots that move, too few replicas, or a rebuild by another client. All but those
// about rebuilds have already been retried for RetryFor. Retryable returns false for errors
// that need intervention: ErrMissing, ErrLost, ErrIncompatible, ErrFormat, ErrFull,
// ErrExists, invalid options, and a context that is done.
func Retryable(err error) bool {
	var timeout clientTimeout
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, redis.ErrClosed),
		errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &timeout):
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

// isNoKey reports whether an error is a server's for a missing key.
func isNoKey(err error) bool { return redis.HasErrorPrefix(err, "no such key") }
