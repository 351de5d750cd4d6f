package serve

import (
	"runtime/debug"
	"testing"
	"time"
)

// With Config.LimitMemory a server sets the memory limit, and restores it when it is closed.
func TestMemoryLimitIsRestored(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Run("server", func(t *testing.T) {
		start(t, t.TempDir(), Config{LimitMemory: true})
		for end := time.Now().Add(time.Minute); debug.SetMemoryLimit(-1) == before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the limit is not set")
			}
		}
	})
	if after := debug.SetMemoryLimit(-1); after != before {
		t.Errorf("the limit was %d bytes before, and is %d afterwards", before, after)
		debug.SetMemoryLimit(before)
	}
}
