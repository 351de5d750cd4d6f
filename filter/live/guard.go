package live

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"
)

// ErrAbsent is what a load returns, alone or wrapped, for a key that does not
// exist, and what Guard.Get returns for one.
var ErrAbsent = errors.New("live: key does not exist")

// Cache is what a Guard asks before the database. Errors of a cache are counted,
// and the database is asked.
type Cache[K comparable, V any] interface {
	// Get returns the value of a key, and whether it is in the cache.
	Get(ctx context.Context, key K) (v V, ok bool, err error)
	// Set puts a value into the cache.
	Set(ctx context.Context, key K, v V) error
}

// KeySet is the filter of a Guard: all keys that exist. The filters of package redisfilter are
// KeySets, and those of this package through Local. MayContain may return true for an absent key,
// never false for a present one; an error counts as true.
type KeySet[K any] interface {
	MayContain(ctx context.Context, key K) (bool, error)
	Add(ctx context.Context, key K) (bool, error)
}

// Local makes a KeySet of a filter in memory, for one process.
func Local[K any](f Adder[K]) KeySet[K] { return local[K]{f} }

// LocalFallible is Local for a filter whose Add may fail, a Cuckoo or Sharded.
func LocalFallible[K any](f FallibleAdder[K]) KeySet[K] { return local[K]{f} }

type local[K any] struct{ f Asker[K] }

func (l local[K]) MayContain(_ context.Context, key K) (bool, error) { return l.f.MayContain(key), nil }
func (l local[K]) Add(_ context.Context, key K) (bool, error)        { return TryAdd(l.f, key) }

// GuardOptions are the parts of a Guard.
type GuardOptions[K comparable, V any] struct {
	// Keys is the filter of all keys that exist. If it is nil, absent keys are only remembered for
	// a short time.
	Keys KeySet[K]
	// Incomplete says that Keys does not hold all keys yet. Until Trust or LearnAll
	// is done a negative answer of the filter is ignored, and keys that are loaded
	// are added to it.
	Incomplete bool
	// Cache may be nil.
	Cache Cache[K, V]
	// AbsentFor is how long a key that the database did not have is known to be
	// absent; 5 seconds if zero, not at all if negative.
	AbsentFor time.Duration
	// AbsentMax is how many of them are remembered; 10,000 if zero.
	AbsentMax int
	// Now returns the time; time.Now if nil.
	Now func() time.Time
}

// Guard stands in front of a cache and a database and keeps lookups of keys that
// do not exist away from both. It asks the filter first; what passes, a memory of
// keys that were found absent just now; then the cache; then the database, once
// for all callers who want the key at that time.
//
// Call Learn for each new key, after it was written to the database: a key that
// the filter does not hold is never looked for. It is safe for concurrent use.
type Guard[K comparable, V any] struct {
	keys    KeySet[K]
	cache   Cache[K, V]
	absent  *absentees[K]
	flights *flights[K, V]
	trusted atomic.Bool
	n       struct {
		lookups, filtered, remembered, hits, shared, loads, loadedAbsent, loadErrors, filterErrors, cacheErrors atomic.Uint64
	}
}

// GuardStats counts what a Guard did. Filtered, Remembered, Hits and Shared are
// lookups that the database was saved.
type GuardStats struct {
	Lookups    uint64 // calls of Get
	Filtered   uint64 // ended by the filter: absent
	Remembered uint64 // ended by the memory of absent keys
	Hits       uint64 // found in the cache
	Shared     uint64 // had the result of another caller's load
	Loads      uint64 // reached the database

	LoadedAbsent uint64 // loads that found nothing: false positives of the filter, most of them
	LoadErrors   uint64 // loads that failed otherwise
	FilterErrors uint64 // of Keys; the lookups went on
	CacheErrors  uint64 // of Cache; the lookups went on
}

const (
	defaultAbsentFor = 5 * time.Second
	defaultAbsentMax = 10_000
)

// NewGuard returns a Guard.
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
		absent:  newAbsentees[K](o.AbsentMax, o.AbsentFor, o.Now),
		flights: newFlights[K, V](),
	}
	g.trusted.Store(!o.Incomplete)
	return g, nil
}

// Get returns the value of a key: from the cache, or from load, whose result is
// put into the cache. It returns ErrAbsent if the key does not exist; load has to
// return that, or an error that matches it, too. Callers who get the result of one
// load share one V.
//
// load runs with the values of the context of one of the callers who wait for it,
// and is cancelled when all of them are gone.
func (g *Guard[K, V]) Get(ctx context.Context, key K, load func(ctx context.Context, key K) (V, error)) (V, error) {
	var none V
	g.n.lookups.Add(1)
	unknown := false
	if g.keys != nil {
		maybe, err := g.keys.MayContain(ctx, key)
		switch {
		case err != nil:
			g.n.filterErrors.Add(1)
		case maybe:
		case g.trusted.Load():
			g.n.filtered.Add(1)
			return none, ErrAbsent
		default:
			unknown = true
		}
	}
	if g.absent.has(key) {
		g.n.remembered.Add(1)
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

// load runs once for all callers of a key. Another load may have ended after the caller looked into
// the cache, so this looks again.
func (g *Guard[K, V]) load(ctx context.Context, key K, unknown bool, load func(context.Context, K) (V, error)) (V, error) {
	if g.absent.has(key) {
		var none V
		g.n.remembered.Add(1)
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
	if unknown {
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

// Learn adds a key that now exists to the filter. Call it after the key was written to the database
// and before anyone learns of it. A Get that begins when Learn has returned finds the key: it does
// not wait for a load that began before. After an error Get may return ErrAbsent for the key: call
// Learn again.
func (g *Guard[K, V]) Learn(ctx context.Context, key K) error {
	// The absence is forgotten first: a load that begins in between must not find the key absent
	// and be joined later.
	defer g.flights.detach(key)
	defer g.absent.forget(key)
	if g.keys == nil {
		return nil
	}
	_, err := g.keys.Add(ctx, key)
	return err
}

// Trust declares that the filter holds all keys from now on.
func (g *Guard[K, V]) Trust() { g.trusted.Store(true) }

// LearnAll adds all keys to the filter and then trusts it.
func (g *Guard[K, V]) LearnAll(ctx context.Context, keys iter.Seq2[K, error]) error {
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
		Lookups: n.lookups.Load(), Filtered: n.filtered.Load(), Remembered: n.remembered.Load(),
		Hits: n.hits.Load(), Shared: n.shared.Load(), Loads: n.loads.Load(),
		LoadedAbsent: n.loadedAbsent.Load(), LoadErrors: n.loadErrors.Load(),
		FilterErrors: n.filterErrors.Load(), CacheErrors: n.cacheErrors.Load(),
	}
}
