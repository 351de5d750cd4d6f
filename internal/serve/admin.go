package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"strconv"
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

// password returns the password that AUTH requires, "" if none is required.
func (s *Server) password() string { return *s.requirePass.Load() }

// setPassword is CONFIG SET requirepass. Connected clients need not authenticate again.
func (s *Server) setPassword(password string) string {
	for _, addr := range []string{s.cfg.Addr, s.cfg.HTTPAddr} {
		if local, err := isLoopback(addr); password == "" && addr != "" && (err != nil || !local) {
			return "a server on a non-loopback address requires a password"
		}
	}
	s.requirePass.Store(&password)
	return ""
}

// checkPassword takes the same time whether the password is right or wrong.
func (s *Server) checkPassword(password []byte) bool {
	want, got := sha256.Sum256([]byte(s.password())), sha256.Sum256(password)
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// login checks a user and password, and replies with an error if they are wrong.
func (c *client) login(user, password []byte) bool {
	ok := c.srv.password() == "" || c.srv.checkPassword(password)
	if !ok || string(user) != "default" {
		c.srv.stats.authFailures.Add(1)
		c.w.Error("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	if !c.trusted {
		c.pass()
	}
	return true
}

// pass marks a client as authenticated, and removes its deadline for that.
func (c *client) pass() {
	c.trust(true)
	if c.conn != nil {
		c.conn.SetDeadline(time.Time{}) // removes the one for authentication
		c.refresh = 0                   // the next reply sets another
		if c.srv.serving.Err() != nil { // Close may have set its deadline before
			c.conn.SetDeadline(time.Now().Add(time.Second))
		}
	}
}

func auth(c *client, args [][]byte) {
	if len(args) > 3 {
		c.reply(errSyntax)
		return
	}
	user, password := []byte("default"), args[len(args)-1]
	if len(args) == 3 {
		user = args[1]
	} else if c.srv.password() == "" {
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
	c.w.BulkString(c.srv.mode())
	c.w.BulkString("role")
	c.w.BulkString(c.srv.root.role())
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

// redisVersion is the version of Redis that the server claims to be. Clients infer from it which
// commands a server supports.
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
	c.stays.Store(false)
	c.w.Proto = 2
	c.silence, c.readsOld = replyAll, false
	trusted := c.srv.password() == ""
	if c.trusted && !trusted { // for others, the time to authenticate goes on
		c.authStart = time.Now()
	}
	c.trust(trusted)
	c.w.Simple("RESET")
}

func timeCommand(c *client, args [][]byte) {
	now := time.Now()
	c.w.Array(2)
	c.w.BulkString(strconv.FormatInt(now.Unix(), 10))
	c.w.BulkString(strconv.Itoa(now.Nanosecond() / 1000))
}
