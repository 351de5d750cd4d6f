package siftd

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/redis/go-redis/v9"

	"github.com/siftdb/sift/cluster"
)

// TestDropTwice: while a replica is being removed, HOST does not return it, and a second removal
// returns at once: by the time it ran, a new replica could be in its place.
func TestDropTwice(t *testing.T) {
	redis.SetLogger(silent{})
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 3}})
	other := startAt(t, Config{Dir: t.TempDir(), Join: []string{n.Addr()}})
	waitUntil(t, "the node is in the group", func() bool { return len(n.States()[0].Members) == 2 && n.States()[0].Members[1].Voter })
	r := other.replica(0)
	_, _, release, err := r.node.FSM().Hold() // closing it takes a while
	if err != nil {
		t.Fatal(err)
	}
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- other.drop(r, 1<<60) }()
	waitUntil(t, "the replica closes", func() bool { return r.ctx.Err() != nil })
	if reply, err := other.Manage([]string{other.ID(), "HOST", "0"}); err == nil {
		t.Errorf("HOST returns %s, which is being removed", reply)
	}
	go func() { second <- other.drop(r, 1<<60) }()
	select {
	case <-second:
	case <-time.After(time.Second):
		t.Error("the second removal does not return at once")
		defer func() { t.Log("the second removal:", <-second) }()
	}
	release()
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestAddedAfter: a replica that was removed and added again counts as added, even if it has
// applied neither.
func TestAddedAfter(t *testing.T) {
	hold := make(chan struct{})
	var nodes [2]*cluster.Node
	var members []raft.Server
	for i := range nodes {
		m, err := cluster.ListenMux("127.0.0.1:0", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		trans, err := m.Transport(7, uint64(i+1), nil)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("n%d", i)
		members = append(members, raft.Server{ID: raft.ServerID(id), Address: trans.LocalAddr()})
		o := cluster.Options{ID: id, Dir: t.TempDir(), Transport: trans, Raft: Raft(),
			Apply: func(tx *cluster.Tx, command []byte) (any, error) {
				if i == 1 {
					<-hold // a slow disk, or a write stall
				}
				return nil, nil
			}}
		if i == 0 {
			o.Bootstrap = members[:1]
		}
		if nodes[i], err = cluster.Open(o); err != nil {
			t.Fatal(err)
		}
	}
	defer nodes[0].Close()
	defer nodes[1].Close()
	defer close(hold)
	lead, x := nodes[0], nodes[1]
	for lead.Raft().State() != raft.Leader {
		time.Sleep(10 * time.Millisecond)
	}
	do := func(start func(r *raft.Raft) raft.Future) {
		t.Helper()
		if err := lead.Do(t.Context(), start); err != nil {
			t.Fatal(err)
		}
	}
	nonvoter := func(r *raft.Raft) raft.Future { return r.AddNonvoter("n1", members[1].Address, 0, 0) }
	do(nonvoter)
	for configIndex(x) == 0 || len(servers(x)) < 2 || configIndex(x) != configIndex(lead) {
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := lead.Propose(t.Context(), []byte("slow")); err != nil { // x stays here
		t.Fatal(err)
	}
	do(func(r *raft.Raft) raft.Future { return r.RemoveServer("n1", 0, 0) })
	index := configIndex(lead) // of the removal: the plan is DROP n1 index
	do(nonvoter)               // another leader of the directory has planned ADD meanwhile
	for x.Raft().LastIndex() < lead.Raft().LastIndex() {
		time.Sleep(10 * time.Millisecond)
	}
	if added, err := x.AddedAfter(index); !added || err != nil {
		t.Errorf("added after the removal: %t, %v", added, err)
	}
	if added, err := x.AddedAfter(configIndex(lead)); added || err != nil {
		t.Errorf("added after it was added: %t, %v", added, err)
	}
}
