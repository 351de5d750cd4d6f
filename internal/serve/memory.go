package serve

import (
	"cmp"
	"math"
	"runtime/debug"
	"time"

	"github.com/siftdb/sift/internal/memlimit"
)

// MemoryLimits bound the memory that parts of a server take, in bytes. Zero fields mean the
// defaults.
type MemoryLimits struct {
	// Filters is for all filters. Default: 1 GiB, or an eighth of the memory that the process may
	// use, if it may use less than 1 GiB.
	Filters int64
	// Cache is for the store's block cache, without garbage. Default: 64 MiB, or a sixteenth of
	// the memory.
	Cache int64
	// Clients is for requests and replies of all clients, garbage included. Default: 256 MiB, or a
	// quarter of the memory.
	Clients int64
}

// fullMemory is the memory from which on defaults do not depend on it. With less, the store takes
// up to half, its block cache included, and the defaults of Filters and Clients leave an eighth for
// the program and the kernel.
const fullMemory = 1 << 30

// defaultBytes returns a default: full, or a share of the memory that the process may use if that
// is known, not 0, and less than fullMemory.
func defaultBytes(memory, full, share int64) int64 {
	if memory > 0 && memory < fullMemory {
		return memory / share
	}
	return full
}

// Resolve returns the limits with the defaults filled in for a process that may use the given
// memory, or 0 if that is unknown.
func (l MemoryLimits) Resolve(memory int64) MemoryLimits {
	return MemoryLimits{
		Filters: cmp.Or(l.Filters, defaultBytes(memory, 1<<30, 8)),
		Cache:   cmp.Or(l.Cache, defaultBytes(memory, 64<<20, 16)),
		Clients: cmp.Or(l.Clients, defaultBytes(memory, 256<<20, 4)),
	}
}

// Sum returns the sum of the limits.
func (l MemoryLimits) Sum() int64 { return l.Filters + l.Cache + l.Clients }

const (
	// limitEvery is how often the memory limit is adjusted.
	limitEvery = time.Second
	// clientMemory is roughly what a connection takes: its buffers and a stack.
	clientMemory = 48 << 10
	// otherMemory is for flushes, compactions, and growth since the last adjustment.
	otherMemory = 128 << 20
	// garbageFactor is how much requests and replies take including garbage, relative to
	// RequestBytes.
	garbageFactor = 2
)

// When memory for requests and replies is short, clients that hold a share of it and have neither
// sent nor read anything for shortTime are disconnected. Otherwise others would get errors until
// WriteTimeout, or forever if a client has sent half of a request. Redis does the same with
// maxmemory-clients.
const (
	shortTime  = 2 * time.Second
	shortShare = 64
)

// evict disconnects clients that hold memory without using it, when there was not enough for
// others.
func (s *Server) evict() {
	tick := time.NewTicker(s.shortTime / 4)
	defer tick.Stop()
	for {
		select {
		case <-s.serving.Done():
			return
		case <-tick.C:
		}
		if !s.short.Swap(false) {
			continue
		}
		before := time.Now().UnixMilli() - s.shortTime.Milliseconds()
		s.clientsMu.Lock()
		for _, c := range s.clients {
			if c.taken.Load() > s.cfg.RequestBytes/shortShare && c.last.Load() < before && c.lastProgress.Load() < before && !c.stays.Load() {
				s.cfg.Logger.Warn("closing a connection whose client holds memory that others need", "from", c.addr, "bytes", c.taken.Load())
				s.stats.evicted.Add(1)
				c.kill(nil)
			}
		}
		s.clientsMu.Unlock()
		s.pause.wake()
	}
}

// limitMemory keeps the garbage collector's memory limit at memoryLimit. When the server is closed,
// limitMemory restores the previous limit.
func (s *Server) limitMemory() {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	most := memlimit.Bytes() // without the previous limit, which the server's replaces
	tick := time.NewTicker(limitEvery)
	defer tick.Stop()
	set := int64(0)
	for {
		if limit := s.memoryLimit(most); limit > set || limit < set-set/16 {
			debug.SetMemoryLimit(limit)
			set = limit
		}
		select {
		case <-s.serving.Done():
			return
		case <-tick.C:
		}
	}
}

// memoryLimit returns what is in memory, plus a margin: with a higher limit the heap would grow to
// twice its live size, including filters. If the process may use only so much memory, or 0 if
// unknown, the limit is at most seven eighths of that. The rest is for the program and the kernel.
// The store's filters may be outside Go's heap, where the limit does not count them.
func (s *Server) memoryLimit(most int64) int64 {
	s.clientsMu.Lock()
	clients := int64(len(s.clients))
	s.clientsMu.Unlock()
	limit := s.filterBytes.Load() + garbageFactor*s.cfg.RequestBytes + clients*clientMemory + otherMemory
	outside := int64(0)
	s.eachPart(func(p *Server) error {
		memory := p.db.Metrics().Memory
		limit += int64(memory.Total() - memory.Garbage)
		outside += int64(memory.Filters)
		return nil
	})
	if most > 0 {
		limit = min(limit, max(most-most/8-outside, most/2))
	}
	return limit
}
