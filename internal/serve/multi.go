package serve

import (
	"bytes"
	"errors"
	"time"
)

// execBytes bounds a transaction's changes: above it, further writes fail. A short command can
// write a long value, and the store rejects a batch of more than 1 GiB.
const execBytes = 256 << 20

var errExecOOM = errors.New("OOM the transaction has changed too much")

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
	c.unwatch()
	c.w.OK()
}

// execCommand runs the queued commands with nothing between them, and writes their changes to the
// store as one batch, so that a crash leaves all of them or none. World is held exclusively.
func execCommand(c *client, args [][]byte) {
	if !c.queueing {
		c.w.Error("ERR EXEC without MULTI")
		return
	}
	queue, broken, stale := c.queue, c.broken, c.stale()
	c.dropQueue()
	c.unwatch()
	if broken {
		c.w.Error("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	if stale {
		c.w.NilArray()
		return
	}
	c.inExec = true
	c.transact()
	mark := len(c.w.Buf)
	c.w.Array(len(queue))
	for _, args := range queue {
		cmd := lookup(args[0])
		cmd.calls.Add(1)
		start := time.Since(c.srv.started)
		if cmd.flags&isWrite != 0 && c.batch.Size() > c.srv.execMax {
			c.reply(errExecOOM)
		} else {
			c.execute(cmd, args)
		}
		c.srv.took(c, cmd, args, start, time.Since(c.srv.started)-start)
		if c.w.Refused || !c.w.Claim() {
			c.w.Buf = c.w.Buf[:mark] // dispatch replaces the reply
		}
	}
	c.inExec = false
	if err := c.applyAll(); err != nil {
		c.abort(err)
	}
}

// enqueue queues a command for EXEC. Its memory counts as that of a request.
func (c *client) enqueue(args [][]byte) {
	size := 64
	for _, a := range args {
		size += len(a) + 32
	}
	if !c.reserve(size) {
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
	if c.queued > 0 {
		c.reserve(-c.queued)
	}
	c.queue, c.queued, c.queueing, c.broken = nil, 0, false, false
}
