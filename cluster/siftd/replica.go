package siftd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/cluster/internal/durable"
	"github.com/siftdb/sift/internal/serve"
	"github.com/siftdb/sift/internal/vfs"
)

// replica is this node's replica of a shard's group: a log, a database, and a server behind the
// node's front end.
type replica struct {
	n      *Node
	shard  int
	id     uint64 // unlike those of earlier replicas of the group on this node
	node   *cluster.Node
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when the replica has stopped serving
	err    error         // why; valid once done is closed

	mu      sync.Mutex
	current *running // nil between servers
}

// running is a server and its view of the group.
type running struct {
	server *serve.Server
	group  *group
}

func (n *Node) groupDir(shard int) string {
	return filepath.Join(n.cfg.Dir, "groups", strconv.Itoa(shard))
}

// openReplica opens the node's replica of a shard's group, and creates an empty one if there is
// none. With first the node is the group's first member.
func (n *Node) openReplica(shard int, first bool) (*replica, error) {
	id, err := readReplicaID(n.groupDir(shard))
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", shard, err)
	}
	transport, err := n.mux.Transport(uint32(shard)+1, id, nil)
	if err != nil {
		return nil, err
	}
	o := n.options(n.groupDir(shard), transport)
	o.Apply = apply
	if o.SegmentBytes = n.cfg.segmentBytes; o.SegmentBytes == 0 {
		o.SegmentBytes = max(minSegment, maxSegment/max(1, n.groups()))
	}
	if first {
		o.Bootstrap = n.alone(cluster.ReplicaAddr(n.mux.Addr(), id))
	}
	r := &replica{n: n, shard: shard, id: id, done: make(chan struct{})}
	if r.node, err = cluster.Open(o); err != nil {
		return nil, fmt.Errorf("group %d: %w", shard, err)
	}
	r.ctx, r.cancel = context.WithCancel(n.ctx)
	go r.run()
	return r, nil
}

// replicaName is a file with the number of a replica, 16 hex digits and a newline. A node that
// leaves a group and joins it again gets a new number: it no longer knows how it voted and what it
// acknowledged, so nodes that do not know of the change must not mistake it for the former member.
//
// On disk; do not change.
const replicaName = "replica"

// readReplicaID reads the number of a replica, or creates it before there is a log.
func readReplicaID(dir string) (id uint64, err error) {
	path := filepath.Join(dir, replicaName)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		for id == 0 {
			id = mathrand.Uint64()
		}
		if err := vfs.OS.MkdirAll(dir); err != nil {
			return 0, err
		}
		if _, err := os.Stat(filepath.Join(dir, "raft")); !errors.Is(err, os.ErrNotExist) {
			return 0, errors.Join(err, fmt.Errorf("%s has a log but no replica number", dir))
		}
		return id, durable.Replace(path, fmt.Appendf(nil, "%016x\n", id))
	}
	if err != nil {
		return 0, err
	}
	if id, err = strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 16, 64); err != nil || id == 0 {
		return 0, fmt.Errorf("%s does not hold a replica number", path)
	}
	return id, nil
}

// Segments of a log are preallocated, so they are smaller if there are many groups.
const minSegment, maxSegment = 4 << 20, 64 << 20

// close stops the replica, and closes its log and database.
func (r *replica) close() error {
	r.cancel()
	<-r.done
	return errors.Join(r.err, r.node.Close())
}

// droppedSuffix ends the name of the directory of a replica that is being removed: an incomplete
// replica is never opened.
const droppedSuffix = ".dropped"

// drop closes the replica and removes it.
func (r *replica) drop() error {
	err := r.close()
	dir := r.n.groupDir(r.shard)
	if err := os.RemoveAll(dir + droppedSuffix); err != nil {
		return err
	}
	if err := vfs.OS.Rename(dir, dir+droppedSuffix); err != nil {
		return err
	}
	return errors.Join(err, vfs.OS.SyncDir(filepath.Dir(dir)), os.RemoveAll(dir+droppedSuffix))
}

// run serves clients with one server after another: one for each term in which the node leads, and
// one for each period in between.
func (r *replica) run() {
	defer close(r.done)
	for r.ctx.Err() == nil {
		stop, err := r.serveOnce()
		if stop {
			r.err = errors.Join(err, r.node.FSM().Err())
			if r.ctx.Err() == nil {
				r.n.fail()
			}
			return
		}
		if err != nil {
			r.n.cfg.Logger.Warn("the node does not serve the group", "group", r.shard, "err", err)
			pause(r.ctx, 50*time.Millisecond)
		}
	}
}

// serveOnce runs a server until it must be replaced, or the replica must stop.
func (r *replica) serveOnce() (stop bool, err error) {
	if err := r.node.FSM().Err(); err != nil {
		return true, err
	}
	g := &group{r: r, lost: make(chan struct{})}
	if g.leads = r.node.Raft().State() == raft.Leader; g.leads {
		if err := r.takeOver(g); err != nil {
			return false, err
		}
	}
	db, replaced, release, err := r.node.FSM().Hold()
	if err != nil {
		return true, err
	}
	defer release()
	s, err := serve.New(db, serve.Config{Front: r.n.front, Group: g, Leads: g.leads, Shard: r.shard})
	if err != nil {
		// Retrying helps only if a write has failed, because the node has lost its leadership, or
		// for lack of descriptors or memory. While a leader retries, nobody serves the group, and
		// another node may be able to lead.
		select {
		case <-g.lost:
			return false, err
		default:
			scarce := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
			return g.leads && !scarce || errors.Is(err, sift.ErrCorruption), err
		}
	}
	r.n.cfg.Logger.Info("serving", "group", r.shard, "leads", g.leads, "term", g.term)
	r.set(&running{s, g})
	defer r.set(nil)
	s.Attach()
	defer s.Detach()
	return r.watch(g, replaced), nil
}

// takeOver begins a term: from then on, what earlier leaders proposed is either applied or
// rejected.
func (r *replica) takeOver(g *group) error {
	g.term = r.node.Raft().CurrentTerm()
	rand.Read(g.epoch[:])
	_, err := r.propose(append([]byte{beginCommand}, g.epoch[:]...))
	return err
}

// watch returns when a server must be replaced, or the replica must stop.
func (r *replica) watch(g *group, replaced <-chan struct{}) (stop bool) {
	tick := time.NewTicker(20 * time.Millisecond) // LeaderCh reports only some changes
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return true
		case <-r.node.FSM().Failed():
			return true
		case <-replaced:
			return false
		case <-g.lost:
			return false
		case <-r.node.Raft().LeaderCh():
		case <-tick.C:
		}
		in := r.node.Raft()
		if leads := in.State() == raft.Leader; leads != g.leads || leads && in.CurrentTerm() != g.term {
			return false
		}
	}
}

func (r *replica) set(to *running) {
	r.mu.Lock()
	r.current = to
	r.mu.Unlock()
}

func (r *replica) get() *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// leads reports whether the node leads the group.
func (r *replica) leads() bool { return r.node.Raft().State() == raft.Leader }

// handOver transfers the leadership, if this node leads, to id, or to any node if id is empty.
// Commands in progress finish first.
func (r *replica) handOver(id string) error {
	now := r.get()
	if now == nil || !now.group.leads || id == r.n.id {
		return nil
	}
	addr, others := raft.ServerAddress(""), 0
	for _, server := range servers(r.node) {
		if string(server.ID) == id {
			addr = server.Address
		}
		if string(server.ID) != r.n.id && server.Suffrage == raft.Voter {
			others++
		}
	}
	switch {
	case others == 0:
		return errors.New("siftd: there is no other node that could lead")
	case id != "" && addr == "":
		return fmt.Errorf("unknown node %.50s", id)
	}
	now.server.Retire()
	err := r.node.Do(context.Background(), func(in *raft.Raft) raft.Future {
		if id == "" {
			return in.LeadershipTransfer()
		}
		return in.LeadershipTransferToServer(raft.ServerID(id), addr)
	})
	if err != nil {
		now.group.lose() // the server has retired and must be replaced
	}
	return err
}

func (r *replica) propose(command []byte) (any, error) {
	return r.node.Propose(context.Background(), command)
}

// add adds a member to a node's group, or changes its address or, if vote is true, gives it a vote,
// unless the members were changed after index.
func add(n *cluster.Node, id raft.ServerID, addr raft.ServerAddress, vote bool, index uint64) error {
	return n.Do(context.Background(), func(in *raft.Raft) raft.Future {
		if vote {
			return in.AddVoter(id, addr, index, manageTimeout)
		}
		return in.AddNonvoter(id, addr, index, manageTimeout)
	})
}

// remove removes a member from a node's group, unless the members were changed after index.
func remove(n *cluster.Node, id string, index uint64) error {
	return n.Do(context.Background(), func(in *raft.Raft) raft.Future {
		return in.RemoveServer(raft.ServerID(id), index, manageTimeout)
	})
}

// servers returns the members of a node's group.
func servers(n *cluster.Node) []raft.Server {
	f := n.Raft().GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

// configIndex returns the index of the last committed change of the group's members. In Raft's
// Stats it is always 0.
func configIndex(n *cluster.Node) uint64 {
	_, index := n.FSM().Members()
	return index
}

// change adds a member without a vote, gives it a vote, updates its address, or removes it, unless
// the members were changed after index.
func (r *replica) change(how, id, addr string, index uint64) error {
	if !r.leads() {
		return serve.ErrNotWritten
	}
	switch how {
	case "ADD":
		return add(r.node, raft.ServerID(id), raft.ServerAddress(addr), false, index)
	case "REMOVE":
		return remove(r.node, id, index)
	case "VOTE", "ADDRESS":
	default:
		return errCommand
	}
	for _, server := range servers(r.node) {
		if string(server.ID) != id {
			continue
		}
		if how == "ADDRESS" {
			_, replica, err := cluster.CutReplica(server.Address)
			if err != nil {
				return err
			}
			server.Address = cluster.ReplicaAddr(raft.ServerAddress(addr), replica)
		}
		return add(r.node, server.ID, server.Address, how == "VOTE" || server.Suffrage == raft.Voter, index)
	}
	return fmt.Errorf("unknown node %.50s", id)
}
