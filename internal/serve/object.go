package serve

import (
	"errors"
	"slices"
	"strings"

	"github.com/siftdb/sift/internal/serve/resp"
)

var errNotTracked = errors.New("ERR idle times and access frequencies are not tracked")

// object is OBJECT.
func object(c *client, args [][]byte) {
	if is(args[1], "HELP") && len(args) == 2 {
		c.help("OBJECT", "ENCODING <key>", "    The encoding that Redis would have for a string.", "REFCOUNT <key>", "    1 if the key exists.")
		return
	}
	if len(args) != 3 || !is(args[1], "ENCODING") && !is(args[1], "REFCOUNT") && !is(args[1], "IDLETIME") && !is(args[1], "FREQ") {
		c.badSubcommand("OBJECT", args)
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
	case is(args[1], "ENCODING"):
		c.w.BulkString(encoding)
	case is(args[1], "REFCOUNT"):
		c.w.Int(1)
	default:
		c.reply(errNotTracked)
	}
}

// badSubcommand refuses a subcommand that is not known, or its arguments.
func (c *client) badSubcommand(name string, args [][]byte) {
	sub := lower(clip(args[1], 128))
	if slices.Contains(subcommands[name], sub) {
		c.arity(strings.ToLower(name) + "|" + sub)
		return
	}
	c.w.Error("ERR unknown subcommand '" + string(clip(args[1], 128)) + "'. Try " + name + " HELP.")
}

// help replies with what HELP says.
func (c *client) help(name string, lines ...string) {
	c.w.Array(len(lines) + 3)
	c.w.Simple(name + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for _, line := range lines {
		c.w.Simple(line)
	}
	c.w.Simple("HELP")
	c.w.Simple("    Print this help.")
}

// memoryCommand is MEMORY, of which there is USAGE alone.
func memoryCommand(c *client, args [][]byte) {
	switch {
	case is(args[1], "HELP") && len(args) == 2:
		c.help("MEMORY", "USAGE <key> [SAMPLES <count>]", "    Bytes that a key and its value take, in memory if it is a filter.")
	case is(args[1], "USAGE") && (len(args) == 3 || len(args) == 5 && is(args[3], "SAMPLES")):
		if len(args) == 5 {
			if n, ok := resp.ParseInt(args[4]); !ok || n < 0 {
				c.reply(errNotInt)
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
		c.badSubcommand("MEMORY", args)
	}
}

// parseDB parses the number of a database.
func parseDB(arg []byte) (int, error) {
	n, ok := resp.ParseInt(arg)
	if !ok {
		return 0, errNotInt
	}
	if n < 0 || n >= numDatabases {
		return 0, errors.New("ERR DB index is out of range")
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
		v, expiry, _, err := c.old(args[1])
		if err != nil {
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

// move is MOVE.
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

// swapDB is SWAPDB. World is held alone.
func swapDB(c *client, args [][]byte) {
	a, err := parseDB(args[1])
	if err == errNotInt {
		err = errors.New("ERR invalid first DB index")
	}
	if c.reply(err) {
		return
	}
	b, err := parseDB(args[2])
	if err == errNotInt {
		err = errors.New("ERR invalid second DB index")
	}
	if c.reply(err) {
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
