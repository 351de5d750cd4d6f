package siftd

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/redis/go-redis/v9"
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

// TestMayDrop: a replica is not removed if the node was added to the group again, even if the
// replica has not applied that change yet.
func TestMayDrop(t *testing.T) {
	with := []raft.Server{{ID: "a"}, {ID: "x"}}
	without := with[:1]
	for _, c := range []struct {
		name              string
		latest, committed []raft.Server
		at, last, index   uint64
		want              bool
	}{
		{"the removal has not arrived", with, with, 10, 15, 20, true},
		{"the removal has arrived", without, with, 10, 20, 20, true},
		{"the removal is applied", without, without, 20, 25, 20, true},
		{"an earlier change is not applied", with, without, 10, 15, 20, true},
		{"the node was added again", with, with, 30, 35, 20, false},
		{"the node was added again, which is not applied", with, without, 20, 35, 20, false},
	} {
		if got := mayDrop("x", c.latest, c.committed, c.at, c.last, c.index); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
