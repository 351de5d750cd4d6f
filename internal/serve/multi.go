package serve

import (
	"bytes"
	"errors"
	"time"
)

const (
	// execBytes bounds a transaction's changes: above it, further writes fail. See room.go.
	execBytes = 256 << 20
	// execTouched is how many filters may have changes that are not in a transaction's batch.
	execTouched = 8
)

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
	queue, reserved, broken, stale := c.queue, c.queued, c.broken, c.stale()
	c.queued = 0
	c.dropQueue()
	c.unwatch()
	defer func() { c.reserve(-reserved) }()
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
	left := reserved // of the queue
	for i, args := range queue {
		if len(c.touched) >= execTouched {
			c.flushTouched() // adds to the batch
		}
		cmd := lookup(args[0])
		cmd.calls.Add(1)
		start := time.Since(c.srv.started)
		if c.reserveChanges(&reserved, left, cmd, args) || cmd.flags&isWrite == 0 {
			c.execute(cmd, args)
		} else {
			c.reply(errOOM)
		}
		c.srv.took(c, cmd, args, start, time.Since(c.srv.started)-start)
		if c.w.Refused || !c.w.Claim() {
			c.w.Cut(mark) // dispatch replaces the reply
		}
		left -= queuedSize(args)
		queue[i] = nil
	}
	c.inExec = false
	if err := c.applyAll(); err != nil {
		c.abort(err)
	}
}

// reserveChanges adjusts the memory that a transaction has reserved to what it needs when it
// executes a command: for the commands that are left, for the changes so far, and for a value that
// is much longer than the command. It reports whether there was enough. The memory of the queue
// becomes that of the changes, so a transaction that writes its arguments needs little more.
func (c *client) reserveChanges(reserved *int, left int, cmd *command, args [][]byte) bool {
	need := left + c.batch.Size() + c.overlayBytes
	if cmd.flags&extends != 0 {
		need += int(c.srv.extended(cmd, args))
	}
	more := need - *reserved
	if more <= 0 && more > -keptBytes {
		return true
	}
	if !c.reserve(more) {
		return false
	}
	*reserved = need
	return true
}

// queuedSize is roughly the memory that a queued command takes.
func queuedSize(args [][]byte) int {
	size := 64
	for _, a := range args {
		size += len(a) + 32
	}
	return size
}

// enqueue queues a command for EXEC. Its memory counts as that of a request.
func (c *client) enqueue(args [][]byte) {
	size := queuedSize(args)
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
