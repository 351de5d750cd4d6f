// Package siftd is a node of a replicated sift serve: a group of them looks like a
// Redis Cluster of one shard.
package siftd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/internal/serve"
)

// Config configures a node. Dir, Addr and RaftAddr are needed.
type Config struct {
	// Dir holds all that the node keeps.
	Dir string
	// Addr is where it listens for clients. Announce is where they reach it; default:
	// Addr.
	Addr, Announce string
	// RaftAddr is where it listens for other nodes. Without Peers it must be a loopback
	// address. RaftAnnounce is where they reach it; default: RaftAddr.
	RaftAddr, RaftAnnounce string
	// Init begins a group of one node, if Dir is empty.
	Init bool
	// Join are addresses for clients of nodes whose group the node joins, if Dir is empty.
	Join []string
	// Password is what clients are asked for; all nodes have the same.
	Password string
	// ClientTLS is for clients; nil: none. JoinTLS is for this node as a client of those
	// in Join.
	ClientTLS, JoinTLS *tls.Config
	// Peers encrypts between nodes; nil: nothing does.
	Peers *cluster.TLS
	// HTTPAddr is where the status page and /metrics are; empty: nowhere.
	HTTPAddr string
	// FilterBytes, RequestBytes, MaxClients and MaxBulkBytes are as in serve.Config;
	// MaxBulkBytes is at most 8 MiB, which is the default.
	FilterBytes, RequestBytes int64
	MaxClients, MaxBulkBytes  int
	// DB configures the database; may be nil.
	DB *sift.Options
	// Raft configures Raft. Default: Raft().
	Raft *raft.Config
	// Logger receives what goes wrong. Default: silent.
	Logger *slog.Logger
}

// Raft returns cluster.Defaults with timeouts of half a second.
func Raft() *raft.Config {
	c := cluster.Defaults()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 500*time.Millisecond, 500*time.Millisecond, 250*time.Millisecond
	return c
}

// maxBulk bounds a value: a command may write several at once, and a log entry holds
// them.
const maxBulk = 8 << 20

// Node is a node of a group. Make one with Start.
type Node struct {
	cfg           Config
	id            string
	node          *cluster.Node
	clients, http port
	hasHTTP       bool
	ctx           context.Context
	cancel        context.CancelFunc
	tasks         sync.WaitGroup
	done          chan struct{} // closed when nothing is served any more
	err           error         // why, after done

	mu      sync.Mutex
	current *running // nil between servers
}

// running is a server and its view of the group.
type running struct {
	server *serve.Server
	group  *group
}

// Start starts a node.
func Start(cfg Config) (_ *Node, err error) {
	if cfg, err = cfg.resolve(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, done: make(chan struct{})}
	fresh, err := n.identify()
	if err != nil {
		return nil, err
	}
	if fresh && !cfg.Init && len(cfg.Join) == 0 {
		return nil, fmt.Errorf("siftd: %s is empty: the node begins a group or joins one", cfg.Dir)
	}
	var open []func() error
	defer func() {
		for i := len(open) - 1; err != nil && i >= 0; i-- {
			err = errors.Join(err, open[i]())
		}
	}()
	if n.clients, err = openPort(cfg.Addr); err != nil {
		return nil, err
	}
	open = append(open, n.clients.ln.Close)
	if cfg.HTTPAddr != "" {
		n.hasHTTP = true
		if n.http, err = openPort(cfg.HTTPAddr); err != nil {
			return nil, err
		}
		open = append(open, n.http.ln.Close)
	}
	if n.cfg.Announce == "" {
		n.cfg.Announce = n.Addr()
	}
	var transport raft.Transport
	if cfg.Peers != nil {
		transport, err = cluster.ListenTLS(cfg.RaftAddr, cfg.RaftAnnounce, *cfg.Peers, nil)
	} else {
		transport, err = cluster.ListenTCP(cfg.RaftAddr, cfg.RaftAnnounce, nil)
	}
	if err != nil {
		return nil, err
	}
	n.cfg.RaftAnnounce = string(transport.LocalAddr())
	o := cluster.Options{ID: n.id, Dir: cfg.Dir, Apply: apply, Transport: transport, DB: cfg.DB, Raft: cfg.Raft}
	if cfg.Init {
		o.Bootstrap = []raft.Server{{ID: raft.ServerID(n.id), Address: transport.LocalAddr()}}
	}
	if n.node, err = cluster.Open(o); err != nil {
		return nil, err
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.tasks.Go(n.run)
	n.tasks.Go(func() { n.announce(fresh && !cfg.Init) })
	return n, nil
}

func (c Config) resolve() (Config, error) {
	if c.Dir == "" || c.Addr == "" || c.RaftAddr == "" {
		return c, errors.New("siftd: Dir, Addr and RaftAddr are needed")
	}
	if c.Peers == nil && !isLoopback(c.RaftAddr) {
		return c, fmt.Errorf("siftd: others can reach %s, which requires TLS between nodes", c.RaftAddr)
	}
	for _, addr := range []string{c.Addr, c.HTTPAddr} {
		if addr != "" && c.Password == "" && !isLoopback(addr) {
			return c, fmt.Errorf("siftd: others can reach %s, which requires a password", addr)
		}
	}
	if c.MaxBulkBytes == 0 {
		c.MaxBulkBytes = maxBulk
	}
	if c.MaxBulkBytes > maxBulk {
		return c, fmt.Errorf("siftd: MaxBulkBytes is above %d", maxBulk)
	}
	if c.Raft == nil {
		c.Raft = Raft()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// identify reads the node's id, which it gets at its first start. fresh says that it has
// no log.
func (n *Node) identify() (fresh bool, err error) {
	if err := os.MkdirAll(n.cfg.Dir, 0o755); err != nil {
		return false, err
	}
	if _, err := os.Stat(filepath.Join(n.cfg.Dir, "raft")); err != nil {
		if fresh = errors.Is(err, os.ErrNotExist); !fresh {
			return false, err
		}
	}
	path := filepath.Join(n.cfg.Dir, "id")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && fresh {
		var random [20]byte
		rand.Read(random[:])
		text = []byte(hex.EncodeToString(random[:]) + "\n")
		err = os.WriteFile(path, text, 0o644)
	}
	n.id = strings.TrimSpace(string(text))
	if err == nil && !isID(n.id) {
		err = fmt.Errorf("siftd: %s does not hold an id", path)
	}
	return fresh, err
}

// ID returns the node's name: 40 hex digits.
func (n *Node) ID() string { return n.id }

// Addr returns where it listens for clients.
func (n *Node) Addr() string { return n.clients.ln.Addr().String() }

// HTTPAddr returns where the status page is, "" if there is none.
func (n *Node) HTTPAddr() string {
	if !n.hasHTTP {
		return ""
	}
	return n.http.ln.Addr().String()
}

// Done returns a channel that is closed when the node has stopped serving, by Close, a
// client's SHUTDOWN, or a failure of its database, which Close returns.
func (n *Node) Done() <-chan struct{} { return n.done }

// Close hands the leadership to another node, if this one has it, and stops.
func (n *Node) Close() error {
	if n.ctx.Err() == nil {
		// Without another node that is up to date it fails; then there is nothing to
		// hand over to.
		_ = n.handOver("")
	}
	n.cancel()
	n.tasks.Wait()
	errs := []error{n.err, n.node.Close(), n.clients.ln.Close()}
	if n.hasHTTP {
		errs = append(errs, n.http.ln.Close())
	}
	return errors.Join(errs...)
}

// run has one server after another answer clients: one for each term in which the node
// leads, and one for each time between.
func (n *Node) run() {
	defer close(n.done)
	for n.ctx.Err() == nil {
		stop, err := n.serveOnce()
		if stop {
			n.err = errors.Join(err, n.node.FSM().Err())
			return
		}
		if err != nil {
			n.cfg.Logger.Warn("the node serves nobody", "err", err)
			pause(n.ctx, 50*time.Millisecond)
		}
	}
}

// lastReplies is how long clients of a server that is replaced have to take the replies of
// commands that it has carried out.
const lastReplies = 200 * time.Millisecond

// serveOnce runs a server until it has to be replaced, or the node is to stop.
func (n *Node) serveOnce() (stop bool, err error) {
	if err := n.node.FSM().Err(); err != nil {
		return true, err
	}
	g := &group{n: n, lost: make(chan struct{})}
	if g.leads = n.node.Raft().State() == raft.Leader; g.leads {
		if err := n.takeOver(g); err != nil {
			return false, err
		}
	}
	db, replaced, release, err := n.node.FSM().Hold()
	if err != nil {
		return true, err
	}
	defer release()
	cfg, err := n.serverConfig(g)
	if err != nil {
		return true, err
	}
	s, err := serve.New(db, cfg)
	if err != nil {
		return false, err
	}
	if err := s.Listen(); err != nil {
		return false, err
	}
	n.cfg.Logger.Info("serving", "leads", g.leads, "term", g.term)
	n.set(&running{s, g})
	defer n.set(nil)
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	stop = n.watch(g, replaced, served)
	err = s.Close(lastReplies)
	if served != nil && !stop {
		<-served
	}
	return stop, err
}

// takeOver begins a term: what leaders before have proposed is applied by then, or
// refused.
func (n *Node) takeOver(g *group) error {
	g.term = n.node.Raft().CurrentTerm()
	rand.Read(g.epoch[:])
	_, err := n.propose(append([]byte{beginCommand}, g.epoch[:]...))
	return err
}

func (n *Node) serverConfig(g *group) (serve.Config, error) {
	cfg := serve.Config{
		Addr: n.cfg.Addr, HTTPAddr: n.cfg.HTTPAddr, Password: n.cfg.Password, TLS: n.cfg.ClientTLS,
		FilterBytes: n.cfg.FilterBytes, RequestBytes: n.cfg.RequestBytes, MaxClients: n.cfg.MaxClients, MaxBulkBytes: n.cfg.MaxBulkBytes,
		Logger: n.cfg.Logger, Group: g, Leads: g.leads,
	}
	var err error
	if cfg.Listener, err = n.clients.next(); err != nil {
		return cfg, err
	}
	if n.hasHTTP {
		cfg.HTTPListener, err = n.http.next()
	}
	return cfg, err
}

// watch returns when a server has to be replaced, or the node is to stop.
func (n *Node) watch(g *group, replaced <-chan struct{}, served <-chan error) (stop bool) {
	tick := time.NewTicker(20 * time.Millisecond) // LeaderCh tells only of some changes
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return true
		case <-n.node.FSM().Failed():
			return true
		case <-served:
			return true
		case <-replaced:
			return false
		case <-g.lost:
			return false
		case <-n.node.Raft().LeaderCh():
		case <-tick.C:
		}
		r := n.node.Raft()
		if leads := r.State() == raft.Leader; leads != g.leads || leads && r.CurrentTerm() != g.term {
			return false
		}
	}
}

func (n *Node) set(r *running) {
	n.mu.Lock()
	n.current = r
	n.mu.Unlock()
}

// handOver makes another node the leader, if this one is: id, or any. Commands under way
// end before.
func (n *Node) handOver(id string) error {
	n.mu.Lock()
	r := n.current
	n.mu.Unlock()
	if r == nil || !r.group.leads {
		return nil
	}
	addr := raft.ServerAddress("")
	others := 0
	for _, server := range n.servers() {
		if string(server.ID) == id {
			addr = server.Address
		}
		if string(server.ID) != n.id && server.Suffrage == raft.Voter {
			others++
		}
	}
	if others == 0 {
		return errors.New("siftd: there is no other node to lead")
	}
	r.server.Retire()
	var f raft.Future
	if id == "" {
		f = n.node.Raft().LeadershipTransfer()
	} else {
		f = n.node.Raft().LeadershipTransferToServer(raft.ServerID(id), addr)
	}
	err := f.Error()
	if err != nil {
		r.group.lose() // another server goes on
	}
	return err
}

func (n *Node) propose(command []byte) (any, error) {
	return n.node.Propose(context.Background(), command)
}

// confirm is cluster.Node.Confirm; it ends when the node no longer leads, or stops.
func (n *Node) confirm(term uint64) error { return n.node.Confirm(n.ctx, term) }

func (n *Node) servers() []raft.Server {
	f := n.node.Raft().GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

func (n *Node) knows(id string) bool {
	for _, server := range n.servers() {
		if string(server.ID) == id {
			return true
		}
	}
	return false
}

// address returns where clients reach a node, "" if that is not known.
func (n *Node) address(id string) (addr string, err error) {
	err = n.node.ReadStale(func(v *cluster.View) error {
		value, err := v.Get([]byte(nodeKeys + id))
		if errors.Is(err, sift.ErrNotFound) {
			return nil
		}
		addr = string(value)
		return err
	})
	return addr, err
}
