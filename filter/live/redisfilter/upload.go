package redisfilter

import (
	"context"
	"fmt"
	"iter"
)

// Load replaces the elements of the filter with those of source. It builds the filter in memory
// and uploads it once: it is Rebuild with RebuildOptions.Local.
func (f *Bloom[T]) Load(ctx context.Context, source iter.Seq2[T, error]) error {
	return f.Rebuild(ctx, RebuildOptions{Local: true}, source)
}

// uploadChunk is the number of bytes of a shard per command.
const uploadChunk = 1 << 20

// fillLocal is fill with local memory: it sets the bits of all elements there, and then merges
// each shard into the one in Redis, to which others may have added elements meanwhile.
func (f *Bloom[T]) fillLocal(ctx context.Context, c *config, progress func(uint64), source iter.Seq2[T, error]) error {
	g := &c.also
	shards := make([][]byte, g.shards)
	for i := range shards {
		shards[i] = make([]byte, g.bytes())
		shards[i][0] = shardMagic // as in Redis; see orScript
	}
	done := uint64(0)
	var bits []uint64
	for v, err := range source {
		if err == nil && done%batch == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		shard, h := g.place(f.key.Sum64(v))
		bits = g.appendBits(bits[:0], h)
		for _, b := range bits {
			shards[shard][b/8] |= 0x80 >> (b % 8)
		}
		if done++; progress != nil && done%batch == 0 {
			progress(done)
		}
	}
	for i, shard := range shards {
		if err := f.upload(ctx, shardKey(g.keys, g, i), shard); err != nil {
			return err
		}
	}
	if progress != nil {
		progress(done)
	}
	return nil
}

// orScript merges the string KEYS[2], of length ARGV[1], into the shard KEYS[1]. It returns 0 if
// one of them is missing, or was evicted and created again while it was uploaded. If it runs again,
// it finds what it has left in place of the string, and changes nothing.
const orScript = `
if redis.call('GETRANGE', KEYS[1], 0, 0) ~= '\165' then return 0 end
local first = redis.call('GETRANGE', KEYS[2], 0, 0)
if first == '+' then return 1 end
if first ~= '\165' or redis.call('STRLEN', KEYS[2]) ~= tonumber(ARGV[1]) then return 0 end
redis.call('BITOP', 'OR', KEYS[1], KEYS[1], KEYS[2])
redis.call('SET', KEYS[2], '+', 'PX', 600000)
return 1`

// upload merges bits into a shard, with a temporary key in the same slot, which expires if this
// process does not delete it.
func (f *Bloom[T]) upload(ctx context.Context, key string, bits []byte) error {
	part := key + ":load"
	for at := 0; at < len(bits); at += uploadChunk {
		chunk := bits[at:min(at+uploadChunk, len(bits))]
		err := f.sender.send(ctx, true,
			&request{key: part, args: []any{"setrange", part, at, chunk}},
			&request{key: part, args: []any{"pexpire", part, drainFor.Milliseconds()}})
		if err != nil {
			return err
		}
	}
	r := &request{key: key, args: []any{"eval", orScript, 2, key, part, len(bits)}}
	if err := f.sender.send(ctx, true, r); err != nil {
		return err
	}
	if r.reply != int64(1) {
		return fmt.Errorf("%w, or part of the new filter was lost", ErrTaken)
	}
	return f.sender.send(ctx, true, &request{key: part, args: []any{"del", part}})
}
