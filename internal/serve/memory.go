package serve

import (
	"runtime/debug"
	"time"
)

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
			if c.taken.Load() > s.cfg.RequestBytes/shortShare && c.last.Load() < before && c.lastProgress.Load() < before {
				s.cfg.Logger.Warn("closing a connection whose client holds memory that others need", "from", c.addr, "bytes", c.taken.Load())
				s.stats.evicted.Add(1)
				c.kill(nil)
			}
		}
		s.clientsMu.Unlock()
	}
}

// limitMemory keeps the garbage collector's memory limit at what is in memory, plus a margin. With
// a higher limit the heap would grow to twice its live size, including filters. When the server is
// closed, limitMemory restores the previous limit.
func (s *Server) limitMemory() {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	tick := time.NewTicker(limitEvery)
	defer tick.Stop()
	set := int64(0)
	for {
		s.clientsMu.Lock()
		clients := int64(len(s.clients))
		s.clientsMu.Unlock()
		limit := s.filterBytes.Load() + garbageFactor*s.cfg.RequestBytes + clients*clientMemory + otherMemory
		s.eachPart(func(p *Server) error {
			memory := p.db.Metrics().Memory
			limit += int64(memory.Total() - memory.Garbage)
			return nil
		})
		if limit > set || limit < set-set/16 {
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
