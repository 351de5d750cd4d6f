package serve

import (
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// startLoops starts the event loops, one per processor. Loops do not serve TLS clients.
func (s *Server) startLoops() error {
	if s.cfg.TLS != nil || s.cfg.NoLoops {
		return nil
	}
	for range min(runtime.GOMAXPROCS(0), maxLoops) {
		l, err := s.newLoop()
		if err != nil {
			for _, l := range s.loops {
				l.free()
			}
			s.loops = nil
			return err
		}
		s.loops = append(s.loops, l)
	}
	s.oneProc = len(s.loops) == 1
	s.inUse.Store(1)
	for _, l := range s.loops {
		s.tasks.Go(l.run)
	}
	if len(s.loops) > 1 {
		s.tasks.Go(s.balance)
	}
	return nil
}

func (s *Server) newLoop() (*loop, error) {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	wakeFD, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		syscall.Close(epoll)
		return nil, errno
	}
	l := &loop{srv: s, epoll: epoll, wakeFD: int(wakeFD), buf: make([]byte, readBytes), writes: s.newWrites(loopKept), nextTick: time.Now()}
	l.helpers.New = func() any { return s.newWrites(keptBytes) }
	if err := l.watch(l.wakeFD, syscall.EPOLLIN); err != nil {
		l.free()
		return nil, err
	}
	return l, nil
}

// free closes the descriptors. From then on the system may reuse their numbers.
func (l *loop) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freed = true
	syscall.Close(l.epoll)
	syscall.Close(l.wakeFD)
}

func (l *loop) watch(fd int, events uint32) error {
	return syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)})
}

// stopLoops makes the loops end when their clients have left. After grace they disconnect the
// remaining ones.
func (s *Server) stopLoops(grace time.Duration) {
	for _, l := range s.loops {
		l.mu.Lock()
		l.deadline = time.Now().Add(grace)
		l.mu.Unlock()
		l.post(message{what: shut})
	}
}

// toLoop hands a connection over to a loop, and reports whether it could: loops serve only plain
// connections.
func (s *Server) toLoop(c *client, limits resp.Limits) bool {
	sc, ok := c.conn.(syscall.Conn)
	if !ok || len(s.loops) == 0 {
		return false
	}
	fd, err := detach(sc)
	if err != nil {
		return false
	}
	c.conn.Close()
	c.conn = nil
	c.event.fd = fd
	c.r = resp.NewReader(c, limits, !c.trusted)
	s.looped.Add(1)
	c.home().take(c)
	return true
}

// home returns the loop that should serve a client.
func (c *client) home() *loop { return c.srv.loops[c.id%uint64(c.srv.inUse.Load())] }

// take makes the loop the owner of a client that has none.
func (l *loop) take(c *client) {
	c.writes = l.writes
	c.loop.Store(l)
	l.post(message{what: joined, c: c})
}

// move hands an idle client over to the loop that should serve it.
func (l *loop) move(c *client) {
	to := c.home()
	if to == l || l.closing || c.event.again || syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_DEL, c.event.fd, nil) != nil {
		return
	}
	l.clients[c.event.fd] = nil
	to.take(c)
}

// detach duplicates a connection's descriptor: the runtime's poller does not watch the new one.
func detach(conn syscall.Conn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var errno syscall.Errno
	if err := raw.Control(func(of uintptr) {
		var n uintptr
		n, _, errno = syscall.RawSyscall(syscall.SYS_FCNTL, of, syscall.F_DUPFD_CLOEXEC, 0)
		fd = int(n)
	}); err != nil {
		return 0, err
	}
	if errno != 0 {
		return 0, errno
	}
	return fd, syscall.SetNonblock(fd, true)
}

// close closes a connection. The client must not be with another goroutine.
func (l *loop) close(c *client) {
	e := &c.event
	if l.clients[e.fd] != c {
		return
	}
	if e.stuck != 0 {
		l.stuck--
	}
	l.clients[e.fd] = nil
	l.srv.looped.Add(-1)
	syscall.Close(e.fd)
	if e.inRound {
		l.round = slices.DeleteFunc(l.round, func(o *client) bool { return o == c })
	}
	c.leave()
}

func (l *loop) readMail() {
	l.mail.Store(false)
	l.mu.Lock()
	mail := l.inbox
	l.inbox = nil
	l.mu.Unlock()
	ms := time.Now().UnixMilli()
	for _, m := range mail {
		switch m.what {
		case joined:
			l.join(m.c)
		case back:
			m.c.last.Store(ms) // the command may have been slow
			l.resume(m.c, ms)
		case kicked:
			l.kill(m.c)
		case synced:
			l.syncing = false
			for _, c := range m.batch {
				if m.err != nil && c.wrote { // clients that have only read get their replies
					c.abort(m.err)
				}
				c.wrote = false
				l.resume(c, ms)
			}
			l.sync()
		case shut:
			l.closing = true
			l.nextTick = time.Time{}
			for _, c := range l.clients {
				if c != nil && !c.event.away && len(c.w.Buf) == 0 && !c.event.more {
					l.close(c)
				}
			}
		}
	}
}

// kill closes a connection, even if replies have not been sent. If the client is away, its command
// in progress still completes.
func (l *loop) kill(c *client) {
	fd := c.event.fd
	switch {
	case fd >= len(l.clients) || l.clients[fd] != c:
	case c.event.away:
		syscall.Shutdown(fd, syscall.SHUT_RDWR)
	default:
		l.close(c)
	}
}

func (l *loop) join(c *client) {
	fd := c.event.fd
	for len(l.clients) <= fd {
		l.clients = append(l.clients, nil)
	}
	l.clients[fd] = c
	if l.closing || c.killed.Load() || l.watch(fd, allEvents) != nil {
		l.close(c)
	}
}

// resume takes back a client that was away.
func (l *loop) resume(c *client, ms int64) {
	c.event.away = false
	switch {
	case len(c.w.Buf) > 0:
		l.send(c, ms)
	case c.quit:
		l.close(c)
	case l.closing && !c.event.more:
		l.close(c)
	default:
		l.later(c)
	}
}

// tick closes connections that have exceeded a time limit.
func (l *loop) tick(now time.Time) {
	cfg := &l.srv.cfg
	every := min(time.Second, cfg.WriteTimeout/4, cfg.AuthTimeout/4)
	if cfg.IdleTimeout > 0 {
		every = min(every, cfg.IdleTimeout/4)
	}
	if l.closing {
		every = 10 * time.Millisecond
	}
	l.nextTick = now.Add(max(every, 5*time.Millisecond))
	l.mu.Lock()
	over := l.closing && now.After(l.deadline)
	l.mu.Unlock()
	ms := now.UnixMilli()
	for _, c := range l.clients {
		if c == nil || c.event.away {
			continue
		}
		unsent := len(c.w.Buf) > 0
		switch {
		case over,
			c.event.stuck != 0 && ms-c.event.stuck > cfg.WriteTimeout.Milliseconds(),
			!c.trusted && now.Sub(c.authStart) > cfg.AuthTimeout,
			cfg.IdleTimeout > 0 && !unsent && ms-c.last.Load() > cfg.IdleTimeout.Milliseconds():
			l.close(c)
		}
	}
}
