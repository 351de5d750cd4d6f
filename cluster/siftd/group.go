package siftd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/internal/serve"
)

// maxEntry bounds what is written at once. The log takes entries of 64 MiB.
const maxEntry = 48 << 20

// group is a serve.Group: the node as the server of one term sees it.
type group struct {
	n     *Node
	leads bool
	term  uint64
	epoch [epochLen]byte

	once sync.Once
	lost chan struct{} // closed when the server has to be replaced

	mu               sync.Mutex
	asked, confirmed uint64
	confirming       sync.Mutex
}

// lose ends the server's time.
func (g *group) lose() { g.once.Do(func() { close(g.lost) }) }

// Write is serve.Group.
func (g *group) Write(b *sift.Batch) error {
	entry := writeEntry(g.epoch, b)
	if len(entry) > maxEntry {
		g.lose() // the server may hold in memory what is not written
		return fmt.Errorf("%w: %d bytes at once, of which at most %d can be written", serve.ErrNotWritten, len(entry), maxEntry)
	}
	_, err := g.n.propose(entry)
	if err == nil {
		return nil
	}
	g.lose()
	if errors.Is(err, cluster.ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", serve.ErrNotWritten, err)
}

// Confirm is serve.Group. Those who come while others ask share the next question.
func (g *group) Confirm() error {
	g.mu.Lock()
	g.asked++
	ticket := g.asked
	g.mu.Unlock()
	g.confirming.Lock()
	defer g.confirming.Unlock()
	g.mu.Lock()
	done, all := g.confirmed >= ticket, g.asked
	g.mu.Unlock()
	if done {
		return nil
	}
	if err := g.n.confirm(g.term); err != nil {
		g.lose()
		return err
	}
	g.mu.Lock()
	g.confirmed = all
	g.mu.Unlock()
	return nil
}

// leaderWait is how long clients wait for a leader before they are told that there is
// none.
const leaderWait = 5 * time.Second

// Leader is serve.Group. While this node is the one that was elected, whoever asks its
// server for the time before waits for the next.
func (g *group) Leader(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	for {
		if _, id := g.n.node.Leader(); id != "" && string(id) != g.n.id {
			if addr, err := g.n.address(string(id)); err == nil && addr != "" {
				return addr
			}
		}
		if !pause(ctx, 10*time.Millisecond) {
			return ""
		}
	}
}

// Replicas is serve.Group.
func (g *group) Replicas(ctx context.Context, want int, most time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	index := g.n.node.Raft().AppliedIndex()
	for {
		have := 0
		for _, server := range g.n.servers() {
			if at, ok := g.n.node.Holds(server.ID); ok && at >= index && string(server.ID) != g.n.id {
				have++
			}
		}
		if have >= want || !pause(ctx, 2*time.Millisecond) {
			return have
		}
	}
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// State is serve.Group.
func (g *group) State() serve.GroupState {
	n := g.n
	r := n.node.Raft()
	_, leader := n.node.Leader()
	s := serve.GroupState{Self: n.id, Leader: string(leader), Term: r.CurrentTerm(), Committed: r.CommitIndex(), Applied: r.AppliedIndex()}
	last := r.LastIndex()
	for _, server := range n.servers() {
		m := serve.GroupMember{ID: string(server.ID), RaftAddr: string(server.Address), Voter: server.Suffrage == raft.Voter, Lag: -1}
		m.Addr, _ = n.address(m.ID) // without one it is not shown to clients
		if at, ok := n.node.Holds(server.ID); ok && g.leads {
			m.Lag = int64(last - min(last, at))
		}
		if m.ID == n.id && m.Addr == "" {
			m.Addr = n.cfg.Announce
		}
		if m.ID == n.id && g.leads {
			m.Lag = 0
		}
		s.Members = append(s.Members, m)
	}
	return s
}

// Join is serve.Group.
func (g *group) Join(m serve.GroupMember, vote bool) (uint64, error) {
	if err := checkMember(m); err != nil {
		return 0, err
	}
	if !g.leads {
		return 0, serve.ErrNotWritten
	}
	n := g.n
	if _, err := n.propose(fmt.Appendf([]byte{nodeCommand}, "%s\x00%s", m.ID, m.Addr)); err != nil {
		return 0, err
	}
	id, addr := raft.ServerID(m.ID), raft.ServerAddress(m.RaftAddr)
	was, known := raft.Server{}, false
	for _, server := range n.servers() {
		if server.ID == id {
			was, known = server, true
		}
	}
	r := n.node.Raft()
	var err error
	switch voter := known && was.Suffrage == raft.Voter; {
	case voter && was.Address == addr:
	case voter || vote && known:
		err = r.AddVoter(id, addr, 0, manageTimeout).Error()
	case !known || was.Address != addr:
		err = r.AddNonvoter(id, addr, 0, manageTimeout).Error()
	}
	return r.CommitIndex(), err
}

const manageTimeout = 10 * time.Second

// Forget is serve.Group.
func (g *group) Forget(id string) error {
	n := g.n
	if !g.leads {
		return serve.ErrNotWritten
	}
	if id == n.id {
		return errors.New("the leader stays: CLUSTER FAILOVER first")
	}
	if !n.knows(id) {
		return fmt.Errorf("unknown node %.50s", id)
	}
	if err := n.node.Raft().RemoveServer(raft.ServerID(id), 0, manageTimeout).Error(); err != nil {
		return err
	}
	_, err := n.propose(append([]byte{forgetCommand}, id...))
	return err
}

// Failover is serve.Group.
func (g *group) Failover(id string) error {
	if !g.leads {
		return serve.ErrNotWritten
	}
	if id == g.n.id {
		return nil
	}
	if id != "" && !g.n.knows(id) {
		return fmt.Errorf("unknown node %.50s", id)
	}
	return g.n.handOver(id)
}
