package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
)

var errBadCommand = errors.New("bad command")

// appendApply is the state machine of the tests: a command "key token" appends a token to a list,
// and returns the whole list. So later reads show whether a command was lost, duplicated or
// reordered. The previous value is kept for undo.
func appendApply(tx *Tx, command []byte) (any, error) {
	key, token, ok := strings.Cut(string(command), " ")
	if !ok {
		return nil, errBadCommand
	}
	old, err := tx.Get([]byte(key))
	if err != nil && !errors.Is(err, sift.ErrNotFound) {
		return nil, err
	}
	list := string(old) + token + ","
	if err := tx.Put([]byte(key), []byte(list)); err != nil {
		return nil, err
	}
	return list, tx.Put([]byte("!undo"), fmt.Appendf(nil, "%s %s", key, old))
}

// undo is a planted fault: it undoes the last command in a database, but keeps the applied index.
func undo(dir string) error {
	db, err := sift.Open(dir, nil)
	if err != nil {
		return err
	}
	last, err := db.Get([]byte("!undo"))
	if err == nil {
		key, old, _ := strings.Cut(string(last), " ")
		err = db.Put([]byte(key), []byte(old), nil)
	}
	return errors.Join(err, db.Close())
}

func getList(v *View, key string) (string, error) {
	list, err := v.Get([]byte(key))
	if errors.Is(err, sift.ErrNotFound) {
		err = nil
	}
	return string(list), err
}

func small() *sift.Options { return &sift.Options{MemtableBytes: 256 << 10} }

// quick is Raft with short timeouts and many snapshots.
func quick() *raft.Config {
	c := Defaults()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 150*time.Millisecond, 150*time.Millisecond, 100*time.Millisecond
	c.CommitTimeout = 5 * time.Millisecond
	c.SnapshotInterval, c.SnapshotThreshold, c.TrailingLogs = 100*time.Millisecond, 40, 10
	return c
}

// calm keeps its leader on a busy machine.
func calm(int) *raft.Config {
	c := quick()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = time.Second, time.Second, time.Second
	return c
}

// noSnapshots is calm, but takes snapshots only on request.
func noSnapshots(i int) *raft.Config {
	c := calm(i)
	c.SnapshotInterval, c.SnapshotThreshold = time.Hour, 1<<40
	return c
}

// group is a group of nodes in this process, with a network that can be cut.
type group struct {
	dir     string
	servers []raft.Server
	first   []raft.Server // those that create the group
	test    testHooks
	config  func(node int) *raft.Config
	net     *network

	mu    sync.Mutex
	nodes []*Node // nil while stopped
}

func newGroup(t testing.TB, n int) *group {
	g := &group{dir: t.TempDir(), config: func(int) *raft.Config { return quick() }, net: newNetwork(), nodes: make([]*Node, n)}
	for i := range n {
		id := fmt.Sprintf("n%d", i)
		g.servers = append(g.servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	g.first = g.servers
	return g
}

func (g *group) start(i int) error {
	var first []raft.Server
	if slices.Contains(g.first, g.servers[i]) {
		first = g.first
	}
	n, err := Open(Options{
		ID: string(g.servers[i].ID), Dir: filepath.Join(g.dir, string(g.servers[i].ID)), Apply: appendApply,
		Transport: g.net.join(g.servers[i].Address), Bootstrap: first, DB: small(), Raft: g.config(i),
		SegmentBytes: 4 << 10, test: g.test,
	})
	if err != nil {
		return fmt.Errorf("node %d: %w", i, err)
	}
	g.mu.Lock()
	g.nodes[i] = n
	g.mu.Unlock()
	return nil
}

func (g *group) stop(i int) error {
	g.mu.Lock()
	n := g.nodes[i]
	g.nodes[i] = nil
	g.mu.Unlock()
	if n == nil {
		return nil
	}
	g.net.leave(g.servers[i].Address)
	return n.Close()
}

func (g *group) node(i int) *Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.nodes[i]
}

func (g *group) startAll(t testing.TB) {
	t.Helper()
	for i := range g.nodes {
		if g.node(i) == nil {
			if err := g.start(i); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() { g.stopAll(t) })
}

func (g *group) stopAll(t testing.TB) {
	for i := range g.nodes {
		if err := g.stop(i); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
}

// leader returns the index of the leader, once it serves reads.
func (g *group) leader(t testing.TB) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for i := range g.nodes {
			n := g.node(i)
			if n == nil || n.raft.State() != raft.Leader {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err := n.linearize(ctx)
			cancel()
			if err == nil {
				return i
			}
		}
	}
	t.Fatal("no leader within a minute")
	return 0
}

// propose appends a token through the leader, and retries until that is known to have worked. On a
// busy machine the leader may change meanwhile: then propose reads the outcome from the next one.
func (g *group) propose(t testing.TB, command string) string {
	t.Helper()
	key, token, _ := strings.Cut(command, " ")
	old := g.list(t, key)
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		reply, err := g.node(g.leader(t)).Propose(ctx, []byte(command))
		cancel()
		if err == nil {
			return reply.(string)
		}
		if errors.Is(err, ErrUnknown) {
			if errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if list := g.list(t, key); list == old+token+"," {
				return list
			}
		}
	}
	t.Fatal("no node accepts the command after 100 tries")
	return ""
}

// list reads a key from the leader.
func (g *group) list(t testing.TB, key string) (list string) {
	t.Helper()
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := g.node(g.leader(t)).Read(ctx, func(v *View) (err error) { list, err = getList(v, key); return err })
		cancel()
		if err == nil {
			return list
		}
	}
	t.Fatal("no node serves reads after 100 tries")
	return ""
}

// contents returns the keys and values that a node holds.
func contents(t testing.TB, n *Node) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := n.ReadStale(func(v *View) error {
		for e, err := range v.Scan(nil) {
			if err != nil {
				return err
			}
			all[string(e.Key)] = string(e.Value)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// waitApplied waits until all nodes have applied the same commands, and returns their contents.
func (g *group) waitApplied(t testing.TB) map[string]string {
	t.Helper()
	g.propose(t, "settle x")
	all, err := g.converge(t)
	if err != nil {
		t.Error(err)
	}
	return all
}

// converge waits until all nodes have applied the same commands. It returns the leader's contents,
// and an error if other nodes differ.
func (g *group) converge(t testing.TB) (map[string]string, error) {
	t.Helper()
	leader := 0
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return nil, errors.New("the nodes do not reach the same applied index")
		}
		leader = g.leader(t)
		want, equal := g.node(leader).fsm.Applied(), true
		for i := range g.nodes {
			equal = equal && g.node(i).fsm.Applied() == want
		}
		if equal {
			break
		}
	}
	all := contents(t, g.node(leader))
	for i := range g.nodes {
		other := contents(t, g.node(i))
		if len(all) != len(other) {
			return all, fmt.Errorf("node %d holds %d keys, node %d %d", leader, len(all), i, len(other))
		}
		for key := range all {
			if all[key] != other[key] {
				return all, fmt.Errorf("%s: node %d holds %q, node %d %q", key, leader, all[key], i, other[key])
			}
		}
	}
	return all, nil
}

// network connects the nodes of a process. Each direction between two of them can be cut, so that
// requests or responses are lost.
type network struct {
	mu    sync.Mutex
	links map[raft.ServerAddress]*link
	cut   map[[2]raft.ServerAddress]bool
	// snapshot is called before a snapshot is sent, and data may wrap its reader; both may be nil
	snapshot func()
	data     func(io.Reader) io.Reader
	// appended is called with mu when a node has answered a request; it may be nil
	appended func(to raft.ServerAddress, args *raft.AppendEntriesRequest)
	// pipelines allows pipelines, which pay no attention to cut. sent is called before a request is
	// sent, by pipelines with piped set; it may be nil. Set both before the nodes start.
	pipelines bool
	sent      func(args *raft.AppendEntriesRequest, piped bool)
}

func newNetwork() *network {
	return &network{links: map[raft.ServerAddress]*link{}, cut: map[[2]raft.ServerAddress]bool{}}
}

// link is one node's end of the network.
type link struct {
	*raft.InmemTransport
	net  *network
	self raft.ServerAddress
}

func (w *network) join(addr raft.ServerAddress) *link {
	_, inmem := raft.NewInmemTransportWithTimeout(addr, time.Second)
	l := &link{inmem, w, addr}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[addr] = l
	for a, other := range w.links {
		inmem.Connect(a, other.InmemTransport)
		other.Connect(addr, inmem)
	}
	return l
}

func (w *network) leave(addr raft.ServerAddress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.links, addr)
	for _, other := range w.links {
		other.Disconnect(addr)
	}
}

func (w *network) setCut(from, to raft.ServerAddress, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[[2]raft.ServerAddress{from, to}] = cut
}

func (w *network) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cut)
}

// isolate cuts a node off, in both directions.
func (g *group) isolate(i int) {
	for _, s := range g.servers {
		g.net.setCut(g.servers[i].Address, s.Address, true)
		g.net.setCut(s.Address, g.servers[i].Address, true)
	}
}

var errLost = errors.New("lost on the network")

// call makes a request unless the network loses it.
func (l *link) call(to raft.ServerAddress, request func() error) error {
	if l.lost(l.self, to) {
		return errLost
	}
	if err := request(); err != nil {
		return err
	}
	if l.lost(to, l.self) {
		return errLost
	}
	return nil
}

func (l *link) lost(from, to raft.ServerAddress) bool {
	l.net.mu.Lock()
	cut := l.net.cut[[2]raft.ServerAddress{from, to}]
	l.net.mu.Unlock()
	if cut {
		time.Sleep(20 * time.Millisecond) // instead of a timeout
	}
	return cut
}

func (l *link) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if !l.net.pipelines {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	p, err := l.InmemTransport.AppendEntriesPipeline(id, to)
	return sentPipeline{p, l.net}, err
}

// sentPipeline is a pipeline that calls network.sent.
type sentPipeline struct {
	raft.AppendPipeline
	net *network
}

func (p sentPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.net.sent != nil {
		p.net.sent(args, true)
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

func (l *link) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if l.net.sent != nil {
		l.net.sent(args, false)
	}
	err := l.call(to, func() error { return l.InmemTransport.AppendEntries(id, to, args, resp) })
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if err == nil && l.net.appended != nil {
		l.net.appended(to, args)
	}
	return err
}

func (l *link) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	l.net.mu.Lock()
	hook, change := l.net.snapshot, l.net.data
	l.net.mu.Unlock()
	if hook != nil {
		hook()
	}
	if change != nil {
		data = change(data)
	}
	return l.InmemTransport.InstallSnapshot(id, to, args, resp, data)
}

func (l *link) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return l.call(to, func() error { return l.InmemTransport.RequestVote(id, to, args, resp) })
}

func (l *link) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return l.call(to, func() error { return l.InmemTransport.RequestPreVote(id, to, args, resp) })
}
