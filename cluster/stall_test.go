package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// stopped returns the first part of a snapshot; the rest never arrives.
func stopped() io.Reader {
	begun := false
	return readerFunc(func(p []byte) (int, error) {
		if begun {
			select {}
		}
		begun = true
		return len(p), nil
	})
}

// stalledNode returns a node to which a leader has sent only part of a snapshot.
func stalledNode(t *testing.T, stall time.Duration) (n *Node, leader *raft.NetworkTransport) {
	t.Helper()
	leader, err := raft.NewTCPTransport("127.0.0.1:0", nil, 3, time.Minute, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leader.Close() })
	trans, err := ListenTCP("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	servers := []raft.Server{{ID: "a", Address: trans.LocalAddr()}, {ID: "b", Address: leader.LocalAddr()}}
	n, err = Open(Options{ID: "a", Dir: t.TempDir(), Apply: appendApply, Transport: trans, Bootstrap: servers, test: testHooks{stall: stall}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	req := &raft.InstallSnapshotRequest{
		RPCHeader: header(leader), SnapshotVersion: raft.SnapshotVersionMax, Term: 5, LastLogIndex: 100, LastLogTerm: 5,
		Configuration: raft.EncodeConfiguration(raft.Configuration{Servers: servers}), ConfigurationIndex: 1, Size: 1 << 30,
	}
	go leader.InstallSnapshot("a", trans.LocalAddr(), req, new(raft.InstallSnapshotResponse), stopped())
	for end := time.Now().Add(time.Minute); n.raft.CurrentTerm() < 5; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the node does not receive the snapshot")
		}
	}
	return n, leader
}

func header(leader *raft.NetworkTransport) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("b"), Addr: []byte(leader.LocalAddr())}
}

// TestStalledSnapshot: a node whose incoming snapshot stalls votes for another leader.
func TestStalledSnapshot(t *testing.T) {
	n, leader := stalledNode(t, 100*time.Millisecond)
	endsSoon(t, func() error {
		var vote raft.RequestVoteResponse
		err := leader.RequestVote("a", n.trans.LocalAddr(), &raft.RequestVoteRequest{
			RPCHeader: header(leader), Term: 6, LastLogIndex: 100, LastLogTerm: 5, LeadershipTransfer: true,
		}, &vote)
		if err == nil && !vote.Granted {
			t.Error("the node does not vote")
		}
		return err
	})
}

// TestCloseWhileStalled: a node that is receiving a snapshot stops at once.
func TestCloseWhileStalled(t *testing.T) {
	n, _ := stalledNode(t, time.Hour)
	endsSoon(t, func() error { return n.Close() })
}

// TestCloseWhileSending: a node that is sending a snapshot stops at once.
func TestCloseWhileSending(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts, but never reads
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	inner, err := ListenTCP("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	trans := newTransport(inner)
	reads := make(chan struct{}, 1)
	data := readerFunc(func(p []byte) (int, error) {
		select {
		case reads <- struct{}{}:
		default:
		}
		return len(p), nil
	})
	done := make(chan error, 1)
	go func() {
		done <- trans.InstallSnapshot("n", raft.ServerAddress(ln.Addr().String()), &raft.InstallSnapshotRequest{Size: 1 << 40}, new(raft.InstallSnapshotResponse), data)
	}()
	<-reads
	endsSoon(t, func() error {
		trans.stop()
		if <-done == nil {
			t.Error("sending a snapshot that was never read succeeds")
		}
		return trans.Close()
	})
}

func endsSoon(t *testing.T, fn func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the call does not return")
	}
}

// TestHungDisk: a leader whose log does not finish a write is replaced.
func TestHungDisk(t *testing.T) {
	g := newGroup(t, 3)
	g.test.hang = 300 * time.Millisecond
	g.startAll(t)
	g.propose(t, "k v")
	lead := g.leader(t)
	n := g.node(lead)
	n.log.mu.Lock()
	answers := sync.OnceFunc(n.log.mu.Unlock)
	defer answers()
	go n.Propose(context.Background(), []byte("k w"))
	eventually(t, func() error {
		for i := range 3 {
			if i != lead && g.node(i).raft.State() == raft.Leader {
				return nil
			}
		}
		return errors.New("no other node leads")
	})
	answers()
	g.propose(t, "l v")
	g.waitApplied(t)
}
