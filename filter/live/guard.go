package live

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"
)

// ErrAbsent is the error, possibly wrapped, that a load must return for a key that does not
// exist. Guard.Get returns it for such keys.
var ErrAbsent = errors.New("live: key does not exist")

// Cache is the cache in front of the database. If it returns an error, the Guard counts it and
// reads the database. It must be safe for concurrent use.
type Cache[K comparable, V any] interface {
	// Get returns the value of a key, and whether it is in the cache.
	Get(ctx context.Context, key K) (v V, ok bool, err error)
	// Set puts a value into the cache.
	Set(ctx context.Context, key K, v V) error
}

// KeySet is the filter of a Guard, with all keys that exist. The filters of package redisfilter are
// KeySets; Local makes one of a filter of this package. A KeySet must be safe for concurrent use.
type KeySet[K any] interface {
	// MayContain may return true for an absent key, but never false for an existing one. An
	// error counts as true.
	MayContain(ctx context.Context, key K) (bool, error)
	// Add adds a key. A Guard ignores whether it was new.
	Add(ctx context.Context, key K) (bool, error)
}

// Local makes a KeySet of a filter in memory, for one process.
func Local[K any](f Adder[K]) KeySet[K] { return local[K]{f} }

// LocalFallible is Local for a filter whose Add may fail, such as a Cuckoo or a Sharded.
func LocalFallible[K any](f FallibleAdder[K]) KeySet[K] { return local[K]{f} }

type local[K any] struct{ f Prober[K] }

func (l local[K]) MayContain(_ context.Context, key K) (bool, error) { return l.f.MayContain(key), nil }
func (l local[K]) Add(_ context.Context, key K) (bool, error)        { return TryAdd(l.f, key) }

// deletes reports whether the filter, or a shard of it, is a Deleter.
func (l local[K]) deletes() bool {
	f := any(l.f)
	if s, ok := f.(anySharded); ok {
		f = s.first()
	}
	_, ok := f.(Deleter[K])
	return ok
}

// GuardOptions are the parts of a Guard.
type GuardOptions[K comparable, V any] struct {
	// Keys is the filter with all keys that exist. If it is nil, the Guard only remembers absent
	// keys for a short time.
	Keys KeySet[K]
	// Incomplete means that Keys does not hold all keys yet. Until Trust is called or LearnAll
	// has returned without error, negative answers of the filter are ignored, and keys that are
	// loaded are added to it, unless it is a filter in memory that deletes: that would hold them
	// twice after LearnAll.
	Incomplete bool
	// Cache may be nil.
	Cache Cache[K, V]
	// AbsentFor is how long a key that the database did not have is remembered as absent;
	// 5 seconds if zero, not at all if negative.
	AbsentFor time.Duration
	// AbsentMax is the maximum number of these keys, rounded up to a multiple of 16; 10,000 if
	// zero. NewGuard allocates a list of that many K.
	AbsentMax int
	// Now returns the time; time.Now if nil.
	Now func() time.Time
}

// Guard keeps lookups of keys that do not exist away from a cache and a database. It probes
// the filter first, then looks up the key among those that were recently found absent, then in
// the cache, and then in the database, once for all concurrent callers with the same key.
//
// Call Learn for each new key after it was written to the database: the Guard never looks for a
// key that the filter excludes. It is safe for concurrent use.
type Guard[K comparable, V any] struct {
	keys    KeySet[K]
	cache   Cache[K, V]
	absent  *absentKeys[K]
	flights *flights[K, V]
	trusted atomic.Bool
	learns  bool // loads add keys to the filter; see GuardOptions.Incomplete
	n       struct {
		lookups, excluded, negativeHits, hits, shared, loads, loadedAbsent, loadErrors, filterErrors, cacheErrors atomic.Uint64
	}
}

// GuardStats counts what a Guard has done. Excluded, NegativeHits, Hits and Shared are lookups
// that did not read the database.
type GuardStats struct {
	Lookups      uint64 // calls of Get
	Excluded     uint64 // lookups of keys that the filter excluded
	NegativeHits uint64 // lookups of keys remembered as absent
	Hits         uint64 // lookups of keys in the cache
	Shared       uint64 // lookups that waited for another caller's load
	Loads        uint64 // reads of the database

	LoadedAbsent uint64 // loads that found nothing, mostly false positives of the filter
	LoadErrors   uint64 // loads that failed otherwise
	FilterErrors uint64 // errors of Keys; the lookups continued
	CacheErrors  uint64 // errors of Cache; the lookups continued
}

const (
	defaultAbsentFor = 5 * time.Second
	defaultAbsentMax = 10_000
)

// NewGuard returns a Guard, or an *OptionError.
func NewGuard[K comparable, V any](o GuardOptions[K, V]) (*Guard[K, V], error) {
	if o.AbsentFor == 0 {
		o.AbsentFor = defaultAbsentFor
	}
	if o.AbsentMax == 0 {
		o.AbsentMax = defaultAbsentMax
	}
	if o.AbsentMax < 0 || o.AbsentMax > 1<<30 {
		return nil, optionError("AbsentMax", "%d is not in 1..2^30", o.AbsentMax)
	}
	if o.AbsentFor < 0 {
		o.AbsentMax = 0
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	g := &Guard[K, V]{
		keys: o.Keys, cache: o.Cache,
		absent:  newAbsentKeys[K](o.AbsentMax, o.AbsentFor, o.Now),
		flights: newFlights[K, V](),
	}
	g.trusted.Store(!o.Incomplete)
	g.learns = true
	if l, ok := o.Keys.(local[K]); ok {
		g.learns = !l.deletes()
	}
	return g, nil
}

// Get returns the value of a key: from the cache, or from load, whose result it puts into the
// cache. If the key does not exist, load must return an error that matches ErrAbsent, and Get
// returns one, too. Other errors are those of load, and ctx.Err() if ctx ends while Get waits for
// it. Callers that share a load share its V.
//
// load runs on a new goroutine, with the values of the first caller's context, and is canceled when
// no caller waits for it any longer. If it panics, Get panics in each of the waiting callers.
func (g *Guard[K, V]) Get(ctx context.Context, key K, load func(ctx context.Context, key K) (V, error)) (V, error) {
	var none V
	g.n.lookups.Add(1)
	unknown := false
	if g.keys != nil {
		positive, err := g.keys.MayContain(ctx, key)
		switch {
		case err != nil:
			g.n.filterErrors.Add(1)
		case positive:
		case g.trusted.Load():
			g.n.excluded.Add(1)
			return none, ErrAbsent
		default:
			unknown = true
		}
	}
	if g.absent.has(key) {
		g.n.negativeHits.Add(1)
		return none, ErrAbsent
	}
	if v, ok := g.cached(ctx, key); ok {
		g.n.hits.Add(1)
		return v, nil
	}
	v, err, shared := g.flights.do(ctx, key, func(ctx context.Context) (V, error) {
		return g.load(ctx, key, unknown, load)
	})
	if shared {
		g.n.shared.Add(1)
	}
	return v, err
}

func (g *Guard[K, V]) cached(ctx context.Context, key K) (v V, ok bool) {
	if g.cache == nil {
		return v, false
	}
	v, ok, err := g.cache.Get(ctx, key)
	if err != nil {
		g.n.cacheErrors.Add(1)
		return v, false
	}
	return v, ok
}

// load runs once for all concurrent callers with a key. Another load may have ended since the
// caller looked into the cache, so it looks again.
func (g *Guard[K, V]) load(ctx context.Context, key K, unknown bool, load func(context.Context, K) (V, error)) (V, error) {
	if g.absent.has(key) {
		var none V
		g.n.negativeHits.Add(1)
		return none, ErrAbsent
	}
	if v, ok := g.cached(ctx, key); ok {
		g.n.hits.Add(1)
		return v, nil
	}
	mark := g.absent.mark(key)
	g.n.loads.Add(1)
	v, err := load(ctx, key)
	switch {
	case errors.Is(err, ErrAbsent):
		g.n.loadedAbsent.Add(1)
		g.absent.add(key, mark)
		return v, err
	case err != nil:
		g.n.loadErrors.Add(1)
		return v, err
	}
	if unknown && g.learns {
		if _, err := g.keys.Add(ctx, key); err != nil {
			g.n.filterErrors.Add(1)
		}
	}
	if g.cache != nil {
		if err := g.cache.Set(ctx, key, v); err != nil {
			g.n.cacheErrors.Add(1)
		}
	}
	return v, nil
}

// Learn adds a key that now exists to the filter. Call it after the key was written to the
// database, and before any reader can expect the key to exist. A Get that begins after Learn has
// returned finds the key: it does not join a load that began earlier. After an error Get may return
// ErrAbsent for the key; call Learn again.
func (g *Guard[K, V]) Learn(ctx context.Context, key K) error {
	// forget runs before detach: a load that begins in between must not find the key remembered
	// as absent and be joined later.
	defer g.flights.detach(key)
	defer g.absent.forget(key)
	if g.keys == nil {
		return nil
	}
	_, err := g.keys.Add(ctx, key)
	return err
}

// Trust declares that from now on the filter holds all keys.
func (g *Guard[K, V]) Trust() { g.trusted.Store(true) }

// LearnAll adds all keys to the filter and then calls Trust. On an error it stops and does not call
// Trust. Before you repeat it, Reset a Counting or Cuckoo, while no Learn runs: it counts keys that
// are added again, and a Cuckoo may become full. LearnAll ends with ctx only if the sequence or the
// filter does. Without a filter it does nothing.
func (g *Guard[K, V]) LearnAll(ctx context.Context, keys iter.Seq2[K, error]) error {
	if g.keys == nil {
		return nil
	}
	for key, err := range keys {
		if err != nil {
			return err
		}
		if _, err := g.keys.Add(ctx, key); err != nil {
			return err
		}
	}
	g.Trust()
	return nil
}

// Stats returns the counts so far.
func (g *Guard[K, V]) Stats() GuardStats {
	n := &g.n
	return GuardStats{
		Lookups: n.lookups.Load(), Excluded: n.excluded.Load(), NegativeHits: n.negativeHits.Load(),
		Hits: n.hits.Load(), Shared: n.shared.Load(), Loads: n.loads.Load(),
		LoadedAbsent: n.loadedAbsent.Load(), LoadErrors: n.loadErrors.Load(),
		FilterErrors: n.filterErrors.Load(), CacheErrors: n.cacheErrors.Load(),
	}
}
