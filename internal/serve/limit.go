package serve

import (
	"net"
	"sync"
)

// maxHTTPClients bounds the connections of the status page.
const maxHTTPClients = 64

// limitedListener bounds the number of connections that are open at a time.
type limitedListener struct {
	net.Listener
	room chan struct{}
}

// Accept waits for a connection, and closes those beyond the bound. So idle connections keep others
// out only until they reach their time limit.
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

// Close closes the connection, so that another one may be accepted.
func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
