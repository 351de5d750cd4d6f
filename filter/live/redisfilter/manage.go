package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Clear removes all elements while the filter is in use, as a Rebuild from an empty source
// does: what is added at the same time stays.
func (f *Bloom[T]) Clear(ctx context.Context) error {
	return f.Rebuild(ctx, RebuildOptions{}, func(func(T, error) bool) {})
}

// Rename gives the filter another name, which no filter may have (ErrExists). The data
// stays where it is: also in a cluster the new name need not be in the old one's slot.
// f uses the new name from then on. Other clients who have the filter open go on
// using it until the next rebuild, and then get ErrMissing. During a rebuild it returns
// ErrBusy. A Rename that failed half-way is finished by another one.
func (f *Bloom[T]) Rename(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	c, err := f.refresh(ctx)
	old := *f.name.Load()
	if name == old || err != nil {
		return err
	}
	if c.phase != steady {
		return ErrBusy
	}
	renamed := *c
	if renamed.keys = c.read.keys; renamed.keys == name {
		renamed.keys = "" // back to the first name
	}
	there, err := f.sender.loadConfig(ctx, name)
	switch {
	case errors.Is(err, ErrMissing):
		ok, err := f.sender.swapConfig(ctx, name, nil, &renamed)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: %q", ErrExists, name)
		}
	case err != nil:
		return err
	case there != renamed:
		return fmt.Errorf("%w: %q", ErrExists, name)
	}
	// From here on the filter has both names. A rebuild under the old one would separate
	// them, so the old name is removed only if no rebuild has begun.
	r := eval(configKey(old), forgetScript, fmt.Sprintf("%016x%d", c.lineage, c.epoch))
	if err := f.sender.send(ctx, true, r); err != nil {
		return err
	}
	if r.reply != int64(1) {
		drop := &request{key: configKey(name), args: []any{"del", configKey(name)}}
		return errors.Join(ErrBusy, f.sender.send(ctx, true, drop))
	}
	f.name.Store(&name)
	f.config.Store(&renamed)
	return nil
}

// forgetScript deletes a configuration if it is the one that is expected, or gone.
const forgetScript = `
local now = redis.call('HMGET', KEYS[1], 'lineage', 'epoch')
if now[1] and now[1] .. now[2] ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1`

// Expire makes the server delete the filter after a time, at least a millisecond; zero
// makes it persistent.
// Clients who use it then get ErrLost or ErrMissing, and the answer true. A rebuild, also
// Clear and Load, makes a filter that stays. During a rebuild Expire returns ErrBusy.
func (f *Bloom[T]) Expire(ctx context.Context, after time.Duration) error {
	if err := checkExpiry(after); err != nil {
		return err
	}
	c, err := f.refresh(ctx)
	if err != nil {
		return err
	}
	if c.phase != steady {
		return ErrBusy
	}
	keys := []string{configKey(*f.name.Load())}
	for i := range c.read.shards {
		keys = append(keys, shardKey(c.read.keys, &c.read, i))
	}
	return f.sender.expire(ctx, after, keys)
}

func checkExpiry(after time.Duration) error {
	if after < 0 || after > 0 && after < time.Millisecond {
		return optionError("after", "%v is less than a millisecond", after)
	}
	return nil
}

// expire sets the time of keys; ErrLost for one that is not there.
func (s *sender) expire(ctx context.Context, after time.Duration, keys []string) error {
	reqs := make([]*request, len(keys))
	for i, key := range keys {
		reqs[i] = &request{key: key, args: []any{"pexpire", key, after.Milliseconds()}}
		if after == 0 {
			reqs[i] = eval(key, `redis.call('PERSIST', KEYS[1]) return redis.call('EXISTS', KEYS[1])`)
		}
	}
	if err := s.send(ctx, true, reqs...); err != nil {
		return err
	}
	for _, r := range reqs {
		if r.reply != int64(1) {
			return lostError(r.key)
		}
	}
	return nil
}

// Clear removes all elements: RBloomFilter's bits are deleted and its configuration
// stays.
func (f *Redisson[T]) Clear(ctx context.Context) error {
	return f.sender.send(ctx, true, &request{key: f.name, args: []any{"del", f.name}})
}

// Rename gives the filter another name, as RBloomFilter.rename does: both keys, one of
// which may be missing for an empty filter, replace what has the new names. In a cluster
// the names must be in one slot (name{tag}). f uses the new name from then on. No
// other call may run at the same time.
func (f *Redisson[T]) Rename(ctx context.Context, name string) error {
	if name == f.name { // the script deletes what has the new name
		return nil
	}
	key := redissonConfigKey(f.name)
	r := &request{key: key, args: []any{"eval", renameScript, 4, key, f.name, redissonConfigKey(name), name}}
	if err := f.sender.send(ctx, true, r); err != nil {
		return err
	}
	if r.reply != int64(1) {
		return fmt.Errorf("%w: %q", ErrMissing, f.name)
	}
	f.name = name
	return nil
}

// renameScript renames both keys. Run again, after its reply was lost, it finds the new
// ones.
const renameScript = `
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.call('EXISTS', KEYS[3]) end
redis.call('RENAME', KEYS[1], KEYS[3])
redis.call('DEL', KEYS[4])
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[4]) end
return 1`

// Expire makes the server delete the filter after a time, at least a millisecond, as RBloomFilter.expire
// does; zero makes it stay.
func (f *Redisson[T]) Expire(ctx context.Context, after time.Duration) error {
	if err := checkExpiry(after); err != nil {
		return err
	}
	if err := f.sender.expire(ctx, after, []string{redissonConfigKey(f.name)}); err != nil {
		return err
	}
	// The bits of a filter that holds nothing are missing.
	if err := f.sender.expire(ctx, after, []string{f.name}); err != nil && !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// Clear removes all elements: it deletes the server's filters and makes them again, which
// takes Options.Items. A lookup between the two returns true and ErrLost.
func (f *RedisBloom[T]) Clear(ctx context.Context) error {
	if f.want.Items == 0 {
		return optionError("Items", "is zero: how to make the filter again is not known")
	}
	for i := range f.shards {
		key := f.shardKey(i)
		if err := f.sender.send(ctx, true, &request{key: key, args: []any{"del", key}}); err != nil {
			return err
		}
		if err := f.reserve(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// Rename gives the server's filters another name, in the place of what has it. In a
// cluster both names must be in one slot. f uses the new name from then on. No other call
// may run at the same time.
func (f *RedisBloom[T]) Rename(ctx context.Context, name string) error {
	renamed := RedisBloom[T]{name: name, shards: f.shards}
	for i := range f.shards {
		key, to := f.shardKey(i), renamed.shardKey(i)
		r := &request{key: key, args: []any{"rename", key, to}}
		if err := f.sender.send(ctx, true, r); err != nil {
			if isNoKey(r.err) { // renamed by an attempt whose reply was lost, or not there
				there := &request{key: to, args: []any{"exists", to}}
				if err := f.sender.send(ctx, false, there); err == nil && there.reply == int64(1) {
					continue
				}
				return fmt.Errorf("%w: %q", ErrMissing, key)
			}
			return err
		}
	}
	f.name = name
	return nil
}

// Expire makes the server delete the filter after a time, at least a millisecond; zero
// makes it persistent.
func (f *RedisBloom[T]) Expire(ctx context.Context, after time.Duration) error {
	if err := checkExpiry(after); err != nil {
		return err
	}
	var reqs []*request
	for i := range f.shards {
		key := f.shardKey(i)
		args := []any{"pexpire", key, after.Milliseconds()}
		if after == 0 {
			args = []any{"persist", key} // 0 also for one that does not expire
		}
		reqs = append(reqs, &request{key: key, args: args}, &request{key: key, args: []any{"exists", key}})
	}
	if err := f.sender.send(ctx, true, reqs...); err != nil {
		return err
	}
	for i := 1; i < len(reqs); i += 2 {
		if reqs[i].reply != int64(1) {
			return lostError(reqs[i].key)
		}
	}
	return nil
}
