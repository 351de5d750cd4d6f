package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TestTermNotWritten: a node that cannot write its term or its vote stops; the others continue.
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
		t.Fatal("the node does not stop")
	}
	if err := n.fsm.Err(); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
	endsSoon(t, func() error { return g.stop(fails) })
	if _, err := n.Propose(t.Context(), []byte("k x")); !errors.Is(err, raft.ErrRaftShutdown) {
		t.Errorf("a command to the stopped node: %v", err)
	}
	if err := g.start(fails); err != nil {
		t.Fatal(err)
	}
	g.propose(t, "k w")
	if got := g.waitApplied(t); got["k"] != "v,w," {
		t.Errorf("k is %q", got["k"])
	}
}

// TestTermNotWrittenAtStart: Open returns an error if the node's term cannot be written. The node
// can be started later.
func TestTermNotWrittenAtStart(t *testing.T) {
	g := newGroup(t, 1)
	t.Cleanup(func() { g.stopAll(t) })
	full := errors.New("no space")
	for _, when := range []string{"first", "second"} {
		g.test.unstable = full
		endsSoon(t, func() error {
			if err := g.start(0); !errors.Is(err, full) {
				return fmt.Errorf("the %s start: %v, want %v", when, err, full)
			}
			return nil
		})
		g.test.unstable = nil
		if err := g.start(0); err != nil {
			t.Fatal(err)
		}
		g.propose(t, "k v")
		if err := g.stop(0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBootstrapInterrupted: a node that was killed after it had written its first term, but before
// it had written the first members, writes them when it is started again.
func TestBootstrapInterrupted(t *testing.T) {
	g := newGroup(t, 1)
	l, err := openLog(filepath.Join(g.dir, "n0", "raft"), 4<<10, hclog.NewNullLogger(), func(most uint64) (uint64, int64) { return most, 0 }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.SetUint64([]byte("CurrentTerm"), 1), l.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		g.startAll(t)
		g.propose(t, "k v")
		if err := g.stop(0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVoteInterrupted: a node that is killed between the two writes of a vote has not voted for the
// candidate of its previous vote.
func TestVoteInterrupted(t *testing.T) {
	l, err := openLog(t.TempDir(), 4<<10, hclog.NewNullLogger(), func(most uint64) (uint64, int64) { return most, 0 }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, want := range []string{"a", ""} {
		if err := l.SetUint64([]byte(voteTermKey), 5); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			if err := l.Set([]byte(voteKey), []byte(want)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := l.Get([]byte(voteKey)); string(got) != want || err != nil {
			t.Errorf("the vote is for %q, %v; want %q", got, err, want)
		}
	}
	if term, err := l.GetUint64([]byte(voteTermKey)); term != 5 || err != nil {
		t.Errorf("the vote is in term %d, %v", term, err)
	}
}

// TestCallsEnd: calls without a deadline return when Raft ends, by Close or because a term cannot
// be written. So do later calls.
func TestCallsEnd(t *testing.T) {
	for name, end := range map[string]func(g *group, lead int) error{
		"closed": func(g *group, lead int) error { return g.stop(lead) },
		"failed": func(g *group, lead int) error {
			n := g.node(lead)
			n.log.mu.Lock()
			n.log.unstable = errors.New("no space")
			n.log.mu.Unlock()
			to := g.servers[(lead+1)%3]
			// Raft may end before the transfer is complete.
			go n.raft.LeadershipTransferToServer(to.ID, to.Address)
			<-n.fsm.Failed()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, 3)
			g.startAll(t)
			g.propose(t, "k v")
			lead := g.leader(t)
			n := g.node(lead)
			term := n.raft.CurrentTerm()
			var calls sync.WaitGroup
			for range 20 {
				calls.Go(func() {
					for n.Confirm(context.Background(), term) == nil {
					}
					for range 3 { // no node is leader any more
						if n.Confirm(context.Background(), term) == nil {
							t.Error("Confirm succeeds after Raft has ended")
						}
					}
				})
			}
			calls.Go(func() {
				for n.Read(context.Background(), func(*View) error { return nil }) == nil {
				}
			})
			calls.Go(func() {
				for {
					if _, err := n.Propose(context.Background(), []byte("k w")); err != nil {
						return
					}
				}
			})
			time.Sleep(20 * time.Millisecond)
			endsSoon(t, func() error { return end(g, lead) })
			endsSoon(t, func() error {
				for range 20 {
					if n.Do(context.Background(), (*raft.Raft).LeadershipTransfer) == nil {
						t.Error("LeadershipTransfer succeeds after Raft has ended")
					}
				}
				calls.Wait()
				return nil
			})
		})
	}
}
