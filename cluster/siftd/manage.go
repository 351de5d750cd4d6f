package siftd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/internal/serve"
)

// hosted is what a node reports about its replica of a group.
type hosted struct {
	Shard            int
	Replica          string
	Leads            bool
	Term             uint64
	Index            uint64       // of the last committed change of the members
	MembersCommitted bool         // whether Members are those after that change: no other one is pending
	Members          []memberView // if the replica leads
}

// Manage implements serve.Shards. CLUSTER returns the cluster's id. Otherwise the first argument is
// the id of the node that the command is for: another node may have its address, if its directory
// was lost. The other arguments are one of
//
//	HOSTED                              return the node's replicas, as JSON
//	HOST shard                          create an empty replica if there is none; return its number
//	ADD|VOTE|ADDRESS|REMOVE shard id addr index
//	                                    change the members of a group that this node leads
//	LEAD shard id                       transfer the leadership
//	DROP shard replica index            remove the replica with that number, unless the node was
//	                                    added after index
func (n *Node) Manage(args []string) (reply string, err error) {
	if len(args) == 0 {
		return "", errCommand
	}
	if len(args) == 1 && args[0] == "CLUSTER" {
		return n.clusterID()
	}
	if args[0] != n.id {
		return "", fmt.Errorf("this is node %s, not %.50s", n.id, args[0])
	}
	args = args[1:]
	if len(args) == 1 && args[0] == "HOSTED" {
		if !n.hasOpened() {
			return "", errors.New("the node has not opened its groups yet")
		}
		text, err := json.Marshal(n.hosted())
		return string(text), err
	}
	if len(args) < 2 {
		return "", errCommand
	}
	shard, err := strconv.Atoi(args[1])
	if err != nil {
		return "", errCommand
	}
	r := n.replica(shard)
	switch {
	case args[0] == "HOST" && len(args) == 2:
		if err := n.host(shard, false); err != nil {
			return "", err
		}
		if r = n.replica(shard); r == nil {
			return "", fmt.Errorf("there is no group %d here", shard)
		}
		return r.name(), nil
	case r == nil:
		return "", fmt.Errorf("there is no group %d here", shard)
	case args[0] == "LEAD" && len(args) == 3:
		return "OK", r.handOver(args[2])
	case args[0] == "DROP" && len(args) == 4:
		index, err := strconv.ParseUint(args[3], 10, 64)
		if err != nil {
			return "", errCommand
		}
		if r.name() != args[2] {
			return "", fmt.Errorf("the node has another replica of group %d", shard)
		}
		return "OK", n.drop(r, index)
	case len(args) == 5:
		index, err := strconv.ParseUint(args[4], 10, 64)
		if err != nil {
			return "", errCommand
		}
		return "OK", r.change(args[0], args[2], args[3], index)
	}
	return "", errCommand
}

// name returns the replica's number, as in its address.
func (r *replica) name() string { return replicaOf(string(cluster.ReplicaAddr("", r.id))) }

// replicaOf returns the name of the replica in an address.
func replicaOf(addr string) string {
	_, name, _ := strings.Cut(addr, "/")
	return name
}

// hosted describes the node's replicas.
func (n *Node) hosted() (out []hosted) {
	for _, r := range n.replicaList() {
		members, index := r.node.FSM().Members()
		h := hosted{Shard: r.shard, Replica: r.name(), Term: r.node.Raft().CurrentTerm(), Index: index}
		if now := r.get(); now != nil && now.group.leads && now.group.term == h.Term {
			h.Leads = true
			for _, m := range n.stateOf(r.node).Members {
				addr, _, _ := strings.Cut(m.RaftAddr, "/")
				h.Members = append(h.Members, memberView{m.ID, replicaOf(m.RaftAddr), m.Voter, m.Lag, addr})
			}
		}
		h.MembersCommitted = slices.Equal(servers(r.node), members) // last: h.Members may have a later change
		out = append(out, h)
	}
	return out
}

// drop removes a replica, unless the node was added to the group after index.
func (n *Node) drop(r *replica, index uint64) error {
	if n.creates() != nil {
		return errors.New("the node's first start is not complete: the next start would create the group again")
	}
	added, err := r.node.AddedAfter(index)
	if err != nil {
		return err
	}
	_, at := r.node.FSM().Members() // after the log is read: a snapshot may have replaced it
	if added || at > index && contains(servers(r.node), n.id) {
		return errors.New("the node is a member of the group")
	}
	n.mu.Lock()
	switch {
	case n.replicas[r.shard] != r:
		n.mu.Unlock()
		return nil
	case n.opening[r.shard]:
		n.mu.Unlock()
		return fmt.Errorf("group %d is being removed", r.shard)
	}
	n.opening[r.shard] = true
	n.mu.Unlock()
	err = r.drop()
	n.mu.Lock()
	delete(n.opening, r.shard)
	delete(n.replicas, r.shard)
	n.mu.Unlock()
	return err
}

func contains(servers []raft.Server, id string) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return string(s.ID) == id })
}

// How often the groups are checked, and how soon again after a change.
const (
	placeEvery = 500 * time.Millisecond
	placeNext  = 50 * time.Millisecond
	// lostAfter is how long a node may be unreachable before a group no longer waits for it to
	// become a voter.
	lostAfter = 10 * time.Second
	// pollTime is how long a node may take to report its replicas.
	pollTime = 2 * time.Second
	// leadAgain is how long a node that was to lead a group, but does not, is not asked again: it
	// may be unable to reach the others, and each attempt costs the group its leader.
	leadAgain = 10 * time.Second
)

// placeGroups places the groups while this node leads the directory group.
func (n *Node) placeGroups() {
	heard := map[string]time.Time{}
	logged := map[string]bool{}
	begun := map[string]transfer{}
	lastErr := ""
	for wait := placeEvery; pause(n.ctx, wait); {
		wait = placeEvery
		if !n.leadsDirectory() || n.groups() == 0 {
			clear(heard)
			clear(logged)
			clear(begun)
			continue
		}
		v, err := n.pollAll(heard)
		if err == nil {
			n.logLost(v, logged)
			v.noteTransfers(begun, time.Now())
			if len(begun) > 0 {
				wait = placeNext
			}
			if a := v.plan(); a.what != "" {
				wait = placeNext
				n.cfg.Logger.Info("placing", "what", a.what, "group", a.shard, "node", a.node)
				err = n.execute(v, a)
				if a.what == "LEAD" { // even if it failed
					begun[a.node] = transfer{a.shard, time.Now()}
				}
			}
		}
		if err != nil {
			wait = placeEvery
			if err.Error() != lastErr {
				lastErr = err.Error()
				n.cfg.Logger.Warn("a group was not placed", "err", err)
			}
		}
	}
}

// pollAll requests the state of all nodes.
func (n *Node) pollAll(heard map[string]time.Time) (*view, error) {
	n.mu.Lock()
	v := &view{replicas: n.shape.Replicas, groups: make([]groupView, n.shape.Groups)}
	n.mu.Unlock()
	for _, server := range servers(n.node) {
		leaving, err := n.leaving(string(server.ID))
		if err != nil {
			return nil, err
		}
		if server.Suffrage != raft.Voter && !leaving {
			continue // the node does not have the directory yet
		}
		addr, _, err := cluster.CutReplica(server.Address)
		if err != nil {
			return nil, err
		}
		v.nodes = append(v.nodes, nodeView{id: string(server.ID), addr: string(addr), leaving: leaving, votes: server.Suffrage == raft.Voter, hosts: map[int]string{}})
	}
	answers := make([][]hosted, len(v.nodes))
	var wg sync.WaitGroup
	for i := range v.nodes {
		wg.Go(func() {
			answers[i], v.nodes[i].err = n.poll(v.nodes[i].id)
			v.nodes[i].reachable = v.nodes[i].err == nil
		})
	}
	wg.Wait()
	terms := make([]uint64, len(v.groups))
	for i := range v.nodes {
		node := &v.nodes[i]
		if node.reachable || heard[node.id].IsZero() {
			heard[node.id] = time.Now()
		}
		node.lost = time.Since(heard[node.id]) > lostAfter
		for _, h := range answers[i] {
			if h.Shard < 0 || h.Shard >= len(v.groups) {
				continue
			}
			node.hosts[h.Shard] = h.Replica
			if h.Leads && h.Term > terms[h.Shard] {
				terms[h.Shard] = h.Term
				v.groups[h.Shard] = groupView{leader: node.id, index: h.Index, membersCommitted: h.MembersCommitted, members: h.Members}
			}
		}
	}
	for shard := range v.groups {
		if g := &v.groups[shard]; g.leader == "" {
			p, err := n.place(shard)
			if err != nil {
				return nil, err
			}
			g.last = p.all()
		}
	}
	return v, n.noteLeaders(v)
}

// logLost logs, each time a node is lost, why it does not report its replicas. No groups are placed
// on such a node.
func (n *Node) logLost(v *view, logged map[string]bool) {
	for _, node := range v.nodes {
		if node.lost && !logged[node.id] {
			n.cfg.Logger.Warn("no groups are placed on a node that does not answer", "node", node.id, "err", node.err)
		}
		logged[node.id] = node.lost
	}
}

// poll returns the replicas that a node has. Until the node has opened them, poll returns an
// error, even for this node itself: otherwise they would count as lost.
func (n *Node) poll(id string) (out []hosted, err error) {
	reply, err := n.command(id, pollTime, "HOSTED")
	if err == nil {
		err = json.Unmarshal([]byte(reply), &out)
	}
	return out, err
}

// command sends CLUSTER NODE to a node.
func (n *Node) command(id string, most time.Duration, args ...string) (string, error) {
	args = append([]string{id}, args...)
	if id == n.id {
		return n.Manage(args)
	}
	addr, err := n.address(id)
	if err != nil {
		return "", err
	}
	reply, err := n.ask(addr, append([]string{"CLUSTER", "NODE"}, args...), most)
	if err != nil {
		return "", err
	}
	text, ok := strings.CutPrefix(reply, "+")
	if !ok {
		return "", fmt.Errorf("siftd: %s replied %q", addr, reply)
	}
	return text, nil
}

// noteLeaders records the leaders and members of groups in the directory, for nodes outside them.
func (n *Node) noteLeaders(v *view) error {
	for shard, g := range v.groups {
		if g.leader == "" {
			continue
		}
		now := place{Leader: g.leader}
		for _, m := range g.members {
			if m.Voter {
				now.Members = append(now.Members, m.ID)
			} else {
				now.Learners = append(now.Learners, m.ID)
			}
		}
		was, err := n.place(shard)
		if err != nil {
			return err
		}
		if was.Leader == now.Leader && slices.Equal(was.Members, now.Members) && slices.Equal(was.Learners, now.Learners) {
			continue
		}
		text, err := json.Marshal(now)
		if err != nil {
			return err
		}
		if err := n.recordCommand(append(append([]byte{placeCommand}, shardBytes(shard)...), text...)); err != nil {
			return err
		}
	}
	return nil
}

// execute executes an action of a plan.
func (n *Node) execute(v *view, a action) error {
	shard, index := strconv.Itoa(a.shard), strconv.FormatUint(a.index, 10)
	var err error
	switch a.what {
	case "DROP":
		_, err = n.command(a.node, 2*manageTimeout, "DROP", shard, v.node(a.node).hosts[a.shard], index)
	case "LEAD":
		_, err = n.command(v.groups[a.shard].leader, 2*manageTimeout, "LEAD", shard, a.node)
	case "ADD", "VOTE", "ADDRESS", "REMOVE":
		addr := "-"
		if to := v.node(a.node); to != nil {
			addr = to.addr
		}
		if a.what == "ADD" {
			var replica string
			replica, err = n.command(a.node, 2*manageTimeout, "HOST", shard)
			addr += "/" + replica
		}
		if err == nil {
			_, err = n.command(v.groups[a.shard].leader, 2*manageTimeout, a.what, shard, a.node, addr, index)
		}
	case "FORGET":
		err = n.remove(a.node)
	}
	if err != nil {
		return fmt.Errorf("%s of group %d and node %s: %w", a.what, a.shard, a.node, err)
	}
	return nil
}

// remove removes a node from the directory group.
func (n *Node) remove(id string) error {
	if id == n.id { // the next leader removes it
		return n.node.Do(context.Background(), (*raft.Raft).LeadershipTransfer)
	}
	if err := remove(n.node, id, 0); err != nil {
		return err
	}
	return n.recordCommand(append([]byte{forgetCommand}, id...))
}

var _ serve.Shards = (*Node)(nil)
