package serve

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/siftdb/sift"
)

func selectDB(c *client, args [][]byte) {
	if n, err := parseDB(args[1]); !c.reply(err) {
		c.db = n
		c.w.OK()
	}
}

func dbsize(c *client, args [][]byte) {
	dbs, err := c.srv.keyCounts.count(c.srv, c.inExec, false)
	if c.reply(err) {
		return
	}
	more, err := c.overlaid()
	if !c.reply(err) {
		c.w.Int(dbs[c.gen()].keys + more.keys)
	}
}

// flushAll is FLUSHALL and FLUSHDB: it starts new generations. World is held exclusively.
func flushAll(c *client, args [][]byte) {
	if len(args) > 2 || len(args) == 2 && !is(args[1], "SYNC") && !is(args[1], "ASYNC") {
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

// setGens sets the generations of all databases, and drops the filters of generations that no
// longer belong to a database. World is held exclusively.
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
	now := map[uint32]uint32{}
	for i := range gens {
		if was := s.gens[i].Swap(gens[i]); was != gens[i] {
			now[was] = gens[i]
		}
	}
	s.signalGens(now)
	s.expiring.due(0) // the sweeper may have been between two databases that were swapped
	for i := range s.stripes {
		st := &s.stripes[i]
		st.lock() // the status pages do not hold world
		for name, f := range st.filters {
			if c.srv.databaseOf(name) >= 0 {
				continue
			}
			f.mu.Lock()
			f.dead = true
			s.filterBytes.Add(-int64(f.memory()))
			f.mu.Unlock()
			delete(st.filters, name)
		}
		st.unlock()
	}
	s.lookForOld()
	return nil
}

// databaseOf returns the database of a key, given the store's key of its head; -1 if its generation
// is old.
func (s *Server) databaseOf(name string) int {
	gen := binary.BigEndian.Uint32([]byte(name[1:genLen]))
	for i := range s.gens {
		if s.gens[i].Load() == gen {
			return i
		}
	}
	return -1
}

// overlaid returns by how much the current transaction changes the numbers of keys of the selected
// database.
func (c *client) overlaid() (n keyCount, err error) {
	prefix := string(appendSpace(nil, spaceHead, c.gen()))
	add := func(v []byte, sign int64) error {
		h, err := decodeHead(v)
		if err == nil && !c.srv.expiredNow(h.expiry) {
			n.keys += sign
			n.expires += sign * count(h.expiry != 0)
		}
		return err
	}
	for name, at := range c.overlay {
		if name[:genLen] != prefix {
			continue
		}
		err := c.srv.db.View([]byte(name), func(was []byte) error { return add(was, -1) })
		if err != nil && !errors.Is(err, sift.ErrNotFound) {
			return keyCount{}, err
		}
		if v := c.headAt(at); v != nil {
			if err := add(v, 1); err != nil {
				return keyCount{}, err
			}
		}
	}
	return n, nil
}
