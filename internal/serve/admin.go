package serve

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

func appendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

func ping(c *client, args [][]byte) {
	if len(args) == 2 {
		c.w.Bulk(args[1])
	} else {
		c.w.Simple("PONG")
	}
}

func echo(c *client, args [][]byte) { c.w.Bulk(args[1]) }

func quit(c *client, args [][]byte) {
	c.w.OK()
	c.quit = true
}

// checkPassword takes as long whether it is right or wrong.
func (s *Server) checkPassword(password []byte) bool {
	want, got := sha256.Sum256([]byte(s.cfg.Password)), sha256.Sum256(password)
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// login checks a user and password, and tells the client if they are wrong.
func (c *client) login(user, password []byte) bool {
	ok := c.srv.cfg.Password == "" || c.srv.checkPassword(password)
	if !ok || string(user) != "default" {
		c.srv.stats.authFailures.Add(1)
		c.w.Error("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	if !c.trusted {
		c.trust(true)
		c.conn.SetReadDeadline(time.Time{}) // a stranger's
	}
	return true
}

func auth(c *client, args [][]byte) {
	if len(args) > 3 {
		c.reply(errSyntax)
		return
	}
	user, password := []byte("default"), args[len(args)-1]
	if len(args) == 3 {
		user = args[1]
	} else if c.srv.cfg.Password == "" {
		c.w.Error("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
		return
	}
	if c.login(user, password) {
		c.w.OK()
	}
}

func hello(c *client, args [][]byte) {
	proto := c.w.Proto
	var name []byte
	if len(args) > 1 {
		n, ok := resp.ParseInt(args[1])
		if !ok {
			c.w.Error("ERR Protocol version is not an integer or out of range")
			return
		}
		if n != 2 && n != 3 {
			c.w.Error("NOPROTO unsupported protocol version")
			return
		}
		proto = int(n)
	}
	for i := 2; i < len(args); i++ {
		switch {
		case is(args[i], "AUTH") && i+2 < len(args):
			if !c.login(args[i+1], args[i+2]) {
				return
			}
			i += 2
		case is(args[i], "SETNAME") && i+1 < len(args):
			i++
			if !cleanName(args[i]) {
				c.w.Error("ERR Client names cannot contain spaces, newlines or special characters.")
				return
			}
			name = args[i]
		default:
			c.w.Error("ERR Syntax error in HELLO option '" + string(clip(args[i], 128)) + "'")
			return
		}
	}
	if !c.trusted {
		c.w.Error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	if name != nil {
		c.setName(name)
	}
	c.w.Proto = proto
	c.w.Map(7)
	c.w.BulkString("server")
	c.w.BulkString("redis")
	c.w.BulkString("version")
	c.w.BulkString(redisVersion)
	c.w.BulkString("proto")
	c.w.Int(int64(proto))
	c.w.BulkString("id")
	c.w.Int(int64(c.id))
	c.w.BulkString("mode")
	c.w.BulkString("standalone")
	c.w.BulkString("role")
	c.w.BulkString("master")
	c.w.BulkString("modules")
	c.w.Array(1)
	c.w.Map(4)
	c.w.BulkString("name")
	c.w.BulkString("bf")
	c.w.BulkString("ver")
	c.w.Int(80000)
	c.w.BulkString("path")
	c.w.BulkString("")
	c.w.BulkString("args")
	c.w.Array(0)
}

// redisVersion is the version of Redis whose commands these are: clients ask
// for it to learn what a server can do.
const redisVersion = "7.4.1"

func cleanName(b []byte) bool {
	for _, ch := range b {
		if ch < '!' || ch > '~' {
			return false
		}
	}
	return len(b) <= 256
}

func (c *client) setName(b []byte) {
	name := string(b)
	c.name.Store(&name)
}

func reset(c *client, args [][]byte) {
	c.dropQueue()
	c.unwatch()
	c.db = 0
	c.name.Store(nil)
	c.w.Proto = 2
	c.trust(c.srv.cfg.Password == "")
	c.strange = time.Now()
	c.w.Simple("RESET")
}

// line describes the client for CLIENT LIST.
func (c *client) line() string {
	name := ""
	if p := c.name.Load(); p != nil {
		name = *p
	}
	now := time.Now()
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d idle=%d db=0\n", c.id, c.addr, c.laddr, name,
		int(now.Sub(c.since).Seconds()), (now.UnixMilli()-c.last.Load())/1000)
}

func clientCommand(c *client, args [][]byte) {
	sub := strings.ToUpper(string(clip(args[1], 16)))
	switch {
	case sub == "ID" && len(args) == 2:
		c.w.Int(int64(c.id))
	case sub == "GETNAME" && len(args) == 2:
		if p := c.name.Load(); p != nil && *p != "" {
			c.w.BulkString(*p)
		} else {
			c.w.Nil()
		}
	case sub == "SETNAME" && len(args) == 3:
		if !cleanName(args[2]) {
			c.w.Error("ERR Client names cannot contain spaces, newlines or special characters.")
			return
		}
		c.setName(args[2])
		c.w.OK()
	case sub == "SETINFO" && len(args) == 4, sub == "NO-EVICT" && len(args) == 3, sub == "NO-TOUCH" && len(args) == 3:
		c.w.OK()
	case sub == "INFO" && len(args) == 2:
		c.w.BulkString(c.line())
	case sub == "LIST":
		var lines []string
		c.srv.clientsMu.Lock()
		for _, o := range c.srv.clients {
			lines = append(lines, o.line())
		}
		c.srv.clientsMu.Unlock()
		sort.Strings(lines)
		c.w.BulkString(strings.Join(lines, ""))
	case sub == "KILL" && len(args) == 4 && is(args[2], "ID"):
		id, _ := resp.ParseInt(args[3])
		c.srv.clientsMu.Lock()
		o := c.srv.clients[uint64(id)]
		if o != nil {
			o.kill(c)
		}
		c.srv.clientsMu.Unlock()
		c.w.Int(count(o != nil))
	default:
		c.w.Error("ERR Unknown subcommand or wrong number of arguments for '" + string(clip(args[1], 128)) + "'. Try CLIENT HELP.")
	}
}

// settings are what CONFIG GET shows.
func (s *Server) settings() [][2]string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	layout := "redis"
	if s.cfg.Layout != 0 {
		layout = "tight"
	}
	return [][2]string{
		{"appendfsync", Fsync(s.fsync.Load()).String()},
		{"appendonly", "yes"},
		{"bloom-layout", layout},
		{"databases", "16"},
		{"maxclients", n(int64(s.cfg.MaxClients))},
		{"maxmemory", n(s.cfg.FilterBytes)},
		{"maxmemory-clients", n(s.cfg.RequestBytes)},
		{"proto-max-bulk-len", n(int64(s.cfg.MaxBulkBytes))},
		{"save", ""},
		{"timeout", n(int64(s.cfg.IdleTimeout / time.Second))},
	}
}

func config(c *client, args [][]byte) {
	switch {
	case is(args[1], "GET") && len(args) > 2:
		var found [][2]string
		for _, set := range c.srv.settings() {
			for _, pattern := range args[2:] {
				if glob(bytes.ToLower(pattern), []byte(set[0])) {
					found = append(found, set)
					break
				}
			}
		}
		c.w.Map(len(found))
		for _, set := range found {
			c.w.BulkString(set[0])
			c.w.BulkString(set[1])
		}
	case is(args[1], "SET") && len(args) == 4 && is(args[2], "appendfsync"):
		f, err := ParseFsync(strings.ToLower(string(clip(args[3], 16))))
		if err != nil {
			c.w.Error("ERR CONFIG SET failed (possibly related to argument 'appendfsync') - argument(s) must be one of the following: always, everysec, no")
			return
		}
		c.srv.fsync.Store(int32(f))
		c.w.OK()
	case is(args[1], "SET") && len(args) == 4:
		c.w.Error("ERR CONFIG SET failed (possibly related to argument '" + string(clip(args[2], 128)) + "') - can't set immutable config")
	case is(args[1], "RESETSTAT") && len(args) == 2:
		c.w.OK()
	default:
		c.w.Error("ERR Unknown subcommand or wrong number of arguments for '" + string(clip(args[1], 128)) + "'. Try CONFIG HELP.")
	}
}

func commandCommand(c *client, args [][]byte) {
	switch {
	case len(args) > 1 && is(args[1], "COUNT"):
		c.w.Int(int64(len(commands)))
	case len(args) > 1 && is(args[1], "LIST"):
		names := make([]string, 0, len(commands))
		for name := range commands {
			names = append(names, name)
		}
		sort.Strings(names)
		c.w.Array(len(names))
		for _, name := range names {
			c.w.BulkString(name)
		}
	case len(args) > 1 && is(args[1], "DOCS"):
		c.w.Map(0)
	case len(args) > 1 && is(args[1], "INFO") && len(args) > 2:
		c.w.Array(len(args) - 2)
		for _, name := range args[2:] {
			if cmd := lookup(name); cmd != nil {
				c.describe(cmd)
			} else {
				c.w.Nil()
			}
		}
	case len(args) == 1 || is(args[1], "INFO"):
		c.w.Array(len(commands))
		for _, cmd := range commands {
			c.describe(cmd)
		}
	default:
		c.w.Error("ERR Unknown subcommand or wrong number of arguments for '" + string(clip(args[1], 128)) + "'. Try COMMAND HELP.")
	}
}

// describe writes name, arity, flags, and the first and last key and their step.
func (c *client) describe(cmd *command) {
	first, last, step := int64(1), int64(1), int64(1)
	arity := int64(cmd.arity)
	if cmd.max > 0 {
		arity = -max(arity, -arity)
	}
	switch cmd.name {
	case "del", "unlink", "exists", "mget":
		last = -1
	case "mset":
		last, step = -1, 2
	case "rename", "renamenx", "copy":
		last = 2
	case "object":
		first, last = 2, 2
	case "ping", "echo", "select", "quit", "auth", "hello", "reset", "client", "config", "command", "info", "time",
		"multi", "exec", "discard", "scan", "dbsize", "flushall", "flushdb":
		first, last, step = 0, 0, 0
	}
	c.w.Array(6)
	c.w.BulkString(cmd.name)
	c.w.Int(arity)
	c.w.Array(1)
	if cmd.flags&isWrite != 0 {
		c.w.Simple("write")
	} else {
		c.w.Simple("readonly")
	}
	c.w.Int(first)
	c.w.Int(last)
	c.w.Int(step)
}

func timeCommand(c *client, args [][]byte) {
	now := time.Now()
	c.w.Array(2)
	c.w.BulkString(strconv.FormatInt(now.Unix(), 10))
	c.w.BulkString(strconv.Itoa(now.Nanosecond() / 1000))
}
