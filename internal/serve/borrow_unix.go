//go:build unix

package serve

import (
	"io"
	"net"
	"sync"
	"syscall"
)

// readBytes is how much is read from a client at once, unless memory is short.
const readBytes = 64 << 10

var readBuffers = sync.Pool{New: func() any { return new([readBytes]byte) }}

// borrowing reads from a client into a large buffer, which the client holds only while it has input
// to read and execute: a pipeline takes one read, and an idle client holds no buffer. The buffer
// counts as memory for requests. If that is short, the Reader uses its own, small buffer.
type borrowing struct {
	c    *client
	raw  syscall.RawConn
	fd   uintptr
	buf  *[readBytes]byte
	err  error
	once func(fd uintptr) bool // the method value ready, allocated once
}

// borrow returns a borrowing for a connection, nil if it cannot be read that way, as with TLS.
func (c *client) borrow(conn net.Conn) *borrowing {
	sc, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	b := &borrowing{c: c, raw: raw}
	b.once = b.ready
	return b
}

// fill waits for input and reads it. No buffer may be borrowed.
func (b *borrowing) fill() error {
	if err := b.raw.Read(b.once); err != nil {
		return err
	}
	return b.err
}

// ready reads what there is, and reports whether fill is done: whether there was input or an error.
func (b *borrowing) ready(fd uintptr) bool {
	b.fd = fd
	if s := b.c.srv; s.requestBytes.Load()+readBytes <= s.cfg.RequestBytes/2 && b.c.reserve(readBytes) {
		b.buf = readBuffers.Get().(*[readBytes]byte)
		b.c.r.Borrow(b.buf[:])
	}
	if b.err = b.c.r.Fill(); b.err != syscall.EAGAIN {
		return true
	}
	b.err = b.giveBack()
	return b.err != nil
}

// giveBack returns the borrowed buffer, if there is one, and releases memory that the Reader no
// longer needs.
func (b *borrowing) giveBack() error {
	err := b.c.r.Return()
	if b.buf != nil {
		readBuffers.Put(b.buf)
		b.buf = nil
		b.c.reserve(-readBytes)
	}
	return err
}

// Read reads from the socket without waiting.
func (b *borrowing) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(b.fd), p)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
