package serve

import (
	"bytes"
	"errors"
	"strings"

	"github.com/siftdb/sift/internal/serve/resp"
)

// partArgs and partBytes are how many arguments of a long command, and how many bytes of them, are
// processed before commands of other clients may run. An argument may be longer.
const (
	partArgs  = 1000
	partBytes = 4 << 20
)

// parts calls fn with some of the arguments at a time. Except in a transaction, other clients may
// run in between: a command with more arguments is not atomic.
func (c *client) parts(args [][]byte, fn func(part [][]byte) error) error {
	for {
		n, size := 0, 0
		for n < min(len(args), partArgs) && (n == 0 || size+len(args[n]) <= partBytes) {
			size += len(args[n])
			n++
		}
		part := args[:n]
		args = args[n:]
		if err := fn(part); err != nil || len(args) == 0 {
			return err
		}
		c.yield(func() {})
	}
}

// yield releases world while it calls fn, unless a client waits for the end of the command.
func (c *client) yield(fn func()) {
	s := c.srv
	if !c.held || !s.yielding.TryRLock() {
		fn()
		return
	}
	defer s.yielding.RUnlock()
	c.release()
	fn()
	c.hold()
}

func del(c *client, args [][]byte) {
	n := int64(0)
	err := c.parts(args[1:], func(keys [][]byte) error {
		return c.locked(func() error { return c.removeAll(keys, &n) }, keys...)
	})
	if !c.reply(err) {
		c.w.Int(n)
	}
}

// removeAll removes keys, whose stripes are locked, and counts those that existed. If one of them
// cannot be read, it removes none.
func (c *client) removeAll(keys [][]byte, n *int64) error {
	seen := map[string]bool{}
	found := make([][]byte, 0, 4)
	for _, key := range keys {
		k, _, err := c.kindOf(key)
		if err != nil {
			return err
		}
		if k == kindNone || seen[string(key)] {
			continue
		}
		if len(keys) > 1 {
			seen[string(key)] = true
		}
		found = append(found, key)
	}
	for _, key := range found {
		c.remove(key)
		*n++
	}
	return nil
}

func exists(c *client, args [][]byte) {
	n := int64(0)
	err := c.parts(args[1:], func(keys [][]byte) error {
		for _, key := range keys {
			k, _, err := c.kindOf(key)
			if err != nil {
				return err
			}
			n += count(k != kindNone)
		}
		return nil
	})
	if !c.reply(err) {
		c.w.Int(n)
	}
}

func typeCommand(c *client, args [][]byte) {
	k, _, err := c.kindOf(args[1])
	if !c.reply(err) {
		c.w.Simple(k.String())
	}
}

// ttl is TTL, PTTL, EXPIRETIME and PEXPIRETIME.
func ttl(c *client, args [][]byte) {
	k, expiry, err := c.kindOf(args[1])
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
		expiry = max(0, expiry-c.srv.nowMs())
		if name[0] != 'p' {
			expiry = expiry/1000 + count(expiry%1000 >= 500)
		}
	} else if name[0] != 'p' {
		expiry = expiry/1000 + count(expiry%1000 >= 500)
	}
	c.w.Int(expiry)
}

// expireOptions are the conditions under which EXPIRE and its variants change an expiry.
type expireOptions struct{ nx, xx, gt, lt bool }

func parseExpireOptions(args [][]byte) (o expireOptions, err error) {
	for _, a := range args {
		switch {
		case is(a, "NX"):
			o.nx = true
		case is(a, "XX"):
			o.xx = true
		case is(a, "GT"):
			o.gt = true
		case is(a, "LT"):
			o.lt = true
		default:
			return o, errors.New("ERR Unsupported option " + string(clip(a, 128)))
		}
	}
	switch {
	case o.nx && (o.xx || o.gt || o.lt):
		return o, errors.New("ERR NX and XX, GT or LT options at the same time are not compatible")
	case o.gt && o.lt:
		return o, errors.New("ERR GT and LT options at the same time are not compatible")
	}
	return o, nil
}

// expire is EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
func expire(c *client, args [][]byte) {
	name := string(bytes.ToLower(args[0]))
	o, err := parseExpireOptions(args[3:])
	if c.reply(err) {
		return
	}
	n, ok := resp.ParseInt(args[2])
	if !ok {
		c.reply(errNotInt)
		return
	}
	expiry, ok := c.srv.toExpiry(n, !strings.HasSuffix(name, "at"), name[0] == 'p')
	if !ok {
		c.w.Error("ERR invalid expire time in '" + name + "' command")
		return
	}
	done := false
	err = c.locked(func() error {
		k, was, err := c.kindOf(args[1])
		if err != nil || k == kindNone {
			return err
		}
		if o.nx && was != 0 || o.xx && was == 0 || o.gt && (was == 0 || expiry <= was) || o.lt && was != 0 && expiry >= was {
			return nil
		}
		if done = expiry <= c.srv.nowMs(); done {
			c.remove(args[1])
			return nil
		}
		done, err = c.setExpiry(args[1], expiry)
		return err
	}, args[1])
	if !c.reply(err) {
		c.w.Int(count(done))
	}
}

// setExpiry changes the expiry of a key, and reports whether the key exists: it may have expired
// since the caller found it. Its stripe is locked.
func (c *client) setExpiry(key []byte, expiry int64) (bool, error) {
	var h head
	found, err := c.look(key, func(was head) error {
		h = head{was.kind, expiry, bytes.Clone(was.payload)}
		return nil
	})
	if err != nil || !found {
		return false, err
	}
	if !c.unindex(key) {
		return false, c.batchErr
	}
	c.setHead(key, h)
	if f := c.filterAt(c.srv.stripe(key), key); f != nil {
		f.expiry.Store(expiry)
	}
	return true, nil
}

func persist(c *client, args [][]byte) {
	done := false
	err := c.locked(func() error {
		_, was, err := c.kindOf(args[1])
		if err == nil && was != 0 {
			done, err = c.setExpiry(args[1], 0)
		}
		return err
	}, args[1])
	if !c.reply(err) {
		c.w.Int(count(done))
	}
}

// rename moves what a key holds to another key, which may be in another database, and reports
// whether the key existed. The stripes of both are locked.
func (c *client) rename(from []byte, db int, to []byte) (bool, error) {
	var h head
	found, err := c.look(from, func(was head) error {
		h = head{was.kind, was.expiry, bytes.Clone(was.payload)}
		return nil
	})
	if err != nil || !found {
		return false, err
	}
	st := c.srv.stripe(from)
	f := c.filterAt(st, from)
	longer := int64(len(to) - len(from))
	if f != nil {
		if err := c.srv.takeFilterBytes(longer); err != nil {
			return false, err
		}
	}
	ok := false
	c.in(db, func() error {
		ok = c.unindex(to)
		return nil
	})
	if !ok || !c.unindex(from) {
		if f != nil {
			c.srv.filterBytes.Add(-longer)
		}
		return false, c.batchErr
	}
	if f != nil {
		delete(st.filters, f.name)
		c.batch.Delete(nameKey(c.gen(), f.id))
	}
	c.removeHead(from)
	return true, c.in(db, func() error {
		c.forget(&c.batch, c.srv.stripe(to), to)
		c.setHead(to, h)
		if f == nil {
			return nil
		}
		f.mu.Lock()
		f.name = string(c.headKey(nil, to))
		f.mu.Unlock()
		c.srv.stripe(to).filters[f.name] = f
		c.batch.Put(nameKey(c.gen(), f.id), to)
		return nil
	})
}

var errNoKey = errors.New("ERR no such key")

// renameCommand is RENAME and RENAMENX.
func renameCommand(c *client, args [][]byte) {
	from, to := args[1], args[2]
	nx := onlyNew(args)
	done := false
	err := c.locked(func() error {
		k, _, err := c.kindOf(from)
		if err != nil {
			return err
		}
		if k == kindNone {
			return errNoKey
		}
		if nx {
			if k, _, err := c.kindOf(to); err != nil || k != kindNone {
				return err
			}
		}
		if done = true; bytes.Equal(from, to) {
			return nil
		}
		found, err := c.rename(from, c.db, to)
		if err == nil && !found { // it has just expired
			err = errNoKey
		}
		return err
	}, from, to)
	switch {
	case c.reply(err):
	case nx:
		c.w.Int(count(done))
	default:
		c.w.OK()
	}
}
