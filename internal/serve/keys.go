package serve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"sync"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/serve/resp"
)

func del(c *client, args [][]byte) {
	n := int64(0)
	err := c.locked(func() error {
		seen := map[string]bool{}
		for _, key := range args[1:] {
			k, _, err := c.srv.kindOf(c, key)
			if err != nil {
				return err
			}
			if k == kindNone || seen[string(key)] {
				continue
			}
			if len(args) > 2 {
				seen[string(key)] = true
			}
			c.remove(key)
			n++
		}
		return nil
	}, args[1:]...)
	if !c.reply(err) {
		c.w.Int(n)
	}
}

func exists(c *client, args [][]byte) {
	n := int64(0)
	for _, key := range args[1:] {
		k, _, err := c.srv.kindOf(c, key)
		if c.reply(err) {
			return
		}
		n += count(k != kindNone)
	}
	c.w.Int(n)
}

func typeCommand(c *client, args [][]byte) {
	k, _, err := c.srv.kindOf(c, args[1])
	if !c.reply(err) {
		c.w.Simple(k.String())
	}
}

func object(c *client, args [][]byte) {
	if !is(args[1], "ENCODING") || len(args) != 3 {
		c.w.Error("ERR Unknown subcommand or wrong number of arguments for '" + string(clip(args[1], 128)) + "'. Try OBJECT HELP.")
		return
	}
	encoding := ""
	_, err := c.srv.look(c, args[2], func(h head) error {
		encoding = "raw"
		if _, ok := resp.ParseInt(h.payload); h.kind == kindString && ok {
			encoding = "int"
		} else if h.kind == kindString && len(h.payload) <= 44 {
			encoding = "embstr"
		}
		return nil
	})
	switch {
	case c.reply(err):
	case encoding == "":
		c.w.Nil()
	default:
		c.w.BulkString(encoding)
	}
}

// ttl is TTL, PTTL, EXPIRETIME and PEXPIRETIME.
func ttl(c *client, args [][]byte) {
	k, expiry, err := c.srv.kindOf(c, args[1])
	if c.reply(err) {
		return
	}
	name := bytes.ToLower(args[0])
	switch {
	case k == kindNone:
		c.w.Int(-2)
		return
	case expiry == 0:
		c.w.Int(-1)
		return
	}
	if bytes.HasSuffix(name, []byte("ttl")) {
		expiry = max(0, expiry-nowMs())
		if name[0] != 'p' {
			expiry = expiry/1000 + count(expiry%1000 >= 500)
		}
	} else if name[0] != 'p' {
		expiry = expiry/1000 + count(expiry%1000 >= 500)
	}
	c.w.Int(expiry)
}

// expire is EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
func expire(c *client, args [][]byte) {
	name := string(bytes.ToLower(args[0]))
	n, ok := resp.ParseInt(args[2])
	if !ok {
		c.reply(errNotInt)
		return
	}
	expiry, ok := toExpiry(n, !strings.HasSuffix(name, "at"), name[0] == 'p')
	if !ok {
		c.w.Error("ERR invalid expire time in '" + name + "' command")
		return
	}
	var word string
	if len(args) == 4 {
		word = strings.ToUpper(string(clip(args[3], 8)))
		if word != "NX" && word != "XX" && word != "GT" && word != "LT" {
			c.w.Error("ERR Unsupported option " + string(clip(args[3], 128)))
			return
		}
	}
	done := false
	err := c.locked(func() error {
		k, was, err := c.srv.kindOf(c, args[1])
		if err != nil || k == kindNone {
			return err
		}
		switch {
		case word == "NX" && was != 0, word == "XX" && was == 0,
			word == "GT" && (was == 0 || expiry <= was), word == "LT" && was != 0 && expiry >= was:
			return nil
		}
		done = true
		if expiry <= nowMs() {
			c.remove(args[1])
			return nil
		}
		return c.setExpiry(args[1], expiry)
	}, args[1])
	if !c.reply(err) {
		c.w.Int(count(done))
	}
}

// setExpiry changes the expiry of a key that is there. Its stripe is locked.
func (c *client) setExpiry(key []byte, expiry int64) error {
	var h head
	if _, err := c.srv.look(c, key, func(was head) error {
		h = head{was.kind, expiry, bytes.Clone(was.payload)}
		return nil
	}); err != nil {
		return err
	}
	c.setHead(key, h)
	if f := c.srv.stripe(key).filters[string(key)]; f != nil {
		f.expiry.Store(expiry)
	}
	return nil
}

func persist(c *client, args [][]byte) {
	done := false
	err := c.locked(func() error {
		_, was, err := c.srv.kindOf(c, args[1])
		if done = err == nil && was != 0; done {
			return c.setExpiry(args[1], 0)
		}
		return err
	}, args[1])
	if !c.reply(err) {
		c.w.Int(count(done))
	}
}

// rename is RENAME and RENAMENX.
func rename(c *client, args [][]byte) {
	from, to := args[1], args[2]
	nx := onlyNew(args)
	done := false
	err := c.locked(func() error {
		var h head
		found, err := c.srv.look(c, from, func(was head) error {
			h = head{was.kind, was.expiry, bytes.Clone(was.payload)}
			return nil
		})
		if err != nil {
			return err
		}
		if !found {
			return errors.New("ERR no such key")
		}
		if nx {
			if k, _, err := c.srv.kindOf(c, to); err != nil || k != kindNone {
				return err
			}
		}
		done = true
		if bytes.Equal(from, to) {
			return nil
		}
		c.forget(c.srv.stripe(to), to)
		c.batch.Delete(c.srv.headKey(nil, from))
		c.setHead(to, h)
		if h.kind != kindString {
			st := c.srv.stripe(from)
			f := st.filters[string(from)]
			delete(st.filters, string(from))
			c.srv.stripe(to).filters[string(to)] = f
			f.mu.Lock()
			c.srv.filterBytes.Add(int64(len(to) - f.key))
			f.key = len(to)
			f.mu.Unlock()
			c.batch.Put(c.srv.nameKey(f.id), to)
		}
		return nil
	}, from, to)
	switch {
	case c.reply(err):
	case nx:
		c.w.Int(count(done))
	default:
		c.w.OK()
	}
}

func copyCommand(c *client, args [][]byte) {
	replace := false
	for i := 3; i < len(args); i++ {
		switch {
		case is(args[i], "REPLACE"):
			replace = true
		case is(args[i], "DB") && i+1 < len(args):
			i++
			if string(args[i]) != "0" {
				c.w.Error("ERR DB index is out of range")
				return
			}
		default:
			c.reply(errSyntax)
			return
		}
	}
	done := false
	err := c.locked(func() error {
		if bytes.Equal(args[1], args[2]) {
			return errors.New("ERR source and destination objects are the same")
		}
		k, _, err := c.srv.kindOf(c, args[1])
		if err != nil || k == kindNone {
			return err
		}
		if k != kindString {
			return errors.New("ERR not supported for this module key")
		}
		if there, _, err := c.srv.kindOf(c, args[2]); err != nil || there != kindNone && !replace {
			return err
		}
		v, expiry, _, err := c.old(args[1])
		if err == nil {
			c.setString(args[2], v, expiry)
			done = true
		}
		return err
	}, args[1], args[2])
	if !c.reply(err) {
		c.w.Int(count(done))
	}
}

// cursors remember where scans are. A key can be longer than a cursor, so a
// cursor is a number that the server gives out; it forgets the oldest.
type cursors struct {
	mu     sync.Mutex
	oldest uint64 // of those that are kept
	last   uint64
	bytes  int
	next   map[uint64][]byte
}

const (
	// maxCursors is how many scans may be under way.
	maxCursors = 4096
	// cursorBytes bounds the keys that they keep; the newest is always kept.
	cursorBytes = 16 << 20
	// scanBytes ends a step of a scan early.
	scanBytes = 1 << 20
)

func (k *cursors) add(next []byte) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.next == nil {
		k.next = map[uint64][]byte{}
	}
	k.last++
	k.next[k.last] = next
	for k.bytes += len(next); k.oldest < k.last && (k.last-k.oldest >= maxCursors || k.bytes > cursorBytes); k.oldest++ {
		k.bytes -= len(k.next[k.oldest])
		delete(k.next, k.oldest)
	}
	return k.last
}

// get returns a cursor's place. It stays, so that a client may ask again.
func (k *cursors) get(id uint64) ([]byte, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	next, ok := k.next[id]
	return next, ok
}

func scan(c *client, args [][]byte) {
	id, ok := resp.ParseInt(args[1])
	if !ok || id < 0 {
		c.w.Error("ERR invalid cursor")
		return
	}
	n, match, only := int64(10), []byte(nil), ""
	for i := 2; i < len(args); i += 2 {
		if i+1 == len(args) {
			c.reply(errSyntax)
			return
		}
		switch {
		case is(args[i], "COUNT"):
			if n, ok = resp.ParseInt(args[i+1]); !ok {
				c.reply(errNotInt)
				return
			}
			if n < 1 {
				c.reply(errSyntax)
				return
			}
			n = min(n, 10000)
		case is(args[i], "MATCH"):
			match = args[i+1]
		case is(args[i], "TYPE"):
			only = string(args[i+1])
		default:
			c.reply(errSyntax)
			return
		}
	}
	var from []byte
	if id != 0 {
		if from, ok = c.srv.cursors.get(uint64(id)); !ok {
			// Forgotten: a scan that begins anew misses nothing.
			from = nil
		}
	}
	prefix := c.srv.appendSpace(nil, spaceHead)
	o := &sift.IterOptions{Prefix: prefix}
	if from != nil {
		o.LowerBound = append(append([]byte(nil), prefix...), from...)
	}
	var keys [][]byte
	var next []byte
	size := 0
	for e, err := range c.srv.db.Scan(o) {
		if c.reply(err) {
			return
		}
		key := e.Key[len(prefix):]
		if n == 0 || size > scanBytes {
			next = bytes.Clone(key)
			break
		}
		n--
		h, err := decodeHead(e.Value)
		if c.reply(err) {
			return
		}
		if h.expired() || only != "" && !strings.EqualFold(only, h.kind.String()) || match != nil && !glob(match, key) {
			continue
		}
		keys = append(keys, bytes.Clone(key))
		size += len(key)
	}
	cursor := uint64(0)
	if next != nil {
		cursor = c.srv.cursors.add(next)
	}
	c.w.Array(2)
	c.w.Bulk(appendUint(nil, cursor))
	c.w.Array(len(keys))
	for _, key := range keys {
		c.w.Bulk(key)
	}
}

// glob matches Redis' patterns: * ? [abc] [^a] [a-c] and \ before a byte. Each
// star is tried at its shortest first, and only the last star is ever moved, so
// the time is at most len(p)·len(s).
func glob(p, s []byte) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		if i < len(p) && p[i] == '*' {
			star, mark = i, j
			i++
			continue
		}
		if n, ok := globOne(p[i:], s[j]); ok {
			i += n
			j++
			continue
		}
		if star < 0 {
			return false
		}
		mark++
		i, j = star+1, mark
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// globOne matches one byte and returns the length of the pattern that did.
func globOne(p []byte, b byte) (int, bool) {
	if len(p) == 0 {
		return 0, false
	}
	switch p[0] {
	case '?':
		return 1, true
	case '\\':
		if len(p) > 1 {
			return 2, p[1] == b
		}
	case '[':
		i, not, ok := 1, false, false
		if i < len(p) && p[i] == '^' {
			not = true
			i++
		}
		for i < len(p) && p[i] != ']' {
			switch {
			case p[i] == '\\' && i+1 < len(p):
				ok = ok || p[i+1] == b
				i += 2
			case i+2 < len(p) && p[i+1] == '-':
				low, high := min(p[i], p[i+2]), max(p[i], p[i+2])
				ok = ok || b >= low && b <= high
				i += 3
			default:
				ok = ok || p[i] == b
				i++
			}
		}
		return min(i+1, len(p)), ok != not
	}
	return 1, p[0] == b
}

func dbsize(c *client, args [][]byte) {
	n := int64(0)
	for e, err := range c.srv.db.Scan(&sift.IterOptions{Prefix: c.srv.appendSpace(nil, spaceHead), DontFillCache: true}) {
		if c.reply(err) {
			return
		}
		h, err := decodeHead(e.Value)
		if c.reply(err) {
			return
		}
		n += count(!h.expired())
	}
	c.w.Int(n)
}

// flushAll begins a new generation. World is held alone.
func flushAll(c *client, args [][]byte) {
	if len(args) == 2 && !is(args[1], "SYNC") && !is(args[1], "ASYNC") {
		c.reply(errSyntax)
		return
	}
	s := c.srv
	gen := s.gen.Load()
	if gen == math.MaxUint32 {
		c.w.Error("ERR out of generations")
		return
	}
	c.batch.Reset()
	c.batch.Put(metaGen, binary.BigEndian.AppendUint32(nil, gen+1))
	if c.reply(c.apply()) {
		return
	}
	s.gen.Store(gen + 1)
	for i := range s.stripes {
		for key, f := range s.stripes[i].filters {
			f.mu.Lock()
			f.dead = true
			s.filterBytes.Add(-int64(f.memory()))
			f.mu.Unlock()
			delete(s.stripes[i].filters, key)
		}
	}
	select {
	case s.garbage <- 0:
	default:
	}
	c.w.OK()
}
