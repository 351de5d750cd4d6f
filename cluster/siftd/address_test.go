package siftd

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/siftdb/sift/cluster"
)

// TestAnotherAddress: a node that restarts with other addresses, and without Config.Join, is
// found again by the directory group and by its own groups.
func TestAnotherAddress(t *testing.T) {
	redis.SetLogger(silent{})
	first := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{4, 3}})
	second := startAt(t, Config{Dir: t.TempDir(), Join: []string{first.Addr()}})
	dir := t.TempDir()
	third, err := Start(Config{Dir: dir, Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Password: "secret", Join: []string{first.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	// missing returns what keeps a node from being up to date in all groups, nil if nothing does.
	missing := func(id string) (what error) {
		for shard := range 4 {
			what = fmt.Errorf("group %d has no leader", shard)
			for _, n := range []*Node{first, second, third} {
				if r := n.replica(shard); r == nil || !r.leads() {
					continue
				}
				what = fmt.Errorf("the node is not in group %d", shard)
				for _, m := range n.stateOf(n.replica(shard).node).Members {
					if m.ID == id {
						if what = nil; !m.Voter || m.Lag != 0 || replicaAt(third, shard) != m.RaftAddr {
							what = fmt.Errorf("in group %d, %+v", shard, m)
						}
					}
				}
			}
			if what != nil {
				return what
			}
		}
		return nil
	}
	was := third.mux.Addr()
	waitUntil(t, "the node is in all groups", func() bool { return votes(first, third.ID()) && len(third.replicaList()) == 4 })
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	third = startAt(t, Config{Dir: dir})
	if third.mux.Addr() == was {
		t.Skip("the node has got the same address")
	}
	waitUntil(t, "another node knows the new address", func() bool { return addressOf(first, third.ID()) == third.directoryAddr() })
	var what error
	defer func() {
		if t.Failed() {
			t.Log(what)
		}
	}()
	waitUntil(t, "the node is up to date in all groups", func() bool { what = missing(third.ID()); return what == nil })
}

// replicaAt returns the address of a node's replica of a group.
func replicaAt(n *Node, shard int) string {
	r := n.replica(shard)
	if r == nil {
		return "nowhere"
	}
	return string(cluster.ReplicaAddr(n.mux.Addr(), r.id))
}
