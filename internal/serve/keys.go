package serve

import (
	"bytes"
	"errors"
	"strings"

	"github.com/siftdb/sift/internal/serve/resp"
)

func del(c *client, args [][]byte) {
	n := int64(0)
	err := c.locked(func() error {
		seen := map[string]bool{}
		for _, key := range args[1:] {
			k, _, err := c.kindOf(key)
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
		k, _, err := c.kindOf(key)
		if c.reply(err) {
			return
		}
		n += count(k != kindNone)
	}
	c.w.Int(n)
}

func typeCommand(c *client, args [][]byte) {
	k, _, err := c.kindOf(args[1])
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
	_, err := c.look(args[2], func(h head) error {
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
		k, was, err := c.kindOf(args[1])
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
	if _, err := c.look(key, func(was head) error {
		h = head{was.kind, expiry, bytes.Clone(was.payload)}
		return nil
	}); err != nil {
		return err
	}
	c.setHead(key, h)
	if f := c.filterAt(c.srv.stripe(key), key); f != nil {
		f.expiry.Store(expiry)
	}
	return nil
}

func persist(c *client, args [][]byte) {
	done := false
	err := c.locked(func() error {
		_, was, err := c.kindOf(args[1])
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
		found, err := c.look(from, func(was head) error {
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
			if k, _, err := c.kindOf(to); err != nil || k != kindNone {
				return err
			}
		}
		done = true
		if bytes.Equal(from, to) {
			return nil
		}
		c.forget(&c.batch, c.srv.stripe(to), to)
		c.removeHead(from)
		c.setHead(to, h)
		if h.kind != kindString {
			st := c.srv.stripe(from)
			f := c.filterAt(st, from)
			delete(st.filters, f.name)
			f.mu.Lock()
			f.name = string(c.headKey(nil, to))
			f.mu.Unlock()
			c.srv.filterBytes.Add(int64(len(to) - len(from)))
			c.srv.stripe(to).filters[f.name] = f
			c.batch.Put(nameKey(c.gen(), f.id), to)
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
		k, _, err := c.kindOf(args[1])
		if err != nil || k == kindNone {
			return err
		}
		if k != kindString {
			return errors.New("ERR not supported for this module key")
		}
		if there, _, err := c.kindOf(args[2]); err != nil || there != kindNone && !replace {
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
