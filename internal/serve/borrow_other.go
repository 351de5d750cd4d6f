//go:build !unix

package serve

import "net"

// borrowing exists on Unix only; elsewhere borrow returns nil.
type borrowing struct{}

func (*client) borrow(net.Conn) *borrowing { return nil }

func (*borrowing) fill() error { panic("serve: no borrowing here") }

func (*borrowing) giveBack() error { return nil }

func (*borrowing) Read([]byte) (int, error) { panic("serve: no borrowing here") }
