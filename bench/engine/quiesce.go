package engine

import (
	"fmt"
	"time"

	"github.com/siftdb/sift/bench/measure"
)

// waitQuiesced waits until background work has quiesced: for four steps in a row, done, the store's
// count of that work, has not changed, running is false, and the process has been nearly idle.
func waitQuiesced(state func() (done int64, running bool)) error {
	const (
		step   = 50 * time.Millisecond
		still  = 4        // steps
		idle   = step / 5 // of CPU time per step
		atMost = 10 * time.Minute
	)
	deadline := time.Now().Add(atMost)
	last, _ := state()
	for quiet := 0; quiet < still; {
		cpu, from := measure.CPUTime(), time.Now()
		time.Sleep(step)
		done, running := state()
		busy := measure.CPUTime()-cpu > idle*time.Since(from)/step
		if running || busy || done != last {
			last, quiet = done, 0
		} else {
			quiet++
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("background work did not end within %v", atMost)
		}
	}
	return nil
}
