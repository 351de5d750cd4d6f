package redisfilter

import (
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

var layouts = []Layout{Blocked, Scattered}

func TestLayoutExample(t *testing.T) {
	g := generation{layout: Blocked, shards: 1, size: 1, hashes: 2}
	key := must(funnel.For[string](nil))
	h := key.Sum64("a")
	if h != 0xd24ec4f1a98c6e5b {
		t.Fatalf("hash %x", h)
	}
	bits := g.appendBits(nil, h)
	start := uint64((headerBytes)*8 + 8)
	if len(bits) != 2 || bits[0]-start != 502 || bits[1]-start != 1 || bits[0]/8 != 127 || bits[1]/8 != 65 {
		t.Errorf("bits %v, in bytes %d and %d", []uint64{bits[0] - start, bits[1] - start}, bits[0]/8, bits[1]/8)
	}
	g.id, g.layout = 0x0123456789abcdef, Scattered
	if got, want := hex.EncodeToString(g.header(7)[:20]), "a5010100000000070123456789abcdef00000000"; got != want {
		t.Errorf("header %s, want %s", got, want)
	}
}

func TestConfig(t *testing.T) {
	g := generation{0x0123456789abcdef, 1000, 0.01, Blocked, 64, 1, 7, 0, ""}
	if got := g.encode(); got != "0123456789abcdef blocked items=1000 fpr=0.01 shards=64 size=1 hashes=7 seed=0" {
		t.Errorf("%s", got)
	}
	old := generation{1, math.MaxUint64, 1e-9, Scattered, maxShards, 8, 30, math.MaxUint64, ""}
	for _, c := range []config{
		{1, funnel.Bytes, 1, steady, g, generation{}, ""},
		{math.MaxUint64, funnel.Int64, math.MaxUint32, draining, g, old, "first"},
		{5, funnel.Custom, 3, filling, old, g, ""},
	} {
		f := map[string]string{}
		for i, fs := 0, c.fields(); i < len(fs); i += 2 {
			f[fs[i].(string)] = fs[i+1].(string)
		}
		if got, err := decodeConfig(f); err != nil || got != c {
			t.Errorf("%+v is decoded as %+v, %v", c, got, err)
		}
		for name := range f {
			value := f[name]
			for _, bad := range []string{"", "x", value + " x", "-" + value} {
				if name == "keys" { // any name without a brace is valid
					bad += "{"
				}
				f[name] = bad
				if _, err := decodeConfig(f); !errors.Is(err, ErrFormat) {
					t.Errorf("%s=%q: %v", name, bad, err)
				}
			}
			f[name] = value
		}
		f["more"] = ""
		if _, err := decodeConfig(f); !errors.Is(err, ErrFormat) {
			t.Errorf("an additional field: %v", err)
		}
	}
}

func FuzzDecodeConfig(f *testing.F) {
	g := generation{1, 1000, 0.01, Blocked, 64, 1, 7, 0, ""}
	f.Add(g.encode())
	f.Add("0123456789abcdef scattered items=1 fpr=1e-9 shards=1 size=8 hashes=1 seed=18446744073709551615")
	f.Fuzz(func(t *testing.T, s string) {
		g, err := decodeGeneration(s)
		if err != nil {
			return
		}
		if again, err := decodeGeneration(g.encode()); err != nil || again != g {
			t.Errorf("%q: %+v is decoded as %+v, %v", s, g, again, err)
		}
		shard, h := g.place(12345)
		if shard >= g.shards {
			t.Errorf("%q: shard %d", s, shard)
		}
		for _, b := range g.appendBits(nil, h) {
			if b/8 >= g.bytes() || b < headerBytes*8 {
				t.Errorf("%q: bit %d of %d bytes", s, b, g.bytes())
			}
		}
	})
}

func open(t testing.TB, c redis.UniversalClient, name string, o Options[string]) *Bloom[string] {
	t.Helper()
	f, err := Open(context.Background(), c, name, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// allKnown fails if one of vs is not found.
func allKnown(t testing.TB, f Filter[string], vs []string) {
	t.Helper()
	positive := make([]bool, len(vs))
	if err := f.MayContainMany(context.Background(), vs, positive); err != nil {
		t.Fatal(err)
	}
	for i, m := range positive {
		if !m {
			t.Fatalf("%s is lost", vs[i])
		}
	}
}

func fprOf(t testing.TB, f Filter[string], probes int) float64 {
	t.Helper()
	positive := make([]bool, probes)
	if err := f.MayContainMany(context.Background(), nonMembers(probes), positive); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range positive {
		if m {
			n++
		}
	}
	return float64(n) / float64(probes)
}

func TestBloom(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	for _, layout := range layouts {
		for _, protocol := range []int{2, 3} {
			c := s.client(t, protocol)
			c.FlushAll(ctx)
			const n = 20_000
			o := Options[string]{Items: n, FPR: 0.01, Layout: layout, Seed: 7}
			f := open(t, c, "users", o)
			isNew := make([]bool, n)
			if err := f.AddMany(ctx, members(0, n), isNew); err != nil {
				t.Fatal(err)
			}
			known := 0
			for _, yes := range isNew {
				if !yes {
					known++
				}
			}
			if known > n/200 {
				t.Errorf("%v: Add returned false for %d of %d new elements", layout, known, n)
			}
			allKnown(t, f, members(0, n))
			if yes, err := f.Add(ctx, member(0)); yes || err != nil {
				t.Errorf("%v: new twice: %v", layout, err)
			}
			got, dev := fprOf(t, f, 40_000), 4*math.Sqrt(0.01/40_000)
			if got > 0.01+dev || got < 0.005 {
				t.Errorf("%v: FPR %v", layout, got)
			}
			if e := f.ExpectedFPR(n); e > 0.0101 || math.Abs(e-got) > 5*math.Sqrt(0.01/40_000)+0.001 {
				t.Errorf("%v: FPR %v, expected %v", layout, got, e)
			}
			if count := must(f.ApproxCount(ctx)); math.Abs(float64(count)-n) > n/50 {
				t.Errorf("%v: count %d", layout, count)
			}
			info := must(f.Info(ctx))
			if info.Items != n || info.Shards != 64 || info.Building || float64(info.Bytes) > n*12.5/8+64*64*2 {
				t.Errorf("%v: %+v", layout, info)
			}
			// Another client finds the filter, with and without parameters.
			allKnown(t, open(t, c, "users", o), members(0, 100))
			allKnown(t, open(t, c, "users", Options[string]{}), members(0, 100))
			if err := f.Drop(ctx); err != nil {
				t.Fatal(err)
			}
			if positive, err := f.MayContain(ctx, "x"); !positive || !errors.Is(err, ErrMissing) {
				t.Errorf("dropped: %v, %v", positive, err)
			}
		}
	}
}

// A client with other parameters gets an error, never a negative answer. So does one whose filter
// was created again with other parameters, or has lost keys.
func TestBloomChecksItsConfiguration(t *testing.T) {
	s := newServer(t)
	c := s.client(t, 3)
	ctx := context.Background()
	base := Options[string]{Items: 1000, FPR: 0.01, RetryFor: time.Second}
	f := open(t, c, "f", base)
	for _, tc := range []struct {
		desc   string
		change func(*Options[string])
	}{
		{"items", func(o *Options[string]) { o.Items = 1001 }},
		{"FPR", func(o *Options[string]) { o.FPR = 0.02 }},
		{"layout", func(o *Options[string]) { o.Layout = Scattered }},
		{"shards", func(o *Options[string]) { o.Shards = 128 }},
		{"seed", func(o *Options[string]) { o.Seed = 1 }},
		{"funnel", func(o *Options[string]) { o.Funnel = func(b []byte, s string) []byte { return b } }},
	} {
		o := base
		tc.change(&o)
		if _, err := Open(ctx, c, "f", o); !errors.Is(err, ErrIncompatible) {
			t.Errorf("%s: %v", tc.desc, err)
		}
	}
	if _, err := Open[int64](ctx, c, "f", Options[int64]{}); !errors.Is(err, ErrIncompatible) {
		t.Errorf("integers: %v", err)
	}
	if _, err := Open(ctx, c, "none", Options[string]{}); !errors.Is(err, ErrMissing) {
		t.Errorf("no filter: %v", err)
	}
	for _, o := range []Options[string]{{FPR: 0.1}, {Items: 1}, {Items: 1, FPR: 0.1, Shards: -1}, {Items: 1 << 50, FPR: 0.1}, {Items: 1 << 33, FPR: 0.01, Shards: 1}} {
		if _, err := Open(ctx, c, "g", o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	if _, err := Open(ctx, c, "a{b", base); err == nil {
		t.Error("a name with a brace")
	}

	f.Add(ctx, "a")
	// Created again by another client, with the same parameters: that is a new, empty filter.
	if err := open(t, c, "f", base).Drop(ctx); err != nil {
		t.Fatal(err)
	}
	second := open(t, c, "f", base)
	second.Add(ctx, "b")
	if positive, err := f.MayContain(ctx, "b"); !positive || err != nil {
		t.Errorf("created again: %v, %v", positive, err)
	}
	// With other parameters.
	second.Drop(ctx)
	other := base
	other.Items, other.Layout = 5000, Scattered
	third := open(t, c, "f", other)
	third.Add(ctx, "b")
	for range 2 {
		if positive, err := f.MayContain(ctx, "b"); !positive || !errors.Is(err, ErrIncompatible) {
			t.Errorf("created with other parameters: %v, %v", positive, err)
		}
		if _, err := f.Add(ctx, "c"); !errors.Is(err, ErrIncompatible) {
			t.Errorf("added to the wrong filter: %v", err)
		}
	}
	if _, err := third.Add(ctx, "d"); err != nil {
		t.Errorf("after a client with a stale configuration: %v", err)
	}

	// A shard that is gone.
	for _, layout := range layouts {
		o := base
		o.Layout = layout
		name := "lost " + layout.String()
		f := open(t, c, name, o)
		f.AddMany(ctx, members(0, 1000), nil)
		g := &f.config.Load().read
		shard, _ := g.place(f.key.Sum64(member(5)))
		c.Del(ctx, shardKey(name, g, shard))
		if positive, err := f.MayContain(ctx, member(5)); !positive || !errors.Is(err, ErrLost) {
			t.Errorf("%v: shard gone: %v, %v", layout, positive, err)
		}
		if _, err := f.Add(ctx, member(5)); !errors.Is(err, ErrLost) {
			t.Errorf("%v: added to a shard that is gone: %v", layout, err)
		}
		if n := c.StrLen(ctx, shardKey(name, g, shard)).Val(); n != 0 {
			t.Errorf("%v: the shard was created again without its bits", layout)
		}
		if _, err := f.ApproxCount(ctx); !errors.Is(err, ErrLost) {
			t.Errorf("%v: counted: %v", layout, err)
		}
		// A rebuild repairs the filter.
		if err := f.Rebuild(ctx, RebuildOptions{}, source(members(0, 1000))); err != nil {
			t.Fatal(err)
		}
		allKnown(t, f, members(0, 1000))
	}
	c.HSet(ctx, configKey("f"), "epoch", "-1")
	if _, err := Open(ctx, c, "f", Options[string]{}); !errors.Is(err, ErrFormat) {
		t.Errorf("damaged configuration: %v", err)
	}
}

func source(vs []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, v := range vs {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// While a filter is rebuilt repeatedly, other clients, which learn of it only from the shards, add
// and look up elements. No element is lost, and deleted ones disappear.
func TestRebuild(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	for _, layout := range layouts {
		name := "r" + layout.String()
		o := Options[string]{Items: 2000, FPR: 0.001, Layout: layout}
		f := open(t, s.client(t, 3), name, o)
		f.AddMany(ctx, members(0, 2000), nil)

		stop := make(chan struct{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		added := make([][]string, 4)
		for w := range added {
			g := open(t, s.client(t, 3), name, o)
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					vs := []string{}
					for j := range 5 {
						vs = append(vs, strings.Repeat("w", w+1)+member(5*i+j))
					}
					if err := g.AddMany(ctx, vs, nil); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					added[w] = append(added[w], vs...)
					back := added[w][len(added[w])-5:]
					mu.Unlock()
					positive := make([]bool, len(back))
					if err := g.MayContainMany(ctx, back, positive); err != nil {
						t.Error(err)
						return
					}
					for k, m := range positive {
						if !m {
							t.Errorf("%s is lost", back[k])
							return
						}
					}
				}
			})
		}
		// All elements that are added during the last rebuild must be in the new filter.
		from := make([]int, len(added))
		enough := func() bool {
			mu.Lock()
			defer mu.Unlock()
			for w := range added {
				if len(added[w]) < from[w]+50 && !t.Failed() {
					return false
				}
			}
			return true
		}
		for round := range 5 {
			progress := uint64(0)
			slow := func(yield func(string, error) bool) {
				for i := range 1000 {
					for i == 900 && !enough() { // until every writer has added elements
						time.Sleep(time.Millisecond)
					}
					if i == 0 {
						mu.Lock()
						for w := range added { // not those being added now
							from[w] = len(added[w]) + 5
						}
						mu.Unlock()
					}
					if !yield(member(1000+i), nil) {
						return
					}
				}
			}
			if err := f.Rebuild(ctx, RebuildOptions{Items: uint64(20_000 + round), Progress: func(n uint64) { progress = n }}, slow); err != nil {
				t.Fatal(err)
			}
			if progress != 1000 {
				t.Errorf("progress %d", progress)
			}
		}
		close(stop)
		wg.Wait()
		for w := range added {
			if len(added[w]) < from[w]+50 {
				t.Fatalf("writer %d added only %d elements during the last rebuild", w, len(added[w])-from[w])
			}
			allKnown(t, f, added[w][from[w]:])
		}
		allKnown(t, f, members(1000, 1000))
		positive := make([]bool, 1000)
		f.MayContainMany(ctx, members(0, 1000), positive)
		left := 0
		for _, m := range positive {
			if m {
				left++
			}
		}
		if left > 20 {
			t.Errorf("%v: %d of 1000 elements that are not in the source remain", layout, left)
		}
		if info := must(f.Info(ctx)); info.Items != 20_004 || info.Building {
			t.Errorf("%+v", info)
		}
		// Old shards are empty and expire.
		c := s.client(t, 3)
		shards, full := c.Keys(ctx, "{"+name+":*").Val(), 0
		for _, k := range shards {
			if c.StrLen(ctx, k).Val() > 0 && c.TTL(ctx, k).Val() < 0 {
				full++
			}
		}
		if full != 64 {
			t.Errorf("%v: %d keys remain, want 64", layout, full)
		}
	}
}

// Whenever a process ends during a rebuild, the filter stays in use, and the next rebuild takes
// over.
func TestRebuildInterrupted(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	c := s.client(t, 3)
	o := Options[string]{Items: 1000, FPR: 0.001}
	f := open(t, c, "f", o)
	f.AddMany(ctx, members(0, 500), nil)
	boom := errors.New("the source is gone")
	failing := func(yield func(string, error) bool) { yield("", boom) }
	if err := f.Rebuild(ctx, RebuildOptions{}, failing); err != boom {
		t.Fatal(err)
	}
	other := open(t, c, "f", o)
	other.AddMany(ctx, members(500, 100), nil)
	allKnown(t, f, members(0, 600))
	if !must(f.Info(ctx)).Building {
		t.Error("not in the middle of a rebuild")
	}
	// A rebuild that is still running finds that another one has taken over.
	taken := false
	slow := func(yield func(string, error) bool) {
		if err := other.Rebuild(ctx, RebuildOptions{}, source(members(0, 700))); err != nil {
			t.Error(err)
		}
		taken = true
		yield("x", nil)
	}
	if err := f.Rebuild(ctx, RebuildOptions{}, slow); !errors.Is(err, ErrTaken) || !taken {
		t.Errorf("taken over: %v", err)
	}
	allKnown(t, f, members(0, 700))
	// The process ends while the old generation is draining.
	c1 := must(f.refresh(ctx))
	next := must(newGeneration(99, &sizing{Items: 1000, FPR: 0.001, Shards: 64}))
	next.keys = c1.read.keys
	if err := f.makeShards(ctx, &next, c1.epoch+1); err != nil {
		t.Fatal(err)
	}
	c2 := must(f.advance(ctx, c1, filling, c1.read, next))
	if err := f.fill(ctx, c2, nil, source(members(0, 800))); err != nil {
		t.Fatal(err)
	}
	must(f.advance(ctx, c2, draining, c2.also, c2.read))
	other.AddMany(ctx, members(800, 100), nil)
	allKnown(t, other, members(0, 900))
	if err := other.Rebuild(ctx, RebuildOptions{}, source(members(0, 950))); err != nil {
		t.Fatal(err)
	}
	allKnown(t, f, members(0, 950))
}

func TestClientsThatReadReplicas(t *testing.T) {
	for _, o := range []*redis.ClusterOptions{{ReadOnly: true}, {RouteByLatency: true}, {RouteRandomly: true}} {
		o.Addrs = []string{"127.0.0.1:1"}
		c := redis.NewClusterClient(o)
		if _, err := Open(context.Background(), c, "f", Options[string]{Items: 1, FPR: 0.1}); err == nil || !strings.Contains(err.Error(), "replicas") {
			t.Errorf("%+v: %v", o, err)
		}
		c.Close()
	}
}

// If a server does not answer, operations are retried for RetryFor, and lookups return true.
func TestRetryFor(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	f := open(t, s.client(t, 3), "f", Options[string]{Items: 10, FPR: 0.1})
	f.Add(ctx, "a")
	short := open(t, s.client(t, 3), "f", Options[string]{RetryFor: time.Millisecond})
	s.kill()
	if positive, err := short.MayContain(ctx, "a"); !positive || err == nil {
		t.Errorf("no server: %v, %v", positive, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if positive, err := f.MayContain(ended, "a"); !positive || !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v, %v", positive, err)
	}
	done := make(chan error, 1)
	go func() { _, err := f.Add(ctx, "b"); done <- err }()
	time.Sleep(50 * time.Millisecond)
	s.start() // it is empty now: that must not be a negative answer
	if err := <-done; !errors.Is(err, ErrMissing) {
		t.Errorf("server that has lost everything: %v", err)
	}
}

// Add returns true for a new element even if the first attempt was not acknowledged by enough
// replicas. The error reports how many have acknowledged it.
func TestReplicas(t *testing.T) {
	master := newServer(t, "--repl-diskless-sync-delay", "0")
	ctx := context.Background()
	c := master.client(t, 3)
	f := open(t, c, "f", Options[string]{Items: 1000, FPR: 0.001})
	g := open(t, c, "f", Options[string]{Replicas: 1, ReplicaWait: 20 * time.Millisecond, RetryFor: 100 * time.Millisecond})
	if _, err := g.Add(ctx, "a"); !errors.Is(err, ErrReplicas) {
		t.Errorf("no replica: %v", err)
	}
	if positive, err := f.MayContain(ctx, "a"); !positive || err != nil {
		t.Errorf("not added: %v, %v", positive, err)
	}
	g = open(t, c, "f", Options[string]{Replicas: 1, ReplicaWait: 20 * time.Millisecond})
	result := make(chan bool, 1)
	go func() {
		yes, err := g.Add(ctx, "b")
		if err != nil {
			t.Error(err)
		}
		result <- yes
	}()
	time.Sleep(100 * time.Millisecond) // some attempts
	replica := newServer(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.port))
	if !<-result {
		t.Error("Add returned false for a new element")
	}
	if yes, err := g.Add(ctx, "b"); yes || err != nil {
		t.Errorf("new twice: %v", err)
	}
	master.kill() // the replica has it
	h := open(t, replica.client(t, 3), "f", Options[string]{})
	allKnown(t, h, []string{"a", "b"})
}

// A master that becomes a replica between a write and its WAIT rejects the WAIT. The write is
// repeated once there is a master again.
func TestDemotedBeforeWait(t *testing.T) {
	s := newServer(t, "--replica-read-only", "no", "--repl-diskless-sync-delay", "0") // so that the write is not rejected
	ctx := context.Background()
	c := s.client(t, 3)
	open(t, c, "f", Options[string]{Items: 1000, FPR: 0.001})
	nobody := strconv.Itoa(freePort(t))
	if err := c.ReplicaOf(ctx, "127.0.0.1", nobody).Err(); err != nil {
		t.Fatal(err)
	}
	g := open(t, c, "f", Options[string]{Replicas: 1, ReplicaWait: 20 * time.Millisecond, RetryFor: 100 * time.Millisecond})
	if _, err := g.Add(ctx, "a"); err == nil || !strings.Contains(err.Error(), "WAIT") {
		t.Errorf("while it is a replica: %v", err)
	}
	g = open(t, c, "f", Options[string]{Replicas: 1, ReplicaWait: 20 * time.Millisecond})
	result := make(chan error, 1)
	go func() { _, err := g.Add(ctx, "b"); result <- err }()
	time.Sleep(50 * time.Millisecond) // some attempts
	if err := c.ReplicaOf(ctx, "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	replica := newServer(t, "--replicaof", "127.0.0.1", strconv.Itoa(s.port))
	if err := <-result; err != nil {
		t.Error(err)
	}
	s.kill()
	allKnown(t, open(t, replica.client(t, 3), "f", Options[string]{}), []string{"b"})
}

// Memory of a filter for a million elements, in bits per element.
func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		layout Layout
		fpr    float64
		bits   float64
	}{{Scattered, 0.01, 9.6}, {Blocked, 0.01, 10.1}, {Scattered, 0.001, 14.4}, {Blocked, 0.001, 15.8}} {
		const n = 1_000_000
		g := must(newGeneration(1, &sizing{Items: n, FPR: tc.fpr, Layout: tc.layout}))
		if got := float64(uint64(g.shards)*g.bytes()*8) / n; math.Abs(got-tc.bits) > 0.06 {
			t.Errorf("%v at %v: %.2f bits per element, want %v", tc.layout, tc.fpr, got, tc.bits)
		}
		if e := g.expectedFPR(n); e > tc.fpr*1.001 {
			t.Errorf("%v at %v: FPR %v", tc.layout, tc.fpr, e)
		}
	}
	for items, shards := range map[uint64]int{1: 64, 1_000_000: 64, 1_000_000_000: 256, 1 << 36: maxShards} {
		g := must(newGeneration(1, &sizing{Items: items, FPR: 0.01}))
		if g.shards != shards {
			t.Errorf("%d elements: %d shards of %d bytes", items, g.shards, g.bytes())
		}
	}
}

// TestReplicaWaitAndReadTimeout checks that a client waits for the reply of WAIT.
func TestReplicaWaitAndReadTimeout(t *testing.T) {
	s := newServer(t)
	ctx := context.Background()
	open(t, s.client(t, 3), "f", Options[string]{Items: 10, FPR: 0.1})
	// WAIT may take a tenth of a second longer than its timeout.
	c := redis.NewClient(&redis.Options{Addr: s.addr(), ReadTimeout: 800 * time.Millisecond})
	defer c.Close()
	f := open(t, c, "f", Options[string]{Replicas: 1, RetryFor: 2 * time.Second})
	if _, err := f.Add(ctx, "a"); !errors.Is(err, ErrReplicas) {
		t.Errorf("no replica: %v", err)
	}
	if _, err := Open(ctx, c, "f", Options[string]{Replicas: 1, ReplicaWait: time.Second}); err == nil {
		t.Error("waits for replicas longer than for a reply")
	}
}
