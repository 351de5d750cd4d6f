package base

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Turn has a goroutine that computes for long in the background yield to others, which would
// otherwise wait for up to 10 ms until the scheduler preempts it. It matters where there are more
// such goroutines than processors.
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

// BeginTurns returns a turn that is over at once. End must be called when there is no more to
// compute.
func BeginTurns() Turn {
	turns.Add(1)
	return Turn{}
}

// End says that the goroutine takes no more turns.
func (t *Turn) End() { turns.Add(-1) }

// Yield lets other goroutines run, if the turn is over. All that take turns get a third of the time
// together, however long the others' turns are: with k of them the next one takes 1/(3k-1) of the
// wait, which includes the turns of the k-1 others. Yield is to be called every 10 to 100 µs.
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
