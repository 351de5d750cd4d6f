//go:build unix

package serve

import (
	"crypto/tls"
	"net"
	"syscall"
)

// hungUp reports whether the other end of a connection has closed it and everything that it sent has
// been read. Of TLS it sees less: what ends a connection there has yet to be read.
func hungUp(conn net.Conn) (gone bool) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		gone = n == 0 && err == nil || err == syscall.ECONNRESET
	})
	return gone || err != nil // closed here, as by CLIENT KILL
}
