package serve

import (
	"runtime"
	"testing"
)

// Adding a command to a full slow log does not copy the other entries.
func TestFullSlowlog(t *testing.T) {
	const most, more = 10_000, 1000
	var l slowlog
	l.most.Store(most)
	c, args := &client{}, fields("GET k")
	for range most {
		l.add(c, args, 0)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range more {
		l.add(c, args, 0)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
		t.Errorf("%d commands take %d bytes", more, got)
	}
	if n := len(l.entries); n != most || l.entries[0].id != more || l.entries[n-1].id != most+more-1 {
		t.Errorf("%d entries, from %d to %d", n, l.entries[0].id, l.entries[n-1].id)
	}
}
