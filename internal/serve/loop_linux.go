package serve

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// An event loop serves many clients on one goroutine. In each round it learns from the kernel which
// clients have sent something, reads and executes that, makes one write to the store for all of
// them, and only then sends the replies. Compared with a goroutine per client, this saves, per
// command, a read that finds nothing, a goroutine switch and often the wake-up of a thread.
//
// A loop never waits for a client: sockets do not block, and the loop sends nothing more to a full
// socket until the kernel reports that it can be written. Commands that may take a long time are
// handed over to another goroutine, together with the client, which comes back afterwards: those
// for which isLong is true, those that EXEC or CLIENT PAUSE delays, and, for a while, all commands
// if they have recently been slow, as when the store reads from a disk or delays writes. A sync
// before a reply also runs on another goroutine, while its clients wait.
//
// A client may send a long pipeline and read the replies only afterwards, as long as they take no
// more than a share of the memory for requests and replies.
//
// A client belongs to one goroutine at a time: its loop's, or another one while event.away is set.
//
// There is a loop for each processor, but not all are in use: see balance.

const (
	maxLoops = 16
	// fewBytes is how much is read from a client at once if memory is short: a Reader holds this
	// much without reserving it.
	fewBytes = 1 << 10
	// The replies that one client has not read may take 1/unreadShare of the memory for requests
	// and replies.
	unreadShare = 4
	// turnCommands is how many commands of a client are executed in a round.
	turnCommands = 1024
	// roundCommands is how many commands are executed before their replies are sent. It is bounded
	// because an EXEC waits for the end of the round.
	roundCommands = 4096
	// loopKept bounds each buffer that a loop keeps.
	loopKept = 1 << 20
	// maxEvents is how many clients one system call reports.
	maxEvents = 256
	// shareEvery is how often a busy loop lets other goroutines run.
	shareEvery = 200 * time.Microsecond
	// If commands take longer than slowCommand, on average over some rounds, other goroutines
	// execute them for slowTime. That helps when they wait for a disk or for the store, but not
	// when other threads take the CPU.
	slowCommand = 50 * time.Microsecond
	slowTime    = 100 * time.Millisecond
	// waryRounds is the number of rounds after a slow one in which a loop checks whether it has
	// lost the CPU.
	waryRounds = 1024
)

const allEvents = syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | 1<<31 // edge-triggered

// event is the state of a client that its loop keeps.
type event struct {
	fd       int
	away     bool  // handed over to another goroutine
	readable bool  // a read may return something
	hungUp   bool  // a read will eventually return io.EOF
	db       int   // the database that is selected
	more     bool  // the Reader may hold a complete command
	inRound  bool  // replies wait for the end of the round
	again    bool  // in loop.again
	blocked  bool  // the socket is full
	sent     int   // bytes of the replies that have been sent
	stuck    int64 // ms when the socket became full; 0: it is not
	stuckAt  int   // sent at that time
}

type message struct {
	what  int
	c     *client
	batch []*client
	err   error
}

const (
	joined = iota // c is new here
	back          // c is back from another goroutine
	kicked        // c was killed
	synced        // a sync for the clients in batch has ended, with err
	shut          // the server is closing
)

type loop struct {
	srv           *Server
	epoll, wakeFD int // file descriptors; wakeFD wakes the loop up
	writes        *writes
	clients       []*client // by file descriptor
	buf           []byte
	events        [maxEvents]syscall.EpollEvent
	round         []*client // replies wait for the end of the round
	again         []*client // there is more to do without an event
	spare         []*client
	waiting       []*client // for the next sync
	syncing       bool
	stuck         int // clients whose sockets are full
	pace          time.Duration
	wary          int // rounds left for which switches are read
	slowUntil     time.Time
	nextTick      time.Time
	closing       bool
	deadline      time.Time
	helpers       sync.Pool // *writes

	mu     sync.Mutex
	inbox  []message
	mail   atomic.Bool // there is something in inbox
	asleep atomic.Bool
	freed  bool         // epoll and bell are closed
	handed atomic.Int32 // clients that other goroutines have

	// For balance.
	idle        atomic.Int64 // ns asleep before
	asleepSince atomic.Int64 // ns since 1970; 0: it is not
}

// post sends a message to the loop, from any goroutine.
func (l *loop) post(m message) {
	l.mu.Lock()
	l.inbox = append(l.inbox, m)
	l.mail.Store(true)
	if l.asleep.Load() && !l.freed {
		wakeUp(l.wakeFD)
	}
	l.mu.Unlock()
}

func (l *loop) run() {
	defer l.free()
	shared := time.Now()
	for {
		if l.mail.Load() {
			l.readMail()
		}
		if l.closing && l.srv.looped.Load() == 0 {
			return
		}
		n := poll(l.epoll, l.events[:], 0)
		if n <= 0 && len(l.again) == 0 {
			if l.srv.oneProc {
				runtime.Gosched() // commands that were handed over wait for this processor
			}
			n = l.sleep()
		}
		now := time.Now()
		l.runRound(n, now)
		if l.srv.oneProc || l.handed.Load() > 0 || now.Sub(shared) > 10*shareEvery {
			if now.Sub(shared) > shareEvery {
				runtime.Gosched()
				shared = now
			}
		}
		if !now.Before(l.nextTick) {
			l.tick(now)
		}
	}
}

// sleep waits for an event.
func (l *loop) sleep() int {
	l.asleep.Store(true)
	defer l.asleep.Store(false)
	if l.mail.Load() {
		return 0
	}
	start := time.Now()
	l.asleepSince.Store(start.UnixNano())
	defer func() {
		l.idle.Add(int64(time.Since(start)))
		l.asleepSince.Store(0)
	}()
	timeout := -1
	if l.closing || l.stuck > 0 || l.srv.password() != "" || l.srv.cfg.IdleTimeout > 0 {
		timeout = int(max(0, time.Until(l.nextTick).Milliseconds())) + 1
	}
	return poll(l.epoll, l.events[:], timeout)
}

// runRound executes a round: n events, and the clients with more to do.
func (l *loop) runRound(n int, now time.Time) {
	if n <= 0 && len(l.again) == 0 {
		return
	}
	ms := now.UnixMilli()
	spread := now.Before(l.slowUntil) || l.srv.slowCommand < 0
	again := l.again
	l.again = l.spare[:0]
	commands, finished := 0, 0
	wary, before := l.wary > 0, switches{}
	if wary {
		l.wary--
		before = readSwitches()
	}
	for i := range max(n, 0) {
		ev := &l.events[i]
		if int(ev.Fd) == l.wakeFD {
			clearWakeUp(l.wakeFD)
			continue
		}
		c := l.clients[ev.Fd]
		if c == nil {
			continue
		}
		e := &c.event
		if ev.Events&(syscall.EPOLLIN|syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
			e.readable = true
			e.hungUp = e.hungUp || ev.Events&syscall.EPOLLIN != ev.Events&^syscall.EPOLLOUT
		}
		if ev.Events&^syscall.EPOLLIN != 0 {
			e.blocked = false
		}
		if commands += l.turn(c, ms, spread); commands-finished >= roundCommands {
			finished = commands
			l.finish(ms)
		}
	}
	for _, c := range again {
		if l.clients[c.event.fd] == c { // it has not been closed and has not moved
			c.event.again = false
			if commands += l.turn(c, ms, spread); commands-finished >= roundCommands {
				finished = commands
				l.finish(ms)
			}
		}
	}
	clear(again)
	l.spare = again
	l.finish(ms)
	// With few commands, no client waits long for another.
	if commands >= 4 && !spread {
		slow := l.srv.slowCommand
		took := time.Since(now) / time.Duration(commands)
		if took > slow {
			if !wary || readSwitches().onlyLost(before) {
				took = l.pace // this says nothing about the commands
			}
			l.wary = waryRounds
		}
		l.pace += (took - l.pace) / 4
		if l.pace > slow {
			l.slowUntil = now.Add(slowTime)
			l.pace = slow * 3 / 4 // a few rounds decide next time
		}
	}
}

// later gives the client another turn in the next round, without an event.
func (l *loop) later(c *client) {
	if !c.event.again {
		c.event.again = true
		l.again = append(l.again, c)
	}
}

// turn reads and executes what a client has sent, and returns the number of commands. If spread is
// set, another goroutine does so.
func (l *loop) turn(c *client, ms int64, spread bool) (commands int) {
	e := &c.event
	if !l.mayRun(c, ms) || !e.more && !l.fill(c, ms) {
		return 0
	}
	c.last.Store(ms)
	e.more = false
	handOver, mark := spread, len(c.w.Buf)
	l.writes.db, l.writes.clock = e.db, 0
	if !spread {
		commands, handOver = l.execute(c, mark)
	}
	e.db = l.writes.db
	if err := c.r.Return(); err != nil && !c.quit {
		handOver = false
		c.refused(err)
	}
	if handOver && !c.quit {
		l.handOver(c)
		return commands
	}
	if e.more || e.readable {
		l.later(c)
	}
	if len(c.w.Buf) > mark || c.wrote || c.quit {
		e.inRound = true
		l.round = append(l.round, c)
	}
	return commands
}

// mayRun reports whether a client may run commands now. Otherwise it sends replies or closes the
// client, if that comes first.
func (l *loop) mayRun(c *client, ms int64) bool {
	e := &c.event
	switch {
	case e.away:
		return false
	case e.inRound:
		l.later(c)
		return false
	case c.killed.Load() && !c.quit:
		l.close(c)
		return false
	case len(c.w.Buf) > 0 && !(e.blocked && l.mayRunAhead(c)):
		if !e.blocked {
			l.send(c, ms)
		}
		return false
	case l.closing && !e.more:
		l.close(c)
		return false
	}
	return e.more || e.readable
}

// fill reads what a client has sent into the loop's buffer, which the client borrows until the end
// of its turn. It returns false if there is nothing, or if the client has been or will be
// closed.
func (l *loop) fill(c *client, ms int64) bool {
	size := readBytes
	if l.srv.requestBytes.Load() > l.srv.cfg.RequestBytes/2 {
		size = fewBytes
	}
	c.r.Borrow(l.buf[:size])
	err := c.r.Fill()
	if err == nil {
		return true
	}
	c.r.Return()
	switch {
	case err == syscall.EAGAIN:
	case c.refused(err):
		l.send(c, ms)
	case err == io.EOF && len(c.w.Buf) > 0:
		c.quit = true // after the replies
	default:
		l.close(c)
	}
	return false
}

// execute executes the commands that a client has sent, until none is left, the turn is over, or
// the loop must hand the client over to another goroutine. mark is the length of the client's
// replies before the turn.
func (l *loop) execute(c *client, mark int) (commands int, handOver bool) {
	for !c.quit {
		n, err := c.r.Scan()
		if err != nil {
			c.refused(err)
			return commands, false
		}
		if n == 0 {
			return commands, false
		}
		if n > shortArgs { // even collecting them takes a long time
			c.r.Unread()
			return commands, true
		}
		args, _ := c.r.Next()
		cmd := c.lookup(args[0])
		if l.mustHandOver(c, cmd, args) || !l.hold() {
			c.r.Unread()
			return commands, true
		}
		c.do(cmd, args)
		if c.handOver {
			c.handOver = false
			c.r.Unread()
			return commands, true
		}
		if commands++; commands == turnCommands || len(c.w.Buf)-mark >= replyBytes {
			c.event.more = true
			return commands, false
		}
	}
	return commands, false
}

// hold holds world until the end of the round. It returns false if another goroutine holds world
// exclusively, or waits for that: the wait could be long, since other readers may delay that
// goroutine.
func (l *loop) hold() bool {
	if !l.writes.held {
		l.writes.held = l.srv.world.TryRLock()
	}
	return l.writes.held
}

// mustHandOver reports whether the loop must hand a command over to another goroutine: because it
// may take a long time or must wait, perhaps for a lock that a heavy command holds. During a sync
// it hands over writes, which would wait, except with FsyncAlways: then no client gets a reply
// during a sync anyway, and it is better to collect more writes for the next one.
func (l *loop) mustHandOver(c *client, cmd *command, args [][]byte) bool {
	return cmd != nil && (cmd.isLong(len(args), c.r.Size()) || l.srv.largest(cmd, args) > 0) ||
		l.srv.heavy.Load() > 0 && (cmd == nil || cmd.flags&free == 0) ||
		cmd != nil && cmd.flags&isWrite != 0 && l.srv.syncing.Load() && Fsync(l.srv.fsync.Load()) != FsyncAlways
}

// onLoop reports whether an event loop executes the client's commands, rather than a goroutine
// that may wait.
func (c *client) onLoop() bool { return c.loop.Load() != nil && !c.event.away }

// handOver hands a client over to another goroutine, which executes what the client has sent.
func (l *loop) handOver(c *client) {
	if c.wrote {
		if err := l.writes.commit(); err != nil {
			c.abort(err)
			c.event.inRound = true
			l.round = append(l.round, c)
			return
		}
	}
	c.event.away = true
	l.handed.Add(1)
	go l.help(c)
}

// help is the goroutine that handOver starts.
func (l *loop) help(c *client) {
	w := l.helpers.Get().(*writes)
	c.writes = w
	w.db, w.clock = c.event.db, 0
	c.event.more = false
	mark, heavy := len(c.w.Buf), int32(0)
	for !c.quit {
		args, err := c.r.Next()
		if err != nil {
			c.refused(err)
			break
		}
		if args == nil {
			break
		}
		cmd := c.lookup(args[0])
		if len(c.w.Buf) > c.safe && c.paused(cmd) { // the replies are sent first
			c.r.Unread()
			c.event.more = true
			break
		}
		if c.r.Size() >= heavyBytes || len(args) >= heavyArgs {
			heavy++
			l.srv.heavy.Add(1)
		}
		c.do(cmd, args)
		if len(c.w.Buf)-mark >= replyBytes {
			c.event.more = true
			break
		}
	}
	if err := c.r.Return(); err != nil && !c.quit {
		c.refused(err)
	}
	w.needSync = w.needSync || c.wrote // perhaps on the loop
	err := c.finishWrites()
	if err != nil {
		c.abort(err)
	}
	l.srv.heavy.Add(-heavy)
	c.wrote = false
	c.event.db = w.db
	if err == nil {
		l.helpers.Put(w)
	}
	c.writes = l.writes
	l.handed.Add(-1)
	l.post(message{what: back, c: c})
}

// finish ends a round: it makes one write to the store for all clients, then sends the replies.
func (l *loop) finish(ms int64) {
	w := l.writes
	var err error
	if w.held {
		err = w.commit()
		w.release()
	}
	// Replies may show what clients of other loops wrote, so clients that only read wait, too.
	unsynced := Fsync(l.srv.fsync.Load()) == FsyncAlways && l.srv.unsynced()
	for _, c := range l.round {
		c.event.inRound = false
		switch {
		case c.wrote && err != nil:
			c.abort(err)
		case unsynced:
			c.event.away = true
			l.waiting = append(l.waiting, c)
			continue
		}
		c.wrote = false
		l.send(c, ms)
	}
	if err != nil {
		clear(w.touched)
		w.touched = w.touched[:0]
		w.flushes++       // so that touch lists these filters again
		w.forgetPending() // the replies to these SETs are errors
	}
	w.err, w.needSync = nil, false
	w.dropLarge()
	clear(l.round)
	l.round = l.round[:0]
	l.sync()
}

// sync starts a goroutine that syncs the store for all clients that wait for that.
func (l *loop) sync() {
	if l.syncing || len(l.waiting) == 0 {
		return
	}
	l.syncing = true
	batch := l.waiting
	l.waiting = nil
	go func() { l.post(message{what: synced, batch: batch, err: l.srv.sync()}) }()
}

// Read reads from the client's socket without blocking.
func (c *client) Read(p []byte) (int, error) {
	n, err := read(c.event.fd, p)
	if err == nil && n < len(p) && !c.event.hungUp || err == syscall.EAGAIN {
		c.event.readable = false
	}
	return n, err
}

// mayRunAhead reports whether more commands are executed although the client has not read the
// replies to earlier ones.
func (l *loop) mayRunAhead(c *client) bool {
	e := &c.event
	if c.quit || l.closing || !e.more && !e.readable {
		return false
	}
	if e.sent > len(c.w.Buf)/2 {
		c.w.Buf = append(c.w.Buf[:0], c.w.Buf[e.sent:]...)
		c.safe, e.stuckAt = c.safe-e.sent, e.stuckAt-e.sent
		e.sent = 0
	}
	most := l.srv.cfg.RequestBytes
	return int64(len(c.w.Buf)) < most/unreadShare && l.srv.requestBytes.Load() < most/2 && c.w.Grow(replyBytes)
}

// send sends replies until the socket is full. So that others need not wait, it stops after
// sendBytes, and continues in the next round.
func (l *loop) send(c *client, ms int64) {
	e := &c.event
	c.safe = len(c.w.Buf)
	for tried := 0; e.sent < len(c.w.Buf); {
		if tried >= sendBytes {
			l.later(c)
			return
		}
		part := c.w.Buf[e.sent:min(len(c.w.Buf), e.sent+sendBytes)]
		n, err := write(e.fd, part)
		if err == syscall.EAGAIN {
			e.blocked = true
			if e.stuck == 0 {
				l.stuck++
			}
			if e.stuck == 0 || e.sent-e.stuckAt >= sendBytes {
				e.stuck, e.stuckAt = ms, e.sent
				c.lastProgress.Store(ms)
			}
			if e.more || e.readable {
				l.later(c)
			}
			return
		}
		if err != nil {
			l.close(c)
			return
		}
		e.sent += n
		tried += len(part)
	}
	if e.stuck != 0 {
		l.stuck--
		e.stuck = 0
	}
	e.sent, c.safe = 0, 0
	c.w.Reset()
	switch {
	case c.quit, c.killed.Load(), l.closing && !e.more:
		l.close(c)
	case e.more || e.readable:
		l.later(c)
	default:
		l.move(c)
	}
}
