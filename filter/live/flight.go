package live

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"sync"
)

// flights lets concurrent callers with the same key share one call.
type flights[K comparable, V any] struct {
	seed   maphash.Seed
	shards [16]flightShard[K, V]
}

type flightShard[K comparable, V any] struct {
	mu sync.Mutex
	m  map[K]*flight[V]
}

// flight is a call in progress.
type flight[V any] struct {
	done   chan struct{}
	cancel context.CancelFunc
	users  int // waiting callers; guarded by the lock of the shard

	// Written before done is closed.
	v        V
	err      error
	panicked any
}

func newFlights[K comparable, V any]() *flights[K, V] {
	fs := &flights[K, V]{seed: maphash.MakeSeed()}
	for i := range fs.shards {
		fs.shards[i].m = make(map[K]*flight[V])
	}
	return fs
}

func (fs *flights[K, V]) shard(k K) *flightShard[K, V] {
	return &fs.shards[maphash.Comparable(fs.seed, k)%uint64(len(fs.shards))]
}

// do returns the result of fn, called for this caller or for another one with the same
// key. fn runs with the values of the first caller's context, and is canceled when no
// caller waits for it any longer. A panic of fn propagates to all callers.
func (fs *flights[K, V]) do(ctx context.Context, k K, fn func(context.Context) (V, error)) (v V, err error, shared bool) {
	s := fs.shard(k)
	s.mu.Lock()
	f, shared := s.m[k]
	if !shared {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight[V]{done: make(chan struct{}), cancel: cancel}
		s.m[k] = f
		go func() {
			defer func() { // also if fn ends the goroutine
				cancel()
				s.mu.Lock()
				if s.m[k] == f {
					delete(s.m, k)
				}
				s.mu.Unlock()
				close(f.done)
			}()
			f.run(own, fn)
		}()
	}
	f.users++
	s.mu.Unlock()

	select {
	case <-f.done:
		if f.panicked != nil {
			panic(f.panicked)
		}
		return f.v, f.err, shared
	case <-ctx.Done():
		s.mu.Lock()
		if f.users--; f.users == 0 {
			f.cancel()
			if s.m[k] == f { // later callers start a new call
				delete(s.m, k)
			}
		}
		s.mu.Unlock()
		return v, ctx.Err(), shared
	}
}

// detach makes later callers start a new call. Callers that already wait still get the result of
// the call in progress.
func (fs *flights[K, V]) detach(k K) {
	s := fs.shard(k)
	s.mu.Lock()
	delete(s.m, k)
	s.mu.Unlock()
}

func (f *flight[V]) run(ctx context.Context, fn func(context.Context) (V, error)) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			f.panicked = fmt.Sprintf("%v\n\nstack of the load:\n%s", p, debug.Stack())
		} else { // runtime.Goexit
			f.err = fmt.Errorf("live: the load ended its goroutine")
		}
	}()
	f.v, f.err = fn(ctx)
	returned = true
}
