package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// RedisBloomOptions are the parameters of a RedisBloom filter. With Items, the filter is
// created with BF.RESERVE if it does not exist, and an existing one must have the same
// capacity and expansion. Without Items, it must exist.
type RedisBloomOptions[T any] struct {
	// Items is the initial capacity of the filter.
	Items uint64
	// FPR is the error rate of a new filter. It is not compared with that of an existing
	// one, which BF.INFO does not report.
	FPR float64
	// NonScaling makes Add return ErrFull when the filter has Items elements. Otherwise the
	// server then adds another filter, Expansion times as large; 2 if zero.
	NonScaling bool
	Expansion  int
	// Shards, if above 1, spreads the elements over that many filters {NAME:i}, each for
	// its share of Items, and so over the nodes of a cluster. 0 and 1 mean one filter, NAME.
	// All clients must use the same number.
	Shards int
	// RetryFor is how long a failing operation is retried; see Options.
	RetryFor time.Duration
	// Observe, if not nil, receives each operation; see Trip.
	Observe func(Trip)
	// Funnel appends the bytes of an element as the server receives them. It may be nil
	// for strings, byte slices and integers, which are sent as little-endian bytes.
	Funnel func(dst []byte, v T) []byte
}

// RedisBloom is a Bloom filter of a server with the BF commands: RedisBloom or sift serve.
// The server does the hashing.
//
// For a key that does not exist, such a server reports every element as absent. So each
// lookup also requests BF.INFO in the same round trip, and returns ErrLost if the filter is
// missing.
type RedisBloom[T any] struct {
	key    funnel.Key[T]
	name   string
	shards int
	sender *sender
	want   RedisBloomOptions[T]
}

var _ Filter[string] = (*RedisBloom[string])(nil)

// OpenRedisBloom opens the filter with the given name. If it does not exist, OpenRedisBloom
// creates it if RedisBloomOptions.Items is set, and otherwise returns ErrMissing. If only some of
// its shards exist, it returns ErrLost: delete them, unless another client is creating the filter.
func OpenRedisBloom[T any](ctx context.Context, client redis.UniversalClient, name string, o RedisBloomOptions[T]) (*RedisBloom[T], error) {
	key, err := funnel.For(o.Funnel)
	if err != nil {
		return nil, optionError("Funnel", "is missing: %v", err)
	}
	s, err := newSender(client, 0, 0, o.RetryFor, o.Observe)
	if err != nil {
		return nil, err
	}
	switch {
	case o.Shards < 0 || o.Shards > maxShards:
		return nil, optionError("Shards", "%d is not in 1..%d", o.Shards, maxShards)
	case o.Expansion < 0 || o.Expansion > math.MaxInt16 || o.NonScaling && o.Expansion != 0:
		return nil, optionError("Expansion", "%d is not in 0..32767, or NonScaling is set too", o.Expansion)
	case o.Items != 0 && !(o.FPR > 0 && o.FPR < 1):
		return nil, optionError("FPR", "%v is not between 0 and 1", o.FPR)
	}
	if o.Expansion == 0 && !o.NonScaling {
		o.Expansion = 2 // the server's default may be another
	}
	f := &RedisBloom[T]{key: key, name: name, shards: max(1, o.Shards), sender: s, want: o}
	if f.shards > 1 { // a shard with this number is one of a filter that has more
		if more, err := s.anyExists(ctx, f.shardKey(f.shards)); err != nil {
			return nil, err
		} else if more {
			return nil, incompatible("shards", f.shards, "more")
		}
	}
	if o.Items != 0 {
		// The first shard is created last. So if it exists, one that is missing is lost.
		there, err := s.anyExists(ctx, f.shardKey(0))
		if err == nil && !there {
			err = f.reserveAll(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	var reqs []*request
	for i := range f.shards {
		key := f.shardKey(i)
		reqs = append(reqs, &request{key: key, args: []any{"bf.info", key}})
	}
	err = f.sender.send(ctx, false, reqs...)
	for i, r := range reqs {
		if redis.HasErrorPrefix(r.err, "not found") {
			if i > 0 { // the first one exists
				return nil, fmt.Errorf("%w, or there are fewer than %d shards", lostError(r.key), f.shards)
			}
			return nil, fmt.Errorf("%w: %q", ErrMissing, r.key)
		}
		if err == nil {
			err = f.check(r)
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *RedisBloom[T]) shardKey(i int) string {
	if f.shards == 1 {
		return f.name
	}
	return fmt.Sprintf("{%s:%d}", f.name, i)
}

// shardItems returns the capacity of a shard, with a margin since shards get different
// numbers of elements.
func (f *RedisBloom[T]) shardItems() uint64 {
	if f.shards == 1 {
		return f.want.Items
	}
	mean := float64(f.want.Items) / float64(f.shards)
	return uint64(math.Ceil(mean + 4*math.Sqrt(mean)))
}

// reserveAll creates the shards that do not exist, the first one last; see OpenRedisBloom.
func (f *RedisBloom[T]) reserveAll(ctx context.Context) error {
	for i := f.shards - 1; i >= 0; i-- {
		if err := f.reserve(ctx, f.shardKey(i)); err != nil {
			return err
		}
	}
	return nil
}

// reserve creates a filter if it does not exist.
func (f *RedisBloom[T]) reserve(ctx context.Context, key string) error {
	args := []any{"bf.reserve", key, f.want.FPR, f.shardItems()}
	if f.want.NonScaling {
		args = append(args, "nonscaling")
	} else {
		args = append(args, "expansion", f.want.Expansion)
	}
	r := &request{key: key, args: args}
	err := f.sender.send(ctx, true, r)
	if redis.HasErrorPrefix(r.err, "item exists") {
		return nil
	}
	return err
}

// check compares the description of a filter with the options.
func (f *RedisBloom[T]) check(r *request) error {
	fields, err := pairs(r.reply)
	if err != nil || f.want.Items == 0 {
		return err
	}
	expansion := float64(f.want.Expansion) // 0 if it does not scale
	n := newNumbers(func(name string) string { return fields[name] })
	capacity, filters := n.get("Capacity", 10, math.MaxUint64), n.get("Number of filters", 10, 1<<20)
	there := 0.0
	if s := fields["Expansion rate"]; s != "<nil>" && s != "" {
		there = float64(n.get("Expansion rate", 10, math.MaxUint32))
	}
	if n.err != nil {
		return fmt.Errorf("key %q: BF.INFO: %w", r.key, n.err)
	}
	if there != expansion {
		return incompatible("expansion", expansion, there)
	}
	want, next := 0.0, float64(f.shardItems())
	for range filters {
		want += next
		next *= max(1, expansion)
	}
	if float64(capacity) != want && want < 1<<53 {
		return incompatible("capacity", want, capacity)
	}
	return nil
}

// split returns the indexes of the elements of each shard, and their bytes.
func (f *RedisBloom[T]) split(vs []T) (which [][]int, data [][]any) {
	which, data = make([][]int, f.shards), make([][]any, f.shards)
	for i, v := range vs {
		b := f.key.Append(nil, v)
		shard := 0
		if f.shards > 1 {
			shard = int(scale(funnel.Mix(f.key.Sum64(v)), uint64(f.shards)))
		}
		which[shard] = append(which[shard], i)
		data[shard] = append(data[shard], b)
	}
	return which, data
}

// run sends one command for the elements of each shard, with a BF.INFO after it,
// and sets out[i] to the reply for vs[i].
func (f *RedisBloom[T]) run(ctx context.Context, write bool, vs []T, out []bool) error {
	which, data := f.split(vs)
	var reqs []*request
	var parts [][]int
	for i, part := range which {
		if len(part) == 0 {
			continue
		}
		key := f.shardKey(i)
		args := []any{"bf.mexists", key}
		if write { // BF.MADD would create a missing filter
			args = []any{"bf.insert", key, "nocreate", "items"}
		}
		reqs = append(reqs,
			&request{key: key, args: append(args, data[i]...)},
			&request{key: key, args: []any{"bf.info", key}})
		parts = append(parts, part)
	}
	err := f.sender.send(ctx, write, reqs...)
	for i, r := range reqs {
		if redis.HasErrorPrefix(r.err, "not found") {
			return lostError(r.key)
		}
		if i%2 == 1 && err == nil {
			err = f.check(r)
		}
	}
	if err != nil {
		return err
	}
	for i, part := range parts {
		if err := f.answers(reqs[2*i], part, out); err != nil {
			return err
		}
	}
	return nil
}

// answers decodes the answers for the elements part from one reply.
func (f *RedisBloom[T]) answers(r *request, part []int, out []bool) error {
	reply, ok := r.reply.([]any)
	if !ok {
		return formatError("reply of type %T", r.reply)
	}
	for i, at := range part {
		if i >= len(reply) {
			return formatError("%d answers for %d elements", len(reply), len(part))
		}
		switch a := reply[i].(type) {
		case bool:
			set(out, at, a)
		case int64:
			set(out, at, a == 1)
		case error: // the last one, if the filter is full
			if redis.HasErrorPrefix(a, "non scaling filter is full") {
				return fmt.Errorf("key %q: %w", r.key, ErrFull)
			}
			return fmt.Errorf("key %q: %w", r.key, a)
		default:
			return formatError("answer of type %T", a)
		}
	}
	return nil
}

func set(out []bool, i int, v bool) {
	if out != nil {
		out[i] = v
	}
}

// Add adds an element and reports whether it was new.
func (f *RedisBloom[T]) Add(ctx context.Context, v T) (bool, error) {
	var isNew [1]bool
	err := f.AddMany(ctx, []T{v}, isNew[:])
	return isNew[0], err
}

// AddMany adds elements; see Filter. A filter that does not scale may accept some of them
// before it returns ErrFull.
func (f *RedisBloom[T]) AddMany(ctx context.Context, vs []T, isNew []bool) error {
	return inBatches(vs, isNew, batch, func(vs []T, isNew []bool) error {
		return f.run(ctx, true, vs, isNew)
	})
}

// MayContain reports false only if the element was not added.
func (f *RedisBloom[T]) MayContain(ctx context.Context, v T) (bool, error) {
	var positive [1]bool
	err := f.MayContainMany(ctx, []T{v}, positive[:])
	return positive[0], err
}

// MayContainMany looks up elements; see Filter.
func (f *RedisBloom[T]) MayContainMany(ctx context.Context, vs []T, positive []bool) error {
	return inBatches(vs, positive[:len(vs)], batch, func(vs []T, positive []bool) error {
		err := f.run(ctx, false, vs, positive)
		if err != nil {
			setAll(positive)
		}
		return err
	})
}

// ApproxCount is the number of different elements that were added, except those that were
// false positives.
func (f *RedisBloom[T]) ApproxCount(ctx context.Context) (uint64, error) {
	var reqs []*request
	for i := range f.shards {
		key := f.shardKey(i)
		reqs = append(reqs, &request{key: key, args: []any{"bf.info", key}})
	}
	err := f.sender.send(ctx, false, reqs...)
	sum := uint64(0)
	for _, r := range reqs {
		if redis.HasErrorPrefix(r.err, "not found") {
			return 0, lostError(r.key)
		}
		if err != nil {
			continue
		}
		fields, ferr := pairs(r.reply)
		n := newNumbers(func(name string) string { return fields[name] })
		sum += n.get("Number of items inserted", 10, math.MaxUint64)
		err = errors.Join(ferr, n.err)
	}
	return sum, err
}
