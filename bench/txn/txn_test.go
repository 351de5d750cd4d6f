package txn

import (
	"testing"
	"time"
)

// TestRun runs each workload on each store briefly; Run checks the sums.
func TestRun(t *testing.T) {
	for _, k := range Kinds {
		for _, c := range []Case{{"counter", 1, false, 4}, {"transfer", 5, true, 4}, {"transfer", 1500, false, 1}} {
			r, err := Run(k, c, 20*time.Millisecond)
			if err != nil {
				t.Errorf("%s, %v: %v", k.Name, c, err)
			} else if r.PerSecond == 0 {
				t.Errorf("%s, %v: no transaction", k.Name, c)
			}
		}
	}
}
