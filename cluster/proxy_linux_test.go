package cluster

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxies stand between the processes of a group. They can hold back what one process sends to
// another, in each direction separately, whichever of them has made the connection.
type proxies struct {
	addrs []string // the address of node i's proxy, where others reach it
	pid   func(node int) int

	mu      sync.Mutex
	changed sync.Cond
	cut     map[[2]int]bool // from, to
	conns   map[net.Conn]bool
	closed  bool

	ownersMu sync.Mutex
	ownersAt time.Time   // when the last call of look began
	owners   map[int]int // nodes, by local port
}

// newProxies returns proxies in front of nodes that listen at to. pid returns 0 for a node that
// is not running.
func newProxies(t *testing.T, to []string, pid func(node int) int) *proxies {
	t.Helper()
	p := &proxies{pid: pid, cut: map[[2]int]bool{}, conns: map[net.Conn]bool{}}
	p.changed.L = &p.mu
	var tasks sync.WaitGroup
	var listeners []net.Listener
	for node, addr := range to {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p.addrs, listeners = append(p.addrs, l.Addr().String()), append(listeners, l)
		tasks.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				tasks.Go(func() { p.serve(conn, node, addr) })
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range listeners {
			l.Close()
		}
		p.mu.Lock()
		p.closed = true
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.changed.Broadcast()
		tasks.Wait()
	})
	return p
}

// serve forwards a connection from one node to another.
func (p *proxies) serve(conn net.Conn, to int, addr string) {
	defer conn.Close()
	from := p.source(conn.RemoteAddr().(*net.TCPAddr))
	if from < 0 || !p.passes(from, to) { // as if no one answered
		return
	}
	other, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return
	}
	defer other.Close()
	if !p.track(conn, other) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(other, conn, from, to) })
	both.Go(func() { p.pass(conn, other, to, from) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, conn)
	delete(p.conns, other)
	p.mu.Unlock()
}

func (p *proxies) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.closed
}

// pass copies in one direction. While that is cut, it holds back what arrives, and forwards it
// afterwards.
func (p *proxies) pass(dst, src net.Conn, from, to int) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.mu.Lock()
			for p.cut[[2]int{from, to}] && !p.closed {
				p.changed.Wait()
			}
			p.mu.Unlock()
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxies) passes(from, to int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.cut[[2]int{from, to}]
}

// set cuts these directions, and heals all others.
func (p *proxies) set(cut ...[2]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.cut)
	for _, c := range cut {
		p.cut[c] = true
	}
	p.changed.Broadcast()
}

// source returns the node whose process has made a connection, -1 if there is none. One call of
// look serves all connections that wait for it: after a pause there are thousands.
func (p *proxies) source(addr *net.TCPAddr) int {
	asked := time.Now()
	p.ownersMu.Lock()
	defer p.ownersMu.Unlock()
	if p.ownersAt.Before(asked) {
		p.ownersAt = time.Now()
		p.owners = p.look()
	}
	if node, ok := p.owners[addr.Port]; ok {
		return node
	}
	return -1
}

// look returns which node owns which local port.
func (p *proxies) look() map[int]int {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return nil
	}
	ports := map[string]int{} // by socket
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil && f[9] != "0" { // 0: no longer owned
			ports["socket:["+f[9]+"]"] = int(port)
		}
	}
	owners := map[int]int{}
	for node := range p.addrs {
		dir := fmt.Sprintf("/proc/%d/fd", p.pid(node))
		files, _ := os.ReadDir(dir) // a process that has ended has none
		for _, f := range files {
			if to, err := os.Readlink(dir + "/" + f.Name()); err == nil && ports[to] != 0 {
				owners[ports[to]] = node
			}
		}
	}
	return owners
}

// TestProxies: a cut direction forwards nothing until it is healed.
func TestProxies(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newProxies(t, []string{"127.0.0.1:1", l.Addr().String()}, func(node int) int {
		return []int{os.Getpid(), 0}[node]
	})
	a, err := net.Dial("tcp", p.addrs[1])
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	arrives := func(from, to net.Conn, want bool) {
		t.Helper()
		if _, err := from.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		wait := 20 * time.Millisecond
		if want {
			wait = time.Minute
		}
		to.SetReadDeadline(time.Now().Add(wait))
		if _, err := io.ReadFull(to, make([]byte, 1)); (err == nil) != want {
			t.Errorf("arrives: %v, want %v", err, want)
		}
	}
	arrives(a, b, true)
	p.set([2]int{0, 1})
	arrives(b, a, true)
	arrives(a, b, false)
	p.set([2]int{1, 0})
	b.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
		t.Error("data that was held back does not arrive")
	}
	arrives(a, b, true)
	arrives(b, a, false)
}
