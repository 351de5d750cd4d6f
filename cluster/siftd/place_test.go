package siftd

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// simulated is a cluster that executes plans at once, and checks the invariants.
type simulated struct {
	t    *testing.T
	v    view
	made int // number of replicas
}

func newSimulated(t *testing.T, groups, replicas int) *simulated {
	s := &simulated{t: t, v: view{replicas: replicas, groups: make([]groupView, groups)}}
	s.add("n0")
	for i := range s.v.groups {
		s.v.groups[i] = groupView{leader: "n0", index: 1, membersCommitted: true, members: []memberView{{"n0", "", true, 0, ""}}}
		s.v.nodes[0].hosts[i] = ""
	}
	return s
}

func (s *simulated) add(id string) {
	s.v.nodes = append(s.v.nodes, nodeView{id: id, votes: true, reachable: true, hosts: map[int]string{}})
}

// do executes the next action, and reports whether there was one.
func (s *simulated) do() bool {
	s.t.Helper()
	a := s.v.plan()
	if a.what == "" {
		return false
	}
	n, g := s.v.node(a.node), &s.v.groups[a.shard]
	switch a.what {
	case "ADD":
		if _, ok := n.hosts[a.shard]; !ok {
			s.made++
			n.hosts[a.shard] = fmt.Sprint(s.made)
		}
		g.members = slices.DeleteFunc(g.members, func(m memberView) bool { return m.ID == a.node })
		g.members = append(g.members, memberView{a.node, n.hosts[a.shard], false, -1, n.addr})
		g.index++
	case "VOTE":
		for i := range g.members {
			if m := &g.members[i]; m.ID == a.node {
				if m.Lag < 0 || m.Lag > nearEnough {
					s.t.Errorf("%v, although the node is %d entries behind", a, m.Lag)
				}
				m.Voter = true
			}
		}
		g.index++
	case "ADDRESS":
		for i := range g.members {
			if m := &g.members[i]; m.ID == a.node {
				m.Addr = n.addr
			}
		}
		g.index++
	case "REMOVE":
		s.remove(a)
	case "DROP":
		if g.has(a.node) {
			s.t.Errorf("%v, although the node is a member", a)
		}
		delete(n.hosts, a.shard)
	case "LEAD":
		if !g.has(a.node) {
			s.t.Errorf("%v, although the node is not a member", a)
		}
		g.leader = a.node
	case "FORGET":
		for i := range s.v.nodes {
			if s.v.nodes[i].id == a.node {
				s.v.nodes = append(s.v.nodes[:i], s.v.nodes[i+1:]...)
				break
			}
		}
	}
	s.check()
	return true
}

func (s *simulated) remove(a action) {
	g := &s.v.groups[a.shard]
	if g.leader == a.node {
		s.t.Errorf("%v, although the node is the leader", a)
	}
	for i, m := range g.members {
		if m.ID == a.node {
			g.members = append(g.members[:i:i], g.members[i+1:]...)
			break
		}
	}
	g.index++
}

// check fails the test if a group has no reachable majority that is up to date, or if more
// than one member is catching up.
func (s *simulated) check() {
	s.t.Helper()
	learning := 0
	for i, g := range s.v.groups {
		voters, ready := 0, 0
		for _, m := range g.members {
			if !m.Voter {
				learning++
				continue
			}
			voters++
			if s.v.ready(m, i) {
				ready++
			}
		}
		if ready <= voters/2 {
			s.t.Fatalf("group %d has no majority that is reachable and up to date: %v", i, g)
		}
	}
	if learning > 1 {
		s.t.Fatalf("%d members are catching up at once", learning)
	}
}

// executeAll executes actions until there are no more. Members catch up after some rounds.
func (s *simulated) executeAll() (steps int) {
	s.t.Helper()
	for idle := 0; idle < 2; steps++ {
		if steps > 10000 {
			s.t.Fatal("the plans never end")
		}
		idle++
		if s.do() {
			idle = 0
		}
		for i := range s.v.groups {
			for j := range s.v.groups[i].members {
				if m := &s.v.groups[i].members[j]; m.Lag < 0 {
					m.Lag, idle = 5000, 0
				} else if m.Lag > 0 {
					m.Lag, idle = m.Lag/10, 0
				}
			}
		}
	}
	return steps
}

// even fails the test unless each group has as many members as it should, each with its
// replica, and the numbers of groups that nodes are in, and lead, differ by at most one.
func (s *simulated) even() {
	s.t.Helper()
	in, leads, want := map[string]int{}, map[string]int{}, 0
	for _, n := range s.v.nodes {
		in[n.id], leads[n.id] = 0, 0
		want++
		if s.v.load(n.id) != len(n.hosts) {
			s.t.Errorf("%s is in %d groups, but has %d replicas", n.id, s.v.load(n.id), len(n.hosts))
		}
	}
	for i, g := range s.v.groups {
		if len(g.members) != min(want, s.v.replicas) {
			s.t.Errorf("group %d has too few or too many members: %v", i, g)
		}
		leads[g.leader]++
		for _, m := range g.members {
			in[m.ID]++
		}
	}
	if spreadOf(in) > 1 || spreadOf(leads) > 1 {
		s.t.Errorf("uneven: the nodes are in %v groups, and lead %v", in, leads)
	}
}

// TestPlan: in whatever order nodes join and leave, the groups are placed evenly.
func TestPlan(t *testing.T) {
	for _, shape := range []Shape{{1, 3}, {16, 3}, {16, 1}, {7, 2}, {5, 5}} {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			s := newSimulated(t, shape.Groups, shape.Replicas)
			for next := 1; next < 60; next++ {
				if len(s.v.nodes) == 1 || random.IntN(2) == 0 && len(s.v.nodes) < 7 {
					s.add(fmt.Sprint("n", next))
				} else {
					s.v.nodes[random.IntN(len(s.v.nodes))].leaving = true
				}
				if random.IntN(3) > 0 {
					s.executeAll()
					if len(s.v.nodes) > 0 {
						s.even()
					}
				}
				if left := s.staying(); left == 0 {
					s.v.nodes[0].leaving = false
				}
			}
		})
	}
}

func (s *simulated) staying() (n int) {
	for _, node := range s.v.nodes {
		if !node.leaving {
			n++
		}
	}
	return n
}

// TestPlanLost: a lost node remains a member until it is marked as leaving, so that a group of
// three does not lose another one.
func TestPlanLost(t *testing.T) {
	s := newSimulated(t, 4, 3)
	for _, id := range []string{"n1", "n2"} {
		s.add(id)
	}
	s.executeAll()
	s.even()
	n := s.v.node("n2")
	n.reachable, n.lost = false, true
	for i := range s.v.groups { // the others elect one of them
		if g := &s.v.groups[i]; g.leader == "n2" {
			g.leader = "n0"
		}
	}
	s.v.node("n1").leaving = true
	s.executeAll()
	for i, g := range s.v.groups {
		if !g.has("n1") {
			t.Errorf("group %d has lost two of three: %v", i, g)
		}
	}
	s.v.node("n1").leaving, n.leaving = false, true
	s.add("n3")
	s.executeAll()
	if s.v.node("n2") != nil {
		t.Error("the lost node is still there")
	}
	s.even()
}

// TestPlanDuringElection: while groups have no leader, because its node is down, no other group
// moves: evenly placed groups remain so.
func TestPlanDuringElection(t *testing.T) {
	v := view{replicas: 2, groups: make([]groupView, 6)}
	for _, id := range []string{"a", "b", "c", "d"} {
		v.nodes = append(v.nodes, nodeView{id: id, votes: true, reachable: true, hosts: map[int]string{}})
	}
	for shard, members := range []string{"ab", "ab", "cd", "dc", "ca", "bd"} { // the first one leads
		g := &v.groups[shard]
		g.leader, g.index, g.membersCommitted = members[:1], 1, true
		for _, id := range strings.Split(members, "") {
			g.members = append(g.members, memberView{ID: id, Voter: true})
			v.node(id).hosts[shard] = ""
		}
	}
	if a := v.plan(); a.what != "" {
		t.Fatalf("%v, although the groups are placed evenly", a)
	}
	v.node("d").hosts[0] = "2" // left by an ADD that failed
	down := v.node("a")
	down.reachable, down.hosts = false, nil
	v.groups[0], v.groups[1] = groupView{last: []string{"a", "b"}}, groupView{last: []string{"a", "b"}}
	if a := v.plan(); a.what != "" {
		t.Errorf("%v, although nothing is known but that a node is down", a)
	}
}

// TestPlanForgetOthers: a reachable node is not removed from the directory group if the others have
// no majority there. Nodes that are down can be removed first, and so can those without a vote.
func TestPlanForgetOthers(t *testing.T) {
	s := newSimulated(t, 1, 1)
	for _, id := range []string{"n1", "n2", "n3", "n4", "n5", "n6"} {
		s.add(id)
	}
	for _, id := range []string{"n5", "n6"} { // they joined, and were gone before they got a vote
		n := s.v.node(id)
		n.votes, n.reachable, n.leaving = false, false, true
	}
	s.executeAll()
	if len(s.v.nodes) != 5 {
		t.Fatalf("the nodes are %v", s.v.nodes)
	}
	s.v.node("n1").leaving = true
	s.v.node("n3").reachable, s.v.node("n4").reachable = false, false
	s.executeAll()
	if s.v.node("n1") == nil {
		t.Fatal("n1 is removed, although two of the four others are down")
	}
	s.v.node("n4").leaving = true
	s.executeAll()
	if s.v.node("n4") != nil || s.v.node("n1") != nil {
		t.Errorf("the nodes are %v", s.v.nodes)
	}
}

// TestPlanReplicaLost: a voter whose node has no replica does not count as up to date, whatever the
// leader knew about it before. It joins again if most of the others are up to date.
func TestPlanReplicaLost(t *testing.T) {
	s := newSimulated(t, 1, 3)
	for _, id := range []string{"n1", "n2"} {
		s.add(id)
	}
	for s.do() {
		for i := range s.v.groups[0].members {
			s.v.groups[0].members[i].Lag = 0
		}
	}
	delete(s.v.node("n2").hosts, 0)
	s.v.node("n1").leaving = true
	if a := s.v.plan(); a.what != "REMOVE" || a.node != "n2" {
		t.Errorf("%v, want n2 removed so that it joins again", a)
	}
	s.v.node("n0").hosts[0] = "another"
	if a := s.v.plan(); a.what != "" {
		t.Errorf("%v, although only one other replica is up to date", a)
	}
	s.v.node("n0").hosts[0] = ""
	s.executeAll()
	s.even()
}

// TestLoadDuringElection: while a group has no leader, its members count, also those without a
// vote: otherwise a node that is receiving the group would get another one.
func TestLoadDuringElection(t *testing.T) {
	redis.SetLogger(silent{})
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{2, 1}})
	waitUntil(t, "the node leads both groups", func() bool {
		return n.groups() == 2 && n.replica(0) != nil && n.replica(1) != nil && n.replica(0).leads() && n.replica(1).leads()
	})
	if err := n.replica(1).node.Raft().Shutdown().Error(); err != nil { // no leader from now on
		t.Fatal(err)
	}
	waitUntil(t, "both members of the group count", func() bool {
		// The last report of the group's leader. It is repeated because a poll that began before
		// the shutdown may replace it.
		err := n.noteLeaders(&view{groups: []groupView{{}, {
			leader: "x", index: 7, membersCommitted: true, members: []memberView{{ID: "x", Voter: true}, {ID: "y"}},
		}}})
		if err != nil {
			return false
		}
		v, err := n.pollAll(map[string]time.Time{})
		return err == nil && v.groups[1].leader == "" && v.load("x") == 1 && v.load("y") == 1
	})
}

// TestPlanDeclined: a node that was to lead a group, but does not, is not asked again for a while.
func TestPlanDeclined(t *testing.T) {
	s := newSimulated(t, 4, 2)
	s.add("n1")
	s.executeAll()
	for i := range s.v.groups {
		s.v.groups[i].leader = "n0"
	}
	begun, now := map[string]transfer{}, time.Now()
	next := func(at time.Time) action { s.v.noteTransfers(begun, at); return s.v.plan() }
	a := next(now)
	if a.what != "LEAD" || a.node != "n1" {
		t.Fatalf("%v, want that n1 leads a group", a)
	}
	begun[a.node] = transfer{a.shard, now}
	if a := next(now.Add(time.Second)); a.what != "" {
		t.Errorf("%v, although n1 did not become a leader", a)
	}
	if a = next(now.Add(2 * leadAgain)); a.what != "LEAD" {
		t.Errorf("%v, want another attempt", a)
	}
	begun[a.node] = transfer{a.shard, now}
	s.v.groups[a.shard].leader = "n1"
	if a := next(now.Add(time.Second)); a.what != "LEAD" {
		t.Errorf("%v, although the last transfer has succeeded", a)
	}
}

// lockedBuffer is a buffer for the log of a node that is running.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestLostLogged: if the node that places the groups cannot reach another one, which then gets no
// groups, its log says why.
func TestLostLogged(t *testing.T) {
	redis.SetLogger(silent{})
	var logged lockedBuffer
	first := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 3}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	second := startAt(t, Config{Dir: t.TempDir(), Join: []string{first.Addr()}, Announce: "127.0.0.1:1"})
	waitUntil(t, "the log has the reason", func() bool {
		text := logged.String()
		return strings.Contains(text, second.ID()) && strings.Contains(text, "127.0.0.1:1:")
	})
}
