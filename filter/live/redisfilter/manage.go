package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Clear removes all elements while the filter is in use, as a Rebuild from an empty source does. An
// element whose Add runs at the same time may be removed or stay.
func (f *Bloom[T]) Clear(ctx context.Context) error {
	return f.Rebuild(ctx, RebuildOptions{}, func(func(T, error) bool) {})
}

// Rename gives the filter another name, which f uses from then on. If another filter has it, Rename
// returns ErrExists. The data stays where it is, so the new name need not be in the slot of the old
// one, and an expiry stays. Other clients that have opened the filter continue to use it until the
// next rebuild, and then get ErrMissing. During a rebuild Rename returns ErrBusy. If it fails
// halfway, call it again.
func (f *Bloom[T]) Rename(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	c, err := f.refresh(ctx)
	old := *f.name.Load()
	if name != old && errors.Is(err, ErrMissing) {
		// The last step of an earlier call may have succeeded, and only its reply been lost.
		there, thereErr := f.sender.loadConfig(ctx, name)
		if thereErr == nil && there.lineage == f.config.Load().lineage {
			f.name.Store(&name)
			f.config.Store(&there)
			return nil
		}
	}
	if name == old || err != nil {
		return err
	}
	if c.phase != steady {
		return ErrBusy
	}
	renamed := *c
	if renamed.keys = c.read.keys; renamed.keys == name {
		renamed.keys = "" // renamed back to its first name
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
	case there.lineage == renamed.lineage && there.epoch < renamed.epoch:
		// An earlier call came this far, and then there was a rebuild.
		if err := f.checkGone(ctx, &there.read, name); err != nil {
			return err
		}
		ok, err := f.sender.swapConfig(ctx, name, &there, &renamed)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: %q", ErrExists, name)
		}
	case there.lineage == renamed.lineage && there.epoch > renamed.epoch:
		// An earlier call came this far, and then there was a rebuild under the new name.
		if there.read != c.read && there.also != c.read {
			if err := f.checkGone(ctx, &c.read, name); err != nil {
				return err
			}
		}
		renamed = there
	case there != renamed:
		return fmt.Errorf("%w: %q", ErrExists, name)
	}
	rebuilt := renamed.epoch != c.epoch // under the new name, which made the filter persistent
	if !rebuilt {
		if err := f.sender.copyExpiry(ctx, configKey(old), configKey(name)); err != nil {
			return err
		}
	}
	// Now the filter has both names. A rebuild under the old one would make them different
	// filters, so the old name is removed only if no rebuild has begun.
	gone, err := f.sender.forget(ctx, old, c)
	if err != nil {
		return err
	}
	if !gone {
		if !rebuilt {
			_, err = f.sender.forget(ctx, name, &renamed)
		}
		return errors.Join(ErrBusy, err)
	}
	f.name.Store(&name)
	f.config.Store(&renamed)
	return nil
}

// checkGone returns ErrExists if a generation that Rename would make unreachable holds elements:
// the filter was rebuilt under both names, so they are different filters.
func (f *Bloom[T]) checkGone(ctx context.Context, g *generation, name string) error {
	reqs := make([]*request, g.shards)
	for i := range reqs {
		reqs[i] = eval(shardKey(g.keys, g, i), raiseEpochScript, 0) // raises nothing
	}
	if err := f.sender.send(ctx, true, reqs...); err != nil {
		return err
	}
	for _, r := range reqs {
		if r.reply != int64(0) {
			return fmt.Errorf("%w: %q", ErrExists, name)
		}
	}
	return nil
}

// copyExpiry copies the expiry of one key, if it has one, to another key.
func (s *sender) copyExpiry(ctx context.Context, from, to string) error {
	r := &request{key: from, args: []any{"pttl", from}}
	if err := s.send(ctx, false, r); err != nil {
		return err
	}
	left, ok := r.reply.(int64)
	if !ok || left < 0 {
		return nil
	}
	return s.send(ctx, true, &request{key: to, args: []any{"pexpire", to, max(1, left)}})
}

// forgetScript deletes a configuration if it is the expected one. It returns 1 if it is gone, or if
// another filter has its name by now, and 0 if the same filter has another configuration.
const forgetScript = `
local now = redis.call('HMGET', KEYS[1], 'lineage', 'epoch')
if now[1] ~= ARGV[1] then return 1 end
if now[2] ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
return 1`

// forget deletes the configuration c of the filter with a name. It reports whether it is gone.
func (s *sender) forget(ctx context.Context, name string, c *config) (gone bool, err error) {
	lineage, epoch := fmt.Sprintf("%016x", c.lineage), strconv.FormatUint(uint64(c.epoch), 10)
	r := eval(configKey(name), forgetScript, lineage, epoch)
	if err := s.send(ctx, true, r); err != nil {
		return false, err
	}
	return r.reply == int64(1), nil
}

// Expire makes the server delete the filter after a time, at least a millisecond; zero
// makes it persistent. Clients that use it later get ErrLost or ErrMissing, and lookups
// return true. A rebuild, and so Clear and Load, makes the filter persistent. During a
// rebuild Expire returns ErrBusy.
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

// expire sets the expiry of keys. A missing key gives ErrLost.
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

// anyExists reports whether at least one of the keys exists.
func (s *sender) anyExists(ctx context.Context, keys ...string) (bool, error) {
	reqs := make([]*request, len(keys))
	for i, key := range keys {
		reqs[i] = &request{key: key, args: []any{"exists", key}}
	}
	err := s.send(ctx, false, reqs...)
	return slices.ContainsFunc(reqs, func(r *request) bool { return r.reply == int64(1) }), err
}

// Clear removes all elements: it deletes RBloomFilter's bits and keeps its configuration.
func (f *Redisson[T]) Clear(ctx context.Context) error {
	return f.sender.send(ctx, true, &request{key: f.name, args: []any{"del", f.name}})
}

// Rename gives the filter another name, as RBloomFilter.rename does, which f uses from then on. It
// replaces keys that have the new name. In a cluster both names must be in one slot (name{tag}). No
// other call may run at the same time. If Rename fails although the server has renamed the filter,
// since the reply was lost, calling it again returns ErrMissing: open the filter by its new name.
func (f *Redisson[T]) Rename(ctx context.Context, name string) error {
	if name == f.name { // the script would delete the bits
		return nil
	}
	key := redissonConfigKey(f.name)
	if there, err := f.sender.anyExists(ctx, key); err != nil {
		return err
	} else if !there {
		return fmt.Errorf("%w: %q", ErrMissing, f.name)
	}
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

// renameScript renames both keys; that of the bits is missing if the filter is empty. The filter
// existed just before the first attempt. So if it is missing, and there is one with the new name,
// the reply to an earlier attempt was lost.
const renameScript = `
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.call('EXISTS', KEYS[3]) end
redis.call('RENAME', KEYS[1], KEYS[3])
redis.call('DEL', KEYS[4])
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[4]) end
return 1`

// Expire makes the server delete the filter after a time, at least a millisecond, as
// RBloomFilter.expire does; zero makes it persistent. An empty filter has no key with bits, and
// the one that the next Add creates does not expire: call Expire again after it.
func (f *Redisson[T]) Expire(ctx context.Context, after time.Duration) error {
	if err := checkExpiry(after); err != nil {
		return err
	}
	key := redissonConfigKey(f.name)
	r := &request{key: key, args: []any{"eval", expireScript, 2, key, f.name, after.Milliseconds()}}
	if err := f.sender.send(ctx, true, r); err != nil {
		return err
	}
	if r.reply != int64(1) {
		return lostError(key)
	}
	return nil
}

// expireScript sets the expiry of both keys together: without its bits, a configuration is that of
// an empty filter. It returns 0 if there is no configuration. The bits may be missing.
const expireScript = `
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
for i = 1, 2 do
  if ARGV[1] == '0' then
    redis.call('PERSIST', KEYS[i])
  else
    redis.call('PEXPIRE', KEYS[i], ARGV[1])
  end
end
return 1`

// Clear removes all elements: it deletes the server's filters and creates them again, which
// requires RedisBloomOptions.Items. They are then persistent. A lookup between the two returns
// true and ErrLost.
func (f *RedisBloom[T]) Clear(ctx context.Context) error {
	if f.want.Items == 0 {
		return optionError("Items", "is zero, so the filter cannot be created again")
	}
	for i := range f.shards { // the first one first: until it exists again, Open creates all that are missing
		key := f.shardKey(i)
		if err := f.sender.send(ctx, true, &request{key: key, args: []any{"del", key}}); err != nil {
			return err
		}
	}
	return f.reserveAll(ctx)
}

// Rename gives the server's filters another name, which f uses from then on. It replaces
// keys that have it. In a cluster both names must be in one slot. No other call may run at
// the same time.
//
// If Rename fails halfway, call it again. If it fails although the server has renamed all of them,
// since the last reply was lost, calling it again returns ErrMissing: open the filter by its new
// name. If some of several shards have expired or
// were evicted, and a filter with the new name exists, Rename may take the shards of that filter
// for its own: they look as if an earlier call had renamed them.
func (f *RedisBloom[T]) Rename(ctx context.Context, name string) error {
	renamed := RedisBloom[T]{name: name, shards: f.shards}
	var keys []string
	for i := range f.shards {
		keys = append(keys, f.shardKey(i))
	}
	if there, err := f.sender.anyExists(ctx, keys...); err != nil {
		return err
	} else if !there {
		return fmt.Errorf("%w: %q", ErrMissing, f.name)
	}
	for i := f.shards - 1; i >= 0; i-- { // the first one last; see OpenRedisBloom
		key, to := f.shardKey(i), renamed.shardKey(i)
		r := &request{key: key, args: []any{"rename", key, to}}
		if err := f.sender.send(ctx, true, r); err != nil {
			if isNoKey(r.err) { // missing, or renamed by an earlier call or attempt
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
	for i := f.shards - 1; i >= 0; i-- { // the first one expires last; see OpenRedisBloom
		key := f.shardKey(i)
		args := []any{"pexpire", key, after.Milliseconds()}
		if after == 0 {
			args = []any{"persist", key} // returns 0 also if the key does not expire
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
