// Package siftd implements a node of a replicated sift serve. To clients, a cluster of such nodes
// is a Redis Cluster. The slots are divided among a fixed number of groups of nodes; when nodes
// join or leave, whole groups move.
package siftd

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/internal/serve"
)

// Config configures a node. Dir, Addr and RaftAddr are required.
type Config struct {
	// Dir holds everything that the node stores.
	Dir string
	// Addr is where the node listens for clients. Announce is where they, and the other
	// nodes, reach it. Default: Addr, which must then have a host other than 0.0.0.0.
	Addr, Announce string
	// RaftAddr is where the node listens for other nodes. Without Peers it must be a loopback
	// address. RaftAnnounce is where they reach it. Default: RaftAddr, as above.
	RaftAddr, RaftAnnounce string
	// Init creates a cluster of one node with this Shape, if Dir is empty. Zero fields of Shape
	// mean 16 groups and 3 replicas.
	Init  bool
	Shape Shape
	// Restore is a directory that Backup has created. With Init the node starts from it; the number
	// of groups is then that of the backup, and Shape.Groups is ignored.
	Restore string
	// Join lists client addresses of nodes whose cluster the node joins, if Dir is empty.
	Join []string
	// Password is required of clients; all nodes must have the same one. Without a password, Addr
	// and HTTPAddr must be loopback addresses.
	Password string
	// ClientTLS is for clients; nil means no TLS. JoinTLS is for this node as a client of other
	// nodes, such as those in Join.
	ClientTLS, JoinTLS *tls.Config
	// Peers encrypts and authenticates connections between nodes; nil means neither.
	Peers *cluster.TLS
	// HTTPAddr is the address of the status page, of /metrics and of what Backup reads; empty means
	// none of these.
	HTTPAddr string
	// FilterBytes bounds the memory of all filters; default: 1 GiB. RequestBytes bounds that of
	// requests, replies, queued transactions and watched keys of all clients; default: 256 MiB.
	// Both defaults are an eighth of the memory that the process may use if that is less than
	// 1 GiB. MaxClients bounds the connections; default: 10000. The limit of open files may lower
	// it. MaxBulkBytes bounds an argument, and thus a value; default and maximum: 8 MiB.
	FilterBytes, RequestBytes int64
	MaxClients, MaxBulkBytes  int
	// DB configures the databases, which share a block cache of CacheBytes, by default 64 MiB.
	// The default of MemtableBytes is 64 MiB divided by the number of groups, but at least 1 and at
	// most 16 MiB. May be nil.
	DB *sift.Options
	// Raft configures Raft. Default: Raft().
	Raft *raft.Config
	// Logger receives messages. Default: they are discarded.
	Logger *slog.Logger

	opens        func(shard int) // for tests: called before a replica is opened
	segmentBytes int             // for tests: the size of the groups' log files
}

// Raft returns cluster.Defaults with heartbeat and election timeouts of half a second.
func Raft() *raft.Config {
	c := cluster.Defaults()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 500*time.Millisecond, 500*time.Millisecond, 250*time.Millisecond
	return c
}

// maxBulk bounds a value: a command may write several at once, and they must fit in a log entry.
const maxBulk = 8 << 20

// maxGroups bounds the groups. Each takes files, connections and goroutines.
const maxGroups = 1024

// Node is a node of a cluster. Start creates one.
type Node struct {
	cfg    Config
	id     string
	mux    *cluster.Mux
	node   *cluster.Node // the directory
	front  *serve.Server
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	done   chan struct{} // closed when the node has stopped serving
	once   sync.Once

	mu       sync.Mutex
	shape    Shape  // zero while it is unknown
	first    *Shape // of the cluster being created, until the first start is complete; zero: the node joins
	replicas map[int]*replica
	opening  map[int]bool // replicas that are being opened or removed, without mu
	opened   bool         // whether the replicas on disk have been opened
	failed   error        // why the node stops
}

// Start starts a node. It returns when the node listens for clients, which may be before it has
// joined the cluster.
func Start(cfg Config) (_ *Node, err error) {
	if cfg, err = cfg.resolve(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, done: make(chan struct{}), replicas: map[int]*replica{}, opening: map[int]bool{}}
	empty, err := n.identify()
	if err != nil {
		return nil, err
	}
	var backup Manifest
	if empty && cfg.Restore != "" {
		if backup, err = readManifest(cfg.Restore); err != nil {
			return nil, err
		}
		n.cfg.Shape.Groups = len(backup.Sizes)
	}
	if err := n.beginRestore(empty); err != nil {
		return nil, err
	}
	if empty {
		if err := n.beginFirst(); err != nil {
			return nil, err
		}
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.mux, err = cluster.ListenMux(cfg.RaftAddr, cfg.RaftAnnounce, cfg.Peers); err != nil {
		return nil, err
	}
	n.cfg.RaftAnnounce = string(n.mux.Addr())
	if err := n.readCluster(); err != nil {
		return nil, err
	}
	if err := n.makeFront(); err != nil {
		return nil, err
	}
	if err := n.openGroups(); err != nil {
		return nil, err
	}
	if len(backup.Sizes) > 0 {
		if err := n.restore(backup); err != nil {
			return nil, err
		}
	}
	if err := n.front.Listen(); err != nil {
		return nil, err
	}
	n.tasks.Go(n.serve)
	n.tasks.Go(n.watchDirectory)
	n.tasks.Go(n.announce)
	n.tasks.Go(n.learnShape)
	n.tasks.Go(n.placeGroups)
	return n, nil
}

// makeFront creates the front end, which clients connect to.
func (n *Node) makeFront() (err error) {
	n.front, err = serve.New(nil, serve.Config{
		Addr: n.cfg.Addr, HTTPAddr: n.cfg.HTTPAddr, Password: n.cfg.Password, TLS: n.cfg.ClientTLS,
		FilterBytes: n.cfg.FilterBytes, RequestBytes: n.cfg.RequestBytes, MaxClients: n.cfg.MaxClients, MaxBulkBytes: n.cfg.MaxBulkBytes,
		Logger: n.cfg.Logger, Group: directory{n}, Leads: true, Shards: n, Pages: n.backupPages(),
	})
	return err
}

// openGroups opens the node's groups. If the node creates a cluster, the directory group is
// created last, so that an interrupted start is repeated.
func (n *Node) openGroups() (err error) {
	creates := n.creates()
	if creates != nil {
		n.setShape(*creates)
		for shard := range creates.Groups {
			if err := n.host(shard, true); err != nil {
				return err
			}
		}
	}
	transport, err := n.mux.Transport(0, directoryReplica(n.id), nil)
	if err != nil {
		return err
	}
	o := n.options(filepath.Join(n.cfg.Dir, "directory"), transport)
	o.Apply, o.SegmentBytes = applyDirectory, minSegment
	if creates != nil {
		o.Bootstrap = n.alone(n.directoryAddr())
	}
	if n.node, err = cluster.Open(o); err != nil {
		return err
	}
	if creates != nil {
		n.setOpened()
		return nil
	}
	shape, err := n.readShape()
	if err != nil || shape.Groups == 0 {
		return err
	}
	n.setShape(shape)
	return n.openHosted()
}

// openHosted opens the replicas that the node has on disk, and completes interrupted removals.
func (n *Node) openHosted() error {
	for shard := range n.groups() {
		dir := n.groupDir(shard)
		if err := os.RemoveAll(dir + droppedSuffix); err != nil {
			return err
		}
		if _, err := os.Stat(dir); err == nil {
			if err := n.host(shard, false); err != nil {
				return err
			}
		}
	}
	n.setOpened()
	return nil
}

func (n *Node) setOpened() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opened = true
}

func (n *Node) hasOpened() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.opened
}

// options returns the options that all groups of a node share.
func (n *Node) options(dir string, transport raft.Transport) cluster.Options {
	db := *n.cfg.DB
	if db.MemtableBytes == 0 {
		db.MemtableBytes = min(max(allMemtables/max(1, n.groups()), 1<<20), 16<<20)
	}
	return cluster.Options{ID: n.id, Dir: dir, Transport: transport, DB: &db, Raft: n.cfg.Raft}
}

// allMemtables is the total size of the memtables of a node's groups. Each gets an equal share, but
// at least 1 MiB and at most 16 MiB.
const allMemtables = 64 << 20

// alone returns the members of a group that consists of this node.
func (n *Node) alone(addr raft.ServerAddress) []raft.Server {
	return []raft.Server{{ID: raft.ServerID(n.id), Address: addr}}
}

// host opens the node's replica of a group, if it is not open.
func (n *Node) host(shard int, first bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.opening[shard]:
		return fmt.Errorf("group %d is being opened or removed", shard)
	case n.replicas[shard] != nil:
		return nil
	case n.ctx.Err() != nil:
		return n.ctx.Err()
	case shard < 0 || shard >= n.shape.Groups:
		return fmt.Errorf("there is no group %d here", shard)
	}
	n.opening[shard] = true
	n.mu.Unlock() // clients need the lock, and opening a large log takes a while
	if n.cfg.opens != nil {
		n.cfg.opens(shard)
	}
	r, err := n.openReplica(shard, first)
	n.mu.Lock()
	delete(n.opening, shard)
	if err == nil {
		n.replicas[shard] = r
	}
	return err
}

// replica returns the node's replica of a group, nil if it has none.
func (n *Node) replica(shard int) *replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.replicas[shard]
}

// member returns this node as a member of a group, nil if it is not a member.
func (n *Node) member(shard int) *cluster.Node {
	if r := n.replica(shard); r != nil {
		return r.node
	}
	return nil
}

// replicaList returns the node's replicas.
func (n *Node) replicaList() (out []*replica) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for shard := range n.shape.Groups {
		if r := n.replicas[shard]; r != nil {
			out = append(out, r)
		}
	}
	return out
}

// groups returns the number of groups, 0 while it is unknown.
func (n *Node) groups() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shape.Groups
}

// setShape records the shape of the cluster. Only the first call has an effect.
func (n *Node) setShape(s Shape) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shape.Groups == 0 {
		n.shape = s
		n.front.SetShards(s.Groups)
	}
}

// learnShape reads the shape of the cluster from the directory, or writes it there if the node
// creates the cluster. If the directory did not have it when the node started, learnShape opens
// the node's replicas.
func (n *Node) learnShape() {
	for ; n.ctx.Err() == nil; pause(n.ctx, 50*time.Millisecond) {
		creates := n.creates()
		s, err := n.readShape()
		switch {
		case err == nil && s.Groups > 0 && creates != nil:
			err = n.endFirst()
		case err == nil && s.Groups > 0:
			if n.setShape(s); !n.hasOpened() { // otherwise replicas may have been added or removed since
				if err := n.openHosted(); err != nil && n.ctx.Err() == nil {
					n.stop(err)
				}
			}
			return
		case err == nil && creates != nil && n.leadsDirectory():
			text, _ := json.Marshal(creates)
			err = n.recordCommand(append([]byte{shapeCommand}, text...))
		}
		if err != nil {
			n.cfg.Logger.Warn("the shape of the cluster is not recorded yet", "err", err)
		}
	}
}

// Validate returns the error with which Start would reject the Config itself, whatever is in Dir.
func (c Config) Validate() error {
	_, err := c.resolve()
	return err
}

func (c Config) resolve() (Config, error) {
	if c.Dir == "" || c.Addr == "" || c.RaftAddr == "" {
		return c, errors.New("siftd: Dir, Addr and RaftAddr are required")
	}
	announce, raftAnnounce := cmp.Or(c.Announce, c.Addr), cmp.Or(c.RaftAnnounce, c.RaftAddr)
	addrs := append([]string{c.Addr, announce, c.RaftAddr, raftAnnounce, cmp.Or(c.HTTPAddr, c.Addr)}, c.Join...)
	for _, addr := range addrs {
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
			return c, fmt.Errorf("siftd: %q is not an address such as 10.0.0.1:7000", addr)
		}
	}
	if c.Peers == nil && !isLoopback(c.RaftAddr) {
		return c, fmt.Errorf("siftd: %s is not a loopback address and requires TLS between nodes", c.RaftAddr)
	}
	for _, addr := range []string{c.Addr, c.HTTPAddr} {
		if addr != "" && c.Password == "" && !isLoopback(addr) {
			return c, fmt.Errorf("siftd: %s is not a loopback address and requires a password", addr)
		}
	}
	for _, addr := range []string{announce, raftAnnounce} {
		if isUnspecified(addr) {
			return c, fmt.Errorf("siftd: others cannot reach the node at %s: announce another address", addr)
		}
	}
	if c.Shape.Groups == 0 {
		c.Shape.Groups = 16
	}
	if c.Shape.Replicas == 0 {
		c.Shape.Replicas = 3
	}
	if c.Shape.Groups < 0 || c.Shape.Groups > maxGroups || c.Shape.Replicas < 0 {
		return c, fmt.Errorf("siftd: %d groups of %d replicas: there must be 1 to %d groups, of at least 1 replica", c.Shape.Groups, c.Shape.Replicas, maxGroups)
	}
	if c.MaxBulkBytes == 0 {
		c.MaxBulkBytes = maxBulk
	}
	if c.MaxBulkBytes > maxBulk {
		return c, fmt.Errorf("siftd: MaxBulkBytes must be at most %d", maxBulk)
	}
	db := sift.Options{}
	if c.DB != nil {
		db = *c.DB
	}
	if db.BlockCache == nil { // one for all groups
		if db.CacheBytes == 0 {
			db.CacheBytes = 64 << 20
		}
		db.BlockCache = sift.NewBlockCache(db.CacheBytes)
	}
	c.DB = &db
	if c.Raft == nil {
		c.Raft = Raft()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// ID returns the node's id: 40 hex digits.
func (n *Node) ID() string { return n.id }

// Addr returns the address where the node listens for clients.
func (n *Node) Addr() string { return n.front.Addr().String() }

// announced returns the address where clients reach the node.
func (n *Node) announced() string {
	if n.cfg.Announce != "" {
		return n.cfg.Announce
	}
	return n.Addr()
}

// HTTPAddr returns the address of the status page, "" if there is none.
func (n *Node) HTTPAddr() string {
	if n.cfg.HTTPAddr == "" {
		return ""
	}
	return n.front.HTTPAddr().String()
}

// Done returns a channel that is closed when the node has stopped serving: by Close, by a client's
// SHUTDOWN, or by a failure of a database. Close returns the failure.
func (n *Node) Done() <-chan struct{} { return n.done }

// fail makes the node stop.
func (n *Node) fail() { n.once.Do(func() { close(n.done) }) }

// serve serves clients.
func (n *Node) serve() {
	defer n.fail()
	if err := n.front.Serve(); err != nil {
		n.stop(err)
	}
}

// watchDirectory stops the node when its directory has failed. Close returns why.
func (n *Node) watchDirectory() {
	select {
	case <-n.node.FSM().Failed():
		n.fail()
	case <-n.ctx.Done():
	}
}

// stop makes the node stop because of an error, which Close returns.
func (n *Node) stop(err error) {
	n.mu.Lock()
	n.failed = errors.Join(n.failed, err)
	n.mu.Unlock()
	n.fail()
}

// lastReplies is how long clients may take to read their last replies when the node stops.
const lastReplies = 200 * time.Millisecond

// Close transfers the leadership of the groups that this node leads, and stops the node. Its error
// includes the one that had stopped the node before, if any.
func (n *Node) Close() error {
	if n.ctx.Err() == nil {
		var wg sync.WaitGroup
		for _, r := range n.replicaList() {
			// This fails if no other node is up to date: then nobody can lead instead.
			wg.Go(func() { _ = r.handOver("") })
		}
		wg.Wait()
		if n.node != nil && n.leadsDirectory() {
			_ = n.node.Do(context.Background(), (*raft.Raft).LeadershipTransfer) // as above
		}
	}
	n.cancel()
	var errs []error
	if n.front != nil {
		errs = append(errs, n.front.Close(lastReplies))
	}
	n.fail()
	n.tasks.Wait()
	for _, r := range n.replicaList() {
		errs = append(errs, r.close())
	}
	if n.node != nil {
		errs = append(errs, n.node.FSM().Err(), n.node.Close())
	}
	if n.mux != nil {
		errs = append(errs, n.mux.Close())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replicas = nil
	return errors.Join(append(errs, n.failed)...)
}
