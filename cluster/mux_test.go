package cluster

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/raft"
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

// TestMuxBeyondPending checks that connections which a group does not accept yet do not count against
// those that have not sent their header.
func TestMuxBeyondPending(t *testing.T) {
	m, err := ListenMux("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	l := &muxLayer{mux: m, group: 7, replica: 1, conns: make(chan net.Conn), done: make(chan struct{})}
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
