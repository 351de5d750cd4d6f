package siftd

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/redis/go-redis/v9"
)

// TestLeaderLost: a member of a group that has lost its leader waits for another one. It does not
// return the last leader that the directory knows, which may be dead. That holds for a member
// without a vote, too.
func TestLeaderLost(t *testing.T) {
	for name, demoted := range map[string]bool{"with a vote": false, "without": true} {
		t.Run(name, func(t *testing.T) { testLeaderLost(t, demoted) })
	}
}

func testLeaderLost(t *testing.T, demoted bool) {
	redis.SetLogger(silent{})
	nodes := []*Node{startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 3}})}
	for range 2 {
		nodes = append(nodes, startAt(t, Config{Dir: t.TempDir(), Join: []string{nodes[0].Addr()}}))
	}
	waitUntil(t, "all nodes are voters, and one of them leads", func() bool {
		for _, n := range nodes {
			p, err := n.place(0)
			if err != nil || len(p.Members) != 3 || p.Leader == "" || n.replica(0) == nil {
				return false
			}
		}
		return true
	})
	follower := slices.IndexFunc(nodes, func(n *Node) bool { return !n.replica(0).leads() })
	last := nodes[follower]
	if demoted {
		leader := slices.IndexFunc(nodes, func(n *Node) bool { return n.replica(0).leads() })
		if err := nodes[leader].replica(0).node.Raft().DemoteVoter(raft.ServerID(last.ID()), 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the directory knows", func() bool {
			p, err := last.place(0)
			return err == nil && len(p.Members) == 2
		})
	}
	for _, n := range slices.Delete(nodes, follower, follower+1) {
		if err := n.node.Raft().Shutdown().Error(); err != nil { // nobody promotes it
			t.Fatal(err)
		}
		if err := n.replica(0).node.Raft().Shutdown().Error(); err != nil {
			t.Fatal(err)
		}
	}
	in := last.replica(0).node
	waitUntil(t, "the last member has lost its leader", func() bool {
		_, id := in.Leader()
		return id == "" && in.Raft().State() != raft.Leader && time.Since(in.Raft().LastContact()) > 1200*time.Millisecond
	})
	if p, err := last.place(0); err != nil || p.Leader == "" || p.Leader == last.ID() {
		t.Fatalf("the directory has the leader %q, %v, want one of the other nodes", p.Leader, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if addr, self := last.Leader(ctx, 0); addr != "" || self {
		t.Errorf("the leader is %q, this node: %v", addr, self)
	}
}
