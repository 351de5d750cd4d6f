package cluster

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A Mux is a port that several groups share. A connection begins with
//
//	20 bytes  the cluster
//	 4 bytes  the group, little-endian
//	 8 bytes  the replica, little-endian
//
// and then belongs to a transport of hashicorp/raft. Connections for another cluster, or for a
// replica that the node had before, are closed.
type Mux struct {
	ln      net.Listener
	known   net.Addr
	dial    func(addr string, timeout time.Duration) (net.Conn, error)
	cluster atomic.Pointer[ClusterID]
	done    chan struct{}
	pending chan struct{} // an element for each connection that has not sent its header
	tasks   sync.WaitGroup

	mu     sync.Mutex
	groups map[uint32]*muxLayer
	closed bool
}

// ClusterID is a random number that identifies a cluster; all its nodes have the same.
type ClusterID [20]byte

const muxHeader = len(ClusterID{}) + 4 + 8

// muxHeaderTime is how long a new connection may take to send its header.
const muxHeaderTime = 10 * time.Second

// muxPending bounds the connections that have not sent their header yet. Others are closed.
const muxPending = 1024

// muxPool is how many idle connections a group keeps to each node.
const muxPool = 2

// ListenMux listens on an address. Other nodes know it by that address, or by advertise if that is
// not empty; it must not stand for all addresses, as 0.0.0.0 does. A host name in advertise is
// resolved at once, so nodes know IP addresses. If t is nil, connections are neither encrypted nor
// authenticated. A certificate that other nodes would reject, which must name the address, is an
// error.
func ListenMux(address, advertise string, t *TLS) (*Mux, error) {
	m := &Mux{done: make(chan struct{}), pending: make(chan struct{}, muxPending), groups: map[uint32]*muxLayer{}}
	m.SetCluster(ClusterID{})
	if t != nil && (t.Authority == nil || len(t.Certificate.Certificate) == 0) {
		return nil, errors.New("cluster: a certificate and an authority are needed")
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	m.ln = ln
	known := ln.Addr().(*net.TCPAddr)
	if advertise != "" {
		if known, err = net.ResolveTCPAddr("tcp", advertise); err != nil {
			return nil, errors.Join(err, ln.Close())
		}
	}
	if known.IP == nil || known.IP.IsUnspecified() {
		return nil, errors.Join(fmt.Errorf("cluster: other nodes cannot reach %s: advertise another address", known), ln.Close())
	}
	m.known = known
	if t != nil {
		if err := t.check(m.known.String()); err != nil {
			return nil, errors.Join(fmt.Errorf("cluster: other nodes would reject the certificate of %s: %w", m.known, err), ln.Close())
		}
	}
	m.dial = func(addr string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout("tcp", addr, timeout)
	}
	if t != nil {
		server, client := t.configs()
		m.ln = tls.NewListener(ln, server)
		m.dial = func(addr string, timeout time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, "tcp", addr, client)
		}
	}
	m.tasks.Go(m.accept)
	return m, nil
}

// Addr returns the address by which other nodes know the port.
func (m *Mux) Addr() raft.ServerAddress { return raft.ServerAddress(m.known.String()) }

// SetCluster sets the cluster that the node belongs to. Until then it is the zero ClusterID.
func (m *Mux) SetCluster(id ClusterID) { m.cluster.Store(&id) }

// Cluster returns the cluster that the node belongs to.
func (m *Mux) Cluster() ClusterID { return *m.cluster.Load() }

// ReplicaAddr returns the address of a node's replica of a group, as Transport's LocalAddr does.
// addr is the node's address, which is also that of replica 0.
func ReplicaAddr(addr raft.ServerAddress, replica uint64) raft.ServerAddress {
	if replica == 0 {
		return addr
	}
	return raft.ServerAddress(fmt.Sprintf("%s/%016x", addr, replica))
}

// CutReplica splits an address into the node's address and the replica's number.
func CutReplica(addr raft.ServerAddress) (node raft.ServerAddress, replica uint64, err error) {
	host, text, ok := strings.Cut(string(addr), "/")
	if ok {
		replica, err = strconv.ParseUint(text, 16, 64)
	}
	return raft.ServerAddress(host), replica, err
}

// Transport returns the transport of a group. There can be one at a time; close it to create
// another.
//
// A replica that starts without the state of the node's earlier replica of the group needs a new
// number, which is part of its address: see ReplicaAddr. It must not vote or acknowledge anything
// in place of the earlier one, which nodes that were down may still consider a member.
func (m *Mux) Transport(group uint32, replica uint64, logger hclog.Logger) (raft.Transport, error) {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	l := newMuxLayer(m, group, replica)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, net.ErrClosed
	case m.groups[group] != nil:
		return nil, errors.New("cluster: the group already has a transport")
	}
	m.groups[group] = l
	transport := func(s raft.StreamLayer) *raft.NetworkTransport {
		return raft.NewNetworkTransportWithLogger(s, muxPool, requestTimeout, logger)
	}
	return &muxTransport{NetworkTransport: transport(dialLayer{l}), in: transport(l)}, nil
}

// Close closes the port. The groups' transports can be closed before or afterwards.
func (m *Mux) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	close(m.done)
	m.mu.Unlock()
	err := m.ln.Close()
	m.tasks.Wait()
	return err
}

func (m *Mux) accept() {
	for {
		conn, err := m.ln.Accept()
		switch {
		case err == nil:
			select {
			case m.pending <- struct{}{}:
				m.tasks.Go(func() { m.route(conn) })
			default:
				conn.Close()
			}
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		select { // out of file descriptors, most likely
		case <-time.After(50 * time.Millisecond):
		case <-m.done:
			return
		}
	}
}

// route hands a connection, which is pending, to its group.
func (m *Mux) route(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(muxHeaderTime)) // before Close can set another
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-m.done:
			conn.SetReadDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	var head [muxHeader]byte
	_, err := io.ReadFull(conn, head[:])
	<-m.pending // not later: a group that accepts no connections must not stop the others
	if err != nil {
		conn.Close()
		return
	}
	cluster, rest := ClusterID(head[:len(ClusterID{})]), head[len(ClusterID{}):]
	m.mu.Lock()
	l := m.groups[binary.LittleEndian.Uint32(rest)]
	m.mu.Unlock()
	if l == nil || cluster != m.Cluster() || l.replica != binary.LittleEndian.Uint64(rest[4:]) {
		conn.Close()
		return
	}
	conn.SetReadDeadline(time.Time{})
	select {
	case l.conns <- conn:
	case <-l.ctx.Done():
		conn.Close()
	case <-m.done:
		conn.Close()
	}
}

// muxTransport is a group's transport: one for requests to other nodes, and one for requests from
// them. So CloseStreams, which closes the idle connections to other nodes, does not affect
// those from them.
type muxTransport struct {
	*raft.NetworkTransport
	in *raft.NetworkTransport
}

func (t *muxTransport) Consumer() <-chan raft.RPC { return t.in.Consumer() }

func (t *muxTransport) SetHeartbeatHandler(f func(raft.RPC)) { t.in.SetHeartbeatHandler(f) }

// Close implements raft.WithClose.
func (t *muxTransport) Close() error {
	err := errors.Join(t.in.Close(), t.NetworkTransport.Close())
	t.CloseStreams()
	return err
}

// muxLayer is a group's raft.StreamLayer.
type muxLayer struct {
	mux     *Mux
	group   uint32
	replica uint64
	conns   chan net.Conn
	ctx     context.Context // ends when the layer is closed
	cancel  func()
}

func newMuxLayer(m *Mux, group uint32, replica uint64) *muxLayer {
	l := &muxLayer{mux: m, group: group, replica: replica, conns: make(chan net.Conn)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Accept implements net.Listener. Close also closes the connection: a transport would wait for its
// next request forever.
func (l *muxLayer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		stop := context.AfterFunc(l.ctx, func() { conn.Close() })
		return muxConn{conn, stop}, nil
	case <-l.ctx.Done():
	case <-l.mux.done:
	}
	return nil, net.ErrClosed
}

// muxConn is a connection that a muxLayer has accepted.
type muxConn struct {
	net.Conn
	stop func() bool
}

func (c muxConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

func (l *muxLayer) Close() error {
	l.cancel()
	l.mux.mu.Lock()
	defer l.mux.mu.Unlock()
	if l.mux.groups[l.group] == l { // not one that was created since
		delete(l.mux.groups, l.group)
	}
	return nil
}

// dialLayer is a muxLayer that accepts no connections.
type dialLayer struct{ *muxLayer }

func (l dialLayer) Accept() (net.Conn, error) {
	select {
	case <-l.ctx.Done():
	case <-l.mux.done:
	}
	return nil, net.ErrClosed
}

func (l *muxLayer) Addr() net.Addr { return muxAddr(ReplicaAddr(l.mux.Addr(), l.replica)) }

// muxAddr is a net.Addr.
type muxAddr string

func (muxAddr) Network() string  { return "tcp" }
func (a muxAddr) String() string { return string(a) }

func (l *muxLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	node, replica, err := CutReplica(address)
	if err != nil {
		return nil, err
	}
	conn, err := l.mux.dial(string(node), timeout)
	if err != nil {
		return nil, err
	}
	conn.SetWriteDeadline(time.Now().Add(timeout))
	cluster := l.mux.Cluster()
	head := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(cluster[:], l.group), replica)
	if _, err := conn.Write(head); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	conn.SetWriteDeadline(time.Time{})
	return conn, nil
}
