package serve

import (
	"errors"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// run serves a client on a goroutine for this client alone.
func (c *client) run() {
	defer func() {
		c.conn.Close()
		c.giveBack()
		c.leave()
	}()
	for {
		args, err := c.r.Next()
		if err == nil && args != nil {
			if len(c.w.Buf) == 0 {
				c.last.Store(time.Now().UnixMilli())
			}
			c.do(c.lookup(args[0]), args)
			if c.quit || len(c.w.Buf) >= replyBytes {
				if c.finish() != nil || c.quit {
					return
				}
			}
			continue
		}
		if err == nil {
			err = c.giveBack() // first, since the client may not read the replies
		}
		if ferr := c.finish(); ferr != nil || c.quit {
			return
		}
		if err == nil {
			if c.killed.Load() || c.srv.serving.Err() != nil {
				return
			}
			if !c.trusted {
				c.conn.SetDeadline(c.authStart.Add(c.srv.cfg.AuthTimeout)) // with TLS, a read may have to write
			} else if c.srv.cfg.IdleTimeout > 0 {
				c.conn.SetReadDeadline(time.Now().Add(c.srv.cfg.IdleTimeout))
			}
			if c.killed.Load() || c.srv.serving.Err() != nil {
				return // Close may have set its deadline before
			}
			if err = c.fill(); err == nil {
				continue
			}
		}
		if c.refused(err) {
			c.send()
		}
		return
	}
}

// fill waits for input from the client and reads it.
func (c *client) fill() error {
	defer c.noteProgress()
	if c.borrowing != nil {
		return c.borrowing.fill()
	}
	return c.r.Fill()
}

// giveBack gives back the buffer that fill has borrowed, if there is one. The arguments of the last
// command become invalid.
func (c *client) giveBack() error {
	if c.borrowing == nil {
		return nil
	}
	return c.borrowing.giveBack()
}

// finish makes the client's writes as durable as required, and then sends the replies.
func (c *client) finish() error {
	if err := c.finishWrites(); err != nil {
		c.abort(err)
	}
	c.wrote = false
	c.useRoot()
	return c.send()
}

// finishWrites is finish without sending the replies. It releases world.
func (c *client) finishWrites() error {
	if len(c.aside) > 0 {
		return c.finishAll()
	}
	now := c.session()
	err := errors.Join(c.asideErr, now.finishWrites(len(c.w.Buf) > 0))
	c.asideErr, c.unconfirmed = nil, false
	return err
}

// finishWrites writes the changes that were collected for a server. If there are replies, it makes
// what they acknowledge or show as durable as required; in a group, it confirms that they are not
// stale.
func (t *session) finishWrites(replies bool) (err error) {
	w, s := t.writes, t.srv
	written := false // in a group, a write after all reads confirms them
	err = w.err      // of an earlier write, which replies may acknowledge
	if len(w.pended) > 0 || len(w.touched) > 0 {
		w.hold()
		written = len(w.pended) > 0
		err = w.commit()
	}
	w.release()
	switch {
	case err != nil || !replies || Fsync(s.fsync.Load()) != FsyncAlways:
	case s.cfg.Group != nil && written:
		err = s.decideTime()
	case s.cfg.Group != nil && w.needSync:
		err = s.sync()
	case s.cfg.Group == nil:
		// Replies may show what other clients wrote, so readers wait for the sync, too. If it
		// fails, clients that have written nothing still get their replies.
		if err = s.sync(); !w.needSync {
			err = nil
		}
	}
	if t.unconfirmed {
		s.unconfirmed.RUnlock()
	}
	w.needSync, w.clock = false, 0
	w.dropLarge()
	return err
}

// send sends the replies of a client that has its own goroutine.
func (c *client) send() error {
	c.waited = 0
	if len(c.w.Buf) == 0 {
		return nil
	}
	// Setting a deadline costs more than most commands, so each is used for a while. The time is
	// read here, since the command may have been slow. It is the time since the start, which, like
	// the deadline and unlike the time of day, does not jump.
	if now := time.Since(c.srv.started); now >= c.refresh {
		c.refresh = now + c.srv.cfg.WriteTimeout/4
		c.extendWriteDeadline()
	}
	for b := c.w.Buf; ; c.extendWriteDeadline() {
		n, err := c.conn.Write(b[:min(len(b), sendBytes)])
		if b = b[n:]; len(b) == 0 || err != nil {
			c.w.Reset()
			c.safe = 0
			return err
		}
	}
}

// refused reports whether err is an error in the client's input, and if so replies with it.
func (c *client) refused(err error) bool {
	if p := resp.ProtocolError(""); !errors.As(err, &p) && !errors.Is(err, resp.ErrMemory) {
		return false
	}
	c.srv.stats.protocolErrors.Add(1)
	c.w.Error("ERR " + err.Error())
	c.quit = true
	return true
}

// noteProgress records that the client has sent or read something.
func (c *client) noteProgress() {
	if c.taken.Load() > 0 {
		c.lastProgress.Store(time.Now().UnixMilli())
	}
}

// extendWriteDeadline extends the deadline for writes.
func (c *client) extendWriteDeadline() {
	c.noteProgress()
	if c.srv.serving.Err() != nil {
		return
	}
	c.conn.SetWriteDeadline(time.Now().Add(c.srv.cfg.WriteTimeout * 5 / 4))
	if c.srv.serving.Err() != nil { // Close may have set its deadline before
		c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	}
}
