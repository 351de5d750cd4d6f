package siftd

import (
	"slices"
	"time"
)

// A plan places the groups: it determines one change at a time. A node is first added to a group as
// a nonvoter, since receiving the data takes time. A node is removed only if most of the other
// voters are up to date.

// view is the cluster as the node that places the groups sees it.
type view struct {
	replicas int
	nodes    []nodeView
	groups   []groupView
}

type nodeView struct {
	id        string
	addr      string // for other nodes
	leaving   bool
	votes     bool // in the directory group
	reachable bool
	err       error          // why it is not reachable
	lost      bool           // unreachable for longer than lostAfter
	asked     bool           // was to lead a group a short time ago, but does not lead it yet
	hosts     map[int]string // the names of its replicas, by group
}

// transfer is a transfer of a group's leadership.
type transfer struct {
	shard int
	at    time.Time // when it began
}

// noteTransfers marks the nodes that were to lead a group but do not lead it yet. begun has an
// entry for each; it loses those that have succeeded or are old.
func (v *view) noteTransfers(begun map[string]transfer, now time.Time) {
	for id, b := range begun {
		if v.groups[b.shard].leader == id || now.Sub(b.at) > leadAgain {
			delete(begun, id)
		}
	}
	for i := range v.nodes {
		_, v.nodes[i].asked = begun[v.nodes[i].id]
	}
}

// groupView is a group as its leader sees it.
type groupView struct {
	leader           string // "" if unknown
	index            uint64 // of the last committed change of the members
	membersCommitted bool   // whether members are those after that change
	members          []memberView
	last             []string // if there is no known leader, the members that the directory has
}

type memberView struct {
	ID      string
	Replica string
	Voter   bool
	Lag     int64  // in entries; -1 if unknown
	Addr    string // of the node, as the group knows it
}

// action is a change. The node itself executes DROP. The leader of the group executes VOTE,
// ADDRESS, REMOVE, LEAD and, after the node has created an empty replica, ADD. The leader of the
// directory group executes FORGET. If what is "", there is no change.
type action struct {
	what  string
	shard int
	node  string
	index uint64
}

func (v *view) node(id string) *nodeView {
	for i := range v.nodes {
		if v.nodes[i].id == id {
			return &v.nodes[i]
		}
	}
	return nil
}

// isStaying reports whether a node exists and is not leaving.
func (v *view) isStaying(id string) bool {
	n := v.node(id)
	return n != nil && !n.leaving
}

// load returns how many groups a node is in.
func (v *view) load(id string) (n int) {
	for _, g := range v.groups {
		if g.has(id) || g.leader == "" && slices.Contains(g.last, id) {
			n++
		}
	}
	return n
}

func (g *groupView) has(id string) bool {
	return slices.ContainsFunc(g.members, func(m memberView) bool { return m.ID == id })
}

// has reports whether a member's node has the member's replica. Another replica of the group, as
// after a failed change, does not count.
func (n *nodeView) has(m memberView, shard int) bool {
	name, ok := n.hosts[shard]
	return ok && name == m.Replica
}

// ready reports whether a member of a group has a vote, can be reached, has its replica, and
// is not far behind.
func (v *view) ready(m memberView, shard int) bool {
	n := v.node(m.ID)
	return m.Voter && n != nil && n.reachable && n.has(m, shard) && m.Lag >= 0 && m.Lag <= nearEnough
}

// plan returns the next change.
func (v *view) plan() action {
	waiting := false
	for i := range v.groups {
		a, wait := v.updateMembers(i)
		if a.what != "" {
			return a
		}
		waiting = waiting || wait
	}
	if a := v.drop(); a.what != "" {
		return a
	}
	if !waiting {
		for i := range v.groups {
			if a := v.resize(i); a.what != "" {
				return a
			}
		}
		if a := v.spread(); a.what != "" {
			return a
		}
		if a := v.forget(); a.what != "" {
			return a
		}
	}
	return v.spreadLeaders()
}

// moved reports whether a member's node is reachable at a different address from the one that the
// group knows.
func (n *nodeView) moved(m memberView, shard int) bool {
	return n != nil && n.reachable && n.has(m, shard) && m.Addr != "" && m.Addr != n.addr
}

// updateMembers updates the address of a member, or promotes or removes one without a vote. If wait
// is true, other changes must wait.
func (v *view) updateMembers(shard int) (a action, wait bool) {
	g := &v.groups[shard]
	if g.leader == "" || !g.membersCommitted {
		return a, g.leader != ""
	}
	for _, m := range g.members {
		if v.node(m.ID).moved(m, shard) {
			return action{"ADDRESS", shard, m.ID, g.index}, true
		}
	}
	for _, m := range g.members {
		if m.Voter {
			continue
		}
		switch n := v.node(m.ID); {
		case n == nil || n.leaving || n.lost:
			return action{"REMOVE", shard, m.ID, g.index}, true
		case n.reachable && !n.has(m, shard):
			return action{"ADD", shard, m.ID, g.index}, true
		case n.reachable && m.Lag >= 0 && m.Lag <= nearEnough:
			return action{"VOTE", shard, m.ID, g.index}, true
		}
		wait = true
	}
	return a, wait
}

// drop makes a node remove its replica of a group that it is not a member of.
func (v *view) drop() action {
	for _, n := range v.nodes {
		for shard := range n.hosts {
			g := &v.groups[shard]
			if n.reachable && g.leader != "" && g.membersCommitted && !g.has(n.id) {
				return action{"DROP", shard, n.id, g.index}
			}
		}
	}
	return action{}
}

// resize returns the next change toward the right number of members of a group, on nodes that are
// not leaving and have their replicas.
func (v *view) resize(shard int) action {
	g := &v.groups[shard]
	if g.leader == "" {
		return action{}
	}
	staying, want := 0, 0
	var leaving []memberView
	for _, m := range g.members {
		if v.isStaying(m.ID) {
			staying++
		} else {
			leaving = append(leaving, m)
		}
	}
	for _, n := range v.nodes {
		if !n.leaving {
			want++
		}
	}
	want = min(want, v.replicas)
	for _, m := range g.members {
		if n := v.node(m.ID); n != nil && n.reachable && !n.has(m, shard) { // the replica was lost
			if a := v.leave(shard, m.ID); a.what != "" {
				return a
			}
		}
	}
	switch {
	case staying < want:
		if to := v.leastLoaded(g); to != "" {
			return action{"ADD", shard, to, g.index}
		}
	case len(leaving) > 0:
		return v.leave(shard, leaving[0].ID)
	case staying > want:
		most := slices.MaxFunc(g.members, func(a, b memberView) int { return v.load(a.ID) - v.load(b.ID) })
		return v.leave(shard, most.ID)
	}
	return action{}
}

// leastLoaded returns, of the nodes that can join a group, the one in the fewest groups, "" if
// there is none.
func (v *view) leastLoaded(g *groupView) (id string) {
	for _, n := range v.nodes {
		if n.reachable && !n.leaving && !g.has(n.id) && (id == "" || v.load(n.id) < v.load(id)) {
			id = n.id
		}
	}
	return id
}

// leave removes a member from a group, if enough others are up to date.
func (v *view) leave(shard int, id string) action {
	g := &v.groups[shard]
	voters, ready := 0, 0
	for _, m := range g.members {
		if m.Voter && m.ID != id {
			voters++
			if v.ready(m, shard) {
				ready++
			}
		}
	}
	if ready <= voters/2 {
		return action{}
	}
	if g.leader == id {
		return v.handOver(shard)
	}
	return action{"REMOVE", shard, id, g.index}
}

// handOver transfers the leadership to the member that leads the fewest groups.
func (v *view) handOver(shard int) action {
	g := &v.groups[shard]
	to := ""
	for _, m := range g.members {
		if m.ID != g.leader && v.ready(m, shard) && v.isStaying(m.ID) && !v.node(m.ID).asked && (to == "" || v.led(m.ID) < v.led(to)) {
			to = m.ID
		}
	}
	if to == "" {
		return action{}
	}
	return action{"LEAD", shard, to, 0}
}

// led returns how many groups a node leads.
func (v *view) led(id string) (n int) {
	for _, g := range v.groups {
		if g.leader == id {
			n++
		}
	}
	return n
}

// spread moves a group from the node that is in the most to the one in the fewest.
func (v *view) spread() action {
	most, least := "", ""
	for _, n := range v.nodes {
		if n.leaving || !n.reachable {
			continue
		}
		if most == "" || v.load(n.id) > v.load(most) {
			most = n.id
		}
		if least == "" || v.load(n.id) < v.load(least) {
			least = n.id
		}
	}
	if most == "" || v.load(most)-v.load(least) < 2 {
		return action{}
	}
	for shard := range v.groups {
		if g := &v.groups[shard]; g.leader != "" && g.membersCommitted && g.has(most) && !g.has(least) {
			return action{"ADD", shard, least, g.index}
		}
	}
	return action{}
}

// forget removes a leaving node from the directory group once it is in no other group, if a
// majority of the remaining voters can be reached.
func (v *view) forget() action {
	for _, n := range v.nodes {
		if n.leaving && v.load(n.id) == 0 && v.keepsMajority(n.id) && !slices.ContainsFunc(v.groups, func(g groupView) bool { return g.leader == "" }) {
			return action{"FORGET", 0, n.id, 0}
		}
	}
	return action{}
}

// keepsMajority reports whether most of the directory group's voters other than a node can be
// reached.
func (v *view) keepsMajority(without string) bool {
	voters, reachable := 0, 0
	for _, n := range v.nodes {
		if n.votes && n.id != without {
			voters++
			if n.reachable {
				reachable++
			}
		}
	}
	return reachable > voters/2
}

// spreadLeaders balances leadership: if a node leads at least two groups more than another, it
// transfers the leadership of one, to the other node or to the next node on the shortest path to
// it. A path goes from node to node by groups that one leads and the next is a member of. Each
// transfer shortens the rest of the path.
func (v *view) spreadLeaders() action {
	var best *path
	for _, n := range v.nodes {
		if w := v.pathFrom(n.id); w != nil && (best == nil || w.length < best.length) {
			best = w
		}
	}
	if best == nil {
		return action{}
	}
	return best.first
}

// path is a path along which leadership of groups can be transferred.
type path struct {
	to     string
	length int
	first  action
}

// pathFrom returns the shortest path from a node to one that leads at least two groups fewer, nil
// if there is none.
func (v *view) pathFrom(from string) *path {
	seen := map[string]bool{from: true}
	for queue := []path{{to: from}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for shard := range v.groups {
			g := &v.groups[shard]
			if g.leader != at.to {
				continue
			}
			for _, m := range g.members {
				if seen[m.ID] || !v.ready(m, shard) || !v.isStaying(m.ID) || v.node(m.ID).asked {
					continue
				}
				seen[m.ID] = true
				next := path{m.ID, at.length + 1, at.first}
				if at.length == 0 {
					next.first = action{"LEAD", shard, m.ID, 0}
				}
				if v.led(from)-v.led(m.ID) >= 2 {
					return &next
				}
				queue = append(queue, next)
			}
		}
	}
	return nil
}
