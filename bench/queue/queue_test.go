package queue

import (
	"testing"
	"time"

	"github.com/siftdb/sift/bench/engine"
)

// TestRun runs each workload on each store briefly; Run checks the first key after each step.
func TestRun(t *testing.T) {
	for _, e := range engine.All() {
		for _, w := range []string{Queue, SeriesByRange, SeriesByKey} {
			c := Case{Workload: w, Window: 500, ValueBytes: 20, Time: 50 * time.Millisecond}
			if !Supports(e, c) {
				continue
			}
			r, err := Run(e, c, t.TempDir())
			if err != nil {
				t.Error(err)
			} else if r.PerSecond == 0 || r.First.Count() == 0 || r.Dir == 0 {
				t.Errorf("%s, %s: %+v", e.Name, w, r)
			}
		}
	}
}
