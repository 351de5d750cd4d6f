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
	var turn Turn
	var ran atomic.Bool
	go func() {
		for start := time.Now(); time.Since(start) < busy; {
		}
		ran.Store(true)
	}()
	turn.Yield()
	if !ran.Load() {
		t.Fatal("the turn did not end")
	}
	if turn.length < busy/2 || turn.length > maxTurn {
		t.Errorf("the next turn takes %v, want %v", turn.length, busy/2)
	}
	go ran.Store(false)
	turn.began = time.Now().Add(time.Hour)
	turn.Yield()
	if !ran.Load() {
		t.Error("a turn ended early")
	}
}
