package siftd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/redis/go-redis/v9"

	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/internal/serve"
)

// startAndStop starts a node, and stops it at once.
func startAndStop(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Addr, cfg.RaftAddr = "127.0.0.1:0", "127.0.0.1:0"
	n, err := Start(cfg)
	if err == nil {
		err = n.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// setOne waits until a cluster of four groups accepts writes to all of them.
func setOne(t *testing.T, n *Node) {
	t.Helper()
	c := clientOf(t, n)
	waitUntil(t, "the node serves", func() bool {
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			if c.Set(t.Context(), key, 1, 0).Err() != nil {
				return false
			}
		}
		return true
	})
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not yet: %s", what)
		}
	}
}

// TestFirstStartInterrupted: a node that was stopped at once, or killed before it was a member of
// the directory group, continues with the same cluster and groups.
func TestFirstStartInterrupted(t *testing.T) {
	redis.SetLogger(silent{})
	dir := t.TempDir()
	startAndStop(t, Config{Dir: dir, Init: true, Shape: Shape{4, 3}})
	all := filepath.Join(dir, "directory")
	kept := filepath.Join(t.TempDir(), "directory")
	if err := os.Rename(all, kept); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(all, "raft"), 0o755); err != nil { // what a kill may leave
		t.Fatal(err)
	}
	startAndStop(t, Config{Dir: dir})
	n := startAt(t, Config{Dir: dir})
	setOne(t, n)
	if n.groups() != 4 {
		t.Errorf("%d groups", n.groups())
	}
	firstEnds(t, dir)
}

// firstEnds waits until the first start of a node in dir is complete.
func firstEnds(t *testing.T, dir string) {
	t.Helper()
	waitUntil(t, "the first start is complete", func() bool {
		_, err := os.Stat(filepath.Join(dir, firstName))
		return os.IsNotExist(err)
	})
}

// TestJoinInterrupted: a node that was stopped before it was a voter becomes one later.
func TestJoinInterrupted(t *testing.T) {
	redis.SetLogger(silent{})
	first := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{4, 3}})
	dir := t.TempDir()
	startAndStop(t, Config{Dir: dir, Join: []string{"127.0.0.1:1"}}) // no node is there
	n := startAt(t, Config{Dir: dir, Join: []string{first.Addr()}})
	waitUntil(t, "the node has joined", func() bool { return votes(first, n.ID()) })
}

// votes reports whether a node has a vote in the directory group, according to n.
func votes(n *Node, id string) bool {
	for _, s := range servers(n.node) {
		if string(s.ID) == id && s.Suffrage == raft.Voter {
			return true
		}
	}
	return false
}

// TestForgetBeforeVote: a node that joined and was gone before it got a vote can be forgotten.
func TestForgetBeforeVote(t *testing.T) {
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{4, 3}})
	waitUntil(t, "the node leads", n.leadsDirectory)
	id := strings.Repeat("0", 40)
	if _, err := (directory{n}).Join(serve.GroupMember{ID: id, Addr: "127.0.0.1:1", RaftAddr: "127.0.0.1:1"}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := (directory{n}).Join(serve.GroupMember{ID: n.ID(), Addr: "127.0.0.1:1", RaftAddr: "127.0.0.1:1"}, false); err == nil {
		t.Error("a node joins with the address of another one's replica")
	}
	if err := (directory{n}).Forget(id); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the node is forgotten", func() bool { return !n.knows(id) })
}

// TestJoinWithGroups: a directory with groups, but without a first start, does not count as empty:
// its groups do not belong to the cluster that the node would join.
func TestJoinWithGroups(t *testing.T) {
	dir := t.TempDir()
	startAndStop(t, Config{Dir: dir, Init: true, Shape: Shape{4, 3}})
	for _, name := range []string{"directory", firstName} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	n, err := Start(Config{Dir: dir, Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Join: []string{"127.0.0.1:1"}})
	if err == nil {
		t.Error("the node starts", n.Close())
	}
}

// TestDropInterrupted: the remains of a replica that was being removed are not opened.
func TestDropInterrupted(t *testing.T) {
	redis.SetLogger(silent{})
	dir := t.TempDir()
	n := startAt(t, Config{Dir: dir, Init: true, Shape: Shape{4, 3}})
	setOne(t, n)
	firstEnds(t, dir)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "groups", "2"+droppedSuffix)
	if err := os.Rename(filepath.Join(dir, "groups", "2"), left); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(left, "raft")); err != nil {
		t.Fatal(err)
	}
	n = startAt(t, Config{Dir: dir})
	if n.replica(2) != nil || n.replica(1) == nil {
		t.Error("group 2 is open, or group 1 is not")
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestAnotherNode: a node at the address of another one does not reply in its place.
func TestAnotherNode(t *testing.T) {
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{4, 3}})
	other := startAt(t, Config{Dir: t.TempDir(), Join: []string{n.Addr()}})
	waitUntil(t, "it has joined", func() bool { return votes(n, other.ID()) && n.leadsDirectory() })
	gone := strings.Repeat("0", 40)
	if err := n.recordCommand([]byte("N" + gone + "\x00" + other.Addr())); err != nil {
		t.Fatal(err)
	}
	if _, err := n.poll(other.ID()); err != nil {
		t.Error(err)
	}
	if hosted, err := n.poll(gone); err == nil {
		t.Errorf("the node replies %v", hosted)
	}
}

// TestReplicaForgets: a replica that was created again does not vote in place of its predecessor,
// which nodes that were down may still consider a member.
func TestReplicaForgets(t *testing.T) {
	redis.SetLogger(silent{})
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 3}})
	other := startAt(t, Config{Dir: t.TempDir(), Join: []string{n.Addr()}})
	waitUntil(t, "the node is in the group", func() bool { return len(n.States()[0].Members) == 2 && n.States()[0].Members[1].Voter })
	at := func() raft.ServerAddress { return cluster.ReplicaAddr(other.mux.Addr(), other.replica(0).id) }
	before := at()
	if err := other.replica(0).drop(); err != nil {
		t.Fatal(err)
	}
	other.mu.Lock()
	delete(other.replicas, 0)
	other.mu.Unlock()
	if err := other.host(0, false); err != nil {
		t.Fatal(err)
	}
	onlyOneAnswers(t, n, 1, before, at())
}

// onlyOneAnswers requests a vote from a group's removed replica and from its current one. Only the
// current one may answer.
func onlyOneAnswers(t *testing.T, n *Node, group uint32, gone, there raft.ServerAddress) {
	t.Helper()
	mux, err := cluster.ListenMux("127.0.0.1:0", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mux.Close()
	mux.SetCluster(n.mux.Cluster())
	from, err := mux.Transport(group, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("candidate"), Addr: []byte("127.0.0.1:1")}
	for _, c := range []struct {
		to   raft.ServerAddress
		want bool
	}{{gone, false}, {there, true}} {
		var resp raft.RequestVoteResponse
		err := from.RequestVote("", c.to, &raft.RequestVoteRequest{RPCHeader: header, Term: 1000, LastLogIndex: 1, LastLogTerm: 1, LeadershipTransfer: true}, &resp)
		if (err == nil) != c.want {
			t.Errorf("the replica at %s answers: %+v, %v", c.to, resp, err)
		}
	}
}

// addressOf returns the address of a node's replica of the directory, as another one knows it.
func addressOf(n *Node, id string) (addr raft.ServerAddress) {
	for _, s := range servers(n.node) {
		if string(s.ID) == id {
			addr = s.Address
		}
	}
	return addr
}

// TestDirectoryForgets: a node that starts with an empty directory at the address of a dead one
// neither votes nor acknowledges in its place in the directory group. It can join before the dead
// one has been forgotten.
func TestDirectoryForgets(t *testing.T) {
	redis.SetLogger(silent{})
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 3}})
	third := startAt(t, Config{Dir: t.TempDir(), Join: []string{n.Addr()}})
	dead, err := Start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Password: "secret", Join: []string{n.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "all have joined", func() bool { return votes(n, dead.ID()) && votes(n, third.ID()) })
	before, at := addressOf(n, dead.ID()), string(dead.mux.Addr())
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	follows, err := Start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", RaftAddr: at, Password: "secret", Join: []string{n.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer follows.Close()
	waitUntil(t, "the new one has joined", func() bool { return votes(n, follows.ID()) })
	onlyOneAnswers(t, n, 0, before, addressOf(n, follows.ID()))
}

// TestDirectoryFails: a node whose database of the directory group fails stops with an error.
func TestDirectoryFails(t *testing.T) {
	n, err := Start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Init: true, Shape: Shape{1, 3}})
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the node leads", n.leadsDirectory)
	if err := n.node.FSM().Close(); err != nil {
		t.Error(err)
	}
	if err := n.recordCommand([]byte("Nx\x00y")); err == nil {
		t.Error("a closed database accepts a command")
	}
	select {
	case <-n.Done():
	case <-time.After(30 * time.Second):
		t.Error("the node keeps running")
	}
	if err := n.Close(); err == nil {
		t.Error("Close returns no error")
	}
}

// TestPollBeforeOpened: a node that has not opened its replicas yet, because its directory database
// has lost what was not synced, does not report to itself that it has none.
func TestPollBeforeOpened(t *testing.T) {
	redis.SetLogger(silent{})
	dir := t.TempDir()
	n := startAt(t, Config{Dir: dir, Init: true, Shape: Shape{4, 3}})
	setOne(t, n)
	firstEnds(t, dir)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "directory", "state")); err != nil {
		t.Fatal(err)
	}
	opens := make(chan struct{})
	n = startAt(t, Config{Dir: dir, opens: func(int) { <-opens }})
	defer setOne(t, n)
	defer close(opens)
	waitUntil(t, "the node knows the number of groups", func() bool { return n.groups() == 4 })
	if replicas, err := n.poll(n.ID()); err == nil {
		t.Errorf("the node reports %d replicas", len(replicas))
	}
}

// TestOpensOnce: once a node has opened its groups, learnShape does not fail on a group that is
// being opened or removed, which the leader of the directory group may request by then.
func TestOpensOnce(t *testing.T) {
	dir := t.TempDir()
	startAndStop(t, Config{Dir: dir, Init: true, Shape: Shape{4, 3}})
	n := startAt(t, Config{Dir: dir})
	waitUntil(t, "the node has opened its groups", n.hasOpened)
	r := n.replica(2)
	n.mu.Lock()
	n.opening[2] = true
	delete(n.replicas, 2)
	n.mu.Unlock()
	n.learnShape()
	n.mu.Lock()
	delete(n.opening, 2)
	n.replicas[2] = r
	n.mu.Unlock()
	select {
	case <-n.Done():
		t.Error("the node stops")
	default:
	}
}

// TestAnnounceCommitted: a node goes on announcing itself while its address is in the log of the
// directory group but not committed: the next leader may drop that entry.
func TestAnnounceCommitted(t *testing.T) {
	redis.SetLogger(silent{})
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 1}, Raft: patientRaft()})
	other := startAt(t, Config{Dir: t.TempDir(), Join: []string{n.Addr()}, Raft: patientRaft()})
	waitUntil(t, "both are recorded", func() bool {
		addr, err := n.address(n.id)
		return err == nil && addr == n.Addr() && n.leadsDirectory() && n.creates() == nil && !other.joins()
	})
	id, addr := raft.ServerID(n.id), n.directoryAddr()
	if err := add(n.node, id, cluster.ReplicaAddr("127.0.0.1:1", directoryReplica(n.id)), true, 0); err != nil {
		t.Fatal(err)
	}
	if err := other.node.Raft().Shutdown().Error(); err != nil { // nothing is committed from now on
		t.Fatal(err)
	}
	go add(n.node, id, addr, true, 0)
	waitUntil(t, "the address is in the log", func() bool { return addressOf(n, n.id) == addr })
	done := make(chan struct{})
	n.tasks.Go(func() { n.announce(); close(done) })
	select {
	case <-done:
		t.Error("the node relies on a change that is not committed")
	case <-time.After(time.Second):
	}
}
