package serve

import (
	"bytes"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/serve/resp"
)

const (
	// maxArgs bounds the arguments of a command, as Redis did before 7.0.
	maxArgs = 1 << 20
	// replyBytes is how many bytes of replies are collected before they are sent.
	replyBytes = resp.FreeReply
	// sendBytes is how many bytes are sent before the deadline is extended, and how many an event
	// loop sends before it serves other clients.
	sendBytes = 1 << 20
	// pendBytes is how many bytes of plain SETs are collected before they are written.
	pendBytes = 256 << 10
	// keptBytes bounds each buffer that an idle client keeps.
	keptBytes = 16 << 10
	// Clients that have not authenticated share 1/unauthShare of the memory for requests and
	// replies.
	unauthShare = 32
)

// client is one connection. Its fields, except for watched and the atomic ones, belong to the
// goroutine that serves it: one for this client alone, an event loop, or one to which the loop has
// handed it over.
type client struct {
	srv       *Server
	conn      net.Conn             // nil for a client of an event loop
	loop      atomic.Pointer[loop] // nil for a client with its own goroutine
	event     event
	id        uint64
	addr      string
	laddr     string
	r         *resp.Reader
	w         resp.Writer
	borrowing *borrowing // how r reads; nil: from conn

	trusted      bool      // has given the password
	authStart    time.Time // when the time to authenticate began
	quit         bool      // to be closed after the replies
	handOver     bool      // another goroutine must execute the command, which has had no effect yet
	again        bool      // the command, which has had no effect yet, is paused after all
	wrote        bool      // replies may acknowledge a write, or show one that is not yet in the store
	readsOld     bool      // READONLY: accepts stale values from a follower
	name         atomic.Pointer[string]
	shown        shown
	silence      int      // of CLIENT REPLY
	errorsSeen   uint64   // of w.Errors
	before       *command // the previous one
	since        time.Time
	last         atomic.Int64  // ms of the last command
	lastProgress atomic.Int64  // ms when it last sent or read a part of something large
	killed       atomic.Bool   // set by other clients
	stays        atomic.Bool   // CLIENT NO-EVICT: evict spares it
	taken        atomic.Int64  // bytes of memory for requests and replies
	safe         int           // bytes of the replies that may be sent
	refresh      time.Duration // since srv.started: when the deadline for writes is to be extended

	// MULTI
	queueing bool
	broken   bool // EXEC will fail
	queue    [][][]byte
	queued   int // bytes
	inExec   bool
	watched  map[string]watched // changes under watches.mu
	watchAt  *Server            // whose keys they are
	dirty    atomic.Bool        // a watched key has changed

	watchedBytes int // the memory for watched

	*writes         // collects its changes
	pendedIn uint64 // the group of its last plain SET plus one; 0: none

	unconfirmed bool // holds Server.unconfirmed

	aside    []session // of servers other than srv; their writes must be finished before the replies are sent
	asideErr error     // why finishing one of them has failed

	waited time.Duration // for leaders of shards, since replies were last sent
}

// accept starts to serve a connection, or rejects it.
func (s *Server) accept(conn net.Conn) {
	s.clientsMu.Lock()
	if s.closing || len(s.clients) >= s.cfg.MaxClients {
		s.clientsMu.Unlock()
		s.stats.rejected.Add(1)
		if _, ok := conn.(*tls.Conn); ok { // a handshake would keep the descriptor
			closeNow(conn)
			return
		}
		conn.SetDeadline(time.Now().Add(time.Second))
		go func() {
			conn.Write([]byte("-ERR max number of clients reached\r\n"))
			conn.Close()
		}()
		return
	}
	s.nextConn++
	c := &client{srv: s, conn: conn, id: s.nextConn, addr: conn.RemoteAddr().String(), laddr: conn.LocalAddr().String(),
		since: time.Now(), trusted: s.password() == ""}
	c.authStart = c.since
	c.w.Proto, c.w.Reserve = 2, c.reserve
	c.last.Store(time.Now().UnixMilli())
	limits := resp.Limits{
		MaxArgs:      maxArgs,
		MaxBulkBytes: s.cfg.MaxBulkBytes,
		MaxBytes:     int(min(4*int64(s.cfg.MaxBulkBytes)+maxArgs, s.cfg.RequestBytes, math.MaxInt)),
		Reserve:      c.reserve,
	}
	s.clients[c.id] = c
	s.conns.Add(1)
	s.stats.connections.Add(1)
	if !s.toLoop(c, limits) {
		c.ownGoroutine(limits)
	}
	s.clientsMu.Unlock()
}

// ownGoroutine starts a goroutine that serves the client.
func (c *client) ownGoroutine(limits resp.Limits) {
	c.writes = c.srv.newWrites(keptBytes)
	if c.borrowing = c.borrow(c.conn); c.borrowing != nil {
		c.r = resp.NewReader(c.borrowing, limits, !c.trusted)
	} else {
		c.r = resp.NewReader(c.conn, limits, !c.trusted)
	}
	go c.run()
}

// leave releases what a client holds, after its connection has been closed.
func (c *client) leave() {
	c.r.Close()
	c.w.Reset()
	c.dropQueue()
	c.unwatch()
	c.useRoot()
	c.srv.clientsMu.Lock()
	delete(c.srv.clients, c.id)
	c.srv.clientsMu.Unlock()
	c.srv.conns.Done()
}

// reserve takes n bytes from the memory that all clients share for requests and replies, or
// releases them if n is negative. Clients that have not authenticated share a small part of it, so
// that they cannot exhaust it.
func (c *client) reserve(n int) bool {
	s := c.srv
	// The small share first: what it refuses must never count against all clients, not even for a
	// moment.
	if !c.trusted && !take(&s.unauthBytes, int64(n), s.cfg.RequestBytes/unauthShare) {
		return false
	}
	if !take(&s.requestBytes, int64(n), s.cfg.RequestBytes) {
		if !c.trusted {
			s.unauthBytes.Add(-int64(n))
		}
		if c.taken.Load()+int64(n) <= s.cfg.RequestBytes/2 { // for more, evicting others may not suffice
			s.short.Store(true)
		}
		return false
	}
	c.taken.Add(int64(n))
	return true
}

// take adds n to taken unless that would exceed most. It never counts what it refuses, not even for
// a moment, since other callers would be refused because of it. A negative n always succeeds.
func take(taken *atomic.Int64, n, most int64) bool {
	for {
		old := taken.Load()
		if n > 0 && old+n > most {
			return false
		}
		if taken.CompareAndSwap(old, old+n) {
			return true
		}
	}
}

// trust sets whether the client has authenticated.
func (c *client) trust(trusted bool) {
	if trusted != c.trusted {
		if trusted {
			c.srv.unauthBytes.Add(-c.taken.Load())
		} else {
			c.srv.unauthBytes.Add(c.taken.Load())
		}
	}
	c.trusted = trusted
	c.r.Trust(trusted)
}

// reply replies with err unless it is nil, and reports whether it did.
func (c *client) reply(err error) bool {
	if err == nil {
		return false
	}
	switch {
	case errors.Is(err, sift.ErrCorruption), errors.Is(err, errHead):
		c.srv.cfg.Logger.Error("a read failed", "err", err)
		c.w.Error("ERR the store is damaged: " + err.Error())
	case errors.Is(err, sift.ErrClosed):
		c.w.Error("ERR shutting down")
	default:
		c.w.Error(err.Error())
	}
	return true
}

// kill closes the client's connection: after its replies if by is the client itself, else at once.
// If the client waits for the end of a pause, the caller must wake it.
func (c *client) kill(by *client) {
	c.killed.Store(true)
	if c == by {
		c.quit = true
	} else if l := c.loop.Load(); l != nil {
		l.post(message{what: kicked, c: c})
	} else {
		closeNow(c.conn)
	}
}

// closeNow closes a connection. It leaves out the last message of TLS, which may have to wait for
// the client to read.
func closeNow(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.Close()
}

// isHTTP reports whether a command is really a line of an HTTP request: a web page can make a
// browser send one here, with commands in its body.
func isHTTP(cmd *command, args [][]byte) bool {
	if cmd == nil {
		return is(args[0], "POST") || is(args[0], "HOST:") || len(args) == 3 && bytes.HasPrefix(args[2], []byte("HTTP/"))
	}
	return cmd.name == "get" && len(args) == 3 && bytes.HasPrefix(args[2], []byte("HTTP/"))
}

// do executes one command; cmd is what lookup returned for it.
func (c *client) do(cmd *command, args [][]byte) {
	if isHTTP(cmd, args) {
		c.srv.cfg.Logger.Warn("received an HTTP request instead of commands, perhaps an attack by a web page; the connection is closed", "from", c.addr)
		c.srv.stats.protocolErrors.Add(1)
		c.quit = true
		return
	}
	if c.paused(cmd) {
		if c.onLoop() {
			c.handOver = true
			return
		}
		if c.wait() != nil {
			c.quit = true
			return
		}
	}
	mark, silence := len(c.w.Buf), c.silence
	if c.admit(cmd, args) {
		start := c.clock
		if start == 0 {
			start = time.Since(c.srv.started)
		}
		c.show(cmd, args)
		c.dispatch(cmd, args)
		if c.handOver || c.again {
			cmd.calls.Add(^uint64(0))
			c.w.Buf, c.w.Errors = c.w.Buf[:mark], c.errorsSeen
			if c.again {
				c.again = false
				c.do(cmd, args)
			}
			return
		}
		c.showState()
		c.clock = time.Since(c.srv.started) // when the next command of a pipeline begins
		c.srv.took(c, cmd, args, start, c.clock-start)
	}
	if c.w.Errors != c.errorsSeen {
		c.countErrors()
	}
	if silence != replyAll && c.silence == silence {
		c.w.Buf = c.w.Buf[:min(mark, len(c.w.Buf))]
		if silence == replySkip {
			c.silence = replyAll
		}
	}
	if c.silence == replySkipNext {
		c.silence = replySkip
	}
}

// admit reports whether a command may run. If not, because it is unknown, malformed, or not allowed
// now, admit replies with an error.
func (c *client) admit(cmd *command, args [][]byte) bool {
	if cmd == nil {
		c.unknown(args)
		return false
	}
	if !c.trusted && c.srv.password() == "" { // CONFIG SET has removed the password
		c.pass()
	}
	if !fits(cmd.arity, len(args)) || cmd.flags&hasSub != 0 {
		if text := cmd.misfit(args); text != "" {
			c.reject(cmd, text)
			return false
		}
	}
	if !c.trusted && cmd.flags&noAuth == 0 {
		c.reject(cmd, "NOAUTH Authentication required.")
		return false
	}
	if cmd.flags&isWrite != 0 && c.srv.failed.Load() && c.srv.cfg.Group == nil {
		c.reject(cmd, errReadOnly.Error())
		return false
	}
	if cmd.flags&isWrite != 0 && cmd.hasLongKey(args) {
		c.reject(cmd, "ERR key is longer than 1MiB")
		return false
	}
	return c.srv.cfg.Group == nil || c.route(cmd, args)
}

// dispatch runs a command that was admitted, or queues it for EXEC.
func (c *client) dispatch(cmd *command, args [][]byte) {
	if c.queueing && cmd.flags&noMulti != 0 {
		c.fault("ERR Command not allowed inside a transaction")
		return
	}
	if c.queueing && cmd.flags&notQueued == 0 {
		c.enqueue(args)
		return
	}
	cmd.calls.Add(1)
	if cmd.flags&(isWrite|exclusive) != 0 {
		c.wrote = true
	}
	if cmd.flags&exclusive != 0 || cmd.flags&unlocked != 0 && c.srv.cfg.Group != nil {
		// First write what this client has collected.
		if err := c.finishWrites(); err != nil {
			c.abort(err)
			return
		}
	}
	if cmd.coversNode() && c.srv.shards != nil {
		c.runOnAll(cmd, args)
		return
	}
	if cmd.flags&exclusive != 0 {
		c.runAlone(cmd, args)
		return
	}
	if n := c.needs(cmd, args); n > 0 {
		c.runLarge(cmd, args, n)
		return
	}
	c.runHeld(cmd, args)
}

// runAlone runs a command with world held exclusively.
func (c *client) runAlone(cmd *command, args [][]byte) {
	if n := c.queueNeeds(); n > 0 {
		defer c.enterLarge(n)()
	}
	mark := len(c.w.Buf)
	c.srv.world.Lock()
	c.again = c.paused(cmd)
	if !c.again && c.stillLeads(cmd) {
		cmd.run(c, args)
	}
	c.srv.world.Unlock()
	c.accountReply(mark)
}

// runHeld runs a command with world held for reading, unless it has the flag unlocked.
func (c *client) runHeld(cmd *command, args [][]byte) {
	c.hold()
	if c.again = c.paused(cmd); c.again || !c.stillLeads(cmd) {
		return
	}
	if cmd.flags&unlocked != 0 {
		err := c.commit() // WAIT and SAVE cover it
		c.release()
		if err != nil {
			c.abort(err)
			return
		}
		mark := len(c.w.Buf)
		cmd.run(c, args)
		c.accountReply(mark)
		return
	}
	c.execute(cmd, args)
}

// execute runs a command; world is held.
func (c *client) execute(cmd *command, args [][]byte) {
	collected := cmd.isCollected(args) && !c.inExec
	if !collected && c.pendedIn == c.group+1 || collected && c.pending.Size() > pendBytes {
		if err := c.commitPending(); err != nil {
			c.abort(err)
			return
		}
	}
	if cmd.max > 0 && len(args) > cmd.max {
		c.arity(cmd.name)
		return
	}
	if cmd.flags&isWrite != 0 && c.reply(c.checkRoom(cmd, args)) {
		return
	}
	mark := len(c.w.Buf)
	cmd.run(c, args)
	if !c.inExec {
		c.accountReply(mark)
	}
}

// accountReply counts the memory of a command's reply, which begins at mark. If there is not
// enough, it replaces the reply with an error.
func (c *client) accountReply(mark int) {
	if c.w.Refused || !c.w.Claim() {
		c.refuse(mark)
	}
}

// refuse replaces a reply that does not fit in memory with an error.
func (c *client) refuse(mark int) {
	c.w.Refused = false
	c.w.Cut(mark)
	c.w.Error(errReplyOOM.Error())
}

// abort replaces all replies that must not be sent with an error, whatever CLIENT REPLY says, and
// closes the connection: some of them would acknowledge writes that may be lost.
func (c *client) abort(err error) {
	c.w.Buf, c.w.Refused = c.w.Buf[:c.safe], false
	c.w.Error(c.abortError(err).Error())
	c.quit, c.silence = true, replyAll
}

// reject replies to a command with an error instead of executing it. If it is an EXEC, the
// transaction ends, and the client no longer watches keys.
func (c *client) reject(cmd *command, text string) {
	cmd.rejected.Add(1)
	if cmd.name == "exec" {
		c.dropQueue()
		c.unwatch()
		text = "EXECABORT Transaction discarded because of: " + strings.TrimPrefix(text, "ERR ")
	}
	c.fault(text)
}

// fault replies with an error. Within MULTI it makes the transaction fail.
func (c *client) fault(text string) {
	if c.queueing {
		c.broken = true
	}
	c.w.Error(text)
}

func (c *client) unknown(args [][]byte) {
	var shown []byte
	for _, a := range args[1:] {
		if len(shown) >= 128 {
			break
		}
		shown = append(append(append(shown, '\''), clip(cString(a), 128-len(shown))...), "' "...)
	}
	c.fault("ERR unknown command '" + string(clip(cString(args[0]), 128)) + "', with args beginning with: " + string(shown))
}

// cString returns the part of an argument that Redis shows: up to the first zero byte.
func cString(b []byte) []byte {
	b, _, _ = bytes.Cut(b, []byte{0})
	return b
}

func clip(b []byte, n int) []byte { return b[:min(len(b), n)] }
