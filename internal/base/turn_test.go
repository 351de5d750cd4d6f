package base

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// Others run at the end of a turn, and the next turn takes half as long as they did.
func TestTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const busy = 4 * time.Millisecond
	var ran atomic.Bool
	go func() {
		for start := time.Now(); time.Since(start) < busy; {
		}
		ran.Store(true)
	}()
	var turn Turn
	var longest time.Duration
	for tries := 0; !ran.Load() && tries < 1000; tries++ { // the scheduler may choose the caller again
		turn = Turn{}
		turn.Yield()
		longest = max(longest, turn.length)
	}
	if !ran.Load() || longest < busy/2 {
		t.Errorf("the others ran: %v; the next turn takes %v, want %v", ran.Load(), longest, busy/2)
	}
	turn.length = time.Hour
	began := turn.began
	turn.Yield()
	if turn.began != began {
		t.Error("a turn ended early")
	}
}
