package serve

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/siftdb/sift/internal/serve/resp"
)

var (
	errSyntax   = errors.New("ERR syntax error")
	errNotInt   = errors.New("ERR value is not an integer or out of range")
	errNotFloat = errors.New("ERR value is not a valid float")
	errOverflow = errors.New("ERR increment or decrement would overflow")
	errTooLong  = errors.New("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
)

func get(c *client, args [][]byte) {
	found, err := c.look(args[1], func(h head) error {
		if h.kind != kindString {
			return errWrongType
		}
		if len(h.payload) > shortBytes && c.onLoop() {
			c.handOver = true
			return nil
		}
		c.w.Bulk(h.payload)
		return nil
	})
	if c.handOver {
		return
	}
	if !c.reply(err) && !found {
		c.w.Nil()
	}
	if found {
		c.srv.stats.hits.Add(1)
	} else {
		c.srv.stats.misses.Add(1)
	}
}

// stringOptions are the options of SET and GETEX.
type stringOptions struct {
	command                       string
	nx, xx, get, keepTTL, persist bool

	time         []byte // nil: none
	relative, ms bool
}

// expiry returns the time in ms since 1970, 0 if none was given.
func (o *stringOptions) expiry(s *Server) (int64, error) {
	if o.time == nil {
		return 0, nil
	}
	return s.parseExpiry(o.time, o.command, o.relative, o.ms)
}

// parseStringOptions parses options except for the time. An option may be repeated.
func parseStringOptions(args [][]byte, command string) (o stringOptions, err error) {
	o.command = command
	set := command == "set"
	unit := "" // of the time
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case is(a, "NX") && !o.xx && set:
			o.nx = true
		case is(a, "XX") && !o.nx && set:
			o.xx = true
		case is(a, "GET") && set:
			o.get = true
		case is(a, "KEEPTTL") && unit == "" && set:
			o.keepTTL = true
		case is(a, "PERSIST") && unit == "" && !set:
			o.persist = true
		case (is(a, "EX") || is(a, "PX") || is(a, "EXAT") || is(a, "PXAT")) && (unit == "" || is(a, unit)) && !o.keepTTL && !o.persist && i+1 < len(args):
			i++
			unit, o.time = strings.ToUpper(string(a)), args[i]
			o.relative, o.ms = len(a) == 2, a[0]|0x20 == 'p'
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

// parseExpiry returns a time in ms since 1970, always above 0.
func (s *Server) parseExpiry(arg []byte, command string, relative, ms bool) (int64, error) {
	n, ok := resp.ParseInt(arg)
	if !ok {
		return 0, errNotInt
	}
	t, ok := s.toExpiry(n, relative, ms)
	if n <= 0 || !ok {
		return 0, errors.New("ERR invalid expire time in '" + command + "' command")
	}
	return t, nil
}

// toExpiry converts a time to ms since 1970. It returns false on overflow.
func (s *Server) toExpiry(n int64, relative, ms bool) (int64, bool) {
	if !ms {
		if n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
			return 0, false
		}
		n *= 1000
	}
	if relative {
		now := s.nowMs()
		if n > math.MaxInt64-now {
			return 0, false
		}
		n += now
	}
	return n, true
}

// old returns a copy of a key's string and its expiry; found is false if there is no key.
func (c *client) old(key []byte) (value []byte, expiry int64, found bool, err error) {
	found, err = c.look(key, func(h head) error {
		if h.kind != kindString {
			return errWrongType
		}
		value, expiry = append([]byte{}, h.payload...), h.expiry
		return nil
	})
	return value, expiry, found, err
}

// oldReply is old for a command that changes the key and replies with the string. It returns
// errReplyOOM if the reply does not fit in memory: after the change, the string would be lost.
func (c *client) oldReply(key []byte) (value []byte, expiry int64, found bool, err error) {
	if value, expiry, found, err = c.old(key); err == nil && !c.w.Grow(len(value)) {
		err = errReplyOOM
	}
	return value, expiry, found, err
}

func set(c *client, args [][]byte) {
	if len(args) == 3 && c.overlay == nil {
		c.pend(args[1], args[2])
		c.w.OK()
		return
	}
	o, err := parseStringOptions(args[3:], "set")
	if c.reply(err) {
		return
	}
	expiry, err := o.expiry(c.srv)
	if c.reply(err) {
		return
	}
	var was []byte
	var had, done bool
	err = c.locked(func() (err error) {
		var ttl int64
		if o.get {
			was, ttl, had, err = c.oldReply(args[1])
		} else if o.nx || o.xx || o.keepTTL {
			var k kind
			k, ttl, err = c.kindOf(args[1])
			had = k != kindNone
		}
		if err != nil || o.nx && had || o.xx && !had {
			return err
		}
		if o.keepTTL {
			expiry = ttl
		}
		c.setString(args[1], args[2], expiry)
		done = true
		return nil
	}, args[1])
	switch {
	case c.reply(err):
	case o.get && had:
		c.w.Bulk(was)
	case o.get || !done:
		c.w.Nil()
	default:
		c.w.OK()
	}
}

func setNX(c *client, args [][]byte) {
	done := false
	err := c.locked(func() error {
		k, _, err := c.kindOf(args[1])
		if err == nil && k == kindNone {
			c.setString(args[1], args[2], 0)
			done = true
		}
		return err
	}, args[1])
	if !c.reply(err) {
		c.w.Int(count(done))
	}
}

func count(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

func setEX(c *client, args [][]byte) {
	ms := args[0][0]|0x20 == 'p'
	name := "setex"
	if ms {
		name = "psetex"
	}
	expiry, err := c.srv.parseExpiry(args[2], name, true, ms)
	if err == nil {
		err = c.locked(func() error {
			c.setString(args[1], args[3], expiry)
			return nil
		}, args[1])
	}
	if !c.reply(err) {
		c.w.OK()
	}
}

func getSet(c *client, args [][]byte) {
	var was []byte
	err := c.locked(func() (err error) {
		if was, _, _, err = c.oldReply(args[1]); err == nil {
			c.setString(args[1], args[2], 0)
		}
		return err
	}, args[1])
	c.bulk(was, err)
}

// bulk replies with a string, or nil.
func (c *client) bulk(v []byte, err error) {
	switch {
	case c.reply(err):
	case v == nil:
		c.w.Nil()
	default:
		c.w.Bulk(v)
	}
}

func getDel(c *client, args [][]byte) {
	var was []byte
	err := c.locked(func() (err error) {
		if was, _, _, err = c.oldReply(args[1]); err == nil && was != nil {
			c.remove(args[1])
		}
		return err
	}, args[1])
	c.bulk(was, err)
}

func mget(c *client, args [][]byte) {
	mark := len(c.w.Buf)
	c.w.Array(len(args) - 1)
	err := c.parts(args[1:], func(keys [][]byte) error {
		for _, key := range keys {
			if err := c.writeString(key); err != nil {
				return err
			}
			if c.w.Refused {
				return errReplyOOM // the caller, which resets Refused, replies
			}
		}
		return nil
	})
	if err != nil && !c.w.Refused {
		c.w.Buf = c.w.Buf[:mark]
		c.reply(err)
	}
}

// writeString replies with the string at a key, or with a null if the key holds none.
func (c *client) writeString(key []byte) error {
	got := false
	_, err := c.look(key, func(h head) error {
		if got = h.kind == kindString; got {
			c.w.Bulk(h.payload)
		}
		return nil
	})
	if err == nil && !got {
		c.w.Nil()
	}
	return err
}

func mset(c *client, args [][]byte) {
	if len(args)%2 == 0 {
		c.arity("mset")
		return
	}
	c.batchErr = nil
	for i := 1; i < len(args); i += 2 {
		if c.overlay == nil {
			c.pend(args[i], args[i+1])
		} else {
			st := c.srv.stripe(args[i])
			st.lock() // the status pages do not hold world
			c.setString(args[i], args[i+1], 0)
			st.unlock()
		}
	}
	if !c.reply(c.batchErr) {
		c.w.OK()
	}
}

func strlen(c *client, args [][]byte) {
	n := 0
	_, err := c.look(args[1], func(h head) error {
		if h.kind != kindString {
			return errWrongType
		}
		n = len(h.payload)
		return nil
	})
	if !c.reply(err) {
		c.w.Int(int64(n))
	}
}

func appendCommand(c *client, args [][]byte) {
	n := 0
	err := c.locked(func() error {
		was, expiry, _, err := c.old(args[1])
		if err == nil && len(was)+len(args[2]) > c.srv.maxValue() {
			err = errTooLong
		}
		if err == nil {
			v := append(was, args[2]...)
			n = len(v)
			c.setString(args[1], v, expiry)
		}
		return err
	}, args[1])
	if !c.reply(err) {
		c.w.Int(int64(n))
	}
}

// incr is INCR, DECR, INCRBY and DECRBY.
func incr(c *client, args [][]byte) {
	by, ok := int64(1), true
	if len(args) == 3 {
		if by, ok = resp.ParseInt(args[2]); !ok {
			c.reply(errNotInt)
			return
		}
	}
	if args[0][0]|0x20 == 'd' {
		if by == math.MinInt64 {
			c.w.Error("ERR decrement would overflow")
			return
		}
		by = -by
	}
	var n int64
	err := c.locked(func() error {
		was, expiry, found, err := c.old(args[1])
		if err != nil {
			return err
		}
		if n = 0; found {
			if n, ok = resp.ParseInt(was); !ok {
				return errNotInt
			}
		}
		if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
			return errOverflow
		}
		n += by
		c.setString(args[1], strconv.AppendInt(nil, n, 10), expiry)
		return nil
	}, args[1])
	if !c.reply(err) {
		c.w.Int(n)
	}
}
