package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestGroup: three nodes agree, a minority is nobody, and who was away catches up.
func TestGroup(t *testing.T) {
	g := newGroup(t, 3)
	g.startAll(t)
	for i := range 10 {
		g.propose(t, fmt.Sprintf("k%d v", i))
	}
	away := (g.leader(t) + 1) % 3
	if err := g.stop(away); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		g.propose(t, "k0 w")
	}
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	got := g.settle(t)
	if want := "v," + strings.Repeat("w,", 10); got["k0"] != want {
		t.Errorf("k0 is %q, want %q", got["k0"], want)
	}
	leader := g.leader(t)
	for i := range 3 {
		if i == leader || g.node(i).raft.State() == raft.Leader {
			continue
		}
		if _, err := g.node(i).Propose(t.Context(), []byte("k x")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower takes a command: %v", err)
		}
		if err := g.node(i).Read(t.Context(), func(*View) error { return nil }); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower reads as if it led: %v", err)
		}
	}
}

// TestCommandErrors: an error of Apply reaches the caller, and leaves nothing but the
// applied index.
func TestCommandErrors(t *testing.T) {
	g := newGroup(t, 3)
	g.startAll(t)
	g.propose(t, "k v")
	before := g.node(g.leader(t)).fsm.Applied()
	for _, c := range []struct {
		command string
		want    error
	}{{"nonsense", errBadCommand}, {Reserved + "k v", ErrReserved}} {
		err := ErrNotLeader
		for errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnknown) {
			_, err = g.node(g.leader(t)).Propose(t.Context(), []byte(c.command))
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%q returns %v, want %v", c.command, err, c.want)
		}
	}
	if n := g.node(g.leader(t)); n.fsm.Applied() < before+2 {
		t.Error("a command that fails is not counted")
	}
	g.settle(t)
}

// TestIsolatedLeader: a leader that is cut off acknowledges nothing and reads nothing,
// also while it believes to lead.
func TestIsolatedLeader(t *testing.T) {
	g := newGroup(t, 3)
	g.config = calm // it goes on believing for long
	g.startAll(t)
	g.propose(t, "k v")
	old := g.leader(t)
	g.isolate(old)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := g.node(old).Read(ctx, func(*View) error { return nil }); err == nil {
		t.Error("a leader that is cut off reads")
	}
	if _, err := g.node(old).Propose(ctx, []byte("k lost")); err == nil {
		t.Error("a leader that is cut off acknowledges")
	}
	if list := g.propose(t, "k w"); list != "v,w," {
		t.Errorf("the new leader: %q", list)
	}
	g.net.heal()
	if got := g.settle(t); got["k"] != "v,w," {
		t.Errorf("k is %q", got["k"])
	}
}

// TestCatchUpBySnapshot: a node that has missed more than the log holds gets a
// snapshot.
func TestCatchUpBySnapshot(t *testing.T) {
	g := newGroup(t, 3)
	g.startAll(t)
	g.propose(t, "k v")
	away := (g.leader(t) + 1) % 3
	if err := g.stop(away); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		g.propose(t, fmt.Sprintf("k%d v", i))
	}
	for i := range 3 {
		if i != away {
			if err := g.node(i).raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	g.settle(t)
	if g.node(away).fsm.states.next == 2 {
		t.Error("it has not installed a snapshot")
	}
	// And again from there, with the log that Raft has emptied.
	if err := g.stop(away); err != nil {
		t.Fatal(err)
	}
	g.propose(t, "k w")
	if err := g.start(away); err != nil {
		t.Fatal(err)
	}
	if got := g.settle(t); got["k"] != "v,w," {
		t.Errorf("k is %q", got["k"])
	}
}

// TestBackup: a snapshot restored into another group takes its place in that log.
func TestBackup(t *testing.T) {
	g := newGroup(t, 3)
	g.startAll(t)
	for i := range 60 {
		g.propose(t, fmt.Sprintf("k%d v", i))
	}
	future := g.node(g.leader(t)).raft.Snapshot()
	if err := future.Error(); err != nil {
		t.Fatal(err)
	}
	meta, r, err := future.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h := newGroup(t, 3)
	h.config = calm // a restore that loses its leader is not repeated
	h.startAll(t)
	h.propose(t, "other v")
	if err := h.node(h.leader(t)).raft.Restore(meta, r, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	h.propose(t, "k0 w")
	check := func() {
		t.Helper()
		got := h.settle(t)
		if got["k0"] != "v,w," || got["k59"] != "v," || got["other"] != "" {
			t.Errorf("after the restore: k0 is %q, k59 %q, other %q", got["k0"], got["k59"], got["other"])
		}
	}
	check()
	h.stopAll(t)
	h.startAll(t)
	check()
}
