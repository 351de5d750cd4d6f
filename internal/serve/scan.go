package serve

import (
	"bytes"
	"cmp"
	"container/list"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/siftdb/sift/internal/serve/resp"
)

// cursors stores the positions of scans. A key can be longer than a cursor, so a cursor is a number
// that the server assigns. A scan keeps two cursors: the one for its next step, and the one that it
// used last, so that a client that has lost the reply can repeat the step. The latter remains after
// the end of the scan. If there are too many cursors, those of scans that have ended are dropped
// first, then the others, the oldest first in both cases. The first number is random, so that a
// cursor from before a restart, or of another node, is most likely unknown, and not the position of
// another scan.
type cursors struct {
	mu    sync.Mutex
	last  uint64
	bytes int
	kept  map[uint64]*list.Element // in running or ended
	// The cursors, oldest first: of scans that have not ended, and of those that have.
	running, ended list.List // of cursor
}

// cursor is the position of a scan, and the number of the cursor before it, 0 if there is none.
type cursor struct {
	id     uint64
	next   []byte
	before uint64
}

const (
	// maxCursors bounds the cursors that are kept.
	maxCursors = 4096
	// cursorBytes bounds their keys; the newest is always kept.
	cursorBytes = 16 << 20
	// A step of a scan ends early if its keys take more than scanBytes.
	scanBytes = 1 << 20
)

// add returns a cursor for the step after the one that has used a cursor, 0 for the first step.
func (k *cursors) add(used uint64, next []byte) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = map[uint64]*list.Element{}
		k.last = rand.Uint64N(1 << 48)
	}
	k.drop(k.at(used).before)
	k.last++
	k.keep(&k.running, cursor{k.last, next, used})
	for len(k.kept) > maxCursors || k.bytes > cursorBytes && len(k.kept) > 1 {
		oldest := cmp.Or(k.ended.Front(), k.running.Front())
		k.drop(oldest.Value.(cursor).id)
	}
	return k.last
}

// end records that a scan has ended with a step that has used a cursor, 0 if it was the first.
func (k *cursors) end(used uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.at(used)
	k.drop(at.before)
	if k.drop(used) {
		k.keep(&k.ended, at)
	}
}

// get returns a cursor's position. The cursor stays valid, so that a client may repeat the step.
func (k *cursors) get(id uint64) ([]byte, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.at(id)
	return at.next, at.id != 0
}

// at returns a cursor, zero if it is unknown.
func (k *cursors) at(id uint64) (at cursor) {
	if e := k.kept[id]; e != nil {
		at = e.Value.(cursor)
	}
	return at
}

func (k *cursors) keep(in *list.List, at cursor) {
	k.kept[at.id] = in.PushBack(at)
	k.bytes += len(at.next)
}

// drop drops a cursor, and reports whether it was known.
func (k *cursors) drop(id uint64) bool {
	e := k.kept[id]
	if e == nil {
		return false
	}
	k.bytes -= len(e.Value.(cursor).next)
	k.running.Remove(e) // Remove does nothing if e is in the other list
	k.ended.Remove(e)
	delete(k.kept, id)
	return true
}

func scan(c *client, args [][]byte) {
	id, ok := int64(0), true
	if len(cString(args[1])) > 0 { // to Redis an empty cursor is 0
		id, ok = resp.ParseInt(args[1])
	}
	if !ok {
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
			// It is unknown: a scan that starts again misses nothing.
			from = nil
		}
	}
	var keys [][]byte
	var next []byte
	size := 0
	err := c.eachKey(from, func(key []byte, h head) (bool, error) {
		if n == 0 || size > scanBytes {
			next = bytes.Clone(key)
			return false, nil
		}
		n--
		if (only == "" || strings.EqualFold(only, h.kind.String())) && (match == nil || glob(match, key)) && !c.srv.expiredNow(h.expiry) {
			keys = append(keys, bytes.Clone(key))
			size += len(key)
		}
		return true, nil
	})
	if c.reply(err) {
		return
	}
	then := uint64(0)
	if next != nil {
		then = c.srv.cursors.add(uint64(id), next)
	} else {
		c.srv.cursors.end(uint64(id))
	}
	c.w.Array(2)
	c.w.Bulk(appendUint(nil, then))
	c.w.Array(len(keys))
	for _, key := range keys {
		c.w.Bulk(key)
	}
}

// glob matches Redis' patterns: * ? [abc] [^a] [a-c] and \ before a byte. Each star matches as
// little as possible at first, and only the last one is ever extended, so the time is at most
// len(p)·len(s).
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

// globOne matches one byte, and returns the length of the part of the pattern for it.
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
