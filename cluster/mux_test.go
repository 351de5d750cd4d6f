package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift/cluster/internal/testca"
)

// TestMux: on a shared port, each group reaches only the group of the same number.
func TestMux(t *testing.T) {
	ports := make([]*Mux, 2)
	for i := range ports {
		m, err := ListenMux("127.0.0.1:0", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		ports[i] = m
	}
	var from [2]raft.Transport
	for group := range from {
		var err error
		if from[group], err = ports[0].Transport(uint32(group), uint64(group), nil); err != nil {
			t.Fatal(err)
		}
		to, err := ports[1].Transport(uint32(group), uint64(group), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ports[1].Transport(uint32(group), uint64(group), nil); err == nil {
			t.Error("a group has two transports")
		}
		go func() {
			for rpc := range to.Consumer() {
				rpc.Respond(&raft.RequestVoteResponse{Term: uint64(group) + 10, Granted: true}, nil)
			}
		}()
	}
	for group, trans := range from {
		var resp raft.RequestVoteResponse
		to := ReplicaAddr(ports[1].Addr(), uint64(group))
		if err := trans.RequestVote("b", to, &raft.RequestVoteRequest{Term: 1}, &resp); err != nil || resp.Term != uint64(group)+10 {
			t.Errorf("group %d: term %d, %v", group, resp.Term, err)
		}
		if err := trans.RequestVote("b", ReplicaAddr(ports[1].Addr(), 7), &raft.RequestVoteRequest{Term: 1}, &resp); err == nil {
			t.Errorf("group %d: a replica with another number answers", group)
		}
	}
	other, err := ListenMux("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetCluster(ClusterID{1})
	stranger, err := other.Transport(0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{false, true} {
		var resp raft.RequestVoteResponse
		if err := stranger.RequestVote("b", ports[1].Addr(), &raft.RequestVoteRequest{Term: 1}, &resp); (err == nil) != want {
			t.Errorf("from the same cluster %v: %v", want, err)
		}
		other.SetCluster(ClusterID{})
	}
	conn, err := net.Dial("tcp", string(ports[1].Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(make([]byte, len(ClusterID{})), 7), 0)); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a group that does not exist: %v", err)
	}
	silent, err := net.Dial("tcp", string(ports[1].Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := ports[1].Close(); err != nil { // must not wait for connections that send nothing
		t.Error(err)
	}
}

// TestMuxBoundsSilentConnections checks that only so many connections may wait without a header.
func TestMuxBoundsSilentConnections(t *testing.T) {
	m, err := ListenMux("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	closed := make(chan struct{}, 1)
	for range muxPending + 76 {
		conn, err := net.Dial("tcp", string(m.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			conn.SetReadDeadline(time.Now().Add(3 * time.Second)) // below muxHeaderTime
			if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				select {
				case closed <- struct{}{}:
				default:
				}
			}
		}()
	}
	select {
	case <-closed:
	case <-time.After(4 * time.Second):
		t.Error("silent connections are kept without a limit")
	}
}

// TestMuxBeyondPending checks that connections which a group does not accept yet do not count
// against those that have not sent their header.
func TestMuxBeyondPending(t *testing.T) {
	m, err := ListenMux("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	l := newMuxLayer(m, 7, 1)
	m.mu.Lock()
	m.groups[7] = l
	m.mu.Unlock()
	conns := 0
	for range muxPending + 76 {
		conn, err := l.Dial(raft.ServerAddress(l.Addr().String()), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns++
	}
	for range conns {
		select {
		case conn := <-l.conns:
			defer conn.Close()
		case <-time.After(20 * time.Second):
			t.Fatal("a connection does not reach its group")
		}
	}
}

// TestMuxCloses checks that a transport that is closed closes the connections that it has accepted
// and those to other nodes.
func TestMuxCloses(t *testing.T) {
	var ports [2]*Mux
	var open [2]*openConns
	var trans [2]raft.Transport
	for i := range ports {
		ports[i], open[i] = countingMux(t)
		var err error
		if trans[i], err = ports[i].Transport(7, uint64(i), nil); err != nil {
			t.Fatal(err)
		}
		go func() {
			for rpc := range trans[i].Consumer() {
				rpc.Respond(&raft.RequestVoteResponse{}, nil)
			}
		}()
	}
	req, resp := raft.RequestVoteRequest{Term: 1}, raft.RequestVoteResponse{}
	if err := trans[0].RequestVote("b", trans[1].LocalAddr(), &req, &resp); err != nil {
		t.Fatal(err)
	}
	if n := open[0].Load(); n != 1 {
		t.Fatalf("%d connections are open after a request", n)
	}
	accepted, err := newMuxLayer(ports[1], 7, 0).Dial(trans[0].LocalAddr(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	time.Sleep(100 * time.Millisecond) // until it has been accepted, most likely
	if err := trans[0].(io.Closer).Close(); err != nil {
		t.Error(err)
	}
	if n := open[0].Load(); n != 0 {
		t.Errorf("%d connections to another node are open after Close", n)
	}
	accepted.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err = accepted.Read(make([]byte, 1))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection from another node after Close: %v", err)
	}
}

// openConns counts the connections to other nodes that are open.
type openConns struct{ atomic.Int64 }

type countedConn struct {
	net.Conn
	close func()
}

func (c *countedConn) Close() error {
	c.close()
	return c.Conn.Close()
}

func countingMux(t *testing.T) (*Mux, *openConns) {
	t.Helper()
	m, err := ListenMux("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	open, dial := new(openConns), m.dial
	m.dial = func(addr string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(addr, timeout)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &countedConn{conn, sync.OnceFunc(func() { open.Add(-1) })}, nil
	}
	return m, open
}

// TestRemovedDisconnected: no connections to a removed replica remain, and those to the others can
// be used.
func TestRemovedDisconnected(t *testing.T) {
	var nodes [2]*Node
	var open [2]*openConns
	var members []raft.Server
	for i := range nodes {
		var m *Mux
		m, open[i] = countingMux(t)
		trans, err := m.Transport(7, uint64(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("n%d", i)
		members = append(members, raft.Server{ID: raft.ServerID(id), Address: trans.LocalAddr()})
		o := Options{
			ID: id, Dir: t.TempDir(), Apply: appendApply, Transport: trans,
			DB: small(), Raft: noSnapshots(i),
		}
		if i == 0 {
			o.Bootstrap = members
		}
		if nodes[i], err = Open(o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nodes[i].Close() })
	}
	leader := nodes[0]
	do := func(start func(r *raft.Raft) raft.Future) {
		t.Helper()
		eventually(t, func() error { return leader.Do(t.Context(), start) })
	}
	do(func(r *raft.Raft) raft.Future { return r.AddVoter("n1", members[1].Address, 0, 0) })
	do(func(r *raft.Raft) raft.Future { return r.Barrier(0) })
	if open[0].Load() == 0 {
		t.Fatal("there is no connection to the other node")
	}
	do(func(r *raft.Raft) raft.Future { return r.RemoveServer("n1", 0, 0) })
	eventually(t, func() error {
		if n := open[0].Load(); n != 0 {
			return fmt.Errorf("%d connections to a removed replica are open", n)
		}
		return nil
	})
	do(func(r *raft.Raft) raft.Future { return r.AddVoter("n1", members[1].Address, 0, 0) })
	do(func(r *raft.Raft) raft.Future { return r.Barrier(0) })
}

// TestMuxCertificate: a node does not start with a certificate that the others would reject.
func TestMuxCertificate(t *testing.T) {
	ca, other := testca.New(t), testca.New(t)
	for name, c := range map[string]struct {
		t  *TLS
		ok bool
	}{
		"right":            {&TLS{ca.Sign(t, "127.0.0.1"), ca.Pool}, true},
		"for another node": {&TLS{ca.Sign(t, "127.0.0.2"), ca.Pool}, false},
		"of somebody else": {&TLS{other.Sign(t, "127.0.0.1"), ca.Pool}, false},
	} {
		m, err := ListenMux("127.0.0.1:0", "", c.t)
		if (err == nil) != c.ok {
			t.Errorf("a certificate %s: %v", name, err)
		}
		if err == nil {
			m.Close()
		}
	}
}

// TestMovedDisconnected: no connections to the former address of a member remain, also on a node
// that does not lead.
func TestMovedDisconnected(t *testing.T) {
	old, err := ListenMux("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	moves, err := old.Transport(7, 9, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for rpc := range moves.Consumer() {
			rpc.Respond(&raft.RequestVoteResponse{}, nil)
		}
	}()
	var nodes [2]*Node
	var open [2]*openConns
	var members []raft.Server
	for i := range nodes {
		var m *Mux
		m, open[i] = countingMux(t)
		trans, err := m.Transport(7, uint64(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("n%d", i)
		members = append(members, raft.Server{ID: raft.ServerID(id), Address: trans.LocalAddr()})
		o := Options{ID: id, Dir: t.TempDir(), Apply: appendApply, Transport: trans, DB: small(), Raft: noSnapshots(i)}
		if i == 0 {
			o.Bootstrap = members
		}
		if nodes[i], err = Open(o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nodes[i].Close() })
	}
	nonvoter := func(id raft.ServerID, addr raft.ServerAddress) {
		t.Helper()
		eventually(t, func() error {
			return nodes[0].Do(t.Context(), func(r *raft.Raft) raft.Future { return r.AddNonvoter(id, addr, 0, 0) })
		})
	}
	nonvoter("n1", members[1].Address)
	nonvoter("x", moves.LocalAddr())
	eventually(t, func() error {
		if now, _ := nodes[1].fsm.Members(); len(now) != 3 {
			return fmt.Errorf("the members are %v", now)
		}
		return nil
	})
	// As after an election in which this node was a candidate.
	if err := nodes[1].trans.RequestVote("x", moves.LocalAddr(), &raft.RequestVoteRequest{Term: 1}, new(raft.RequestVoteResponse)); err != nil {
		t.Fatal(err)
	}
	if n := open[1].Load(); n != 1 {
		t.Fatalf("%d connections are open after a request", n)
	}
	nonvoter("x", ReplicaAddr(old.Addr(), 10))
	eventually(t, func() error {
		if n := open[1].Load(); n != 0 {
			return fmt.Errorf("%d connections to a former address are open", n)
		}
		return nil
	})
}

// TestMuxUnreachable: an address that stands for all addresses is not one by which others know the
// port.
func TestMuxUnreachable(t *testing.T) {
	for _, c := range []struct {
		address, advertise string
		ok                 bool
	}{
		{"0.0.0.0:0", "", false},
		{":0", "", false},
		{"127.0.0.1:0", ":7000", false},
		{"127.0.0.1:0", "[::]:7000", false},
		{"0.0.0.0:0", "127.0.0.1:7000", true},
	} {
		m, err := ListenMux(c.address, c.advertise, nil)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			m.Close()
		}
	}
}
