package serve

import (
	"errors"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// save writes everything in memory to the store's tables.
func (s *Server) save() error {
	err := s.sync()
	if err == nil {
		if err = s.eachPart(func(p *Server) error { return p.db.Flush() }); err != nil {
			err = errors.New("ERR " + err.Error())
		}
	}
	s.root.saveFailed.Store(err != nil)
	if err != nil {
		return err
	}
	s.stats.lastSave.Store(time.Now().Unix())
	return nil
}

func saveCommand(c *client, args [][]byte) {
	if !c.reply(c.srv.save()) {
		c.w.OK()
	}
}

// bgSave is BGSAVE and BGREWRITEAOF.
func bgSave(c *client, args [][]byte) {
	s := c.srv.root
	text := "Background saving started"
	if is(args[0], "BGREWRITEAOF") {
		text = "Background append only file rewriting started"
	} else if len(args) > 2 || len(args) == 2 && !is(args[1], "SCHEDULE") {
		c.reply(errSyntax)
		return
	}
	if s.saving.CompareAndSwap(false, true) {
		s.clientsMu.Lock()
		if !s.closing {
			s.tasks.Go(func() {
				defer s.saving.Store(false)
				if err := s.save(); err != nil {
					s.cfg.Logger.Error("saving failed", "err", err)
				}
			})
		}
		s.clientsMu.Unlock()
	}
	c.w.Simple(text)
}

func lastSave(c *client, args [][]byte) { c.w.Int(c.srv.stats.lastSave.Load()) }

// waitCommand is WAIT. Without a group there are no replicas: it only syncs.
func waitCommand(c *client, args [][]byte) {
	n, ok := resp.ParseInt(args[1])
	ms, okTime := resp.ParseInt(args[2])
	switch {
	case !ok:
		c.reply(errNotInt)
	case !okTime:
		c.w.Error("ERR timeout is not an integer or out of range")
	case ms < 0:
		c.w.Error("ERR timeout is negative")
	case c.srv.cfg.Group != nil:
		c.waitReplicas(n, ms)
	case !c.reply(c.srv.sync()):
		c.w.Int(0)
	}
}

// shutdown is SHUTDOWN: it makes Serve return, and the caller of Serve then closes the server.
// Whatever the arguments, no acknowledged write is lost.
func shutdown(c *client, args [][]byte) {
	for _, a := range args[1:] {
		if is(a, "ABORT") {
			c.w.Error("ERR No shutdown in progress.")
			return
		}
		if !is(a, "SAVE") && !is(a, "NOSAVE") && !is(a, "NOW") && !is(a, "FORCE") {
			c.reply(errSyntax)
			return
		}
	}
	c.srv.cfg.Logger.Info("a client sent SHUTDOWN", "from", c.addr)
	c.quit = true
	c.srv.leaving.Store(true)
	c.srv.listener.Close()
}
