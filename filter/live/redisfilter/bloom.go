package redisfilter

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift/filter/live/internal/funnel"
)

// Options are the parameters of a Bloom. With Items, the filter is created if it does not
// exist, and an existing one must have the same parameters. Without Items, the filter must
// exist, and its parameters are used.
type Options[T any] struct {
	// Items is the number of elements up to which FPR holds.
	Items uint64
	// FPR is the false positive rate with Items elements, above 0 and below 1.
	FPR float64
	// Layout determines which bits an element sets; Blocked if zero.
	Layout Layout
	// Shards is the number of keys, up to 16,384. If zero, it is 64, or more so that
	// each has at most about 8 MiB. 64 keys spread almost evenly over three nodes.
	Shards int
	// Seed, if not zero, makes the false positives of this filter independent of
	// those of filters with other seeds.
	Seed uint64
	// Replicas is how many replicas must have an element before Add returns; 0: none. With 1, no
	// acknowledged element is lost if a master crashes and that replica takes over. It costs a
	// round trip between the servers.
	Replicas int
	// ReplicaWait is how long one attempt waits for them. The client's ReadTimeout must be longer,
	// by more than the tenth of a second with which servers measure it. If zero, it is a second, or
	// half of ReadTimeout if that is less.
	ReplicaWait time.Duration
	// RetryFor is how long a failing operation is retried; 30 seconds if zero, which
	// is longer than a failover of Redis Cluster with its default
	// cluster-node-timeout. The context may end it earlier.
	RetryFor time.Duration
	// Observe, if not nil, receives each operation; see Trip.
	Observe func(Trip)
	// Funnel appends the bytes of an element; see live.BloomOptions. It may be nil
	// for strings, byte slices and integers.
	Funnel func(dst []byte, v T) []byte
}

// sizing is the part of the options that is stored with the filter.
type sizing struct {
	Items  uint64
	FPR    float64
	Layout Layout
	Shards int
	Seed   uint64
}

// Bloom is a Bloom filter in Redis. Elements are spread over many keys, called shards, each
// with its own hash tag. An addition is one BITFIELD, a lookup one GETRANGE or BITFIELD_RO,
// and batches go to all nodes at once.
//
// Each command also checks that its shard is the expected one. If another process has rebuilt
// the filter, the operation continues with the new one. If the filter was created again with
// other parameters, the operation returns ErrIncompatible; if the shard is gone, ErrLost.
type Bloom[T any] struct {
	key    funnel.Key[T]
	name   atomic.Pointer[string] // changed by Rename
	sender *sender
	want   sizing // Items is zero: any
	config atomic.Pointer[config]
}

var _ Filter[string] = (*Bloom[string])(nil)

// Open opens the filter with the given name. If it does not exist, Open creates it if
// Options.Items is set, and otherwise returns ErrMissing.
func Open[T any](ctx context.Context, client redis.UniversalClient, name string, o Options[T]) (*Bloom[T], error) {
	key, err := funnel.For(o.Funnel)
	if err != nil {
		return nil, optionError("Funnel", "is missing: %v", err)
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	s, err := newSender(client, o.Replicas, o.ReplicaWait, o.RetryFor, o.Observe)
	if err != nil {
		return nil, err
	}
	f := &Bloom[T]{key: key, sender: s, want: sizing{o.Items, o.FPR, o.Layout, o.Shards, o.Seed}}
	f.name.Store(&name)
	if o.Items == 0 && (o.FPR != 0 || o.Shards != 0 || o.Seed != 0 || o.Layout != 0) {
		return nil, optionError("Items", "is zero, and other parameters are not")
	}
	if o.Items != 0 {
		if _, err := newGeneration(0, &f.want); err != nil {
			return nil, err
		}
	}
	_, err = f.refresh(ctx)
	for range 3 { // others may create or delete it at the same time
		if !errors.Is(err, ErrMissing) || o.Items == 0 {
			break
		}
		if err = f.create(ctx); err != nil {
			return nil, err
		}
		_, err = f.refresh(ctx)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// refresh loads the configuration and checks it.
func (f *Bloom[T]) refresh(ctx context.Context) (*config, error) {
	c, err := f.sender.loadConfig(ctx, *f.name.Load())
	if err != nil {
		return nil, err
	}
	if c.elements != f.key.Kind() {
		return nil, incompatible("kinds of elements", f.key.Kind(), c.elements)
	}
	// A rebuild may change the parameters. A filter that another client has created again
	// must have those that this client's options give.
	if before := f.config.Load(); before == nil || before.lineage != c.lineage {
		if err := f.matches(&c.read); err != nil {
			return nil, err
		}
	}
	f.config.Store(&c)
	return &c, nil
}

func (f *Bloom[T]) matches(g *generation) error {
	w := &f.want
	switch {
	case w.Items == 0:
		return nil
	case w.Items != g.items:
		return incompatible("items", w.Items, g.items)
	case w.FPR != g.fpr:
		return incompatible("FPR", w.FPR, g.fpr)
	case w.Layout != g.layout:
		return incompatible("layout", w.Layout, g.layout)
	case w.Shards != 0 && w.Shards != g.shards:
		return incompatible("shards", w.Shards, g.shards)
	case w.Seed != g.seed:
		return incompatible("seed", w.Seed, g.seed)
	}
	return nil
}

// create creates the filter, unless another client has done so meanwhile.
func (f *Bloom[T]) create(ctx context.Context) error {
	g, err := newGeneration(rand.Uint64(), &f.want)
	if err != nil {
		return err
	}
	name := *f.name.Load()
	g.keys = name
	if err := f.makeShards(ctx, &g, 1); err != nil {
		return err
	}
	c := config{lineage: rand.Uint64(), elements: f.key.Kind(), epoch: 1, phase: steady, read: g}
	won, err := f.sender.swapConfig(ctx, name, nil, &c)
	if err == nil && !won {
		err = f.retire(ctx, &g, time.Second)
	}
	return err
}

// element is one element of a batch.
type element struct {
	h     uint64 // mixed with the seed
	shard int
}

func (f *Bloom[T]) elements(g *generation, vs []T) []element {
	es := make([]element, len(vs))
	for i, v := range vs {
		es[i].shard, es[i].h = g.place(f.key.Sum64(v))
	}
	return es
}

// Add adds an element and reports whether it was new.
func (f *Bloom[T]) Add(ctx context.Context, v T) (bool, error) {
	var isNew [1]bool
	err := f.add(ctx, []T{v}, isNew[:])
	return isNew[0], err
}

// AddMany adds elements; see Filter.
func (f *Bloom[T]) AddMany(ctx context.Context, vs []T, isNew []bool) error {
	return inBatches(vs, isNew, batch, func(vs []T, isNew []bool) error { return f.add(ctx, vs, isNew) })
}

// maxAttempts is how often an operation is tried if the configuration keeps changing. A rebuild
// changes it three times.
const maxAttempts = 20

// lostAttempts is how often a shard must be missing before it counts as lost: a node that restarts
// after a crash may not know yet that others have its slots.
const lostAttempts = 6

// pause waits longer after each turn, and not at all after the first.
func pause(ctx context.Context, turn int) error {
	if turn == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond << min(turn, 6)):
		return nil
	}
}

// add adds a batch. It repeats additions whose shard shows that the configuration has changed.
func (f *Bloom[T]) add(ctx context.Context, vs []T, isNew []bool) error {
	if isNew != nil {
		clear(isNew)
	}
	c, left := f.config.Load(), indexes(len(vs))
	for turn := range maxAttempts {
		stale, err := f.addTo(ctx, c, vs, left, isNew)
		if err != nil || len(stale) == 0 {
			return err
		}
		old := c
		if c, err = f.refresh(ctx); err != nil {
			return err
		}
		if *c == *old && turn >= lostAttempts {
			return f.lost(&c.read, vs[stale[0]])
		}
		if err := pause(ctx, turn); err != nil {
			return err
		}
		left = stale
	}
	return errors.Join(ErrTaken, errors.New("the configuration keeps changing"))
}

func indexes(n int) []int {
	is := make([]int, n)
	for i := range is {
		is[i] = i
	}
	return is
}

// addTo adds the elements with the given indexes to the generations of c. It returns the
// indexes of those for which c was out of date.
func (f *Bloom[T]) addTo(ctx context.Context, c *config, vs []T, which []int, isNew []bool) (stale []int, err error) {
	part := make([]T, len(which))
	for i, at := range which {
		part[i] = vs[at]
	}
	reqs := f.additions(&c.read, part)
	all := reqs
	if c.phase != steady {
		all = append(all, f.additions(&c.also, part)...)
	}
	if err := f.sender.send(ctx, true, all...); err != nil {
		f.sweepCreated(ctx, c, all, len(reqs))
		return nil, err
	}
	var sweep []*request
	for i, r := range reqs {
		var epoch uint32
		var there, changed bool
		// If an earlier attempt found a bit clear, the element was new, although this one
		// finds all bits set.
		for _, reply := range append(r.earlier, r.reply) {
			if epoch, there, changed, err = c.read.added(reply); err != nil {
				return nil, err
			}
			if there && changed && isNew != nil {
				isNew[which[i]] = true
			}
		}
		if !there {
			sweep = append(sweep, eval(r.key, sweepScript))
		}
		if !there || epoch > c.epoch {
			stale = append(stale, which[i])
		}
	}
	for _, r := range all[len(reqs):] {
		_, there, _, err := c.also.added(r.reply)
		if err != nil {
			return nil, err
		}
		if !there { // emptied at the end of a rebuild, or expired since
			sweep = append(sweep, eval(r.key, sweepScript))
		}
	}
	if len(sweep) > 0 {
		return stale, f.sender.send(ctx, true, sweep...)
	}
	return stale, nil
}

// sweepCreated sweeps the keys that additions to missing shards have created before another
// addition failed. The first ofRead requests are for c.read, the others for c.also.
func (f *Bloom[T]) sweepCreated(ctx context.Context, c *config, all []*request, ofRead int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var sweep []*request
	for i, r := range all {
		g, reply := &c.read, r.reply
		if i >= ofRead {
			g = &c.also
		}
		if r.err != nil {
			if len(r.earlier) == 0 {
				continue
			}
			reply = r.earlier[len(r.earlier)-1]
		}
		if _, there, _, err := g.added(reply); err == nil && !there {
			sweep = append(sweep, eval(r.key, sweepScript))
		}
	}
	if len(sweep) > 0 {
		_ = f.sender.send(ctx, true, sweep...) // the caller's error is more important
	}
}

// added decodes the reply to an addition: the epoch of the shard, whether the shard exists,
// and whether one of the bits was clear before.
func (g *generation) added(reply any) (epoch uint32, there, changed bool, err error) {
	old, ok := reply.([]any)
	if !ok || len(old) < g.hashes+1 {
		return 0, false, false, formatError("reply of type %T to BITFIELD", reply)
	}
	first, _ := old[0].(int64)
	epoch, there = epochOf(uint64(first))
	for _, bit := range old[1 : 1+g.hashes] {
		changed = changed || bit == int64(0)
	}
	return epoch, there, changed, nil
}

// sweepScript empties a key that an addition to a missing shard has created, and makes it
// expire. Like retireScript, it needs no memory on the server.
const sweepScript = `
if redis.call('GETRANGE', KEYS[1], 0, 0) == '\165' then return 0 end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], '', 'PX', 600000)
return 1`

// additions returns the requests that add elements to a generation.
func (f *Bloom[T]) additions(g *generation, vs []T) []*request {
	reqs := make([]*request, 0, 2*len(vs))
	keys := f.shardKeys(g)
	var bits []uint64
	for _, e := range f.elements(g, vs) {
		args := make([]any, 0, 5+4*g.hashes+4)
		args = append(args, "bitfield", keys(e.shard), "get", "i64", 0)
		bits = g.appendBits(bits[:0], e.h)
		for _, b := range bits {
			args = append(args, "set", "u1", b, 1)
		}
		if f.sender.replicas > 0 {
			// This always changes the key. So WAIT also covers bits that others
			// have set and replicas do not have yet.
			args = append(args, "incrby", "u32", 128, 1)
		}
		reqs = append(reqs, &request{key: keys(e.shard), args: args})
	}
	return reqs
}

// shardKeys returns a function that returns the keys of a generation, each formatted once.
func (f *Bloom[T]) shardKeys(g *generation) func(shard int) string {
	keys := make(map[int]string, 64)
	return func(shard int) string {
		k, ok := keys[shard]
		if !ok {
			k = shardKey(g.keys, g, shard)
			keys[shard] = k
		}
		return k
	}
}

// MayContain reports false only if the element was not added.
func (f *Bloom[T]) MayContain(ctx context.Context, v T) (bool, error) {
	var positive [1]bool
	err := f.has(ctx, []T{v}, positive[:])
	return positive[0], err
}

// MayContainMany looks up elements; see Filter.
func (f *Bloom[T]) MayContainMany(ctx context.Context, vs []T, positive []bool) error {
	return inBatches(vs, positive[:len(vs)], batch, func(vs []T, positive []bool) error { return f.has(ctx, vs, positive) })
}

func (f *Bloom[T]) has(ctx context.Context, vs []T, positive []bool) error {
	setAll(positive)
	c := f.config.Load()
	for turn := range maxAttempts {
		gone, err := f.hasIn(ctx, &c.read, vs, positive)
		if err != nil {
			setAll(positive)
			return err
		}
		if gone < 0 {
			return nil
		}
		old := c
		if c, err = f.refresh(ctx); err == nil && *c == *old && turn >= lostAttempts {
			err = f.lost(&c.read, vs[gone])
		}
		if err == nil {
			err = pause(ctx, turn)
		}
		if err != nil {
			setAll(positive)
			return err
		}
	}
	setAll(positive)
	return errors.Join(ErrTaken, errors.New("the configuration keeps changing"))
}

// hasIn looks up elements in one generation. It returns the index of an element whose shard
// is missing, or -1.
func (f *Bloom[T]) hasIn(ctx context.Context, g *generation, vs []T, positive []bool) (gone int, err error) {
	es := f.elements(g, vs)
	reqs := make([]*request, len(es))
	keys := f.shardKeys(g)
	var bits []uint64
	for i, e := range es {
		key := keys(e.shard)
		if g.layout == Blocked {
			at := g.blockAt(e.h)
			reqs[i] = &request{key: key, args: []any{"getrange", key, at, at + blockBytes - 1}}
			continue
		}
		args := make([]any, 0, 5+3*g.hashes)
		args = append(args, "bitfield_ro", key, "get", "u8", 0)
		bits = g.appendBits(bits[:0], e.h)
		for _, b := range bits {
			args = append(args, "get", "u1", b)
		}
		reqs[i] = &request{key: key, args: args}
	}
	if err := f.sender.send(ctx, false, reqs...); err != nil {
		return -1, err
	}
	gone = -1
	for i, r := range reqs {
		switch reply := r.reply.(type) {
		case string:
			if len(reply) != blockBytes || reply[0] != blockMark {
				gone = i
				continue
			}
			positive[i] = g.blockHas(reply, es[i].h)
		case []any:
			if len(reply) != g.hashes+1 || reply[0] != int64(shardMagic) {
				gone = i
				continue
			}
			positive[i] = true
			for _, bit := range reply[1:] {
				positive[i] = positive[i] && bit == int64(1)
			}
		default:
			return -1, formatError("reply of type %T", r.reply)
		}
	}
	return gone, nil
}

// lost returns an ErrLost that names the key of the missing shard.
func (f *Bloom[T]) lost(g *generation, v T) error {
	shard, _ := g.place(f.key.Sum64(v))
	return lostError(shardKey(g.keys, g, shard))
}

// ApproxCount estimates how many different elements were added. The servers count all bits.
func (f *Bloom[T]) ApproxCount(ctx context.Context) (uint64, error) {
	for range maxAttempts {
		c, err := f.refresh(ctx)
		if err != nil {
			return 0, err
		}
		reqs := make([]*request, 2*c.read.shards)
		for i := range c.read.shards {
			key := shardKey(c.read.keys, &c.read, i)
			reqs[2*i] = &request{key: key, args: []any{"bitcount", key, headerBytes, -1}}
			reqs[2*i+1] = &request{key: key, args: []any{"getrange", key, 0, 0}}
		}
		if err := f.sender.send(ctx, false, reqs...); err != nil {
			return 0, err
		}
		count, gone := 0.0, -1
		for i := range c.read.shards {
			ones, _ := reqs[2*i].reply.(int64)
			if reqs[2*i+1].reply != string([]byte{shardMagic}) {
				gone = i
			}
			count += c.read.countOf(uint64(ones))
		}
		if gone < 0 {
			return uint64(math.Round(count)), nil
		}
		if now, err := f.refresh(ctx); err != nil || *now == *c {
			return 0, errors.Join(lostError(shardKey(c.read.keys, &c.read, gone)), err)
		}
	}
	return 0, ErrTaken
}

// Info describes a filter.
type Info struct {
	Items    uint64  // for which the filter was made
	FPR      float64 // with that many
	Layout   Layout
	Shards   int
	Hashes   int
	Bytes    uint64 // of all shards; a rebuild needs as much for the new filter
	Building bool   // whether a rebuild is under way
}

// Info reads the filter's parameters from Redis.
func (f *Bloom[T]) Info(ctx context.Context) (Info, error) {
	c, err := f.refresh(ctx)
	if err != nil {
		return Info{}, err
	}
	g := &c.read
	return Info{g.items, g.fpr, g.layout, g.shards, g.hashes, uint64(g.shards) * g.bytes(), c.phase != steady}, nil
}

// ExpectedFPR is the FPR to expect once items elements are in the filter.
func (f *Bloom[T]) ExpectedFPR(items uint64) float64 { return f.config.Load().read.expectedFPR(items) }
