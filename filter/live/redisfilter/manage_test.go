package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func each(vs []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, v := range vs {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// manage clears, renames and expires a new filter of any kind.
func manage(t *testing.T, f Filter[string], reopen func(name string) (Filter[string], error)) {
	t.Helper()
	ctx := context.Background()
	has := func(f Filter[string], v string, want bool) {
		t.Helper()
		if got, err := f.MayContain(ctx, v); got != want || err != nil {
			t.Errorf("%T: %s: %v, %v", f, v, got, err)
		}
	}
	must(f.Add(ctx, "a"))
	if err := f.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	has(f, "a", false)
	if isNew, err := f.Add(ctx, "b"); !isNew || err != nil {
		t.Errorf("%T: after Clear: %v %v", f, isNew, err)
	}
	if err := f.Rename(ctx, "renamed"); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename(ctx, "renamed"); err != nil {
		t.Errorf("%T: renamed to its own name: %v", f, err)
	}
	has(f, "b", true)
	has(f, "a", false)
	must(f.Add(ctx, "c"))
	g, err := reopen("renamed")
	if err != nil {
		t.Fatal(err)
	}
	has(g, "b", true)
	has(g, "c", true)
	if _, err := reopen("first"); !errors.Is(err, ErrMissing) {
		t.Errorf("%T: the old name: %v", f, err)
	}
	if err := f.Expire(ctx, time.Microsecond); err == nil {
		t.Errorf("%T: expires after a microsecond", f)
	}
	for _, after := range []time.Duration{time.Hour, 0} {
		if err := f.Expire(ctx, after); err != nil {
			t.Errorf("%T: Expire(%v): %v", f, after, err)
		}
	}
	has(f, "b", true)
	if err := f.Expire(ctx, 30*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		positive, err := f.MayContain(ctx, "absent")
		if positive && (errors.Is(err, ErrLost) || errors.Is(err, ErrMissing)) {
			break
		}
		if positive || err != nil || time.Now().After(end) {
			t.Fatalf("%T: expired: %v, %v", f, positive, err)
		}
	}
}

func TestManageBloom(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	for _, layout := range []Layout{Blocked, Scattered} {
		o := Options[string]{Items: 1000, FPR: 1e-6, Layout: layout}
		f, bystander := open(t, c, "first", o), open(t, c, "bystander", o)
		manage(t, f, func(name string) (Filter[string], error) { return Open(ctx, c, name, Options[string]{}) })
		if positive, err := bystander.MayContain(ctx, "b"); positive || err != nil {
			t.Error(positive, err)
		}
		if err := bystander.Rename(ctx, "taken"); err != nil {
			t.Fatal(err)
		}
		again := open(t, c, "first", o) // another filter can have the old name
		if err := again.Rename(ctx, "taken"); !errors.Is(err, ErrExists) {
			t.Errorf("a name that is taken: %v", err)
		}
		must(again.Add(ctx, "mine"))
		if positive, err := bystander.MayContain(ctx, "mine"); positive || err != nil {
			t.Error("two filters share data", err)
		}
		// Renamed, rebuilt, and renamed back.
		if err := bystander.Rebuild(ctx, RebuildOptions{}, each([]string{"x"})); err != nil {
			t.Fatal(err)
		}
		if err := bystander.Rename(ctx, "bystander"); err != nil {
			t.Fatal(err)
		}
		if positive, err := open(t, c, "bystander", Options[string]{}).MayContain(ctx, "x"); !positive || err != nil {
			t.Error(positive, err)
		}
		if fields := c.HGetAll(ctx, configKey("bystander")).Val(); fields["keys"] != "" {
			t.Errorf("back to its first name: %v", fields)
		}
		if err := errors.Join(bystander.Expire(ctx, time.Hour), bystander.Rename(ctx, "expiring")); err != nil {
			t.Fatal(err)
		}
		if left := c.PTTL(ctx, configKey("expiring")).Val(); left <= 0 {
			t.Errorf("a filter that expires was renamed: its configuration has an expiry of %v", left)
		}
		c.FlushAll(ctx)
	}
}

func TestManageRedisson(t *testing.T) {
	c := newServer(t).client(t, 2)
	o := RedissonOptions[string]{Items: 1000, FPR: 1e-6}
	f := must(OpenRedisson(context.Background(), c, "first", o))
	manage(t, f, func(name string) (Filter[string], error) {
		return OpenRedisson(context.Background(), c, name, RedissonOptions[string]{})
	})
}

func TestManageRedisBloom(t *testing.T) {
	for _, shards := range []int{1, 3} {
		c := serveBF(t, 3)
		o := RedisBloomOptions[string]{Items: 1000, FPR: 1e-6, Shards: shards}
		f := must(OpenRedisBloom(context.Background(), c, "first", o))
		manage(t, f, func(name string) (Filter[string], error) {
			return OpenRedisBloom(context.Background(), c, name, RedisBloomOptions[string]{Shards: shards})
		})
	}
}

// After Load a filter has all elements of the source and those that others have added meanwhile,
// and gives the same answers as one that was filled element by element.
func TestLoad(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	for _, layout := range []Layout{Blocked, Scattered} {
		o := Options[string]{Items: 20_000, FPR: 0.01, Layout: layout, Seed: 5}
		f, one := open(t, c, "loaded", o), open(t, c, "one by one", o)
		must(f.Add(ctx, "before"))
		vs := members(0, 20_000)
		other := open(t, c, "loaded", Options[string]{})
		commands := 0
		f.sender.observe = func(trip Trip) { commands += trip.Commands }
		var last uint64
		err := f.Rebuild(ctx, RebuildOptions{Local: true, Progress: func(done uint64) { last = done }}, func(yield func(string, error) bool) {
			must(other.Add(ctx, "meanwhile"))
			each(vs)(yield)
		})
		if err != nil || last != 20_000 {
			t.Fatal(err, last)
		}
		if commands > 20*f.config.Load().read.shards {
			t.Errorf("%v: %d commands", layout, commands)
		}
		if err := one.AddMany(ctx, vs, nil); err != nil {
			t.Fatal(err)
		}
		probe := append(append([]string{"meanwhile"}, vs[:2000]...), nonMembers(4000)...)
		a, b := make([]bool, len(probe)), make([]bool, len(probe))
		if err := errors.Join(f.MayContainMany(ctx, probe, a), one.MayContainMany(ctx, probe, b)); err != nil {
			t.Fatal(err)
		}
		differ := 0
		for i := range probe {
			if i <= 2000 && !a[i] {
				t.Fatalf("%v: %s is lost", layout, probe[i])
			}
			if a[i] != b[i] {
				differ++
			}
		}
		if differ > 5 { // "meanwhile" is in one only
			t.Errorf("%v: %d answers differ from those of a filter that was filled element by element", layout, differ)
		}
		if positive := must(f.MayContain(ctx, "before")); positive {
			t.Error("the old elements were not replaced")
		}
		if keys := c.Keys(ctx, "*:load").Val(); len(keys) != 0 {
			t.Errorf("left behind: %v", keys)
		}
		broken := errors.New("broken source")
		err = f.Load(ctx, func(yield func(string, error) bool) { yield("", broken) })
		if !errors.Is(err, broken) || !must(f.MayContain(ctx, vs[7])) {
			t.Errorf("a failed load: %v", err)
		}
		c.FlushAll(ctx)
	}
}

// A request to create a shard that arrives again when the filter is in use does not change the
// shard.
func TestMakeTwice(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	for _, layout := range layouts {
		f := open(t, c, layout.String(), Options[string]{Items: 1000, FPR: 0.01, Shards: 3, Layout: layout})
		if err := f.AddMany(ctx, members(0, 100), nil); err != nil {
			t.Fatal(err)
		}
		g := f.config.Load().read
		for i := range g.shards {
			block := make([]byte, blockBytes)
			block[0] = blockMark
			count := uint64(0)
			if layout == Blocked {
				count = g.size
			}
			late := eval(shardKey(g.keys, &g, i), makeScript, g.header(1), count, block, g.bytes())
			if err := f.sender.send(ctx, true, late); err != nil {
				t.Fatal(err)
			}
			if ttl := c.PTTL(ctx, late.key).Val(); ttl >= 0 {
				t.Errorf("%v: a shard in use expires after %v", layout, ttl)
			}
		}
		allKnown(t, f, members(0, 100))
	}
}

// Of two rebuilds that begin at the same time, the later one leaves no keys without an expiry.
func TestRebuildTooLate(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	o := Options[string]{Items: 1000, FPR: 0.01, Shards: 3}
	f, other := open(t, c, "f", o), open(t, c, "f", Options[string]{})
	steps := 0
	f.sender.observe = func(trip Trip) {
		if !trip.Write || trip.Commands != o.Shards {
			return
		}
		if steps++; steps == 2 { // the new shards exist, and the configuration is next
			if err := other.Rebuild(ctx, RebuildOptions{}, each([]string{"a"})); err != nil {
				t.Error(err)
			}
		}
	}
	if err := f.Rebuild(ctx, RebuildOptions{}, each([]string{"b"})); !errors.Is(err, ErrTaken) {
		t.Errorf("the rebuild that is too late: %v", err)
	}
	allKnown(t, f, []string{"a"})
	kept := 0
	for _, key := range c.Keys(ctx, "{f:*").Val() {
		if c.PTTL(ctx, key).Val() < 0 {
			kept++
		}
	}
	if kept != o.Shards {
		t.Errorf("%d keys do not expire, want %d", kept, o.Shards)
	}
}

// TestAddAfterIdling adds with a client that has last seen a rebuild while it was draining. The old
// shards have expired since, and the additions must not leave them behind.
func TestAddAfterIdling(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	for _, layout := range layouts {
		name := "idle" + layout.String()
		f := open(t, c, name, Options[string]{Items: 1000, FPR: 0.01, Layout: layout, Shards: 4})
		idle := open(t, c, name, Options[string]{})
		old := idle.config.Load().read
		if err := f.Clear(ctx); err != nil {
			t.Fatal(err)
		}
		seen := *f.config.Load()
		seen.epoch, seen.phase, seen.also = seen.epoch-1, draining, old
		idle.config.Store(&seen)
		for i := range old.shards {
			c.Del(ctx, shardKey(old.keys, &old, i))
		}
		if err := idle.AddMany(ctx, members(0, 100), nil); err != nil {
			t.Fatal(err)
		}
		allKnown(t, f, members(0, 100))
		for i := range old.shards {
			if n := c.StrLen(ctx, shardKey(old.keys, &old, i)).Val(); n != 0 {
				t.Errorf("%v: shard %d of the old filter has %d bytes", layout, i, n)
			}
		}
	}
}

// A Drop that is sent again, since its reply was lost, does not delete a filter that was created
// meanwhile.
func TestDropTwice(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	c, other := s.client(t, 3), s.client(t, 3)
	o := Options[string]{Items: 1000, FPR: 0.01, Shards: 3}
	f := open(t, c, "f", o)
	var again *Bloom[string]
	losesReply(c, "f", func() {
		again = open(t, other, "f", o)
		must(again.Add(ctx, "a"))
	})
	if err := f.Drop(ctx); err != nil || again == nil {
		t.Fatal(err)
	}
	allKnown(t, again, []string{"a"})
	allKnown(t, open(t, other, "f", o), []string{"a"})
	// Without that, it does delete the filter.
	if err := again.Drop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, other, "f", Options[string]{}); !errors.Is(err, ErrMissing) {
		t.Errorf("after Drop: %v", err)
	}
}

// If the reply to the creation of a filter is lost, the client finds out that it has created it,
// even if others are already rebuilding it. If it cannot find out, it returns an error, and removes
// nothing.
func TestCreateTwice(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	other := s.client(t, 3)
	o := Options[string]{Items: 1000, FPR: 0.01, Shards: 3}
	for _, denied := range []bool{false, true} {
		name := fmt.Sprintf("denied %v", denied)
		c := s.client(t, 3)
		var first *Bloom[string]
		losesReply(c, name, func() {
			first = open(t, other, name, o)
			boom := errors.New("the source is gone")
			failing := func(yield func(string, error) bool) { yield("", boom) }
			if err := first.Rebuild(ctx, RebuildOptions{}, failing); err != boom {
				t.Fatal(err)
			}
			must(first.Add(ctx, "a"))
			if denied {
				c.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
					if cmds[0].Name() == "hgetall" {
						return fail(cmds, replyError("NOPERM User has no permissions to run the 'hgetall' command"))
					}
					return next(ctx, cmds)
				}))
			}
		})
		f, err := Open(ctx, c, name, o)
		if first == nil || (err != nil) != denied || denied && !redis.HasErrorPrefix(err, "NOPERM") {
			t.Fatalf("denied: %v: %v", denied, err)
		}
		if !denied {
			allKnown(t, f, []string{"a"})
		}
		allKnown(t, first, []string{"a"})
	}
}

// A Rename that has failed after its last step can be called again.
func TestRenameAgain(t *testing.T) {
	s := newServer(t)
	c := s.client(t, 3)
	f := open(t, c, "old", Options[string]{Items: 1000, FPR: 0.01, Shards: 3})
	must(f.Add(context.Background(), "a"))
	ctx, cancel := context.WithCancel(context.Background())
	losesReply(c, "old", cancel)
	if err := f.Rename(ctx, "new"); err == nil || ctx.Err() == nil {
		t.Fatalf("Rename whose reply was lost: %v", err)
	}
	ctx = context.Background()
	if err := f.Rename(ctx, "other"); !errors.Is(err, ErrMissing) {
		t.Errorf("another name: %v", err)
	}
	if err := f.Rename(ctx, "new"); err != nil {
		t.Fatal(err)
	}
	allKnown(t, f, []string{"a"})
	allKnown(t, open(t, s.client(t, 3), "new", Options[string]{}), []string{"a"})
	if err := f.Rebuild(ctx, RebuildOptions{}, each([]string{"b"})); err != nil {
		t.Fatal(err)
	}
	allKnown(t, f, []string{"b"})
}

// If a server evicts what is being uploaded, Load fails, and the old filter stays in use.
func TestLoadEvicted(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	f := open(t, c, "loaded", Options[string]{Items: 1000, FPR: 0.01, Shards: 3})
	must(f.Add(ctx, "before"))
	evicted := 0
	f.sender.observe = func(trip Trip) {
		if keys := c.Keys(ctx, "*:load").Val(); len(keys) > 0 && trip.Commands == 2 { // a chunk and its expiry
			c.Del(ctx, keys...)
			evicted++
		}
	}
	if err := f.Load(ctx, each(members(0, 1000))); !errors.Is(err, ErrTaken) || evicted == 0 {
		t.Errorf("%d keys were evicted: %v", evicted, err)
	}
	if !must(f.MayContain(ctx, "before")) {
		t.Error("the old filter is not in use")
	}
	f.sender.observe = nil
	if err := f.Load(ctx, each(members(0, 1000))); err != nil {
		t.Fatal(err)
	}
	positive := make([]bool, 1000)
	if err := f.MayContainMany(ctx, members(0, 1000), positive); err != nil || slices.Contains(positive, false) {
		t.Errorf("after another Load, elements are missing: %v", err)
	}
}

// Observe receives each operation, with its retries and its final error.
func TestObserve(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	var mu sync.Mutex
	var trips []Trip
	o := Options[string]{Items: 100, FPR: 0.01, Shards: 2, RetryFor: 300 * time.Millisecond, Observe: func(trip Trip) {
		mu.Lock()
		trips = append(trips, trip)
		mu.Unlock()
	}}
	// A client that does not retry itself.
	c := redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	f := open(t, c, "f", o)
	trips = nil
	must(f.Add(ctx, "a"))
	if len(trips) != 1 || !trips[0].Write || trips[0].Commands != 1 || trips[0].Attempts != 1 || trips[0].Took <= 0 || trips[0].LastRetry != nil || trips[0].Err != nil {
		t.Errorf("an Add: %+v", trips)
	}
	trips = nil
	s.kill()
	positive, err := f.MayContain(ctx, "a")
	if !positive || err == nil || !Retryable(err) {
		t.Errorf("without a server: %v, %v", positive, err)
	}
	if len(trips) != 1 || trips[0].Write || trips[0].Attempts < 2 || trips[0].LastRetry == nil || !errors.Is(err, trips[0].Err) {
		t.Errorf("without a server: %+v", trips)
	}
}

func TestRetryable(t *testing.T) {
	for err, want := range map[error]bool{
		&net.OpError{Op: "read", Err: errors.New("reset")}: true,
		ErrBusy:                               true,
		ErrTaken:                              true,
		fmt.Errorf("%w: 0 of 1", ErrReplicas): true,
		nil:                                   false,
		ErrMissing:                            false,
		lostError("k"):                        false,
		incompatible("items", 1, 2):           false,
		formatError("x"):                      false,
		ErrFull:                               false,
		ErrExists:                             false,
		optionError("FPR", "is 7"):            false,
		context.Canceled:                      false,
		context.DeadlineExceeded:              false,
		redis.ErrClosed:                       false,
	} {
		if Retryable(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}

// TestRenameTwice checks that a filter is not lost if the reply to the last step of Rename is lost,
// and another process creates a filter of the old name before the step is repeated.
func TestRenameTwice(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	c, other := s.client(t, 3), s.client(t, 3)
	o := Options[string]{Items: 1000, FPR: 1e-6, Shards: 3}
	f := open(t, c, "old", o)
	must(f.Add(ctx, "a"))
	var again *Bloom[string]
	losesReply(c, "old", func() {
		again = open(t, other, "old", o)
		must(again.Add(ctx, "b"))
	})
	err := f.Rename(ctx, "new")
	for i := 0; i < 3 && Retryable(err); i++ { // as a caller would
		err = f.Rename(ctx, "new")
	}
	if err != nil || again == nil {
		t.Fatal(err)
	}
	allKnown(t, f, []string{"a"})
	allKnown(t, open(t, other, "new", Options[string]{}), []string{"a"})
	allKnown(t, open(t, other, "old", o), []string{"b"})
}

// TestRenameAfterRebuild checks that a Rename that failed halfway can be repeated after a rebuild.
func TestRenameAfterRebuild(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	f := open(t, c, "old", Options[string]{Items: 1000, FPR: 0.01, Shards: 3})
	renameHalfway(t, c, f)
	if err := f.Rebuild(ctx, RebuildOptions{}, each([]string{"b"})); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename(ctx, "new"); err != nil {
		t.Fatal(err)
	}
	allKnown(t, open(t, c, "new", Options[string]{}), []string{"b"})
}

// TestFailedAddLeavesNoShards checks that an addition to shards that have expired leaves no keys
// without an expiry if it fails.
func TestFailedAddLeavesNoShards(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	c, ic := s.client(t, 3), s.client(t, 3)
	f := open(t, c, "f", Options[string]{Items: 1000, FPR: 0.01, Shards: 4})
	idle := open(t, ic, "f", Options[string]{})
	old := idle.config.Load().read
	if err := f.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range old.shards { // as if they had expired
		c.Del(ctx, shardKey(old.keys, &old, i))
	}
	failed := false
	ic.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		err := next(ctx, cmds)
		if !failed && cmds[0].Name() == "bitfield" {
			failed = true
			err = replyError("OOM command not allowed when used memory > 'maxmemory'.")
			cmds[0].SetErr(err)
		}
		return err
	}))
	if err := idle.AddMany(ctx, members(0, 100), nil); err == nil || !failed {
		t.Fatal(err)
	}
	for i := range old.shards {
		key := shardKey(old.keys, &old, i)
		if n := c.StrLen(ctx, key).Val(); n > 0 && c.PTTL(ctx, key).Val() < 0 {
			t.Errorf("shard %d of the old filter has %d bytes and does not expire", i, n)
		}
	}
}

// TestMakeEvicted checks that Open notices that a shard is evicted before all of them exist.
func TestMakeEvicted(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	evicted := false
	o := Options[string]{Items: 1000, FPR: 0.01, Shards: 3, Observe: func(trip Trip) {
		if keys := c.Keys(ctx, "{f:0}:*").Val(); !evicted && trip.Write && len(keys) == 1 {
			evicted = c.Del(ctx, keys...).Val() == 1
		}
	}}
	if _, err := Open(ctx, c, "f", o); !errors.Is(err, ErrLost) || !evicted {
		t.Errorf("a shard was evicted: %v, %v", evicted, err)
	}
}

// unexpiring returns the keys of a filter's shards that do not expire.
func unexpiring(c *redis.Client, name string) (keys []string) {
	ctx := context.Background()
	for _, key := range c.Keys(ctx, "{"+name+":*").Val() {
		if c.PTTL(ctx, key).Val() < 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestDropWithoutMemory checks that a filter can be dropped when the server has no memory left,
// also during a rebuild, and that its shards expire.
func TestDropWithoutMemory(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	o := Options[string]{Items: 1000, FPR: 0.01, Shards: 3}
	for _, rebuilding := range []bool{false, true} {
		f := open(t, c, "f", o)
		if rebuilding {
			boom := errors.New("the source is gone")
			failing := func(yield func(string, error) bool) { yield("", boom) }
			if err := f.Rebuild(ctx, RebuildOptions{}, failing); err != boom {
				t.Fatal(err)
			}
		}
		if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
		err := f.Drop(ctx)
		c.ConfigSet(ctx, "maxmemory", "0")
		if err != nil {
			t.Errorf("rebuilding: %v: %v", rebuilding, err)
		}
		if keys := unexpiring(c, "f"); len(keys) > 0 {
			t.Errorf("rebuilding: %v: these do not expire: %v", rebuilding, keys)
		}
		if _, err := Open(ctx, c, "f", Options[string]{}); !errors.Is(err, ErrMissing) {
			t.Errorf("rebuilding: %v: after Drop: %v", rebuilding, err)
		}
		c.FlushAll(ctx)
	}
}

// TestDropInterrupted checks that a Drop that has failed after any of its steps can be repeated.
func TestDropInterrupted(t *testing.T) {
	c := newServer(t).client(t, 3)
	o := Options[string]{Items: 1000, FPR: 0.01, Shards: 3}
	done := false
	for step := 1; !done; step++ {
		f := open(t, c, "f", o)
		ctx, cancel := context.WithCancel(context.Background())
		trips := 0
		f.sender.observe = func(Trip) {
			if trips++; trips == step {
				cancel()
			}
		}
		err := f.Drop(ctx)
		done = trips < step
		cancel()
		for range 2 {
			if err != nil && !errors.Is(err, ErrMissing) {
				err = f.Drop(context.Background())
			}
		}
		if err != nil && !errors.Is(err, ErrMissing) {
			t.Errorf("step %d: %v", step, err)
		}
		if keys := unexpiring(c, "f"); len(keys) > 0 {
			t.Errorf("step %d: these do not expire: %v", step, keys)
		}
		c.FlushAll(context.Background())
	}
}

// TestDropDuringRebuild checks that a filter that another client begins to rebuild while it is
// dropped leaves no shards that do not expire.
func TestDropDuringRebuild(t *testing.T) {
	s := newServer(t)
	c := s.client(t, 3)
	ctx := context.Background()
	f := open(t, c, "f", Options[string]{Items: 1000, FPR: 0.01, Shards: 3})
	other := open(t, s.client(t, 3), "f", Options[string]{})
	began := false
	f.sender.observe = func(trip Trip) {
		if began || trip.Write {
			return
		}
		began = true // Drop has read the configuration
		boom := errors.New("the source is gone")
		failing := func(yield func(string, error) bool) { yield("", boom) }
		if err := other.Rebuild(ctx, RebuildOptions{}, failing); err != boom {
			t.Error(err)
		}
	}
	if err := f.Drop(ctx); err != nil || !began {
		t.Fatal(err)
	}
	if keys := unexpiring(c, "f"); len(keys) > 0 {
		t.Errorf("these do not expire: %v", keys)
	}
	if _, err := Open(ctx, c, "f", Options[string]{}); !errors.Is(err, ErrMissing) {
		t.Errorf("after Drop: %v", err)
	}
}

// TestDrainWithoutMemory checks that the shards of an old filter are freed when the server has no
// memory left.
func TestDrainWithoutMemory(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	f := open(t, c, "f", Options[string]{Items: 1000, FPR: 0.01, Shards: 3})
	old := f.config.Load().read
	draining := func() bool {
		return c.HGet(ctx, configKey("f"), "phase").Val() == string(draining)
	}
	f.sender.observe = func(Trip) {
		if draining() {
			c.ConfigSet(ctx, "maxmemory", "1")
		}
	}
	if err := f.Rebuild(ctx, RebuildOptions{}, each([]string{"a"})); err == nil || !draining() {
		t.Fatalf("the server had memory left: %v", err)
	}
	if err := f.Rebuild(ctx, RebuildOptions{}, each([]string{"a"})); err == nil {
		t.Error("rebuilt without memory")
	}
	for i := range old.shards {
		key := shardKey(old.keys, &old, i)
		if n := c.StrLen(ctx, key).Val(); n > 0 || c.PTTL(ctx, key).Val() < 0 {
			t.Errorf("shard %d of the old filter has %d bytes", i, n)
		}
	}
	f.sender.observe = nil
	c.ConfigSet(ctx, "maxmemory", "0")
	allKnown(t, f, []string{"a"})
	if err := f.Rebuild(ctx, RebuildOptions{}, each([]string{"b"})); err != nil {
		t.Fatal(err)
	}
	allKnown(t, f, []string{"b"})
}

// TestRenameAfterRebuildOfNew checks that a Rename that failed halfway can be repeated when the
// filter was rebuilt under its new name.
func TestRenameAfterRebuildOfNew(t *testing.T) {
	s := newServer(t)
	c := s.client(t, 3)
	ctx := context.Background()
	f := open(t, c, "old", Options[string]{Items: 1000, FPR: 0.01, Shards: 3})
	renameHalfway(t, c, f)
	other := open(t, s.client(t, 3), "new", Options[string]{})
	if err := other.Rebuild(ctx, RebuildOptions{}, each([]string{"b"})); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename(ctx, "new"); err != nil {
		t.Fatal(err)
	}
	allKnown(t, f, []string{"b"})
	allKnown(t, open(t, c, "new", Options[string]{}), []string{"b"})
	if _, err := Open(ctx, c, "old", Options[string]{}); !errors.Is(err, ErrMissing) {
		t.Errorf("the old name: %v", err)
	}
}

// TestRebuildEpochUndone checks that an element is not lost if a failover undoes the epoch of the
// old shards during a rebuild, so that a client that knows nothing of the rebuild adds the element
// to them only: it is found, or Rebuild fails, and the next one reads it from the source.
func TestRebuildEpochUndone(t *testing.T) {
	s := newServer(t)
	c := s.client(t, 3)
	ctx := context.Background()
	for _, during := range []phase{filling, draining} {
		name := string(during)
		f := open(t, c, name, Options[string]{Items: 1000, FPR: 1e-6, Shards: 3})
		idle := open(t, s.client(t, 3), name, Options[string]{})
		old, undone := f.config.Load().read, false
		undo := func() {
			undone = true
			for i := range old.shards {
				c.BitField(ctx, shardKey(old.keys, &old, i), "set", "u32", 32, 1)
			}
			if isNew, err := idle.Add(ctx, "a"); !isNew || err != nil {
				t.Errorf("%s: Add: %v, %v", during, isNew, err)
			}
		}
		source := func(yield func(string, error) bool) {
			if during == filling {
				undo()
			}
			yield("b", nil)
		}
		f.sender.observe = func(Trip) {
			if during == draining && !undone &&
				c.HGet(ctx, configKey(name), "phase").Val() == string(draining) {
				undo() // before the old shards have the epoch of this phase
			}
		}
		err := f.Rebuild(ctx, RebuildOptions{}, source)
		if !undone {
			t.Fatal(err)
		}
		if err != nil && !Retryable(err) {
			t.Errorf("%s: %v", during, err)
		}
		if err == nil || during == filling {
			allKnown(t, f, []string{"a"})
		}
		if err != nil {
			if err := f.Rebuild(ctx, RebuildOptions{}, each([]string{"a", "b"})); err != nil {
				t.Fatal(err)
			}
		}
		allKnown(t, f, []string{"a", "b"})
	}
}

// TestRenameDuringRebuilds checks that Rename leaves the new name if the filter was rebuilt under
// both names before the old one was removed.
func TestRenameDuringRebuilds(t *testing.T) {
	s := newServer(t)
	c, other := s.client(t, 3), s.client(t, 3)
	ctx := context.Background()
	f := open(t, c, "old", Options[string]{Items: 1000, FPR: 1e-6, Shards: 3})
	rebuilt := false
	f.sender.observe = func(trip Trip) {
		if rebuilt || !trip.Write {
			return
		}
		rebuilt = true // the filter has both names
		for _, name := range []string{"old", "new"} {
			g := open(t, other, name, Options[string]{})
			if err := g.Rebuild(ctx, RebuildOptions{}, each([]string{name})); err != nil {
				t.Error(err)
			}
		}
	}
	if err := f.Rename(ctx, "new"); !errors.Is(err, ErrBusy) || !rebuilt {
		t.Errorf("Rename: %v", err)
	}
	for _, name := range []string{"old", "new"} {
		allKnown(t, open(t, other, name, Options[string]{}), []string{name})
	}
}

// TestSweepWithoutMemory checks that an addition to shards that have expired leaves no keys without
// an expiry if the server has no memory left then.
func TestSweepWithoutMemory(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	c, ic := s.client(t, 3), s.client(t, 3)
	f := open(t, c, "f", Options[string]{Items: 1000, FPR: 0.01, Shards: 4})
	idle := open(t, ic, "f", Options[string]{})
	old := idle.config.Load().read
	if err := f.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range old.shards { // as if they had expired
		c.Del(ctx, shardKey(old.keys, &old, i))
	}
	ic.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		err := next(ctx, cmds)
		if cmds[0].Name() == "bitfield" {
			c.ConfigSet(ctx, "maxmemory", "1")
		}
		return err
	}))
	if err := idle.AddMany(ctx, members(0, 100), nil); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("added without memory: %v", err)
	}
	for i := range old.shards {
		key := shardKey(old.keys, &old, i)
		if n := c.StrLen(ctx, key).Val(); n > 0 || c.PTTL(ctx, key).Val() < 0 {
			t.Errorf("shard %d of the old filter has %d bytes, or does not expire", i, n)
		}
	}
}

// renameHalfway makes f's Rename to "new" fail after it has written the new configuration.
func renameHalfway(t *testing.T, c *redis.Client, f *Bloom[string]) {
	t.Helper()
	deny := true
	c.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if deny && cmds[0].Name() == "eval" && slices.Contains(cmds[0].Args(), any(configKey("old"))) {
			return fail(cmds, replyError("NOPERM no"))
		}
		return next(ctx, cmds)
	}))
	if err := f.Rename(t.Context(), "new"); err == nil {
		t.Fatal("renamed")
	}
	deny = false
}

// TestRenameBothRebuilt checks that Rename deletes no filter if it had failed halfway, and the
// filter was then rebuilt under both names: more often under the new one, or under the old one.
func TestRenameBothRebuilt(t *testing.T) {
	ctx := context.Background()
	for name, rebuilds := range map[string][2]int{"new": {1, 2}, "old": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c := s.client(t, 3)
			f := open(t, c, "old", Options[string]{Items: 1000, FPR: 1e-6, Shards: 3})
			renameHalfway(t, c, f)
			other := open(t, s.client(t, 3), "new", Options[string]{})
			for i, g := range []*Bloom[string]{f, other} {
				for range rebuilds[i] {
					if err := g.Rebuild(ctx, RebuildOptions{}, each([]string{"a"})); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := g.Add(ctx, "z"); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Rename(ctx, "new"); !errors.Is(err, ErrExists) {
				t.Errorf("Rename: %v", err)
			}
			for _, at := range []string{"old", "new"} {
				allKnown(t, open(t, s.client(t, 3), at, Options[string]{}), []string{"a", "z"})
			}
		})
	}
}

// renamable are the kinds whose Rename moves keys: for each, a client of a new server, and a
// function that opens a filter.
func renamable(t *testing.T) map[string]func() (*redis.Client, func(name string) Filter[string]) {
	ctx := context.Background()
	kinds := map[string]func() (*redis.Client, func(name string) Filter[string]){
		"Redisson": func() (*redis.Client, func(name string) Filter[string]) {
			c := newServer(t).client(t, 3)
			return c, func(name string) Filter[string] {
				return must(OpenRedisson(ctx, c, name, RedissonOptions[string]{Items: 1000, FPR: 1e-6}))
			}
		},
	}
	for _, shards := range []int{1, 3} {
		kinds[fmt.Sprintf("RedisBloom of %d", shards)] = func() (*redis.Client, func(name string) Filter[string]) {
			c := serveBF(t, 3)
			return c, func(name string) Filter[string] {
				o := RedisBloomOptions[string]{Items: 1000, FPR: 1e-6, Shards: shards}
				return must(OpenRedisBloom(ctx, c, name, o))
			}
		}
	}
	return kinds
}

// TestRenameGone checks that Rename of a filter that has expired returns ErrMissing, even if there
// is a filter with the new name.
func TestRenameGone(t *testing.T) {
	ctx := context.Background()
	for name, kind := range renamable(t) {
		t.Run(name, func(t *testing.T) {
			c, open := kind()
			f, other := open("old"), open("new")
			must(f.Add(ctx, "a"))
			must(other.Add(ctx, "b"))
			if n := c.Del(ctx, c.Keys(ctx, "*old*").Val()...).Val(); n == 0 {
				t.Fatal("nothing was deleted")
			}
			if err := f.Rename(ctx, "new"); !errors.Is(err, ErrMissing) {
				t.Errorf("Rename: %v", err)
			}
			if positive, _ := f.MayContain(ctx, "a"); !positive {
				t.Error("an element of the filter that is gone is hidden")
			}
			allKnown(t, other, []string{"b"})
		})
	}
}

// TestRenameLosesReplies checks that Rename succeeds if the reply to each of its changes is lost,
// also if there was another filter with the new name.
func TestRenameLosesReplies(t *testing.T) {
	ctx := context.Background()
	for name, kind := range renamable(t) {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, taken: %v", name, taken), func(t *testing.T) {
				c, open := kind()
				f := open("old")
				if err := f.AddMany(ctx, members(0, 20), nil); err != nil {
					t.Fatal(err)
				}
				if taken {
					must(open("new").Add(ctx, "b"))
				}
				lost := map[string]bool{}
				c.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
					err := next(ctx, cmds)
					command := fmt.Sprint(cmds[0].Args())
					if name := cmds[0].Name(); lost[command] || name != "eval" && name != "rename" {
						return err
					}
					lost[command] = true
					return fail(cmds, io.ErrUnexpectedEOF)
				}))
				if err := f.Rename(ctx, "new"); err != nil || len(lost) == 0 {
					t.Fatalf("%d replies were lost: %v", len(lost), err)
				}
				allKnown(t, f, members(0, 20))
				allKnown(t, open("new"), members(0, 20))
			})
		}
	}
}

// TestRenameRedisBloomHalfway checks that a Rename that has failed after some of the shards can be
// repeated.
func TestRenameRedisBloomHalfway(t *testing.T) {
	c := serveBF(t, 3)
	ctx := context.Background()
	f := must(OpenRedisBloom(ctx, c, "old", RedisBloomOptions[string]{Items: 1000, FPR: 1e-6, Shards: 3}))
	if err := f.AddMany(ctx, members(0, 20), nil); err != nil {
		t.Fatal(err)
	}
	renames := 0
	c.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if cmds[0].Name() == "rename" {
			if renames++; renames == 2 {
				return fail(cmds, replyError("NOPERM no"))
			}
		}
		return next(ctx, cmds)
	}))
	if err := f.Rename(ctx, "new"); err == nil || renames != 2 {
		t.Fatalf("after %d shards: %v", renames, err)
	}
	if err := f.Rename(ctx, "new"); err != nil {
		t.Fatal(err)
	}
	allKnown(t, f, members(0, 20))
}

// TestExpireRedissonAgain checks that no element is hidden if a filter's expiry is extended while
// the filter expires, and that the bits of an empty filter may be missing.
func TestExpireRedissonAgain(t *testing.T) {
	c := newServer(t).client(t, 3)
	ctx := context.Background()
	f := must(OpenRedisson(ctx, c, "f", RedissonOptions[string]{Items: 1000, FPR: 1e-6}))
	for _, after := range []time.Duration{time.Hour, 0} {
		if err := f.Expire(ctx, after); err != nil {
			t.Errorf("an empty filter, %v: %v", after, err)
		}
		if left := c.PTTL(ctx, redissonConfigKey("f")).Val(); (left > 0) != (after > 0) {
			t.Errorf("an empty filter expires after %v, not %v", left, after)
		}
	}
	must(f.Add(ctx, "a"))
	const first = 500 * time.Millisecond
	if err := f.Expire(ctx, first); err != nil {
		t.Fatal(err)
	}
	slow := true
	c.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		err := next(ctx, cmds)
		if slow {
			slow = false
			time.Sleep(first)
		}
		return err
	}))
	err := f.Expire(ctx, time.Hour)
	if positive, lookup := f.MayContain(ctx, "a"); !positive {
		t.Errorf("the element is hidden: %v, %v", err, lookup)
	}
	if err == nil {
		for _, key := range []string{"f", redissonConfigKey("f")} {
			if left := c.PTTL(ctx, key).Val(); left <= first {
				t.Errorf("%s expires after %v", key, left)
			}
		}
	}
	c.FlushAll(ctx)
	if err := f.Expire(ctx, time.Hour); !errors.Is(err, ErrLost) {
		t.Errorf("the filter is gone: %v", err)
	}
}
