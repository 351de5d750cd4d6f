//go:build !unix

package serve

import "net"

// borrowing is for systems that report when a socket can be read.
type borrowing struct{}

func (*client) borrow(net.Conn) *borrowing { return nil }

func (*borrowing) fill() error { panic("serve: no borrowing here") }

func (*borrowing) giveBack() error { return nil }

func (*borrowing) Read([]byte) (int, error) { panic("serve: no borrowing here") }
