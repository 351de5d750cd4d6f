package siftd

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/siftdb/sift/cluster"
)

// TestJoinBySnapshot: a node that joins a group whose log has been truncated receives a
// snapshot, and then holds what the leader holds.
func TestJoinBySnapshot(t *testing.T) {
	redis.SetLogger(silent{})
	often := Raft()
	often.SnapshotInterval, often.SnapshotThreshold, often.TrailingLogs = 50*time.Millisecond, 20, 5
	first := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 3}, Raft: often, segmentBytes: 4 << 10})
	waitUntil(t, "the node leads", first.leadsDirectory)
	c := clientOf(t, first)
	n := 0
	write := func() {
		t.Helper()
		if err := c.Set(t.Context(), fmt.Sprintf("key:%d", n), n, 0).Err(); err != nil {
			t.Fatal(err)
		}
		n++
	}
	leader := first.replica(0).node
	waitUntil(t, "there is a snapshot", func() bool {
		write()
		return n >= 200 && leader.Raft().Stats()["last_snapshot_index"] != "0"
	})
	joins := startAt(t, Config{Dir: t.TempDir(), Join: []string{first.Addr()}})
	waitUntil(t, "the node has the log", func() bool {
		write()
		r := joins.replica(0)
		return r != nil && r.node.Raft().AppliedIndex() > 200
	})
	follower := joins.replica(0).node
	if follower.Raft().Stats()["last_snapshot_index"] == "0" {
		t.Error("the node received no snapshot")
	}
	waitUntil(t, "the node has applied everything", func() bool { return follower.Raft().AppliedIndex() == leader.Raft().AppliedIndex() })
	has, want := contents(t, follower), contents(t, leader)
	for key, value := range want {
		if got, ok := has[key]; got != value {
			t.Errorf("%q is %q on the node that joined (%v), want %q", key, got, ok, value)
		}
	}
	if len(want) < n || len(has) > len(want) {
		t.Errorf("%d entries, and %d on the node that joined, want %d at least", len(want), len(has), n)
	}
}

// contents returns the keys and values that a replica holds.
func contents(t *testing.T, n *cluster.Node) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := n.ReadStale(func(v *cluster.View) error {
		for e, err := range v.Scan(nil) {
			if err != nil {
				return err
			}
			all[string(e.Key)] = string(e.Value)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
