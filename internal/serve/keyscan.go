package serve

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/siftdb/sift"
)

func keys(c *client, args [][]byte) {
	var found [][]byte
	reserved := 0
	defer func() { c.reserve(-reserved) }()
	err := c.eachKey(nil, func(key []byte, h head) (bool, error) {
		if !glob(args[1], key) || c.srv.expiredNow(h.expiry) {
			return true, nil
		}
		if n := len(key) + 24; !c.reserve(n) {
			return false, errReplyOOM
		} else {
			reserved += n
		}
		found = append(found, bytes.Clone(key))
		return true, nil
	})
	if c.reply(err) {
		return
	}
	c.w.Array(len(found))
	for _, key := range found {
		c.w.Bulk(key)
	}
}

// eachKey calls fn with the keys of the selected database, in order, starting at from, until fn
// returns false. It sees the changes of the transaction that is being executed.
func (c *client) eachKey(from []byte, fn func(key []byte, h head) (bool, error)) error {
	prefix := appendSpace(nil, spaceHead, c.gen())
	o := &sift.IterOptions{Prefix: prefix, DontFillCache: true}
	if from != nil {
		o.LowerBound = append(bytes.Clone(prefix), from...)
	}
	call := func(key, v []byte) (bool, error) {
		h, err := decodeHead(v)
		if err != nil {
			return false, err
		}
		return fn(key[len(prefix):], h)
	}
	changed := c.overlaidFrom(string(prefix), string(from))
	for e, err := range c.srv.db.Scan(o) {
		if err != nil {
			return err
		}
		for len(changed) > 0 && changed[0] < string(e.Key) {
			name := changed[0]
			changed = changed[1:]
			if more, err := call([]byte(name), c.headAt(c.overlay[name])); err != nil || !more {
				return err
			}
		}
		v := e.Value
		if len(changed) > 0 && changed[0] == string(e.Key) {
			v = c.headAt(c.overlay[changed[0]])
			changed = changed[1:]
		} else if _, removed := c.overlay[string(e.Key)]; removed {
			continue
		}
		if more, err := call(e.Key, v); err != nil || !more {
			return err
		}
	}
	for _, name := range changed {
		if more, err := call([]byte(name), c.headAt(c.overlay[name])); err != nil || !more {
			return err
		}
	}
	return nil
}

// overlaidFrom returns the store's keys of heads that the current transaction has changed and not
// removed: those with a prefix, from a key of the database on, in order.
func (c *client) overlaidFrom(prefix, from string) (names []string) {
	for name, at := range c.overlay {
		if at != (span{}) && name[:genLen] == prefix && name[genLen:] >= from {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// randomKey is RANDOMKEY: it picks one of the keys that follow a random position between the first
// and the last key, so keys that are far from others are more likely.
func randomKey(c *client, args [][]byte) {
	const choice = 100
	prefix := appendSpace(nil, spaceHead, c.gen())
	it, err := c.srv.db.NewIter(&sift.IterOptions{Prefix: prefix})
	if c.reply(err) {
		return
	}
	var first, last []byte
	if it.First() {
		first = bytes.Clone(it.Key()[genLen:])
	}
	if it.Last() {
		last = bytes.Clone(it.Key()[genLen:])
	}
	if err := it.Close(); c.reply(err) {
		return
	}
	var chosen []byte
	seen := 0
	pick := func(key []byte, h head) (bool, error) {
		if !c.srv.expiredNow(h.expiry) {
			if seen++; rand.IntN(seen) == 0 {
				chosen = bytes.Clone(key)
			}
		}
		return seen < choice, nil
	}
	err = c.eachKey(between(first, last), pick)
	if err == nil && seen < choice {
		err = c.eachKey(nil, pick)
	}
	c.bulk(chosen, err)
}

// between returns a random string between first and last.
func between(first, last []byte) []byte {
	n := 0
	for n < len(first) && n < len(last) && first[n] == last[n] {
		n++
	}
	at := func(b []byte) (v uint64) {
		for i := range 8 {
			v <<= 8
			if n+i < len(b) {
				v |= uint64(b[n+i])
			}
		}
		return v
	}
	low, high := at(first), at(last)
	v := low
	if high > low {
		v += rand.Uint64N(high - low)
	}
	out := bytes.Clone(first[:n])
	for i := range 8 {
		out = append(out, byte(v>>(56-8*i)))
	}
	return out
}
