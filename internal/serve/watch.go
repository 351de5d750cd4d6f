package serve

import (
	"maps"
	"sync"
)

// watches are the keys that clients watch, by the store's key of their heads. A change is signaled
// after it has become visible, so that a client that watches a key and then reads the old state is
// always notified.
type watches struct {
	mu    sync.Mutex
	byKey map[string]map[*client]struct{}
}

// watched is the state of a key when a client began to watch it.
type watched struct {
	exists bool
	expiry int64 // 0 also for a key that had expired before
}

// signal notifies the clients that watch a key that it has changed.
func (s *Server) signal(head []byte) {
	if s.watching.Load() == 0 {
		return
	}
	s.watches.mu.Lock()
	for c := range s.watches.byKey[string(head)] {
		c.dirty.Store(true)
	}
	s.watches.mu.Unlock()
}

// signalFlush notifies the clients that watch keys of a database that exist in its old or its new
// generation, and makes all of them watch the new one. World is held exclusively.
func (s *Server) signalFlush(was, now uint32) {
	prefix := string(appendSpace(nil, spaceHead, was))
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	moved := map[string]map[*client]struct{}{}
	for head, clients := range s.watches.byKey {
		if head[:genLen] != prefix {
			continue
		}
		name := string(appendSpace(nil, spaceHead, now)) + head[genLen:]
		there, err := s.db.Has([]byte(name))
		for c := range clients {
			if c.watched[head].exists || there || err != nil {
				c.dirty.Store(true)
			}
			c.watched[name] = watched{}
			delete(c.watched, head)
		}
		moved[name] = clients
		delete(s.watches.byKey, head)
	}
	maps.Copy(s.watches.byKey, moved)
}

func watch(c *client, args [][]byte) {
	if c.queueing {
		c.w.Error("ERR WATCH inside MULTI is not allowed")
		return
	}
	for _, key := range args[1:] {
		name := string(c.headKey(nil, key))
		if _, ok := c.watched[name]; ok {
			continue
		}
		s := c.srv
		c.watchAt = s
		if c.watched == nil {
			c.watched = map[string]watched{}
		}
		s.watches.mu.Lock()
		s.watching.Add(1)
		if s.watches.byKey == nil {
			s.watches.byKey = map[string]map[*client]struct{}{}
		}
		if s.watches.byKey[name] == nil {
			s.watches.byKey[name] = map[*client]struct{}{}
		}
		s.watches.byKey[name][c] = struct{}{}
		c.watched[name] = watched{}
		s.watches.mu.Unlock()
		k, expiry, err := c.kindOf(key)
		if c.reply(err) {
			c.unwatch()
			return
		}
		s.watches.mu.Lock()
		c.watched[name] = watched{k != kindNone, expiry}
		s.watches.mu.Unlock()
	}
	c.w.OK()
}

// unwatch ends the client's watch of all keys.
func (c *client) unwatch() {
	if s := c.watchAt; s != nil {
		s.watches.mu.Lock()
		for name := range c.watched {
			delete(s.watches.byKey[name], c)
			if len(s.watches.byKey[name]) == 0 {
				delete(s.watches.byKey, name)
			}
			s.watching.Add(-1)
		}
		c.watched, c.watchAt = nil, nil
		s.watches.mu.Unlock()
	}
	c.dirty.Store(false)
}

// stale reports whether a key that the client watches was changed or has expired.
func (c *client) stale() bool {
	if c.dirty.Load() {
		return true
	}
	for _, w := range c.watched {
		if c.watchAt.over(w.expiry) {
			return true
		}
	}
	return false
}

func unwatchCommand(c *client, args [][]byte) {
	c.unwatch()
	c.w.OK()
}
