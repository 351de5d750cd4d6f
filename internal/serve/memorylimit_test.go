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

// TestMemoryLimitDefaults checks the defaults in small containers, where everything together fits,
// and where there is more memory or its size is unknown, and that limits that are set are kept.
func TestMemoryLimitDefaults(t *testing.T) {
	const mib = 1 << 20
	full := MemoryLimits{Filters: 1024 * mib, Cache: 64 * mib, Clients: 256 * mib}
	for _, c := range []struct {
		memory, requests int64
		want             MemoryLimits
	}{
		{128 * mib, 16 * mib, MemoryLimits{Filters: 16 * mib, Cache: 8 * mib, Clients: 32 * mib}},
		{256 * mib, 32 * mib, MemoryLimits{Filters: 32 * mib, Cache: 16 * mib, Clients: 64 * mib}},
		{1024 * mib, 256 * mib, full},
		{64 * 1024 * mib, 256 * mib, full},
		{0, 256 * mib, full},
	} {
		got := MemoryLimits{}.Resolve(c.memory)
		if got != c.want {
			t.Errorf("%d bytes of memory: %+v, want %+v", c.memory, got, c.want)
		}
		if 0 < c.memory && c.memory < fullMemory {
			store := c.memory / 2 // the default of Options.Memory, which includes the cache and garbage
			if all := store + got.Filters + got.Clients + c.memory/8; all > c.memory {
				t.Errorf("%d bytes of memory: the parts take %d", c.memory, all)
			}
			if garbageFactor*got.Cache > store/2 {
				t.Errorf("%d bytes of memory: the cache takes most of the store's %d", c.memory, store)
			}
		}
		given := MemoryLimits{Filters: 1, Cache: 2, Clients: 3}
		if got := given.Resolve(c.memory); got != given || got.Sum() != 6 {
			t.Errorf("%d bytes of memory: limits that are set became %+v", c.memory, got)
		}
		if c.memory == 0 || c.memory > 1024*mib {
			continue // the machine may have less
		}
		previous := debug.SetMemoryLimit(c.memory)
		cfg, err := Config{}.resolve()
		debug.SetMemoryLimit(previous)
		if err != nil || cfg.FilterBytes != c.want.Filters || cfg.RequestBytes != c.requests {
			t.Errorf("%d bytes of memory: Config has %d for filters, %d for requests, %v", c.memory, cfg.FilterBytes, cfg.RequestBytes, err)
		}
	}
}

// TestMemoryLimitFits checks that the limit that the server sets leaves an eighth of the memory
// that the process may use, and does not depend on that if it is large or unknown.
func TestMemoryLimitFits(t *testing.T) {
	s := start(t, t.TempDir(), Config{RequestBytes: 64 << 20})
	unlimited := s.memoryLimit(0)
	if least := int64(garbageFactor*64<<20 + otherMemory); unlimited < least {
		t.Errorf("the limit is %d bytes, want at least %d", unlimited, least)
	}
	if got := s.memoryLimit(1 << 40); got < unlimited/2 || got > 2*unlimited {
		t.Errorf("the limit is %d bytes with 1 TiB of memory, and %d if its size is unknown", got, unlimited)
	}
	if got := s.memoryLimit(128 << 20); got > 112<<20 || got < 64<<20 {
		t.Errorf("the limit is %d bytes with 128 MiB of memory", got)
	}
	s.filterBytes.Add(1 << 30)
	defer s.filterBytes.Add(-1 << 30)
	if got := s.memoryLimit(128 << 20); got > 112<<20 || got < 64<<20 {
		t.Errorf("the limit is %d bytes with 128 MiB of memory, and more in filters", got)
	}
}
