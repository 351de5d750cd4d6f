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
	// garbageFactor is how much requests and replies take with garbage, relative to RequestBytes.
	garbageFactor = 2
)

// When memory for requests and replies is short, clients that hold a share of it and have neither
// sent nor read anything for shortTime are disconnected: otherwise others would be refused until
// WriteTimeout, or forever if a client has sent half of a request. Redis does so with
// maxmemory-clients.
const (
	shortTime  = 2 * time.Second
	shortShare = 64
)

// evict disconnects clients that hold memory without using it, when others have been refused some.
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
			if c.taken.Load() > s.cfg.RequestBytes/shortShare && c.last.Load() < before && c.moved.Load() < before {
				s.cfg.Logger.Warn("closing a client that holds memory which others need", "from", c.addr, "bytes", c.taken.Load())
				s.stats.evicted.Add(1)
				c.kill(nil)
			}
		}
		s.clientsMu.Unlock()
	}
}

// limitMemory sets the garbage collector's memory limit according to what is in memory. With a
// looser limit the heap would grow to twice what is live, including filters. When the server is
// closed, the previous limit is restored.
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
