package serve

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/siftdb/sift"
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

// signalGens is called when generations of databases change. It notifies the clients that watch a
// key of such a database, if the key exists in the old or the new generation, and makes all of them
// watch the key in the new one. now maps old generations to new ones; the new one of one database
// may be the old one of another. World is held exclusively.
func (s *Server) signalGens(now map[uint32]uint32) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	byKey := map[string]map[*client]struct{}{}
	byClient := map[*client]map[string]watched{}
	for head, clients := range s.watches.byKey {
		name, there := head, false
		if gen, ok := now[binary.BigEndian.Uint32([]byte(head[1:genLen]))]; ok {
			name = string(appendSpace(nil, spaceHead, gen)) + head[genLen:]
			err := s.db.View([]byte(name), func(v []byte) error {
				h, err := decodeHead(v)
				there = err != nil || !s.expired(h.expiry)
				return nil
			})
			there = there || err != nil && !errors.Is(err, sift.ErrNotFound)
		}
		for c := range clients {
			state := c.watched[head]
			if name != head {
				if state.exists || there {
					c.dirty.Store(true)
				}
				state = watched{}
			}
			if byClient[c] == nil {
				byClient[c] = map[string]watched{}
			}
			byClient[c][name] = state
		}
		byKey[name] = clients
	}
	for c, keys := range byClient {
		c.watched = keys
	}
	s.watches.byKey = byKey
}

// watchOverhead is roughly the memory that a watched key takes in addition to its bytes.
const watchOverhead = 256

// watch is WATCH. The memory for the keys counts as that of a request.
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
		size := len(name) + watchOverhead
		if !c.reserve(size) {
			c.reply(errOOM)
			return
		}
		c.watchedBytes += size
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
		c.reserve(-c.watchedBytes)
		c.watchedBytes = 0
	}
	c.dirty.Store(false)
}

// stale reports whether a key that the client watches was changed or has expired.
func (c *client) stale() bool {
	if c.dirty.Load() {
		return true
	}
	for _, w := range c.watched {
		if c.watchAt.expiredNow(w.expiry) {
			return true
		}
	}
	return false
}

func unwatchCommand(c *client, args [][]byte) {
	c.unwatch()
	c.w.OK()
}
