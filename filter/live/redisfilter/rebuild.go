package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// RebuildOptions are the parameters of a rebuild.
type RebuildOptions struct {
	// Items and FPR are those of the new filter; if zero, those of the old one. The new filter has
	// the Layout, Shards and Seed of the old one. Clients that open the filter later must pass the
	// new Items and FPR, or no Items; with the old ones, Open returns ErrIncompatible.
	Items uint64
	FPR   float64
	// Local builds the new filter in the memory of this process, where it takes as much
	// as in Redis, and uploads it once, with one command per MiB instead of one per
	// element. Other clients can use the filter, and elements that they add while the
	// source is read are kept.
	Local bool
	// Progress, if not nil, is called from time to time with the number of elements
	// added so far.
	Progress func(done uint64)
}

// drainFor is how long the emptied shards of an old generation are kept, so that an addition that
// is still in progress does not create them again permanently.
const drainFor = 10 * time.Minute

// Rebuild fills a new set of keys from source while this process and others use the old one,
// and then replaces the old one. It is for filters that have become too full, or that contain
// elements that no longer exist.
//
// A rebuild never loses an element that was in the source before its Add was called, or whose
// Add was called after the rebuild had begun to read the source. So write to the source first, then
// call Add.
//
// A rebuild that is interrupted leaves the old filter in use; the next one cleans up. If a
// second one begins while this one runs, it takes over, and this one returns ErrTaken. A rebuild
// that a failover has partly undone returns ErrTaken, too: call Rebuild again.
//
// How it works: each shard holds the epoch of the configuration. An addition returns it, and a
// client that gets a later epoch than it knows loads the configuration and adds the element again.
// No epoch begins before all shards have the previous one, so clients differ by at most one epoch:
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
	if c, err = f.finishPhase(ctx, c); err != nil {
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
	abandoned := c.also // by an interrupted rebuild
	if err := f.makeShards(ctx, &next, c.epoch+1); err != nil {
		return err
	}
	before := c
	if c, err = f.advance(ctx, c, filling, c.read, next); err != nil {
		if errors.Is(err, ErrTaken) { // no configuration names the new shards
			err = errors.Join(err, f.retire(ctx, &next, drainFor))
		}
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
	had, err := f.raiseEpochs(ctx, c)
	if err != nil {
		return err
	}
	if had < c.epoch {
		return errUndone
	}
	if c, err = f.advance(ctx, c, draining, c.also, c.read); err != nil {
		return err
	}
	_, err = f.finishPhase(ctx, c)
	return err
}

// errUndone is returned if a failover has undone the epoch of a shard during a rebuild. Clients
// that did not know the epoch may since have added elements to the old generation only. The next
// rebuild finds them in the source.
var errUndone = fmt.Errorf("%w, or a failover has undone a part of this one", ErrTaken)

// finishPhase brings all shards to the epoch of c, and ends the phase draining. It empties the
// shards of the old generation first: that needs no memory on the servers, and frees some.
func (f *Bloom[T]) finishPhase(ctx context.Context, c *config) (*config, error) {
	if c.phase == draining {
		if err := f.retire(ctx, &c.also, drainFor); err != nil {
			return nil, err
		}
	}
	if _, err := f.raiseEpochs(ctx, c); err != nil {
		return nil, err
	}
	if c.phase != draining {
		return c, nil
	}
	return f.advance(ctx, c, steady, c.read, generation{})
}

// advance begins the next epoch and returns when all shards have it. When the phase draining
// begins, all must have had the epoch of c.
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
	had, err := f.raiseEpochs(ctx, &next)
	if err == nil && p == draining && had < c.epoch {
		err = errUndone
	}
	return &next, err
}

// raiseEpochScript raises the epoch of a shard and returns the one that it had, or 0 if the shard
// does not exist.
const raiseEpochScript = `
local h = redis.call('GETRANGE', KEYS[1], 0, 7)
if string.byte(h, 1) ~= 165 then return 0 end
local b1, b2, b3, b4 = string.byte(h, 5, 8)
local epoch = ((b1 * 256 + b2) * 256 + b3) * 256 + b4
if epoch < tonumber(ARGV[1]) then
  redis.call('BITFIELD', KEYS[1], 'SET', 'u32', 32, ARGV[1])
end
return epoch`

// raiseEpochs gives all shards the epoch of c, and returns the lowest one that a shard had. A shard
// that is lost stays lost.
func (f *Bloom[T]) raiseEpochs(ctx context.Context, c *config) (had uint32, err error) {
	var reqs []*request
	each := func(g *generation) {
		for i := range g.shards {
			reqs = append(reqs, eval(shardKey(g.keys, g, i), raiseEpochScript, c.epoch))
		}
	}
	each(&c.read)
	if c.phase != steady {
		each(&c.also)
	}
	if err := f.sender.send(ctx, true, reqs...); err != nil {
		return 0, err
	}
	had = c.epoch
	for _, r := range reqs {
		epoch, ok := r.reply.(int64)
		if !ok {
			return 0, formatError("reply of type %T to a script", r.reply)
		}
		if epoch != 0 {
			had = min(had, uint32(epoch))
		}
	}
	return had, nil
}

// makeScript creates a shard: the header ARGV[1], then ARGV[2] times the block ARGV[3], or zeros
// up to byte ARGV[4]. A shard that exists stays as it is: if a request was sent again because its
// reply was late, the first one may arrive after elements were added.
const makeScript = `
if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
redis.call('SET', KEYS[1], ARGV[1] .. string.rep(ARGV[3], ARGV[2]), 'PX', 600000)
if redis.call('STRLEN', KEYS[1]) < tonumber(ARGV[4]) then
  redis.call('SETRANGE', KEYS[1], ARGV[4] - 1, '\0')
end
return 1`

// makeShards creates the shards of a generation. They have an expiry until all exist, so
// that none remain if it is interrupted.
func (f *Bloom[T]) makeShards(ctx context.Context, g *generation, epoch uint32) error {
	block := make([]byte, blockBytes)
	block[0] = blockMark
	count := uint64(0)
	if g.layout == Blocked {
		count = g.size
	}
	for i := range g.shards { // one at a time: each keeps the server busy
		key := shardKey(g.keys, g, i)
		if err := f.sender.send(ctx, true, eval(key, makeScript, g.header(epoch), count, block, g.bytes())); err != nil {
			return err
		}
	}
	keys := make([]string, g.shards)
	for i := range keys {
		keys[i] = shardKey(g.keys, g, i)
	}
	if err := f.sender.expire(ctx, 0, keys); err != nil { // ErrLost if one has expired or was evicted
		return errors.Join(err, f.retire(ctx, g, drainFor))
	}
	return nil
}

// retireScript empties a shard and makes it expire. It begins with a command that a server accepts
// even if it is out of memory; after a script's first write the server rejects no command.
const retireScript = `
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], '', 'PX', ARGV[1])
return 1`

// retire empties the shards of a generation, so that every operation finds them missing, and
// makes them expire.
func (f *Bloom[T]) retire(ctx context.Context, g *generation, after time.Duration) error {
	reqs := make([]*request, g.shards)
	for i := range reqs {
		reqs[i] = eval(shardKey(g.keys, g, i), retireScript, after.Milliseconds())
	}
	return f.sender.send(ctx, true, reqs...)
}

// fill adds the elements of a source to the generation being built.
func (f *Bloom[T]) fill(ctx context.Context, c *config, progress func(uint64), source iter.Seq2[T, error]) error {
	next := *c // a configuration with only the new generation
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

// Drop deletes the filter. Its shards remain as empty keys for 10 minutes. Clients that still use
// the filter get ErrMissing. If Drop fails halfway, call it again; until then, clients may get
// ErrLost.
func (f *Bloom[T]) Drop(ctx context.Context) error {
	c, err := f.refresh(ctx)
	if err != nil {
		return err
	}
	lineage := c.lineage
	for range maxAttempts {
		// The configuration is deleted last, since only it names the shards.
		if c.phase != steady {
			if err := f.retire(ctx, &c.also, drainFor); err != nil {
				return err
			}
		}
		if err := f.retire(ctx, &c.read, drainFor); err != nil {
			return err
		}
		gone, err := f.sender.forget(ctx, *f.name.Load(), c)
		if err != nil || gone {
			return err
		}
		// A rebuild has made other shards meanwhile.
		c, err = f.refresh(ctx)
		if errors.Is(err, ErrMissing) || err == nil && c.lineage != lineage {
			return nil // another client has dropped the filter
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(ErrTaken, errors.New("the configuration keeps changing"))
}
