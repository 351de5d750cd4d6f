package base

import (
	"runtime"
	"time"
)

// Turn has a goroutine that computes for long in the background yield to others, which would
// otherwise wait for up to 10 ms until the scheduler preempts it. It matters where there are more
// such goroutines than processors. The zero Turn is ready for use.
type Turn struct {
	began  time.Time
	length time.Duration
}

const (
	minTurn = 100 * time.Microsecond
	maxTurn = 10 * time.Millisecond
)

// Yield lets other goroutines run, if the turn is over. The next one takes at least half as long as
// the others ran, so the caller gets a third of the time, however long theirs are. It is to be
// called every 10 to 100 µs.
func (t *Turn) Yield() {
	now := time.Now()
	if now.Sub(t.began) < t.length {
		return
	}
	runtime.Gosched()
	t.began = time.Now()
	t.length = min(max(t.began.Sub(now)/2, minTurn), maxTurn)
}
