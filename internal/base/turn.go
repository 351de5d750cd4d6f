package base

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Turn lets a long computation in the background yield to other goroutines, which would otherwise
// wait up to 10 ms until the scheduler preempts it. That matters when such computations occupy all
// processors.
type Turn struct {
	began  time.Time
	length time.Duration
}

const (
	minTurn = 100 * time.Microsecond
	maxTurn = 10 * time.Millisecond
)

// turns is the number of goroutines between BeginTurns and End.
var turns atomic.Int32

// BeginTurns returns a turn that is already over. End must be called when the computation is done.
func BeginTurns() Turn {
	turns.Add(1)
	return Turn{}
}

// End must be called once, after the last Yield.
func (t *Turn) End() { turns.Add(-1) }

// Yield lets other goroutines run if the turn is over. All goroutines that take turns get a third
// of the time together, however much the rest have to do: with k of them, the next turn lasts
// 1/(3k-1) of the wait, which includes the turns of the k-1 others. Call Yield every 10 to 100 µs.
func (t *Turn) Yield() {
	now := time.Now()
	if now.Sub(t.began) < t.length {
		return
	}
	runtime.Gosched()
	t.began = time.Now()
	share := 3*time.Duration(turns.Load()) - 1
	t.length = min(max(t.began.Sub(now)/share, minTurn), maxTurn)
}
