package serve

import (
	"errors"
	"math"
	"strings"

	"github.com/siftdb/sift/internal/serve/resp"
)

var (
	errNotTracked = errors.New("ERR idle times are not tracked")
	errNoLFU      = errors.New("ERR An LFU maxmemory policy is not selected, access frequency not tracked. " +
		"Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.")
	errDBIndex = errors.New("ERR DB index is out of range")
)

// sharedInts is how many numbers, from 0 on, Redis stores only once for all keys.
const sharedInts = 10000

func object(c *client, args [][]byte) {
	if is(args[1], "HELP") && len(args) == 2 {
		c.help("OBJECT", "ENCODING <key>", "    The encoding that Redis would use for a string.", "REFCOUNT <key>", "    The count that Redis would have.")
		return
	}
	encoding, refs := "", int64(1)
	_, err := c.look(args[2], func(h head) error {
		encoding = "raw"
		if n, ok := resp.ParseInt(h.payload); h.kind == kindString && ok {
			encoding = "int"
			if n >= 0 && n < sharedInts {
				refs = math.MaxInt32
			}
		} else if h.kind == kindString && len(h.payload) <= 44 {
			encoding = "embstr"
		}
		return nil
	})
	switch {
	case c.reply(err):
	case encoding == "":
		c.w.Nil()
	case is(args[1], "ENCODING"):
		c.w.BulkString(encoding)
	case is(args[1], "REFCOUNT"):
		c.w.Int(refs)
	case is(args[1], "FREQ"):
		c.reply(errNoLFU)
	default:
		c.reply(errNotTracked)
	}
}

// badSubcommand replies with an error to a subcommand that misfit accepts, but the command does
// not.
func (c *client) badSubcommand(args [][]byte) {
	c.w.Error("ERR unknown subcommand or wrong number of arguments for '" + string(clip(cString(args[1]), 128)) + "'. Try " +
		strings.ToUpper(string(args[0])) + " HELP.")
}

// help replies with the text of HELP.
func (c *client) help(name string, lines ...string) {
	c.w.Array(len(lines) + 3)
	c.w.Simple(name + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for _, line := range lines {
		c.w.Simple(line)
	}
	c.w.Simple("HELP")
	c.w.Simple("    Print this help.")
}

// memoryCommand is MEMORY; only USAGE and HELP are supported.
func memoryCommand(c *client, args [][]byte) {
	switch {
	case is(args[1], "HELP") && len(args) == 2:
		c.help("MEMORY", "USAGE <key> [SAMPLES <count>]", "    Bytes that a key and its value take, in memory if it is a filter.")
	case is(args[1], "USAGE"):
		for i := 3; i < len(args); i += 2 {
			if !is(args[i], "SAMPLES") || i+1 == len(args) {
				c.reply(errSyntax)
				return
			}
			if n, ok := resp.ParseInt(args[i+1]); !ok {
				c.reply(errNotInt)
				return
			} else if n < 0 {
				c.reply(errSyntax)
				return
			}
		}
		if f := c.find(args[2]); f != nil {
			f.mu.RLock()
			n := f.memory()
			f.mu.RUnlock()
			c.w.Int(int64(n))
			return
		}
		n := int64(0)
		found, err := c.look(args[2], func(h head) error {
			n = int64(genLen + len(args[2]) + 1 + len(h.payload))
			if h.expiry != 0 {
				n += 8
			}
			return nil
		})
		switch {
		case c.reply(err):
		case !found:
			c.w.Nil()
		default:
			c.w.Int(n)
		}
	default:
		c.badSubcommand(args)
	}
}

// parseDB parses the number of a database.
func parseDB(arg []byte) (int, error) {
	n, ok := resp.ParseInt(arg)
	if !ok {
		return 0, errNotInt
	}
	if int64(int32(n)) != n {
		return 0, errors.New("ERR value is out of range, value must between -2147483648 and 2147483647")
	}
	if n < 0 || n >= numDatabases {
		return 0, errDBIndex
	}
	return int(n), nil
}

// in runs fn with another database selected.
func (c *client) in(db int, fn func() error) error {
	was := c.db
	c.db = db
	defer func() { c.db = was }()
	return fn()
}

func copyCommand(c *client, args [][]byte) {
	replace, to := false, c.db
	for i := 3; i < len(args); i++ {
		switch {
		case is(args[i], "REPLACE"):
			replace = true
		case is(args[i], "DB") && i+1 < len(args):
			i++
			var err error
			if to, err = parseDB(args[i]); c.reply(err) {
				return
			}
		default:
			c.reply(errSyntax)
			return
		}
	}
	done := false
	err := c.locked(func() error {
		if string(args[1]) == string(args[2]) && to == c.db {
			return errors.New("ERR source and destination objects are the same")
		}
		k, _, err := c.kindOf(args[1])
		if err != nil || k == kindNone {
			return err
		}
		if k != kindString {
			return errors.New("ERR not supported for this module key")
		}
		v, expiry, found, err := c.old(args[1])
		if err != nil || !found { // it may have just expired
			return err
		}
		return c.in(to, func() error {
			if there, _, err := c.kindOf(args[2]); err != nil || there != kindNone && !replace {
				return err
			}
			c.setString(args[2], v, expiry)
			done = true
			return nil
		})
	}, args[1], args[2])
	if !c.reply(err) {
		c.w.Int(count(done))
	}
}

func move(c *client, args [][]byte) {
	to, err := parseDB(args[2])
	if c.reply(err) {
		return
	}
	if to == c.db {
		c.w.Error("ERR source and destination objects are the same")
		return
	}
	done := false
	err = c.locked(func() error {
		there := kindNone
		if err := c.in(to, func() (err error) {
			there, _, err = c.kindOf(args[1])
			return err
		}); err != nil || there != kindNone {
			return err
		}
		done, err = c.rename(args[1], to, args[1])
		return err
	}, args[1])
	if !c.reply(err) {
		c.w.Int(count(done))
	}
}

// swapDB is SWAPDB. World is held exclusively.
func swapDB(c *client, args [][]byte) {
	a, ok := resp.ParseInt(args[1])
	if !ok || int64(int32(a)) != a {
		c.w.Error("ERR invalid first DB index")
		return
	}
	b, ok := resp.ParseInt(args[2])
	if !ok || int64(int32(b)) != b {
		c.w.Error("ERR invalid second DB index")
		return
	}
	if a < 0 || a >= numDatabases || b < 0 || b >= numDatabases {
		c.reply(errDBIndex)
		return
	}
	var gens [numDatabases]uint32
	for i := range gens {
		gens[i] = c.srv.gens[i].Load()
	}
	gens[a], gens[b] = gens[b], gens[a]
	if !c.reply(c.setGens(gens)) {
		c.w.OK()
	}
}

func lower(b []byte) string { return strings.ToLower(string(b)) }
