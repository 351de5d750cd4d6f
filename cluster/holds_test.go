package cluster

import (
	"io"
	"testing"

	"github.com/hashicorp/raft"
)

// TestHoldsOfAnother: what one replica holds does not count for another replica of the same node.
func TestHoldsOfAnother(t *testing.T) {
	g := newGroup(t, 3)
	g.config = calm
	g.startAll(t)
	g.propose(t, "k v")
	g.waitApplied(t)
	leader := g.leader(t)
	n, other := g.node(leader), g.servers[(leader+1)%3]
	if _, ok := n.Holds(other.ID); !ok {
		t.Fatal("Holds knows nothing about a node that holds everything")
	}
	if err := n.raft.AddVoter(other.ID, "nowhere", 0, 0).Error(); err != nil {
		t.Fatal(err)
	}
	if index, ok := n.Holds(other.ID); ok {
		t.Errorf("a replica that was never reached has entry %d", index)
	}
	if err := n.raft.AddVoter(other.ID, other.Address, 0, 0).Error(); err != nil {
		t.Fatal(err)
	}
	g.waitApplied(t)
}

// slowTransport finishes sending a snapshot when the test passes the result.
type slowTransport struct {
	raft.Transport
	begun chan struct{}
	ends  map[*raft.InstallSnapshotRequest]chan error
}

func (s *slowTransport) InstallSnapshot(_ raft.ServerID, _ raft.ServerAddress, args *raft.InstallSnapshotRequest, _ *raft.InstallSnapshotResponse, _ io.Reader) error {
	s.begun <- struct{}{}
	return <-s.ends[args]
}

// TestNeededTwoTransfers: the log is kept for each of two snapshots that are being sent to a node.
func TestNeededTwoTransfers(t *testing.T) {
	first, second := &raft.InstallSnapshotRequest{LastLogIndex: 5}, &raft.InstallSnapshotRequest{LastLogIndex: 9}
	slow := &slowTransport{begun: make(chan struct{}), ends: map[*raft.InstallSnapshotRequest]chan error{first: make(chan error), second: make(chan error)}}
	trans := newTransport(slow)
	done := make(chan struct{})
	for _, args := range []*raft.InstallSnapshotRequest{first, second} {
		go func() {
			trans.InstallSnapshot("n", "n", args, &raft.InstallSnapshotResponse{}, nil)
			done <- struct{}{}
		}()
		<-slow.begun
	}
	need := func(want uint64) {
		t.Helper()
		if index, _ := trans.needed(100); index != want {
			t.Errorf("the log is needed from %d, want %d", index, want)
		}
	}
	need(5)
	slow.ends[second] <- errLost
	<-done
	need(5)
	slow.ends[first] <- errLost
	<-done
	need(100)
}
