//go:build unix

package serve

import (
	"crypto/tls"
	"net"
	"syscall"
)

// hungUp reports whether the peer has closed a connection and all its input has been read. With TLS
// it may miss that, because the peer's close_notify counts as input.
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
