package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestRemovalInterrupted: a group has a leader again if a leader dies when only itself and the node
// that it was removing have received the removal. The removed node's vote is still needed, and the
// others have shorter logs.
func TestRemovalInterrupted(t *testing.T) {
	g := newGroup(t, 4)
	g.config = noSnapshots
	g.startAll(t)
	g.propose(t, "k v")
	g.waitApplied(t)
	leader := g.leader(t)
	removed := (leader + 1) % 4
	for i := range 4 {
		if i != leader && i != removed {
			g.net.setCut(g.servers[leader].Address, g.servers[i].Address, true)
		}
	}
	in := g.node(leader).raft
	removal := in.LastIndex() + 1
	sent := g.net.watch(g.servers[removed].Address, removal)
	done := in.RemoveServer(g.servers[removed].ID, 0, 0)
	select {
	case <-sent:
	case <-time.After(time.Minute):
		t.Fatal("the removal does not reach the node")
	}
	if err := g.stop(leader); err != nil {
		t.Fatal(err)
	}
	if err := done.Error(); err == nil {
		t.Fatal("the removal was committed")
	}
	g.net.heal()
	if list := g.propose(t, "k w"); list != "v,w," {
		t.Errorf("k is %q", list)
	}
	if err := g.start(leader); err != nil {
		t.Fatal(err)
	}
	if got := g.waitApplied(t); got["k"] != "v,w," {
		t.Errorf("k is %q", got["k"])
	}
}

// TestDemotion: a node that loses its vote, but stays a member, receives what follows.
func TestDemotion(t *testing.T) {
	g := newGroup(t, 3)
	g.config = noSnapshots
	g.startAll(t)
	g.propose(t, "k v")
	leader := g.leader(t)
	demoted := (leader + 1) % 3
	if err := g.node(leader).raft.DemoteVoter(g.servers[demoted].ID, 0, 0).Error(); err != nil {
		t.Fatal(err)
	}
	g.propose(t, "k w")
	if got := g.waitApplied(t); got["k"] != "v,w," {
		t.Errorf("k is %q", got["k"])
	}
	for _, s := range servers(g.node(demoted)) {
		if s.ID == g.servers[demoted].ID && s.Suffrage == raft.Voter {
			t.Error("the node believes that it has a vote")
		}
	}
}

func servers(n *Node) []raft.Server {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

// watch returns a channel that is closed when a node has answered a request with an entry.
func (w *network) watch(to raft.ServerAddress, index uint64) <-chan struct{} {
	answered := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.appended = func(addr raft.ServerAddress, args *raft.AppendEntriesRequest) {
		if n := len(args.Entries); addr == to && n > 0 && args.Entries[0].Index <= index && index <= args.Entries[n-1].Index {
			w.appended = nil
			close(answered)
		}
	}
	return answered
}
