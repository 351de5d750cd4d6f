//go:build !unix

package serve

import "net"

// hungUp cannot tell on this system.
func hungUp(net.Conn) bool { return false }
