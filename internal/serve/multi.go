package serve

import "bytes"

func multi(c *client, args [][]byte) {
	if c.queueing {
		c.w.Error("ERR MULTI calls can not be nested")
		return
	}
	c.queueing = true
	c.w.OK()
}

func discard(c *client, args [][]byte) {
	if !c.queueing {
		c.w.Error("ERR DISCARD without MULTI")
		return
	}
	c.dropQueue()
	c.w.OK()
}

// execCommand runs the queued commands with nothing between them. World is held alone.
func execCommand(c *client, args [][]byte) {
	if !c.queueing {
		c.w.Error("ERR EXEC without MULTI")
		return
	}
	queue, broken := c.queue, c.broken
	c.dropQueue()
	if broken {
		c.w.Error("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	c.inExec = true
	defer func() { c.inExec = false }()
	c.w.Array(len(queue))
	for _, args := range queue {
		cmd := lookup(args[0])
		if c.execute(cmd, args); c.quit {
			return
		}
	}
	// A transaction is not one write of the store: a crash in its midst leaves a
	// beginning of it, which no reply has acknowledged.
	if err := c.commitPending(); err != nil {
		c.abort(err)
	}
}

// enqueue keeps a command for EXEC. Its memory counts as a request's.
func (c *client) enqueue(args [][]byte) {
	size := 64
	for _, a := range args {
		size += len(a) + 32
	}
	if c.srv.requestBytes.Add(int64(size)) > c.srv.cfg.RequestBytes {
		c.srv.requestBytes.Add(-int64(size))
		c.fault(errOOM.Error())
		return
	}
	c.queued += size
	kept := make([][]byte, len(args))
	for i, a := range args {
		kept[i] = bytes.Clone(a)
		if kept[i] == nil {
			kept[i] = []byte{}
		}
	}
	c.queue = append(c.queue, kept)
	c.w.Simple("QUEUED")
}

func (c *client) dropQueue() {
	c.srv.requestBytes.Add(-int64(c.queued))
	c.queue, c.queued, c.queueing, c.broken = nil, 0, false, false
}
