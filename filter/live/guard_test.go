package live

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// mapCache is a cache that can be made to fail.
type mapCache struct {
	mu   sync.Mutex
	m    map[string]string
	fail bool
}

var errCache = errors.New("cache is down")

func (c *mapCache) Get(_ context.Context, k string) (string, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail {
		return "", false, errCache
	}
	v, ok := c.m[k]
	return v, ok, nil
}

func (c *mapCache) Set(_ context.Context, k, v string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail {
		return errCache
	}
	c.m[k] = v
	return nil
}

// rows is a database that counts queries.
type rows struct {
	mu      sync.Mutex
	m       map[string]string
	queries atomic.Int64
}

func (r *rows) load(_ context.Context, k string) (string, error) {
	r.queries.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.m[k]; ok {
		return v, nil
	}
	return "", fmt.Errorf("row %q: %w", k, ErrAbsent)
}

func newGuard(t testing.TB, n int, clock *fakeClock) (*Guard[string, string], *rows, *mapCache, *Bloom[string]) {
	keys := must(NewBloom(BloomOptions[string]{Items: uint64(n), FPR: 0.01}))
	db := &rows{m: map[string]string{}}
	cache := &mapCache{m: map[string]string{}}
	for i := range n {
		db.m[member(i)] = "row " + member(i)
		keys.Add(member(i))
	}
	return must(NewGuard(GuardOptions[string, string]{Keys: Local(keys), Cache: cache, Now: clock.now})), db, cache, keys
}

func TestGuard(t *testing.T) {
	const n = 10_000
	ctx := context.Background()
	var clock fakeClock
	g, db, cache, keys := newGuard(t, n, &clock)
	for range 2 {
		for i := range n {
			if v, err := g.Get(ctx, member(i), db.load); err != nil || v != "row "+member(i) {
				t.Fatal(v, err)
			}
		}
	}
	if s := g.Stats(); s != (GuardStats{Lookups: 2 * n, Loads: n, Hits: n}) {
		t.Errorf("present: %+v", s)
	}
	db.queries.Store(0)
	falsePositives := uint64(0)
	for i := range 10 * n {
		if keys.MayContain(nonMember(i)) {
			falsePositives++
		}
		if _, err := g.Get(ctx, nonMember(i), db.load); !errors.Is(err, ErrAbsent) {
			t.Fatal(err)
		}
	}
	s := g.Stats()
	if uint64(db.queries.Load()) != falsePositives || s.LoadedAbsent != falsePositives || s.Excluded != 10*n-falsePositives {
		t.Errorf("absent: %d queries, %d false positives, %+v", db.queries.Load(), falsePositives, s)
	}
	checkFPRBelow(t, "lookups of absent keys that reach the database", float64(db.queries.Load())/(10*n), 0.0102, 10*n)

	// A false positive is loaded once while it is remembered.
	fp := ""
	for i := 0; fp == ""; i++ {
		if keys.MayContain(fmt.Sprint("again", i)) {
			fp = fmt.Sprint("again", i)
		}
	}
	db.queries.Store(0)
	for range 10 {
		g.Get(ctx, fp, db.load)
	}
	if db.queries.Load() != 1 {
		t.Errorf("%d queries for one absent key", db.queries.Load())
	}
	clock.advance(defaultAbsentFor)
	g.Get(ctx, fp, db.load)
	if db.queries.Load() != 2 {
		t.Errorf("%d queries after AbsentFor", db.queries.Load())
	}
	// A new key is found as soon as Learn has returned, although it was remembered as absent.
	for _, k := range []string{fp, "brand new"} {
		db.m[k] = "here"
		if err := g.Learn(ctx, k); err != nil {
			t.Fatal(err)
		}
		if v, err := g.Get(ctx, k, db.load); v != "here" || err != nil {
			t.Errorf("learned: %q, %v", v, err)
		}
	}
	// Lookups work without the cache.
	cache.fail = true
	if v, err := g.Get(ctx, member(1), db.load); err != nil || v != "row "+member(1) || g.Stats().CacheErrors != 3 {
		t.Errorf("cache down: %q, %v, %d errors", v, err, g.Stats().CacheErrors)
	}
	boom := errors.New("connection lost")
	for range 2 {
		if _, err := g.Get(ctx, member(1), func(context.Context, string) (string, error) { return "", boom }); err != boom {
			t.Errorf("an error of the database: %v", err)
		}
	}
	if g.Stats().LoadErrors != 2 {
		t.Errorf("%+v", g.Stats())
	}
}

func TestGuardStampede(t *testing.T) {
	var clock fakeClock
	g, db, _, _ := newGuard(t, 10, &clock)
	const callers = 1000
	start, arrived := make(chan struct{}), make(chan struct{}, callers)
	slow := func(ctx context.Context, k string) (string, error) {
		for range callers { // until all have started
			<-arrived
		}
		time.Sleep(20 * time.Millisecond)
		return db.load(ctx, k)
	}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			<-start
			arrived <- struct{}{}
			if v, err := g.Get(context.Background(), member(3), slow); err != nil || v == "" {
				t.Error(v, err)
			}
		})
	}
	close(start)
	wg.Wait()
	if s := g.Stats(); db.queries.Load() != 1 || s.Loads != 1 || s.Shared+s.Hits != callers-1 {
		t.Errorf("%d queries, %+v", db.queries.Load(), s)
	}
}

type brokenKeys struct{}

func (brokenKeys) MayContain(context.Context, string) (bool, error) { return false, errCache }
func (brokenKeys) Add(context.Context, string) (bool, error)        { return false, errCache }

// A filter that fails, or does not hold all keys yet, excludes nothing.
func TestGuardFailsOpen(t *testing.T) {
	ctx := context.Background()
	db := &rows{m: map[string]string{"a": "1"}}
	g := must(NewGuard(GuardOptions[string, string]{Keys: brokenKeys{}}))
	if v, err := g.Get(ctx, "a", db.load); v != "1" || err != nil {
		t.Errorf("broken filter: %q, %v", v, err)
	}
	if err := g.Learn(ctx, "b"); err != errCache {
		t.Errorf("Learn: %v", err)
	}

	keys := must(NewBloom(BloomOptions[string]{Items: 100, FPR: 1e-6}))
	g = must(NewGuard(GuardOptions[string, string]{Keys: Local(keys), Incomplete: true}))
	if v, err := g.Get(ctx, "a", db.load); v != "1" || err != nil {
		t.Errorf("incomplete filter: %q, %v", v, err)
	}
	if !keys.MayContain("a") {
		t.Error("a loaded key was not learned")
	}
	db.m["b"] = "2"
	all := func(yield func(string, error) bool) {
		for k := range db.m {
			if !yield(k, nil) {
				return
			}
		}
	}
	if err := g.LearnAll(ctx, all); err != nil {
		t.Fatal(err)
	}
	before := db.queries.Load()
	g.Get(ctx, "nobody", db.load)
	if v, err := g.Get(ctx, "b", db.load); v != "2" || err != nil || db.queries.Load() != before+1 {
		t.Errorf("complete filter: %q, %v, %d queries", v, err, db.queries.Load()-before)
	}
	if err := g.LearnAll(ctx, func(yield func(string, error) bool) { yield("", errCache) }); err != errCache {
		t.Errorf("LearnAll: %v", err)
	}
}

func TestGuardContext(t *testing.T) {
	g := must(NewGuard(GuardOptions[string, string]{}))
	first, leaveFirst := context.WithCancel(context.Background())
	second, leaveSecond := context.WithCancel(context.Background())
	loading, ended := make(chan struct{}), make(chan struct{})
	load := func(ctx context.Context, k string) (string, error) {
		close(loading)
		<-ctx.Done()
		close(ended)
		return "", ctx.Err()
	}
	errs := make(chan error, 2)
	go func() { _, err := g.Get(first, "k", load); errs <- err }()
	<-loading
	go func() { _, err := g.Get(second, "k", load); errs <- err }()
	for { // until the second waits
		s := &g.flights.shards
		users := 0
		for i := range s {
			s[i].mu.Lock()
			for _, f := range s[i].m {
				users = f.users
			}
			s[i].mu.Unlock()
		}
		if users == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	leaveFirst()
	if err := <-errs; err != context.Canceled {
		t.Errorf("first: %v", err)
	}
	select {
	case <-ended:
		t.Fatal("canceled although a caller waits")
	case <-time.After(10 * time.Millisecond):
	}
	leaveSecond()
	if err := <-errs; err != context.Canceled {
		t.Errorf("second: %v", err)
	}
	<-ended
	// A later call does not join the canceled one.
	if v, err := g.Get(context.Background(), "k", func(context.Context, string) (string, error) { return "v", nil }); v != "v" || err != nil {
		t.Errorf("after: %q, %v", v, err)
	}
}

func TestGuardPanic(t *testing.T) {
	g := must(NewGuard(GuardOptions[string, string]{}))
	func() {
		defer func() {
			if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "bad row\n") || !strings.Contains(p, "TestGuardPanic") {
				t.Errorf("panic %q", p)
			}
		}()
		g.Get(context.Background(), "k", func(context.Context, string) (string, error) { panic("bad row") })
	}()
	if v, err := g.Get(context.Background(), "k", func(context.Context, string) (string, error) { return "v", nil }); v != "v" || err != nil {
		t.Errorf("after a panic: %q, %v", v, err)
	}
}

func TestGuardWithoutKeys(t *testing.T) {
	ctx := context.Background()
	g := must(NewGuard(GuardOptions[string, string]{}))
	keys := func(yield func(string, error) bool) { yield("k", nil) }
	if err := errors.Join(g.Learn(ctx, "k"), g.LearnAll(ctx, keys)); err != nil {
		t.Error(err)
	}
}

func TestAbsenteesAreBounded(t *testing.T) {
	var clock fakeClock
	a := newAbsentKeys[int](1000, time.Second, clock.now)
	for i := range 100_000 {
		a.add(i, a.mark(i))
		if !a.has(i) {
			t.Fatalf("%d is not remembered", i)
		}
	}
	if n := a.size(); n > 1008 || n < 900 {
		t.Errorf("%d keys are held, want about 1000", n)
	}
	mark := a.mark(7)
	a.forget(7)
	if a.add(7, mark); a.has(7) {
		t.Error("the result of a load from before the key was learned is remembered")
	}
	a.add(7, a.mark(7))
	clock.advance(time.Second)
	if a.has(7) {
		t.Error("remembered for too long")
	}
	if off := newAbsentKeys[int](0, -1, clock.now); true {
		if off.add(1, off.mark(1)); off.has(1) || off.size() != 0 {
			t.Error("remembered although it is off")
		}
	}
}

// With concurrent readers and writers, a key is found once Learn has returned.
func TestGuardLearnsUnderLoad(t *testing.T) {
	ctx := context.Background()
	keys := must(NewBloom(BloomOptions[string]{Items: 20_000, FPR: 0.3})) // many false positives
	db := &rows{m: map[string]string{}}
	g := must(NewGuard(GuardOptions[string, string]{Keys: Local(keys), AbsentFor: time.Hour}))
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 500 {
				k := member(w/2*500 + i)
				if w%2 == 0 {
					g.Get(ctx, k, db.load)
					continue
				}
				db.mu.Lock()
				db.m[k] = "v"
				db.mu.Unlock()
				g.Learn(ctx, k)
				if v, err := g.Get(ctx, k, db.load); v != "v" || err != nil {
					t.Errorf("%s: %q, %v", k, v, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestGuardLoadEndsItsGoroutine checks that Get returns an error if load calls runtime.Goexit, and
// that the next Get calls load again.
func TestGuardLoadEndsItsGoroutine(t *testing.T) {
	g := must(NewGuard(GuardOptions[string, string]{}))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := g.Get(ctx, "k", func(context.Context, string) (string, error) {
		runtime.Goexit()
		return "", nil
	})
	if err == nil || ctx.Err() != nil {
		t.Fatalf("Get: %v", err)
	}
	v, err := g.Get(ctx, "k", func(context.Context, string) (string, error) { return "v", nil })
	if v != "v" || err != nil {
		t.Errorf("the next Get: %q, %v", v, err)
	}
}

// TestGuardLearnAllOnce checks that a filter that counts holds a key once if it was loaded before
// LearnAll has added it.
func TestGuardLearnAllOnce(t *testing.T) {
	const n = 1000
	ctx := t.Context()
	load := func(_ context.Context, k string) (string, error) { return k, nil }
	all := func(yield func(string, error) bool) {
		for i := range n {
			if !yield(member(i), nil) {
				return
			}
		}
	}
	keys := must(NewCuckoo(CuckooOptions[string]{Items: n, FPR: 0.001}))
	g := must(NewGuard(GuardOptions[string, string]{Keys: LocalFallible(keys), Incomplete: true}))
	for i := range n {
		must(g.Get(ctx, member(i), load))
	}
	if err := g.LearnAll(ctx, all); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := g.Get(ctx, member(i), load); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if count := keys.ApproxCount(); count != n {
		t.Errorf("%d keys, want %d", count, n)
	}
}
