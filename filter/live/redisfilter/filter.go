package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/siftdb/sift/filter/live"
)

// Filter is what the filters of this package have in common. Methods are safe for
// concurrent use unless their comments say otherwise. On an error, the result of a lookup
// is true unless the element is known to be absent.
type Filter[T any] interface {
	// Add adds an element and reports whether it was new: false if the filter may
	// have contained it. An Add that had to be repeated because its reply was lost
	// may report false for a new element.
	Add(ctx context.Context, v T) (isNew bool, err error)
	// AddMany adds elements, many per round trip, and sets isNew[i] to what Add
	// would have returned for vs[i]. isNew may be nil. After an error some of the
	// elements may have been added, and the contents of isNew are undefined.
	AddMany(ctx context.Context, vs []T, isNew []bool) error
	// MayContain reports false only if the element was not added.
	MayContain(ctx context.Context, v T) (bool, error)
	// MayContainMany sets positive[i] to MayContain(vs[i]), with many elements per round
	// trip. len(positive) >= len(vs).
	MayContainMany(ctx context.Context, vs []T, positive []bool) error
	// ApproxCount estimates how many different elements were added. It may take
	// the server some milliseconds per megabyte.
	ApproxCount(ctx context.Context) (uint64, error)
	// Clear removes all elements.
	Clear(ctx context.Context) error
	// Rename gives the filter another name, which this client uses from then on.
	Rename(ctx context.Context, name string) error
	// Expire makes the server delete the filter after a time, at least a millisecond;
	// zero makes it persistent.
	Expire(ctx context.Context, after time.Duration) error
}

var (
	// ErrMissing is matched by the errors for a filter that does not exist, where the options do
	// not give the parameters for a new one.
	ErrMissing = errors.New("redisfilter: no such filter")
	// ErrIncompatible is matched by the errors for an existing filter whose parameters differ
	// from those in the options.
	ErrIncompatible = errors.New("redisfilter: filter has other parameters")
	// ErrLost is matched by the errors for a filter that has lost a part: a key was evicted, has
	// expired or was deleted. Rebuild the filter.
	ErrLost = errors.New("redisfilter: part of the filter is lost")
	// ErrFormat is matched by the errors for data that this package cannot decode.
	ErrFormat = errors.New("redisfilter: not a filter, or a damaged one")
	// ErrReplicas is matched by the error of an Add that too few replicas have acknowledged. Its
	// elements are in the filter, but a failover may lose them.
	ErrReplicas = errors.New("redisfilter: not enough replicas have acknowledged")
	// ErrTaken is matched by the error of a rebuild that another one has replaced or a failover
	// has partly undone, and of operations during which the configuration keeps changing.
	ErrTaken = errors.New("redisfilter: another rebuild has taken over")
	// ErrBusy is matched by the errors of operations that are not possible during a rebuild.
	ErrBusy = errors.New("redisfilter: a rebuild is under way")
	// ErrExists is matched by the error of a Rename to the name of an existing filter.
	ErrExists = errors.New("redisfilter: there is a filter of that name")
	// ErrFull is matched by the error of an Add to a RedisBloom filter that is full and cannot
	// grow.
	ErrFull = errors.New("redisfilter: filter is full")
)

func incompatible(what string, here, there any) error {
	return fmt.Errorf("%w: %s: %v here, %v in Redis", ErrIncompatible, what, here, there)
}

// optionError returns a live.OptionError, so that one errors.As matches those of both packages.
func optionError(field, format string, args ...any) error {
	return fmt.Errorf("redisfilter: %w", &live.OptionError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func formatError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

func lostError(key string) error { return fmt.Errorf("%w: key %q", ErrLost, key) }

// defaultRetryFor is longer than a failover of Redis Cluster with its defaults: 15 seconds until a
// master counts as failed, and an election.
const defaultRetryFor = 30 * time.Second

// batch is the number of elements per round trip.
const batch = 512

// inBatches calls f with batches of vs, and of out if that is not nil. After an error it sets
// the rest of out to true.
func inBatches[T any](vs []T, out []bool, size int, f func(vs []T, out []bool) error) error {
	for len(vs) > 0 {
		n := min(size, len(vs))
		var o []bool
		if out != nil {
			o, out = out[:n], out[n:]
		}
		if err := f(vs[:n], o); err != nil {
			setAll(out)
			return err
		}
		vs = vs[n:]
	}
	return nil
}

func setAll(b []bool) {
	for i := range b {
		b[i] = true
	}
}
