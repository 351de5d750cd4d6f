//go:build !unix

package serve

import "net"

// hungUp returns false: on this system it cannot detect that the peer has closed a connection.
func hungUp(net.Conn) bool { return false }
