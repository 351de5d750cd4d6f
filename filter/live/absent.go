package live

import (
	"hash/maphash"
	"sync"
	"time"
)

// absentKeys remembers for a short time which keys do not exist. It holds a bounded number of keys
// and drops the oldest first.
type absentKeys[K comparable] struct {
	seed   maphash.Seed
	ttl    time.Duration
	now    func() time.Time
	shards [16]absentShard[K]
}

type absentShard[K comparable] struct {
	mu    sync.Mutex
	until map[K]absence
	order []K // a ring, the oldest at next once it is full
	next  int
	// learned counts calls of forget. The result of a load must not be remembered if a key was
	// learned while the load was running.
	learned uint64
}

// absence is one entry. slot is the position of its key in the ring: a key that was forgotten and
// added again is in the ring twice, and only the newer position counts.
type absence struct {
	until time.Time
	slot  int
}

func newAbsentKeys[K comparable](max int, ttl time.Duration, now func() time.Time) *absentKeys[K] {
	a := &absentKeys[K]{seed: maphash.MakeSeed(), ttl: ttl, now: now}
	for i := range a.shards {
		s := &a.shards[i]
		s.until = make(map[K]absence)
		s.order = make([]K, 0, (max+len(a.shards)-1)/len(a.shards))
	}
	return a
}

func (a *absentKeys[K]) of(k K) *absentShard[K] {
	return &a.shards[maphash.Comparable(a.seed, k)%uint64(len(a.shards))]
}

// has reports whether k is known to be absent.
func (a *absentKeys[K]) has(k K) bool {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.until[k]
	return ok && a.now().Before(e.until)
}

// mark returns the number of keys of k's shard learned so far, for a later add.
func (a *absentKeys[K]) mark(k K) uint64 {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.learned
}

// add remembers k, unless a key of its shard has been learned since mark.
func (a *absentKeys[K]) add(k K, mark uint64) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.learned != mark || cap(s.order) == 0 {
		return
	}
	if e, ok := s.until[k]; ok { // an expired entry
		s.until[k] = absence{a.now().Add(a.ttl), e.slot}
		return
	}
	if len(s.order) < cap(s.order) {
		s.order = append(s.order, k)
		s.until[k] = absence{a.now().Add(a.ttl), len(s.order) - 1}
		return
	}
	old := s.order[s.next]
	if e, ok := s.until[old]; ok && e.slot == s.next {
		delete(s.until, old)
	}
	s.order[s.next] = k
	s.until[k] = absence{a.now().Add(a.ttl), s.next}
	s.next = (s.next + 1) % len(s.order)
}

// forget removes k, which exists now, and makes earlier marks of its shard invalid.
func (a *absentKeys[K]) forget(k K) {
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, k)
	s.learned++
}

// size returns the number of keys held, including expired ones.
func (a *absentKeys[K]) size() int {
	n := 0
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		n += len(s.until)
		s.mu.Unlock()
	}
	return n
}
