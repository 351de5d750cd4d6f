package epoch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestReclaim repeatedly replaces a shared object, from two goroutines, and marks the old one dead
// after Synchronize: no reader may see a dead one.
func TestReclaim(t *testing.T) {
	type object struct{ dead atomic.Bool }
	var d Domain
	var state atomic.Pointer[object]
	state.Store(new(object))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				g := d.Enter()
				o := state.Load()
				for i := range 10 {
					if o.dead.Load() {
						t.Error("a reader sees a reclaimed object")
					}
					if i == 5 {
						runtime.Gosched()
					}
				}
				g.Exit()
			}
		})
	}
	var writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for range 1000 {
				old := state.Swap(new(object))
				d.Synchronize()
				old.dead.Store(true)
			}
		})
	}
	writers.Wait()
	close(stop)
	wg.Wait()
}

func TestSynchronizeWaits(t *testing.T) {
	var d Domain
	g := d.Enter()
	done := make(chan struct{})
	go func() { d.Synchronize(); close(done) }()
	select {
	case <-done:
		t.Fatal("Synchronize returned while a reader was inside")
	case <-time.After(20 * time.Millisecond):
	}
	g.Exit()
	<-done
}

func BenchmarkEnterExit(b *testing.B) {
	var d Domain
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			d.Enter().Exit()
		}
	})
}

// BenchmarkCounters adds to two counters from two goroutines at a time.
func BenchmarkCounters(b *testing.B) {
	for _, c := range []struct {
		name string
		gap  int // in counters of 8 bytes
	}{{"one line", 1}, {"two lines", 16}} {
		b.Run(c.name, func(b *testing.B) {
			var counters [64]atomic.Uint64
			var wg sync.WaitGroup
			for i := range 2 {
				n := &counters[16+i*c.gap]
				wg.Go(func() {
					for range b.N {
						n.Add(1)
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestSynchronizeTogether checks that a second call of Synchronize, during the first one, waits for
// a reader that entered before both.
func TestSynchronizeTogether(t *testing.T) {
	var d Domain
	g := d.Enter()
	before := d.epoch.Load()
	done := make(chan struct{}, 2)
	synchronize := func() { d.Synchronize(); done <- struct{}{} }
	go synchronize()
	for d.epoch.Load() == before {
		runtime.Gosched()
	}
	go synchronize()
	select {
	case <-done:
		t.Error("Synchronize returned while a reader was inside")
	case <-time.After(20 * time.Millisecond):
		defer func() { <-done }()
	}
	g.Exit()
	<-done
}
