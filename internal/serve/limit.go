package serve

import (
	"net"
	"sync"
)

// maxHTTPClients bounds the connections of the status page.
const maxHTTPClients = 64

// limitedListener accepts no more connections than it has room for at a time.
type limitedListener struct {
	net.Listener
	room chan struct{}
}

// Accept waits for a connection. If there is no room for it, it is closed, so that silent
// connections delay others no longer than their own time limit.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
			return &limitedConn{Conn: conn, leave: sync.OnceFunc(func() { <-l.room })}, nil
		default:
			conn.Close()
		}
	}
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection and makes room for another.
func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
