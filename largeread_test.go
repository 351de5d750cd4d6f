package sift

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/siftdb/sift/filter"
)

// severalLevels opens a database with tables in at least three levels, which do not change, and
// returns which of the keys 00000 to 02999 it holds, with their values.
func severalLevels(t *testing.T, o Options) (*DB, map[string]string) {
	t.Helper()
	o.MemtableBytes, o.TableBytes, o.LevelBaseBytes, o.LevelMultiplier = 8<<10, 4<<10, 16<<10, 3
	dir := t.TempDir()
	db := mustOpen(t, dir, &o)
	rng := rand.New(rand.NewPCG(1, 2))
	want := make(map[string]string)
	for i := range 20_000 {
		key, value := fmt.Sprintf("%05d", rng.IntN(3000)), fmt.Sprint("value ", i)
		var err error
		if i%5 == 0 {
			err = db.Delete([]byte(key), NoSync)
			delete(want, key)
		} else {
			err = db.Put([]byte(key), []byte(value), NoSync)
			want[key] = value
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	o.DisableAutoCompaction = true
	db = mustOpen(t, dir, &o)
	levels := 0
	for _, tables := range db.state.Load().version.Levels {
		levels += min(len(tables), 1)
	}
	if levels < 3 {
		t.Fatalf("only %d levels have tables", levels)
	}
	return db, want
}

// TestLarge checks that lookups in a large store give the right results.
func TestLarge(t *testing.T) {
	for name, o := range map[string]Options{
		"ribbon": {},
		"bloom":  {Filter: filter.Bloom(10)},
		"none":   {Filter: filter.None()},
		"mixed":  {LevelFilters: []filter.Policy{filter.Ribbon(3), filter.None(), filter.Ribbon(5), filter.Fuse(8)}},
		"keyed":  {KeyedFilters: true},
		"parts":  {FilterMemory: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			db, want := severalLevels(t, o)
			defer mustClose(t, db)
			db.state.Load().version.Large = true
			for i := range 3000 {
				key := fmt.Sprintf("%05d", i)
				value, err := db.Get([]byte(key))
				if w, ok := want[key]; string(value) != w || ok != (err == nil) || !ok && !errors.Is(err, ErrNotFound) {
					t.Fatalf("%s is %q, %v, want %q, %t", key, value, err, w, ok)
				}
				if value, err := db.Get([]byte(key + "x")); !errors.Is(err, ErrNotFound) {
					t.Fatalf("absent key after %s: %q, %v", key, value, err)
				}
			}
			for _, key := range []string{"", "~"} {
				if value, err := db.Get([]byte(key)); !errors.Is(err, ErrNotFound) {
					t.Fatalf("absent key %q: %q, %v", key, value, err)
				}
			}
			if !db.state.Load().version.Large {
				t.Fatal("the version has changed")
			}
		})
	}
}

// orderPolicy is a policy whose readers record the order of prefetches and probes.
type orderPolicy struct {
	filter.Policy
	calls *callList
}

type callList struct {
	mu   sync.Mutex
	list []string
}

func (c *callList) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, call)
}

// take returns the calls since the last take.
func (c *callList) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	return list
}

func (orderPolicy) Name() string   { return "order" }
func (orderPolicy) Family() string { return "test.order" }

func (p orderPolicy) Open(units [][]byte) (filter.Reader, error) {
	r, err := p.Policy.Open(units)
	if err != nil {
		return nil, err
	}
	return orderReader{r, p.calls}, nil
}

type orderReader struct {
	filter.Reader
	calls *callList
}

func (r orderReader) Prefetch(uint64) { r.calls.add("prefetch") }

func (r orderReader) MayContain(key filter.Key) bool {
	r.calls.add("probe")
	return r.Reader.MayContain(key)
}

// TestLargePrefetches checks that a lookup in a large store prefetches from the filters of all
// levels >= 1 before it probes the first filter, and that one in a small store does not.
func TestLargePrefetches(t *testing.T) {
	var made callList
	p := orderPolicy{filter.Ribbon(10), &made}
	db, _ := severalLevels(t, Options{Filter: p, LevelFilters: []filter.Policy{p}})
	defer mustClose(t, db)
	v := db.state.Load().version
	db.Tables() // loads all tables
	levels := 0
	for _, tables := range v.Levels[1:] {
		levels += min(len(tables), 1)
	}
	for _, v.Large = range []bool{false, true} {
		made.take()
		if found, err := db.Has([]byte("01500x")); found || err != nil {
			t.Fatal(found, err)
		}
		calls, want := made.take(), 0
		if v.Large {
			want = levels
		}
		first := slices.Index(calls, "probe")
		if first != want || slices.Contains(calls[want:], "prefetch") {
			t.Errorf("%d levels, large %t: calls %q", levels, v.Large, calls)
		}
	}
}
