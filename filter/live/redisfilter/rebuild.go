package redisfilter

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// RebuildOptions are the parameters of a rebuild.
type RebuildOptions struct {
	// Items and FPR, if not zero, are those of the new filter; else those of the
	// old one are kept. So are Layout, Shards and Seed.
	Items uint64
	FPR   float64
	// Local builds the new filter in this process's memory, which takes as much of it
	// as the filter takes in Redis, and uploads it once: a command a MiB in place of
	// one an element. Other clients may use the filter; what they add during the rebuild
	// is kept.
	Local bool
	// Progress, if not nil, is called now and then with the number of elements that
	// were added.
	Progress func(done uint64)
}

// drainFor is how long the emptied shards of an old generation stay, so that an
// addition that is still under way does not bring them back for good.
const drainFor = 10 * time.Minute

// Rebuild fills a new set of keys from source while the old one is used, by this
// process and others, and then puts it in the old one's place: for a filter that
// has become too full, or holds what no longer exists.
//
// An element is never lost to a rebuild if it was in the source before its Add was
// called, or if its Add was called during the rebuild. So: write to the source
// first, then Add.
//
// A rebuild that is interrupted leaves the old filter in use. The next one cleans
// up. A second one that begins while this one runs takes over, and this one returns
// ErrTaken.
//
// How it works. Each shard holds the epoch of the configuration. Whoever adds sees
// in the reply whether the shard has a later one than it knows, and then loads the
// configuration and adds again. No epoch begins before all shards have the one
// before, so that clients are one apart at most:
//
//	e    steady    all add to A and read A
//	e+1  filling   all add to A and B and read A; then the source is added to B
//	e+2  draining  all add to A and B and read B; then A's shards are emptied,
//	               which readers of A see
//	e+3  steady    all add to B and read B
func (f *Bloom[T]) Rebuild(ctx context.Context, o RebuildOptions, source iter.Seq2[T, error]) error {
	c, err := f.refresh(ctx)
	if err != nil {
		return err
	}
	if c, err = f.rest(ctx, c); err != nil {
		return err
	}
	size := sizing{c.read.items, c.read.fpr, c.read.layout, c.read.shards, c.read.seed}
	if o.Items != 0 {
		size.Items = o.Items
	}
	if o.FPR != 0 {
		size.FPR = o.FPR
	}
	next, err := newGeneration(rand.Uint64(), &size)
	if err != nil {
		return err
	}
	next.keys = c.read.keys
	abandoned := c.also // by a rebuild that was interrupted
	if err := f.makeShards(ctx, &next, c.epoch+1); err != nil {
		return err
	}
	before := c
	if c, err = f.advance(ctx, c, filling, c.read, next); err != nil {
		return err
	}
	if before.phase == filling {
		if err := f.retire(ctx, &abandoned, drainFor); err != nil {
			return err
		}
	}
	fill := f.fill
	if o.Local {
		fill = f.fillLocal
	}
	if err := fill(ctx, c, o.Progress, source); err != nil {
		return err
	}
	if c, err = f.advance(ctx, c, draining, c.also, c.read); err != nil {
		return err
	}
	_, err = f.rest(ctx, c)
	return err
}

// rest brings all shards to the epoch of c, and ends what is draining.
func (f *Bloom[T]) rest(ctx context.Context, c *config) (*config, error) {
	if err := f.settle(ctx, c); err != nil {
		return nil, err
	}
	if c.phase != draining {
		return c, nil
	}
	if err := f.retire(ctx, &c.also, drainFor); err != nil {
		return nil, err
	}
	return f.advance(ctx, c, steady, c.read, generation{})
}

// advance begins the next epoch and returns when all shards have it.
func (f *Bloom[T]) advance(ctx context.Context, c *config, p phase, read, also generation) (*config, error) {
	next := *c
	next.epoch, next.phase, next.read, next.also = c.epoch+1, p, read, also
	ok, err := f.sender.swapConfig(ctx, *f.name.Load(), c, &next)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ErrTaken
	}
	f.config.Store(&next)
	return &next, f.settle(ctx, &next)
}

// settleScript raises the epoch of a shard that is there.
const settleScript = `
local h = redis.call('GETRANGE', KEYS[1], 0, 7)
if string.byte(h, 1) ~= 165 then return 0 end
local b1, b2, b3, b4 = string.byte(h, 5, 8)
if ((b1 * 256 + b2) * 256 + b3) * 256 + b4 < tonumber(ARGV[1]) then
  redis.call('BITFIELD', KEYS[1], 'SET', 'u32', 32, ARGV[1])
end
return 1`

// settle gives all shards the epoch of c. A shard that is lost stays lost.
func (f *Bloom[T]) settle(ctx context.Context, c *config) error {
	var reqs []*request
	each := func(g *generation) {
		for i := range g.shards {
			reqs = append(reqs, eval(shardKey(g.keys, g, i), settleScript, c.epoch))
		}
	}
	each(&c.read)
	if c.phase != steady {
		each(&c.also)
	}
	return f.sender.send(ctx, true, reqs...)
}

// makeScript makes a shard: a header, then ARGV[2] times the block ARGV[3], or zeros
// up to byte ARGV[4].
const makeScript = `
redis.call('SET', KEYS[1], ARGV[1] .. string.rep(ARGV[3], ARGV[2]), 'PX', 600000)
if redis.call('STRLEN', KEYS[1]) < tonumber(ARGV[4]) then
  redis.call('SETRANGE', KEYS[1], ARGV[4] - 1, '\0')
end
return 1`

// makeShards makes the shards of a generation. They get an expiry until all are
// there.
func (f *Bloom[T]) makeShards(ctx context.Context, g *generation, epoch uint32) error {
	block := make([]byte, blockBytes)
	block[0] = blockMark
	count := uint64(0)
	if g.layout == Blocked {
		count = g.size
	}
	for i := range g.shards { // one at a time: each takes the server a moment
		key := shardKey(g.keys, g, i)
		if err := f.sender.send(ctx, true, eval(key, makeScript, g.header(epoch), count, block, g.bytes())); err != nil {
			return err
		}
	}
	reqs := make([]*request, g.shards)
	for i := range reqs {
		key := shardKey(g.keys, g, i)
		reqs[i] = &request{key: key, args: []any{"persist", key}}
	}
	return f.sender.send(ctx, true, reqs...)
}

// retire empties the shards of a generation, so that no one takes them for it, and
// lets them expire.
func (f *Bloom[T]) retire(ctx context.Context, g *generation, after time.Duration) error {
	reqs := make([]*request, g.shards)
	for i := range reqs {
		key := shardKey(g.keys, g, i)
		reqs[i] = &request{key: key, args: []any{"set", key, "", "px", after.Milliseconds()}}
	}
	return f.sender.send(ctx, true, reqs...)
}

// fill adds the elements of a source to the generation that is being built.
func (f *Bloom[T]) fill(ctx context.Context, c *config, progress func(uint64), source iter.Seq2[T, error]) error {
	next := *c // as a client would see it who knew the new one only
	next.phase, next.read = steady, c.also
	done := uint64(0)
	part := make([]T, 0, batch)
	flush := func() error {
		stale, err := f.addTo(ctx, &next, part, indexes(len(part)), nil)
		if err == nil && len(stale) > 0 {
			err = fmt.Errorf("%w, or part of the new filter was lost", ErrTaken)
		}
		done += uint64(len(part))
		part = part[:0]
		if err == nil && progress != nil {
			progress(done)
		}
		return err
	}
	for v, err := range source {
		if err != nil {
			return err
		}
		if part = append(part, v); len(part) == batch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// Drop deletes the filter. Clients who still use it get ErrMissing.
func (f *Bloom[T]) Drop(ctx context.Context) error {
	c, err := f.refresh(ctx)
	if err != nil {
		return err
	}
	key := configKey(*f.name.Load())
	if err := f.sender.send(ctx, true, &request{key: key, args: []any{"del", key}}); err != nil {
		return err
	}
	if c.phase != steady {
		if err := f.retire(ctx, &c.also, drainFor); err != nil {
			return err
		}
	}
	return f.retire(ctx, &c.read, drainFor)
}
