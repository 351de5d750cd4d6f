package serve

import (
	"encoding/binary"
	"math"

	"github.com/siftdb/sift"
)

// selectDB is SELECT.
func selectDB(c *client, args [][]byte) {
	if n, err := parseDB(args[1]); !c.reply(err) {
		c.db = n
		c.w.OK()
	}
}

// keys is how many keys a database has, and how many of them expire.
func (s *Server) countKeys(gen uint32) (n, expiring int64, err error) {
	for e, err := range s.db.Scan(&sift.IterOptions{Prefix: appendSpace(nil, spaceHead, gen), DontFillCache: true}) {
		if err != nil {
			return 0, 0, err
		}
		h, err := decodeHead(e.Value)
		if err != nil {
			return 0, 0, err
		}
		n += count(!h.expired())
		expiring += count(h.expiry != 0 && !h.expired())
	}
	return n, expiring, nil
}

func dbsize(c *client, args [][]byte) {
	n, _, err := c.srv.countKeys(c.gen())
	if c.overlay != nil {
		n += c.overlaid()
	}
	if !c.reply(err) {
		c.w.Int(n)
	}
}

// flushAll is FLUSHALL and FLUSHDB: it begins new generations. World is held alone.
func flushAll(c *client, args [][]byte) {
	if len(args) == 2 && !is(args[1], "SYNC") && !is(args[1], "ASYNC") {
		c.reply(errSyntax)
		return
	}
	s := c.srv
	first, last := c.db, c.db
	if is(args[0], "FLUSHALL") {
		first, last = 0, numDatabases-1
	}
	next := uint32(0)
	var gens [numDatabases]uint32
	for i := range gens {
		gens[i] = s.gens[i].Load()
		next = max(next, gens[i]+1)
	}
	if next > math.MaxUint32-numDatabases {
		c.w.Error("ERR out of generations")
		return
	}
	for i := first; i <= last; i++ {
		gens[i] = next
		next++
	}
	if !c.reply(c.setGens(gens)) {
		c.w.OK()
	}
}

// setGens gives databases other generations, and forgets the filters of those that
// no database has any more. World is held alone.
func (c *client) setGens(gens [numDatabases]uint32) error {
	s := c.srv
	c.begin()
	var v []byte
	for _, gen := range gens {
		v = binary.BigEndian.AppendUint32(v, gen)
	}
	c.batch.Put(metaGen, v)
	if err := c.apply(); err != nil {
		return err
	}
	for i := range gens {
		was := s.gens[i].Swap(gens[i])
		if was != gens[i] {
			s.signalFlush(was, gens[i])
		}
	}
	for i := range s.stripes {
		for name, f := range s.stripes[i].filters {
			if c.srv.databaseOf(name) >= 0 {
				continue
			}
			f.mu.Lock()
			f.dead = true
			s.filterBytes.Add(-int64(f.memory()))
			f.mu.Unlock()
			delete(s.stripes[i].filters, name)
		}
	}
	select {
	case s.garbage <- 0:
	default:
	}
	return nil
}

// databaseOf returns the database of a key, given the store's key of its head, -1 if its
// generation is of the past.
func (s *Server) databaseOf(name string) int {
	gen := binary.BigEndian.Uint32([]byte(name[1:genLen]))
	for i := range s.gens {
		if s.gens[i].Load() == gen {
			return i
		}
	}
	return -1
}

// overlaid is by how much the changes of a transaction change the number of keys.
func (c *client) overlaid() (n int64) {
	prefix := string(appendSpace(nil, spaceHead, c.gen()))
	for name, v := range c.overlay {
		if name[:genLen] != prefix {
			continue
		}
		was := false
		c.srv.db.View([]byte(name), func(v []byte) error {
			h, err := decodeHead(v)
			was = err == nil && !h.expired()
			return err
		})
		h, err := decodeHead(v)
		n += count(v != nil && err == nil && !h.expired()) - count(was)
	}
	return n
}
