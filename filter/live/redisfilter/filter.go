package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/siftdb/sift/filter/live"
)

// Filter is what the filters of this package have in common. All methods are safe
// for concurrent use. With an error, an answer that is not known is true.
type Filter[T any] interface {
	// Add adds an element and reports whether it was new: false if the filter may
	// have contained it. An Add that had to be repeated after its reply was lost
	// may report false for a new element.
	Add(ctx context.Context, v T) (isNew bool, err error)
	// AddMany adds elements, many in one trip, and sets isNew[i] to what Add
	// would have returned for vs[i]. isNew may be nil. After an error some of the
	// elements may have been added.
	AddMany(ctx context.Context, vs []T, isNew []bool) error
	// MayContain reports false only if the element was not added.
	MayContain(ctx context.Context, v T) (bool, error)
	// MayContainMany sets maybe[i] to MayContain of vs[i], many in one trip.
	// len(maybe) >= len(vs).
	MayContainMany(ctx context.Context, vs []T, maybe []bool) error
	// ApproxCount estimates how many different elements were added. It may take
	// the server some milliseconds for each megabyte.
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
	// ErrMissing is returned where there is no filter of that name and the options
	// do not say how to make one.
	ErrMissing = errors.New("redisfilter: no such filter")
	// ErrIncompatible matches the errors for a filter that is there, with other
	// parameters than the options'.
	ErrIncompatible = errors.New("redisfilter: filter has other parameters")
	// ErrLost matches the errors for a filter of which a part is gone: a key was
	// evicted, has expired or was deleted. Rebuild it.
	ErrLost = errors.New("redisfilter: part of the filter is lost")
	// ErrFormat matches the errors for data that this package does not understand.
	ErrFormat = errors.New("redisfilter: not a filter, or a damaged one")
	// ErrReplicas is returned by an Add whose elements not enough replicas have
	// acknowledged. They are in the filter, and may be lost by a failover.
	ErrReplicas = errors.New("redisfilter: not enough replicas have acknowledged")
	// ErrTaken is returned by a rebuild that another one has put an end to.
	ErrTaken = errors.New("redisfilter: another rebuild has taken over")
	// ErrBusy is returned for what cannot be done during a rebuild.
	ErrBusy = errors.New("redisfilter: a rebuild is under way")
	// ErrExists is returned by a Rename to a name that a filter has.
	ErrExists = errors.New("redisfilter: there is a filter of that name")
	// ErrFull is returned by an Add to a filter of a server that does not let it
	// grow.
	ErrFull = errors.New("redisfilter: filter is full")
)

func incompatible(what string, here, there any) error {
	return fmt.Errorf("%w: %s: %v here, %v in Redis", ErrIncompatible, what, here, there)
}

// optionError is live's, so that one errors.As finds the mistakes of both packages.
func optionError(field, format string, args ...any) error {
	return fmt.Errorf("redisfilter: %w", &live.OptionError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func formatError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

func lostError(key string) error { return fmt.Errorf("%w: key %q", ErrLost, key) }

// defaultRetryFor outlasts a failover with Redis Cluster's own defaults: 15
// seconds until a master counts as failed, and an election.
const defaultRetryFor = 30 * time.Second

// batch is the number of elements of one trip.
const batch = 512

// inBatches calls f with the parts of vs, and of out if that is not nil.
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
