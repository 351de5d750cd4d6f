package serve

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/serve/resp"
)

const (
	// maxArgs bounds the arguments of a command, as Redis does.
	maxArgs = 1 << 20
	// replyBytes is how much is collected before it is sent.
	replyBytes = resp.FreeReply
	// sendBytes is how much is sent with one deadline.
	sendBytes = 1 << 20
	// pendBytes is how much of plain SETs is collected before it is written.
	pendBytes = 256 << 10
	// keptBytes bounds the memory that an idle client keeps of each kind.
	keptBytes = 16 << 10
)

// client is one connection. All but the marked fields belong to its goroutine.
type client struct {
	srv  *Server
	conn net.Conn
	id   uint64
	addr string
	r    *resp.Reader
	w    resp.Writer

	trusted bool      // has given the password
	strange time.Time // since when it has not
	quit    bool      // to be closed after the replies
	name    atomic.Pointer[string]
	since   time.Time
	last    atomic.Int64 // ms of the last command
	killed  atomic.Bool  // set by other clients
	refresh int64        // ms, when the deadline for writes is due to be moved

	// MULTI
	queueing bool
	broken   bool // EXEC will refuse
	queue    [][][]byte
	queued   int // bytes
	inExec   bool

	// Plain SETs that wait to be written, and their keys.
	pending     sift.Batch
	pendKeys    []byte
	pendEnds    []int
	pendStripes uint64

	touched  []*filter // changed since the last finish
	needSync bool      // something was put since the last sync
	batch    sift.Batch
	garbage  []uint64
	keyBuf   []byte
	valBuf   []byte
}

// accept begins to serve a connection, or turns it away.
func (s *Server) accept(conn net.Conn) {
	s.clientsMu.Lock()
	if s.closing || len(s.clients) >= s.cfg.MaxClients {
		s.clientsMu.Unlock()
		s.stats.rejected.Add(1)
		conn.SetDeadline(time.Now().Add(time.Second))
		go func() {
			conn.Write([]byte("-ERR max number of clients reached\r\n"))
			conn.Close()
		}()
		return
	}
	s.nextConn++
	c := &client{srv: s, conn: conn, id: s.nextConn, addr: conn.RemoteAddr().String(), since: time.Now(), trusted: s.cfg.Password == ""}
	c.strange = c.since
	c.w.Proto, c.w.Reserve = 2, s.reserve
	c.last.Store(nowMs())
	s.clients[c.id] = c
	s.conns.Add(1)
	s.clientsMu.Unlock()
	s.stats.connections.Add(1)
	c.r = resp.NewReader(conn, resp.Limits{
		MaxArgs:      maxArgs,
		MaxBulkBytes: s.cfg.MaxBulkBytes,
		MaxBytes:     int(min(int64(4*s.cfg.MaxBulkBytes)+maxArgs, s.cfg.RequestBytes)),
		Reserve:      s.reserve,
	}, !c.trusted)
	go c.run()
}

// reserve takes memory for requests and replies from what all clients share, or
// gives it back.
func (s *Server) reserve(n int) bool {
	if s.requestBytes.Add(int64(n)) > s.cfg.RequestBytes && n > 0 {
		s.requestBytes.Add(-int64(n))
		return false
	}
	return true
}

func (c *client) run() {
	defer func() {
		c.r.Close()
		c.w.Reset()
		c.dropQueue()
		c.conn.Close()
		c.srv.clientsMu.Lock()
		delete(c.srv.clients, c.id)
		c.srv.clientsMu.Unlock()
		c.srv.conns.Done()
	}()
	for {
		args, err := c.r.Next()
		if err == nil && args != nil {
			if len(c.w.Buf) == 0 {
				c.last.Store(nowMs())
			}
			c.do(args)
			if c.quit || len(c.w.Buf) >= replyBytes {
				if c.finish() != nil || c.quit {
					return
				}
			}
			continue
		}
		if ferr := c.finish(); ferr != nil {
			return
		}
		if err == nil {
			if c.killed.Load() || c.srv.ctx.Err() != nil {
				return
			}
			if !c.trusted {
				c.conn.SetReadDeadline(c.strange.Add(c.srv.cfg.AuthTimeout))
			} else if c.srv.cfg.IdleTimeout > 0 {
				c.conn.SetReadDeadline(time.Now().Add(c.srv.cfg.IdleTimeout))
			}
			if c.killed.Load() || c.srv.ctx.Err() != nil {
				return // their deadline may have come before
			}
			if err = c.r.Fill(); err == nil {
				continue
			}
		}
		if p := resp.ProtocolError(""); errors.As(err, &p) || errors.Is(err, resp.ErrMemory) {
			c.srv.stats.protocolErrors.Add(1)
			c.w.Error("ERR " + err.Error())
			c.send()
		}
		return
	}
}

// finish makes what the client's commands wrote as durable as is asked, and then
// sends the replies.
func (c *client) finish() error {
	if err := c.settle(); err != nil {
		c.abort(err)
	}
	return c.send()
}

func (c *client) settle() error {
	if len(c.pendEnds) == 0 && len(c.touched) == 0 && !c.needSync {
		return nil
	}
	c.srv.world.RLock()
	err := c.commitPending()
	if err == nil {
		err = c.flushTouched()
	}
	c.srv.world.RUnlock()
	if err == nil && c.needSync && Fsync(c.srv.fsync.Load()) == FsyncAlways {
		err = c.srv.sync()
	}
	c.needSync = false
	return err
}

func (c *client) send() error {
	if len(c.w.Buf) == 0 {
		return nil
	}
	// Deadlines cost more than most commands, so one serves for a while.
	if now := c.last.Load(); now >= c.refresh {
		c.refresh = now + c.srv.cfg.WriteTimeout.Milliseconds()/4
		c.moreTime()
	}
	for b := c.w.Buf; ; c.moreTime() {
		n, err := c.conn.Write(b[:min(len(b), sendBytes)])
		if b = b[n:]; len(b) == 0 || err != nil {
			c.w.Reset()
			return err
		}
	}
}

// moreTime moves the deadline for writes.
func (c *client) moreTime() {
	if c.srv.ctx.Err() != nil {
		return
	}
	c.conn.SetWriteDeadline(time.Now().Add(c.srv.cfg.WriteTimeout * 5 / 4))
	if c.srv.ctx.Err() != nil { // Close may have set its deadline before
		c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	}
}

// touch notes that a filter has changed.
func (c *client) touch(f *filter) {
	if n := len(c.touched); n > 0 && c.touched[n-1] == f {
		return
	}
	c.touched = append(c.touched, f)
}

// flushTouched writes what the client changed in filters.
func (c *client) flushTouched() error {
	for _, f := range c.touched {
		f.mu.Lock()
		// Another client may have written this one's changes along with its own,
		// so it takes a sync even if nothing is left.
		c.needSync = true
		var err error
		c.valBuf, err = c.srv.flushFilter(f, &c.batch, c.valBuf)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	clear(c.touched)
	c.touched = c.touched[:0]
	if cap(c.valBuf) > keptBytes {
		c.valBuf = nil
	}
	return nil
}

// pend collects a plain SET.
func (c *client) pend(key, value []byte) {
	c.keyBuf = c.srv.headKey(c.keyBuf[:0], key)
	c.valBuf = append(append(c.valBuf[:0], byte(kindString)), value...)
	c.pending.Put(c.keyBuf, c.valBuf)
	c.pendKeys = append(c.pendKeys, key...)
	c.pendEnds = append(c.pendEnds, len(c.pendKeys))
	c.pendStripes |= 1 << c.srv.stripeOf(key)
}

// commitPending writes the collected SETs. World is held.
func (c *client) commitPending() error {
	if len(c.pendEnds) == 0 {
		return nil
	}
	c.lock(c.pendStripes)
	c.batch.Reset() // forget adds to it
	from := 0
	for _, end := range c.pendEnds {
		key := c.pendKeys[from:end]
		if st := c.srv.stripe(key); len(st.filters) > 0 {
			c.forget(st, key)
		}
		from = end
	}
	err := c.srv.put(&c.pending)
	if err == nil && c.batch.Len() > 0 {
		err = c.srv.put(&c.batch)
	}
	c.unlock(c.pendStripes)
	c.needSync = true
	c.collectGarbage()
	if c.pending.Size() > keptBytes {
		c.pending, c.pendKeys, c.pendEnds = sift.Batch{}, nil, nil
	}
	c.pending.Reset()
	c.pendKeys, c.pendEnds, c.pendStripes = c.pendKeys[:0], c.pendEnds[:0], 0
	return err
}

// lock locks stripes, given as bits, in their order.
func (c *client) lock(set uint64) {
	for i := range c.srv.stripes {
		if set&(1<<i) != 0 {
			c.srv.stripes[i].mu.Lock()
		}
	}
}

func (c *client) unlock(set uint64) {
	for i := range c.srv.stripes {
		if set&(1<<i) != 0 {
			c.srv.stripes[i].mu.Unlock()
		}
	}
}

// locked calls fn with the stripes of keys locked and the batch empty, and
// applies the batch if fn returns nil.
func (c *client) locked(fn func() error, keys ...[]byte) error {
	var set uint64
	for _, key := range keys {
		set |= 1 << c.srv.stripeOf(key)
	}
	c.lock(set)
	defer c.unlock(set)
	c.batch.Reset()
	if err := fn(); err != nil {
		return err
	}
	return c.apply()
}

// apply writes the batch.
func (c *client) apply() error {
	if c.batch.Len() == 0 {
		return nil
	}
	c.needSync = true
	err := c.srv.put(&c.batch)
	c.collectGarbage()
	return err
}

// collectGarbage hands on the filters whose deletion has been written. What does
// not fit is found at the next start.
func (c *client) collectGarbage() {
	for _, id := range c.garbage {
		select {
		case c.srv.garbage <- id:
		default:
		}
	}
	c.garbage = c.garbage[:0]
}

// setHead adds to the batch what sets a key. The key's stripe is locked.
func (c *client) setHead(key []byte, h head) {
	c.keyBuf = c.srv.headKey(c.keyBuf[:0], key)
	c.valBuf = appendHead(c.valBuf[:0], h)
	c.batch.Put(c.keyBuf, c.valBuf)
	if h.expiry != 0 {
		c.batch.Put(c.srv.expiryKey(nil, h.expiry, key), nil)
	}
}

// setString sets a key to a string, whatever it held. The stripe is locked.
func (c *client) setString(key, value []byte, expiry int64) {
	c.forget(c.srv.stripe(key), key)
	c.setHead(key, head{kindString, expiry, value})
}

// remove deletes a key. The stripe is locked.
func (c *client) remove(key []byte) {
	c.forget(c.srv.stripe(key), key)
	c.keyBuf = c.srv.headKey(c.keyBuf[:0], key)
	c.batch.Delete(c.keyBuf)
}

// reply writes an error for the client, if err is one, and reports whether it
// was.
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

// do carries out one command.
func (c *client) do(args [][]byte) {
	cmd := lookup(args[0])
	if cmd == nil {
		c.unknown(args)
		return
	}
	if cmd.arity > 0 && len(args) != cmd.arity || cmd.arity < 0 && len(args) < -cmd.arity || cmd.max > 0 && len(args) > cmd.max {
		c.reject(cmd, "ERR wrong number of arguments for '"+cmd.name+"' command")
		return
	}
	if !c.trusted && cmd.flags&noAuth == 0 {
		c.reject(cmd, "NOAUTH Authentication required.")
		return
	}
	if cmd.flags&isWrite != 0 && c.srv.failed.Load() {
		c.reject(cmd, errReadOnly.Error())
		return
	}
	cmd.calls.Add(1)
	if c.queueing && cmd.flags&notQueued == 0 {
		c.enqueue(args)
		return
	}
	if cmd.flags&exclusive != 0 {
		// What this client has collected comes first.
		if err := c.settle(); err != nil {
			c.abort(err)
			return
		}
		mark := len(c.w.Buf)
		c.srv.world.Lock()
		cmd.run(c, args)
		c.srv.world.Unlock()
		if c.w.Refused {
			c.refuse(mark)
		}
		return
	}
	c.srv.world.RLock()
	if cmd.flags&unlocked != 0 {
		err := c.commitPending()
		c.srv.world.RUnlock()
		if err != nil {
			c.abort(err)
			return
		}
		cmd.run(c, args)
		return
	}
	defer c.srv.world.RUnlock()
	c.execute(cmd, args)
}

// execute runs a command; world is held.
func (c *client) execute(cmd *command, args [][]byte) {
	if cmd.flags&collects == 0 || len(args) != 3 || c.pending.Size() > pendBytes {
		if err := c.commitPending(); err != nil {
			c.abort(err)
			return
		}
	}
	mark := len(c.w.Buf)
	cmd.run(c, args)
	if c.w.Refused && !c.inExec {
		c.refuse(mark)
	}
}

// refuse replaces a reply for which there was no memory.
func (c *client) refuse(mark int) {
	c.w.Refused = false
	c.w.Buf = c.w.Buf[:mark]
	c.w.Error(errReplyOOM.Error())
}

// abort replaces all replies that were not sent by an error and ends the
// connection: some would acknowledge what is not safe.
func (c *client) abort(err error) {
	c.w.Buf, c.w.Refused = c.w.Buf[:0], false
	c.w.Error(err.Error())
	c.quit = true
}

// reject refuses a command. An EXEC that is refused ends its transaction.
func (c *client) reject(cmd *command, text string) {
	if cmd.name == "exec" {
		c.dropQueue()
		text = "EXECABORT Transaction discarded because of: " + strings.TrimPrefix(text, "ERR ")
	}
	c.fault(text)
}

// fault replies with an error that makes a transaction fail.
func (c *client) fault(text string) {
	if c.queueing {
		c.broken = true
	}
	c.srv.stats.errors.Add(1)
	c.w.Error(text)
}

func (c *client) unknown(args [][]byte) {
	var shown []byte
	for _, a := range args[1:] {
		if len(shown) >= 128 {
			break
		}
		shown = append(append(append(shown, '\''), clip(a, 128-len(shown))...), "' "...)
	}
	c.fault("ERR unknown command '" + string(clip(args[0], 128)) + "', with args beginning with: " + string(shown))
}

func clip(b []byte, n int) []byte { return b[:min(len(b), n)] }
