package torture

import (
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hang is generous: calls must return within it even on a busy machine and with -race.
var hang = flag.Duration("hang", 40*time.Second, "how long one call of TestStress may take before it counts as hanging")

// TestStress runs everything concurrently, with a watchdog: every answer must be right, every call
// must return, and background work must finish.
func TestStress(t *testing.T) { runStress(short(t)) }

func runStress(p *plan) {
	var seeds, calls atomic.Int64
	for done := false; !done; done = !p.full() || p.over() || p.t.Failed() {
		p.each(choose(p, 8, 16), func(int) error {
			seed := p.seed + uint64(seeds.Add(1)) - 1
			n, err := runStressOnce(seed, stressPlan{lives: 4, life: choose(p, 400*time.Millisecond, time.Second), limit: *hang})
			calls.Add(n)
			if err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
			return nil
		})
		if p.t.Failed() {
			break
		}
		emptyPools()
		synctest.Test(p.t, func(t *testing.T) {
			seed := p.seed + uint64(seeds.Add(1)) - 1
			n, err := runStressOnce(seed, stressPlan{lives: 4, life: 10 * time.Minute, limit: 5 * time.Minute, slow: true})
			calls.Add(n)
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		emptyPools()
	}
	p.t.Logf("%d databases, %d calls", seeds.Load(), calls.Load())
}

// emptyPools empties every sync.Pool: an object with a channel that was made inside a synctest
// bubble cannot be used outside.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}
