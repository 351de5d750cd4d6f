package memtable

import (
	"runtime"
	"testing"
)

// TestArenaHoldsLimit checks that the arena is at least as large as the limit that offsets are
// compared with, for capacities of any remainder by eight.
func TestArenaHoldsLimit(t *testing.T) {
	for extra := range uint64(9) {
		var l list
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l.init(1<<20 + extra)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n <= l.limit {
			t.Errorf("capacity %d: %d bytes are allocated, and the limit is %d", 1<<20+extra, n, l.limit)
		}
		runtime.KeepAlive(&l)
	}
}
