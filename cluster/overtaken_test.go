package cluster

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// readerFunc is an io.Reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// waitLost waits until the leader has noticed that a node is unreachable.
func (g *group) waitLost(t *testing.T, i int) {
	t.Helper()
	leader := g.node(g.leader(t)).trans
	id := replica{g.servers[i].ID, g.servers[i].Address}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		leader.mu.Lock()
		_, reached := leader.progress[id]
		leader.mu.Unlock()
		if !reached {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the leader does not notice that node %d is unreachable", i)
		}
	}
}

// TestOvertakenSnapshot: a node that takes a snapshot while it receives a newer one keeps the newer
// one, and continues from there. Raft would continue from the one that the node has taken, without
// the log after it.
func TestOvertakenSnapshot(t *testing.T) {
	g := newGroup(t, 3)
	g.config = noSnapshots
	taken := make(chan struct{})
	var checkpoint func() // of the node that is away
	g.test.checkpointed = func(dir string) error {
		if checkpoint != nil && strings.Contains(dir, string(g.servers[0].ID)+string(filepath.Separator)) {
			checkpoint()
		}
		return nil
	}
	g.startAll(t)
	for i := range 20 {
		g.propose(t, fmt.Sprintf("k%d v", i))
	}
	g.waitApplied(t)
	if g.leader(t) == 0 {
		if err := g.node(0).raft.LeadershipTransfer().Error(); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint = sync.OnceFunc(func() { close(taken) })
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	g.net.mu.Lock()
	g.net.data = func(r io.Reader) io.Reader {
		return readerFunc(func(p []byte) (int, error) {
			begin()
			select {
			case <-taken:
			case <-time.After(5 * time.Second):
			}
			return r.Read(p)
		})
	}
	g.net.mu.Unlock()
	// A leader that still counts the node as catching up keeps the log for it, and sends that.
	for sent, tries := false, 0; !sent; tries++ {
		if tries == 5 {
			t.Fatal("no snapshot is sent")
		}
		g.isolate(0)
		for i := range 200 {
			g.propose(t, fmt.Sprintf("k%d v", i))
		}
		g.waitLost(t, 0)
		for i := 1; i < 3; i++ {
			if err := g.node(i).raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
		g.net.heal()
		select {
		case <-begun:
			sent = true
		case <-time.After(15 * time.Second):
		}
	}
	own := g.node(0).raft.Snapshot()
	if err := own.Error(); err == nil {
		t.Error("the node stores its own snapshot, which is older than the one that it has received")
	}
	g.waitApplied(t)
	if last, has := g.node(0).raft.LastIndex(), g.node(g.leader(t)).raft.LastIndex(); last < has {
		t.Errorf("the log of the node ends with entry %d, that of the leader with %d", last, has)
	}
}
