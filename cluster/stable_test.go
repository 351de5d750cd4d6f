package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestTermNotWritten: a node that cannot write a term or for whom it votes stops; the others go on.
func TestTermNotWritten(t *testing.T) {
	g := newGroup(t, 3)
	g.startAll(t)
	g.propose(t, "k v")
	lead := g.leader(t)
	fails := (lead + 1) % 3
	n := g.node(fails)
	full := errors.New("no space")
	n.log.mu.Lock()
	n.log.unstable = full
	n.log.mu.Unlock()
	if err := g.node(lead).raft.LeadershipTransferToServer(g.servers[(lead+2)%3].ID, g.servers[(lead+2)%3].Address).Error(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-n.fsm.Failed():
	case <-time.After(30 * time.Second):
		t.Fatal("it does not stop")
	}
	if err := n.fsm.Err(); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
	endsSoon(t, func() error { return g.stop(fails) })
	if _, err := n.Propose(t.Context(), []byte("k x")); !errors.Is(err, raft.ErrRaftShutdown) {
		t.Errorf("a command: %v", err)
	}
	if err := g.start(fails); err != nil {
		t.Fatal(err)
	}
	g.propose(t, "k w")
	if got := g.settle(t); got["k"] != "v,w," {
		t.Errorf("k is %q", got["k"])
	}
}
