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

// maxEntry bounds a log entry of writes. The log accepts entries of up to 64 MiB.
const maxEntry = 48 << 20

// group is a serve.Group: a replica as the server of one term sees it.
type group struct {
	r     *replica
	leads bool
	term  uint64
	epoch [epochLen]byte

	once sync.Once
	lost chan struct{} // closed when the server must be replaced

	mu                   sync.Mutex
	requested, confirmed uint64
	confirming           sync.Mutex
}

// lose makes the replica replace the server.
func (g *group) lose() { g.once.Do(func() { close(g.lost) }) }

// MaxBatch implements serve.Group.
func (g *group) MaxBatch() int { return maxEntry - writeHeader }

// Write implements serve.Group.
func (g *group) Write(b *sift.Batch) error {
	entry := writeEntry(g.epoch, b)
	if len(entry) > maxEntry {
		g.lose() // the server holds changes in memory that are not written
		return fmt.Errorf("%w: %d bytes at once, more than %d", serve.ErrNotWritten, len(entry), maxEntry)
	}
	_, err := g.r.propose(entry)
	if err == nil {
		return nil
	}
	g.lose()
	if errors.Is(err, cluster.ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", serve.ErrNotWritten, err)
}

// Confirm implements serve.Group. Callers that arrive during a confirmation share the next one.
func (g *group) Confirm() error {
	g.mu.Lock()
	g.requested++
	ticket := g.requested
	g.mu.Unlock()
	g.confirming.Lock()
	defer g.confirming.Unlock()
	g.mu.Lock()
	done, all := g.confirmed >= ticket, g.requested
	g.mu.Unlock()
	if done {
		return nil
	}
	// Not r.ctx: a node that is stopping waits for this, and Raft runs until then.
	if err := g.r.node.Confirm(context.Background(), g.term); err != nil {
		g.lose()
		return err
	}
	g.mu.Lock()
	g.confirmed = all
	g.mu.Unlock()
	return nil
}

// Leader implements serve.Group. The front end uses Node.Leader.
func (g *group) Leader(ctx context.Context) string {
	addr, _ := g.r.n.Leader(ctx, g.r.shard)
	return addr
}

// Replicas implements serve.Group.
func (g *group) Replicas(ctx context.Context, want int, most time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	node := g.r.node
	index := node.Raft().AppliedIndex()
	for {
		have := 0
		for _, server := range servers(node) {
			if at, ok := node.Holds(server.ID); ok && at >= index && string(server.ID) != g.r.n.id {
				have++
			}
		}
		if have >= want || !g.r.leads() || !pause(ctx, 2*time.Millisecond) {
			return have
		}
	}
}

// pause waits for d. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// State implements serve.Group.
func (g *group) State() serve.GroupState { return g.r.n.stateOf(g.r.node) }

// Only the node that places the groups changes the members of a shard's group.
var errPlaced = errors.New("groups are placed by the leader of the directory group")

// Join implements serve.Group.
func (g *group) Join(serve.GroupMember, bool) (uint64, error) { return 0, errPlaced }

// Forget implements serve.Group.
func (g *group) Forget(string) error { return errPlaced }

// Failover implements serve.Group.
func (g *group) Failover(id string) error { return g.r.handOver(id) }

// stateOf returns the state of a group that this node is a member of.
func (n *Node) stateOf(node *cluster.Node) serve.GroupState {
	r := node.Raft()
	_, leader := node.Leader()
	leads := r.State() == raft.Leader
	s := serve.GroupState{Self: n.id, Leader: string(leader), Term: r.CurrentTerm(), Committed: r.CommitIndex(), Applied: r.AppliedIndex()}
	last := r.LastIndex()
	for _, server := range servers(node) {
		m := serve.GroupMember{ID: string(server.ID), RaftAddr: string(server.Address), Voter: server.Suffrage == raft.Voter, Lag: -1}
		m.Addr, _ = n.address(m.ID) // clients do not see a member without an address
		if at, ok := node.Holds(server.ID); ok && leads {
			m.Lag = int64(last - min(last, at))
		}
		if m.ID == n.id && m.Addr == "" {
			m.Addr = n.announced()
		}
		if m.ID == n.id && leads {
			m.Lag = 0
		}
		s.Members = append(s.Members, m)
	}
	return s
}
