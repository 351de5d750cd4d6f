package siftd

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/internal/serve"
)

// All nodes are members of the directory group, which has no slots. It records the addresses of the
// nodes, which nodes are to leave, the number of groups, and the leader and members of each group,
// for nodes that are not in it. Its leader places the groups.

// Shape is how a cluster is divided into groups.
type Shape struct {
	// Groups is the number of groups that share the slots.
	Groups int
	// Replicas is the number of nodes in each group; a smaller cluster has all nodes in each group.
	Replicas int
}

// place is what nodes outside a shard's group know about it.
type place struct {
	Leader   string
	Members  []string // with a vote
	Learners []string // without
}

// all returns the members with and without a vote.
func (p place) all() []string { return slices.Concat(p.Members, p.Learners) }

// directory is a serve.Group: the directory group.
type directory struct{ n *Node }

// Write implements serve.Group. Clients write to shards.
func (d directory) Write(*sift.Batch) error { return serve.ErrNotWritten }

// MaxBatch implements serve.Group.
func (d directory) MaxBatch() int { return 0 }

// Confirm implements serve.Group. Replies about the cluster may be stale.
func (d directory) Confirm() error { return nil }

// Replicas implements serve.Group.
func (d directory) Replicas(context.Context, int, time.Duration) int { return 0 }

// State implements serve.Group.
func (d directory) State() serve.GroupState { return d.n.stateOf(d.n.node) }

// leaderWait is how long clients wait for a leader before they get an error.
const leaderWait = 5 * time.Second

// Leader implements serve.Group.
func (d directory) Leader(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	for {
		if d.n.leadsDirectory() {
			return d.n.announced() // the caller has a request that only the leader can serve
		}
		if _, id := d.n.node.Leader(); id != "" && string(id) != d.n.id {
			if addr, err := d.n.address(string(id)); err == nil && addr != "" {
				return addr
			}
		}
		if !pause(ctx, 10*time.Millisecond) {
			return ""
		}
	}
}

// Join implements serve.Group.
func (d directory) Join(m serve.GroupMember, vote bool) (uint64, error) {
	n := d.n
	if err := checkMember(m); err != nil {
		return 0, err
	}
	if !n.leadsDirectory() {
		return 0, serve.ErrNotWritten
	}
	if err := n.recordCommand(fmt.Appendf([]byte{nodeCommand}, "%s\x00%s", m.ID, m.Addr)); err != nil {
		return 0, err
	}
	id, addr := raft.ServerID(m.ID), raft.ServerAddress(m.RaftAddr)
	was, known := raft.Server{}, false
	index := configIndex(n.node) // first: a node that is removed meanwhile gets no vote
	for _, server := range servers(n.node) {
		if server.ID == id {
			was, known = server, true
		}
	}
	var err error
	switch voter := known && was.Suffrage == raft.Voter; {
	case voter && was.Address == addr:
	case voter || vote && known:
		err = add(n.node, id, addr, true, index)
	case !known || was.Address != addr:
		err = add(n.node, id, addr, false, 0)
	}
	return n.node.Raft().CommitIndex(), err
}

const manageTimeout = 10 * time.Second

// Forget implements serve.Group: the node leaves its groups one by one, and then this one.
func (d directory) Forget(id string) error {
	n := d.n
	if !n.leadsDirectory() {
		return serve.ErrNotWritten
	}
	// A deposed leader may not know a node that has joined since. If it replied that the node is
	// unknown, the caller might delete the node's data.
	ctx, cancel := context.WithTimeout(n.ctx, manageTimeout)
	defer cancel()
	if err := n.node.Read(ctx, func(*cluster.View) error { return nil }); err != nil {
		return fmt.Errorf("%w: %w", serve.ErrNotWritten, err)
	}
	if !n.knows(id) {
		return fmt.Errorf("unknown node %.50s", id)
	}
	stay := 0
	for _, server := range servers(n.node) {
		leaving, err := n.leaving(string(server.ID))
		if err != nil {
			return err
		}
		if string(server.ID) != id && !leaving {
			stay++
		}
	}
	if stay == 0 {
		return errors.New("the last node cannot be removed")
	}
	return n.recordCommand(append([]byte{leaveCommand}, id...))
}

// Failover implements serve.Group: it transfers the leadership of all groups that this node leads.
func (d directory) Failover(id string) error {
	var errs []error
	led := 0
	for _, r := range d.n.replicaList() {
		if r.leads() {
			led++
			errs = append(errs, r.handOver(id))
		}
	}
	if led == 0 && id != d.n.id {
		return errors.New("the node leads no group")
	}
	return errors.Join(errs...)
}

func (n *Node) leadsDirectory() bool { return n.node.Raft().State() == raft.Leader }

// recordCommand proposes a command to the directory group.
func (n *Node) recordCommand(command []byte) error {
	_, err := n.node.Propose(context.Background(), command)
	if err != nil && !errors.Is(err, cluster.ErrUnknown) {
		err = fmt.Errorf("%w: %w", serve.ErrNotWritten, err)
	}
	return err
}

// lookup returns an entry of the directory, nil if there is none.
func (n *Node) lookup(key string) (value []byte, err error) {
	err = n.node.ReadStale(func(v *cluster.View) error {
		value, err = v.Get([]byte(key))
		if errors.Is(err, sift.ErrNotFound) {
			value, err = nil, nil
		} else if value == nil {
			value = []byte{}
		}
		return err
	})
	return value, err
}

// address returns the address where clients reach a node, "" if it is unknown.
func (n *Node) address(id string) (string, error) {
	addr, err := n.lookup(nodeKeys + id)
	return string(addr), err
}

// leaving reports whether a node is to leave.
func (n *Node) leaving(id string) (bool, error) {
	v, err := n.lookup(leaveKeys + id)
	return v != nil, err
}

// place returns what the directory knows about a group.
func (n *Node) place(shard int) (p place, err error) {
	v, err := n.lookup(placeKeys + string(shardBytes(shard)))
	if v != nil && err == nil {
		err = json.Unmarshal(v, &p)
	}
	return p, err
}

func shardBytes(shard int) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(shard)) }

// readShape returns the shape of the cluster, zero while it is unknown.
func (n *Node) readShape() (s Shape, err error) {
	v, err := n.lookup(shapeKey)
	if v != nil && err == nil {
		err = json.Unmarshal(v, &s)
	}
	return s, err
}

func (n *Node) knows(id string) bool {
	for _, server := range servers(n.node) {
		if string(server.ID) == id {
			return true
		}
	}
	return false
}

// Leader implements serve.Shards.
func (n *Node) Leader(ctx context.Context, shard int) (addr string, self bool) {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	for {
		id := ""
		if r := n.replica(shard); r != nil {
			_, leader := r.node.Leader()
			id = string(leader)
			if now := r.get(); id == n.id && now != nil && now.group.leads {
				return n.announced(), true
			}
		}
		// A member that knows no leader waits for an election. The directory has the last leader,
		// for nodes without a replica, and for replicas that were removed but do not know it yet.
		if id == "" {
			if p, _ := n.place(shard); n.replica(shard) == nil || !slices.Contains(p.all(), n.id) {
				id = p.Leader
			}
		}
		if id != "" && id != n.id {
			if addr, err := n.address(id); err == nil && addr != "" {
				return addr, false
			}
		}
		if !pause(ctx, 10*time.Millisecond) {
			return "", false
		}
	}
}

// States implements serve.Shards.
func (n *Node) States() (out []serve.GroupState) {
	for shard := range n.groups() {
		if r := n.replica(shard); r != nil {
			if s := n.stateOf(r.node); len(s.Members) > 0 {
				out = append(out, s)
				continue
			}
		}
		p, _ := n.place(shard)
		s := serve.GroupState{Self: n.id, Leader: p.Leader}
		for _, id := range p.Members {
			addr, _ := n.address(id)
			s.Members = append(s.Members, serve.GroupMember{ID: id, Addr: addr, Voter: true, Lag: -1})
		}
		out = append(out, s)
	}
	return out
}
