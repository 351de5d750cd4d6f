package siftd

import (
	"net"
	"sync/atomic"
	"time"
)

// port is where clients connect, whichever server answers them. Between two servers
// they wait.
type port struct{ ln *net.TCPListener }

func openPort(addr string) (port, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return port{}, err
	}
	return port{ln.(*net.TCPListener)}, nil
}

// next returns the listener for the next server, when the one before accepts no more.
func (p port) next() (net.Listener, error) {
	return &turn{TCPListener: p.ln}, p.ln.SetDeadline(time.Time{})
}

// turn is a listener whose Close leaves the port open.
type turn struct {
	*net.TCPListener
	closed atomic.Bool
}

func (t *turn) Accept() (net.Conn, error) {
	conn, err := t.TCPListener.Accept()
	if err != nil && t.closed.Load() {
		err = net.ErrClosed
	}
	return conn, err
}

func (t *turn) Close() error {
	t.closed.Store(true)
	return t.SetDeadline(time.Unix(1, 0))
}
