package redisfilter

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/serve"
)

// serveBF starts a server with the BF commands.
func serveBF(t testing.TB, protocol int) *redis.Client {
	t.Helper()
	db := must(sift.Open(t.TempDir(), nil))
	s := must(serve.New(db, serve.Config{Addr: "127.0.0.1:0", Fsync: serve.FsyncNo}))
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	c := redis.NewClient(&redis.Options{Addr: s.Addr().String(), Protocol: protocol})
	t.Cleanup(func() {
		c.Close()
		if err := errors.Join(s.Close(time.Second), <-done, db.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestRedisBloom(t *testing.T) {
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		c := serveBF(t, protocol)
		for _, shards := range []int{0, 8} {
			const n = 10_000
			name := "users" + string(rune('a'+shards))
			o := RedisBloomOptions[string]{Items: n, FPR: 0.01, Shards: shards}
			f, err := OpenRedisBloom(ctx, c, name, o)
			if err != nil {
				t.Fatal(err)
			}
			isNew, known := make([]bool, n), 0
			if err := f.AddMany(ctx, members(0, n), isNew); err != nil {
				t.Fatal(err)
			}
			for _, yes := range isNew {
				if !yes {
					known++
				}
			}
			if known > n/200 {
				t.Errorf("RESP%d: Add returned false for %d of %d new elements", protocol, known, n)
			}
			if yes, err := f.Add(ctx, member(1)); yes || err != nil {
				t.Errorf("new twice: %v", err)
			}
			g, err := OpenRedisBloom(ctx, c, name, RedisBloomOptions[string]{Shards: shards})
			if err != nil {
				t.Fatal(err)
			}
			allKnown(t, g, members(0, n))
			if fpr := fprOf(t, g, 20_000); fpr > 0.01+4*math.Sqrt(0.01/20_000) {
				t.Errorf("FPR %v", fpr)
			}
			if count := must(f.ApproxCount(ctx)); count != uint64(n-known) {
				t.Errorf("count %d, %d were new", count, n-known)
			}
			allKnown(t, must(OpenRedisBloom(ctx, c, name, o)), members(0, 10))
			o.Items = n + 1000
			if _, err := OpenRedisBloom(ctx, c, name, o); !errors.Is(err, ErrIncompatible) {
				t.Errorf("other capacity: %v", err)
			}
			o.Items, o.NonScaling = n, true
			if _, err := OpenRedisBloom(ctx, c, name, o); !errors.Is(err, ErrIncompatible) {
				t.Errorf("other expansion: %v", err)
			}
			// BF.EXISTS would return 0.
			c.FlushAll(ctx)
			if positive, err := f.MayContain(ctx, member(1)); !positive || !errors.Is(err, ErrLost) {
				t.Errorf("filter is gone: %v, %v", positive, err)
			}
			if _, err := f.Add(ctx, member(1)); !errors.Is(err, ErrLost) {
				t.Errorf("filter is gone: %v", err)
			}
			if _, err := f.ApproxCount(ctx); !errors.Is(err, ErrLost) {
				t.Errorf("filter is gone: %v", err)
			}
			if _, err := OpenRedisBloom(ctx, c, name, RedisBloomOptions[string]{}); !errors.Is(err, ErrMissing) {
				t.Errorf("filter is gone: %v", err)
			}
		}
		// The filter grows, and its BF.INFO changes.
		f := must(OpenRedisBloom(ctx, c, "grows", RedisBloomOptions[string]{Items: 100, FPR: 0.01, Expansion: 3}))
		for i := range 2 {
			if err := f.AddMany(ctx, members(500*i, 500), nil); err != nil {
				t.Fatal(err)
			}
		}
		allKnown(t, f, members(0, 1000))
		// The filter does not grow, and returns an error.
		f = must(OpenRedisBloom(ctx, c, "full", RedisBloomOptions[string]{Items: 100, FPR: 0.01, NonScaling: true}))
		if err := f.AddMany(ctx, members(0, 200), nil); !errors.Is(err, ErrFull) {
			t.Errorf("RESP%d: full: %v", protocol, err)
		}
		allKnown(t, f, members(0, 90))
	}
}

// The three kinds implement the same interface.
func TestFilters(t *testing.T) {
	ctx := context.Background()
	c, bf := newServer(t).client(t, 3), serveBF(t, 3)
	for name, f := range map[string]Filter[int]{
		"Bloom":      must(Open(ctx, c, "a", Options[int]{Items: 1000, FPR: 0.001})),
		"Redisson":   must(OpenRedisson(ctx, c, "b", RedissonOptions[int]{Items: 1000, FPR: 0.001})),
		"RedisBloom": must(OpenRedisBloom(ctx, bf, "c", RedisBloomOptions[int]{Items: 1000, FPR: 0.001})),
	} {
		if yes, err := f.Add(ctx, 7); !yes || err != nil {
			t.Errorf("%s: %v, %v", name, yes, err)
		}
		if err := f.AddMany(ctx, []int{7, 8, 9}, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		positive := make([]bool, 4)
		if err := f.MayContainMany(ctx, []int{7, 8, 9, -7}, positive); err != nil || positive[3] || !(positive[0] && positive[1] && positive[2]) {
			t.Errorf("%s: %v, %v", name, positive, err)
		}
		if n, err := f.ApproxCount(ctx); n != 3 || err != nil {
			t.Errorf("%s: count %d, %v", name, n, err)
		}
		if err := f.AddMany(ctx, nil, nil); err != nil {
			t.Errorf("%s: nothing: %v", name, err)
		}
	}
}

// TestRedisBloomShards checks that OpenRedisBloom notices a wrong number of shards and a lost
// shard, instead of hiding elements.
func TestRedisBloomShards(t *testing.T) {
	ctx := context.Background()
	c := serveBF(t, 3)
	o := RedisBloomOptions[string]{Items: 10_000, FPR: 0.01, Shards: 8}
	f := must(OpenRedisBloom(ctx, c, "f", o))
	if err := f.AddMany(ctx, members(0, 1000), nil); err != nil {
		t.Fatal(err)
	}
	for _, fewer := range []RedisBloomOptions[string]{{Shards: 2}, {Shards: 7}, {Items: 5000, FPR: 0.01, Shards: 4}} {
		if _, err := OpenRedisBloom(ctx, c, "f", fewer); !errors.Is(err, ErrIncompatible) {
			t.Errorf("%d shards: %v", fewer.Shards, err)
		}
	}
	// As many items per shard.
	if _, err := OpenRedisBloom(ctx, c, "f", RedisBloomOptions[string]{Items: 20_000, FPR: 0.01, Shards: 16}); !errors.Is(err, ErrLost) {
		t.Errorf("16 shards: %v", err)
	}
	if n := c.Exists(ctx, "{f:8}").Val(); n != 0 {
		t.Error("a client with a wrong number of shards has created one")
	}
	allKnown(t, must(OpenRedisBloom(ctx, c, "f", o)), members(0, 1000))
	c.Del(ctx, "{f:3}")
	for _, o := range []RedisBloomOptions[string]{o, {Shards: 8}} {
		if _, err := OpenRedisBloom(ctx, c, "f", o); !errors.Is(err, ErrLost) {
			t.Errorf("a lost shard: %v", err)
		}
	}
	if err := f.Clear(ctx); err != nil { // creates it again
		t.Fatal(err)
	}
	if _, err := OpenRedisBloom(ctx, c, "f", o); err != nil {
		t.Error(err)
	}
}

// TestRedisBloomExpansion checks that the default expansion does not depend on the server's.
func TestRedisBloomExpansion(t *testing.T) {
	ctx := context.Background()
	c := serveBF(t, 3)
	for _, factor := range []string{"4", "0"} {
		if err := c.ConfigSet(ctx, "bf-expansion-factor", factor).Err(); err != nil {
			t.Fatal(err)
		}
		f, err := OpenRedisBloom(ctx, c, "f"+factor, RedisBloomOptions[string]{Items: 100, FPR: 0.01})
		if err != nil {
			t.Fatalf("factor %s: %v", factor, err)
		}
		if err := f.AddMany(ctx, members(0, 500), nil); err != nil {
			t.Errorf("factor %s: %v", factor, err)
		}
	}
}
