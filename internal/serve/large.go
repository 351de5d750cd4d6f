package serve

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// A command on a large value takes several times the value's memory while it runs: for the block
// that it is read from, copies of it, and the batch that it is written with. So it waits until the
// commands before it leave enough memory, and an event loop hands it over to another goroutine
// before the value is read. The server knows the size of a value once it has read or written it.

// largeCommands are the commands on large values that are in progress. A command that waits for
// them holds no locks of the server.
type largeCommands struct {
	next sync.Mutex // held by the command that is the next to enter
	mu   sync.Mutex
	left sync.Cond // on mu: used has decreased
	used int64
	most int64
}

func (l *largeCommands) init(most int64) {
	l.left.L = &l.mu
	l.most = most
}

// enter waits until n of the most bytes are free, or all of them if n is more than most.
func (l *largeCommands) enter(n int64) {
	l.next.Lock()
	defer l.next.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.used > 0 && l.used+n > l.most {
		l.left.Wait()
	}
	l.used += n
}

func (l *largeCommands) leave(n int64) {
	l.mu.Lock()
	l.used -= n
	l.mu.Unlock()
	l.left.Signal()
}

// maxValue is the size of the longest string that commands write: one that fits in a reply, with
// the bytes around it.
func (s *Server) maxValue() int { return int(min(int64(s.cfg.MaxBulkBytes), s.cfg.RequestBytes-64)) }

// largeValues are the sizes of values above shortBytes, by hashes of their keys.
type largeValues struct {
	any   atomic.Bool
	sizes [1 << 14]atomic.Uint32 // bits.Len of a size; 0: short, or not known
}

func (v *largeValues) at(seed maphash.Seed, key []byte) *atomic.Uint32 {
	return &v.sizes[maphash.Bytes(seed, key)>>40%uint64(len(v.sizes))]
}

// noteSize records the size of a value that was read or is to be written.
func (s *Server) noteSize(key []byte, size int) {
	v := &s.largeValues
	if size > shortBytes {
		v.any.Store(true)
		v.at(s.seed, key).Store(uint32(bits.Len(uint(size))))
	} else if v.any.Load() {
		if at := v.at(s.seed, key); at.Load() != 0 {
			at.Store(0)
		}
	}
}

// extended returns by how much the value that a command with the flag extends writes may be longer
// than its arguments, 0 if that is little or if the command will be refused. The arguments may be
// invalid.
func (s *Server) extended(cmd *command, args [][]byte) int64 {
	if len(args) < 4 {
		return 0
	}
	size, most := uint64(0), uint64(s.maxValue())
	if cmd.name == "restore" {
		if b := args[3]; len(b) > 1 && b[0] == dumpString {
			size, _ = unpackedSize(b[1:])
		} else if len(b) > 1 && b[0] == dumpModule { // a filter may be larger than a value
			most = uint64(s.cfg.MaxBulkBytes)
			size = min(unpackedStrings(b[1:]), most)
		}
	} else if n, ok := resp.ParseInt(args[2]); ok && n >= 0 {
		if cmd.name == "setbit" {
			n = n>>3 + 1
		}
		size = uint64(n)
	}
	if size <= shortBytes || size > most {
		return 0
	}
	return int64(size)
}

// largest returns an upper bound on the largest known value of a command's keys and of what the
// command writes in addition to its arguments, 0 if all are short or not known.
func (s *Server) largest(cmd *command, args [][]byte) (size int64) {
	if cmd.flags&extends != 0 {
		size = s.extended(cmd, args)
	}
	if !s.largeValues.any.Load() {
		return size
	}
	for key := range cmd.keys(args) {
		if n := s.largeValues.at(s.seed, key).Load(); n > 0 {
			size = max(size, 1<<n)
		}
	}
	return size
}

const (
	// readCopies and writeCopies are how many copies of a large value a command holds, in addition
	// to those for which memory is reserved: if it reads the value, and if the value is in its
	// arguments.
	readCopies  = 2
	writeCopies = 3
)

// needs returns how much memory a command on large values must wait for: 0 for other commands, and
// on an event loop, which does not wait.
func (c *client) needs(cmd *command, args [][]byte) int64 {
	if c.r == nil || c.onLoop() {
		return 0
	}
	return c.srv.copies(cmd, args, c.r.Size())
}

// queueNeeds is needs for EXEC: its commands make their copies one after the other.
func (c *client) queueNeeds() (n int64) {
	for _, args := range c.queue {
		n = max(n, c.srv.copies(lookup(args[0]), args, queuedSize(args)))
	}
	return n
}

// copies returns how much memory a command's copies of large values take. size is that of its
// arguments.
func (s *Server) copies(cmd *command, args [][]byte, size int) int64 {
	n := readCopies * s.largest(cmd, args)
	if size >= heavyBytes {
		n = max(n, writeCopies*int64(size))
	}
	return n
}

// runLarge runs a command when n bytes are free for it.
func (c *client) runLarge(cmd *command, args [][]byte, n int64) {
	held := c.held
	if held { // the collected SETs belong to the current generations
		if err := c.commit(); err != nil {
			c.abort(err)
			return
		}
	}
	c.release() // so that others need not wait
	defer c.enterLarge(n)()
	if held {
		c.hold()
	}
	c.runHeld(cmd, args)
	if c.held && c.overlay == nil {
		c.commitPending() // its error stays in c.err
	}
}

// enterLarge waits until n bytes are free for a command. They are free again when leave is called.
func (c *client) enterLarge(n int64) (leave func()) {
	c.lastProgress.Store(never) // so that evict spares the client while it waits
	c.srv.largeCommands.enter(n)
	return func() {
		c.srv.largeCommands.leave(n)
		c.lastProgress.Store(time.Now().UnixMilli())
	}
}
