package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// patientLeader is noSnapshots, but the leader stays for three seconds when the machine is busy.
func patientLeader(i int) *raft.Config {
	c := noSnapshots(i)
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 3*time.Second, 3*time.Second, 3*time.Second
	return c
}

// TestRemovalInterrupted: a group has a leader again if a leader dies when only itself and the node
// that it was removing have received the removal. The removed node's vote is still needed, and the
// others have shorter logs.
func TestRemovalInterrupted(t *testing.T) {
	g := newGroup(t, 4)
	g.config = patientLeader
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
	sent := g.net.watch(g.servers[removed].Address, in.LastIndex()+1)
	done := make(chan error, 1)
	go func() { done <- in.RemoveServer(g.servers[removed].ID, 0, 0).Error() }()
	select {
	case <-sent:
	case err := <-done:
		t.Fatal("the removal has not reached the node, and ends: ", err)
	}
	if err := g.stop(leader); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
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
	g.config = patientLeader
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
	if n := g.node(demoted); n.votes(n.servers()) {
		t.Error("the node believes that it has a vote")
	}
}

// TestRemovedKnows: a node that is removed while it is running learns that once the removal is
// committed.
func TestRemovedKnows(t *testing.T) {
	g := newGroup(t, 3)
	g.config = patientLeader
	g.startAll(t)
	g.propose(t, "k v")
	g.waitApplied(t)
	leader := g.leader(t)
	removed := g.node((leader + 1) % 3)
	if err := g.node(leader).raft.RemoveServer(removed.id, 0, 0).Error(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if members, _ := removed.fsm.Members(); len(members) != 2 || removed.votes(members) {
			return fmt.Errorf("the removed node knows of the members %v", members)
		}
		return nil
	})
}

// TestJoinAfterRestart: a node that joins a group of one stores the first configuration, which it
// is not in, from a leader that has restarted and does not know what is committed. The leader can
// commit nothing without it.
func TestJoinAfterRestart(t *testing.T) {
	g := newGroup(t, 2)
	both := g.servers
	g.config, g.first = noSnapshots, both[:1]
	if err := g.start(0); err != nil {
		t.Fatal(err)
	}
	first := g.node(0)
	g.leader(t)
	added := first.raft.LastIndex() + 1
	first.raft.AddVoter(both[1].ID, both[1].Address, 0, 0) // it does not run yet
	eventually(t, func() error {
		if last := first.raft.LastIndex(); last < added {
			return fmt.Errorf("the log ends with %d, before the change", last)
		}
		return nil
	})
	if err := g.stop(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.stopAll(t) })
	for i := range both {
		if err := g.start(i); err != nil {
			t.Fatal(err)
		}
	}
	if list := g.propose(t, "k v"); list != "v," {
		t.Errorf("k is %q", list)
	}
	if got := g.waitApplied(t); got["k"] != "v," {
		t.Errorf("k is %q", got["k"])
	}
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
