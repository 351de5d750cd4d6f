package base

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestTurn checks that other goroutines run at the end of a turn and that, if k goroutines take
// turns, the next turn lasts 1/(3k-1) of the wait.
func TestTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var beside []Turn
	for len(beside) < 3 {
		testTurn(t, 3*time.Duration(len(beside)+1)-1)
		beside = append(beside, BeginTurns())
	}
	for i := range beside {
		beside[i].End()
	}
	if n := turns.Load(); n != 0 {
		t.Errorf("%d turns have not ended", n)
	}
}

func testTurn(t *testing.T, share time.Duration) {
	const busy = 8 * time.Millisecond
	turn := BeginTurns()
	defer turn.End()
	var ran atomic.Bool
	go func() {
		for start := time.Now(); time.Since(start) < busy; {
		}
		ran.Store(true)
	}()
	var longest, waited time.Duration
	for tries := 0; !ran.Load() && tries < 1000; tries++ { // the scheduler may choose the caller again
		turn.length = 0
		began := time.Now()
		turn.Yield()
		if turn.length > longest {
			longest, waited = turn.length, time.Since(began)
		}
	}
	if !ran.Load() || longest < busy/share/2 || longest > max(waited/share, minTurn) {
		t.Errorf("others ran: %v, waited %v; the next turn takes %v, want 1/%d of the wait", ran.Load(), waited, longest, share)
	}
	turn.length = time.Hour
	began := turn.began
	turn.Yield()
	if turn.began != began {
		t.Error("a turn ended early")
	}
}
