package siftd

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/redis/go-redis/v9"

	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/internal/serve"
)

// TestStaleChanges: changes that were planned before the members of a group changed are rejected,
// even after a restart.
func TestStaleChanges(t *testing.T) {
	redis.SetLogger(silent{})
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 3}})
	waitUntil(t, "the node leads", func() bool { h := n.hosted()[0]; return h.Leads && h.MembersCommitted })
	before := n.hosted()[0].Index
	if before == 0 {
		t.Fatal("the index of the first members is not known")
	}
	dir := t.TempDir()
	other, err := Start(Config{Dir: dir, Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Password: "secret", Join: []string{n.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}
	defer func() { stop() }()
	hasVote := func() bool {
		r := other.replica(0)
		if r == nil {
			return false
		}
		members, index := r.node.FSM().Members()
		return index > before && len(members) == 2 && members[1].Suffrage == raft.Voter
	}
	waitUntil(t, "the node has a vote", hasVote)
	if err := other.drop(other.replica(0), before); err == nil {
		t.Fatal("the replica of a member is removed")
	}
	waitUntil(t, "the node still leads", func() bool { h := n.hosted()[0]; return h.Leads && h.MembersCommitted })
	for _, how := range []string{"REMOVE", "VOTE"} {
		if err := n.replica(0).change(how, other.ID(), "-", before); err == nil || errors.Is(err, serve.ErrNotWritten) {
			t.Errorf("%s: %v", how, err)
		}
	}
	if members := servers(n.replica(0).node); len(members) != 2 {
		t.Errorf("the members are %v", members)
	}
	if err := other.replica(0).node.Raft().Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	addr, between := other.Addr(), string(other.mux.Addr())
	stop()
	if other, err = Start(Config{Dir: dir, Addr: addr, RaftAddr: between, Password: "secret"}); err != nil {
		stop = func() {}
		t.Fatal(err)
	}
	waitUntil(t, "the node has a vote again", hasVote)
	former := replicaOf(string(cluster.ReplicaAddr("", other.replica(0).id+1)))
	if reply, err := other.Manage([]string{other.ID(), "DROP", "0", former, "1000000"}); err == nil || other.replica(0) == nil {
		t.Errorf("DROP of an earlier replica returns %q, %v", reply, err)
	}
}
