package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift"
)

// A server of a group executes commands like any other server, on its database and under its locks.
// Only writes differ: the leader proposes each batch to the group, which applies it on all nodes,
// including the leader. So reads, the time and random choices are the leader's, and the other nodes
// receive the result. Locks are held until the batch is applied, so the next command sees it.
//
// A server lives for one term of a leader, or as long as the node is a follower; after a change
// another server replaces it. So state in memory, such as filters, belongs to one leader, and all
// nodes refuse a write that a leader began before it was replaced.
//
// Before replies are sent, the leader makes sure that no other leader was elected before the data
// that they show was read: see session.finishWrites.

// Group replicates the store of a server. Its methods are called by many goroutines.
type Group interface {
	// Write applies a batch on the nodes of the group, and returns when it is in this node's
	// database. Like Confirm, it succeeds only if no other leader was elected before it was called.
	// An error that matches ErrNotWritten means that the batch is not and will not be applied;
	// after other errors it may be.
	Write(b *sift.Batch) error
	// MaxBatch returns the largest size of a batch that Write accepts.
	MaxBatch() int
	// Confirm returns nil if no other leader was elected before it was called.
	Confirm() error
	// Leader returns the address at which clients reach the leader. It waits for a while if none
	// is known, and returns "" if there is still none.
	Leader(ctx context.Context) string
	// Replicas returns how many other nodes hold everything that was written. It waits until there
	// are n, at most for the duration most, or until ctx ends.
	Replicas(ctx context.Context, n int, most time.Duration) int
	// State returns the state of the group.
	State() GroupState
	// Join adds a node, or changes the address of a member. With vote the node becomes a voter.
	// Join returns the commit index.
	Join(node GroupMember, vote bool) (committed uint64, err error)
	// Forget removes a node.
	Forget(id string) error
	// Failover makes a node the leader; "": any other.
	Failover(id string) error
}

// ErrNotWritten means that a batch is not and will not be applied.
var ErrNotWritten = errors.New("serve: the write was not executed")

// GroupState is what a node knows about its group.
type GroupState struct {
	Self, Leader string // ids; Leader is "" if there is none
	// Term counts elections. Committed and Applied are positions in the log.
	Term, Committed, Applied uint64
	Members                  []GroupMember
}

// GroupMember is a node of a group.
type GroupMember struct {
	ID       string
	Addr     string // for clients
	RaftAddr string
	Voter    bool
	Lag      int64 // log entries that it lacks, as far as the leader knows; -1: not known
}

// groupClock keeps the time that clients see from going back, when the clock is set back or when
// the next leader's clock is behind. Before a reply reports a key as expired, the time at which the
// leader saw that is written to the group, and later leaders start from it.
type groupClock struct {
	floor   atomic.Int64 // ms: nowMs never returns less
	seen    atomic.Int64 // ms: a key was seen to be expired then
	decided atomic.Int64 // ms: written
	mu      sync.Mutex   // held by the writer
}

var metaTime = []byte{spaceMeta, 't', 'i', 'm', 'e'}

// The replies after a failed write to the group. Clients may retry after CLUSTERDOWN, and many
// libraries do so by themselves.
var (
	errNotWritten = errors.New("CLUSTERDOWN the leader has changed; the command was not executed")
	errOutcome    = errors.New("UNKNOWN the leader has changed; the command may or may not have been executed")
)

// follows reports whether another node leads the server's group.
func (s *Server) follows() bool { return s.cfg.Group != nil && !s.cfg.Leads }

// leads reports whether the server executes commands that only the leader of its group executes.
func (s *Server) leads() bool { return s.cfg.Leads && !s.retired.Load() && !s.failed.Load() }

// mode returns the server's mode in HELLO and INFO.
func (s *Server) mode() string {
	if s.cfg.Group != nil {
		return "cluster"
	}
	return "standalone"
}

// role returns the server's role in HELLO and INFO. A node that leads no shard is a slave, as in
// CLUSTER NODES.
func (s *Server) role() string {
	if s.follows() || s.shards != nil && len(s.shards.all(false)) > 0 && len(s.shards.all(true)) == 0 {
		return "slave"
	}
	return "master"
}

// begin makes the first write to a group's store. On followers it does nothing.
func (s *Server) begin(b *sift.Batch) error {
	if s.follows() {
		return nil
	}
	return s.cfg.Group.Write(b)
}

// readTime starts the clock from the time that earlier leaders have written.
func (s *Server) readTime() error {
	v, err := s.db.Get(metaTime)
	switch {
	case errors.Is(err, sift.ErrNotFound):
		return nil
	case err != nil:
		return err
	case len(v) != 8:
		return errHead
	}
	t := int64(binary.BigEndian.Uint64(v))
	s.clock.decided.Store(t)
	raise(&s.clock.floor, t)
	return nil
}

func raise(at *atomic.Int64, to int64) {
	for was := at.Load(); to > was && !at.CompareAndSwap(was, to); was = at.Load() {
	}
}

// store writes a batch.
func (s *Server) store(b *sift.Batch) error {
	if s.cfg.Group != nil {
		return s.cfg.Group.Write(b)
	}
	return s.db.Write(b, sift.NoSync)
}

// failure returns the error for clients when a write has failed. In a group, confirm then fails as
// well, and abortError returns the reply.
func (s *Server) failure() error {
	if s.cfg.Group == nil {
		return errReadOnly
	}
	return errOutcome
}

// abortError returns the reply that replaces those that must not be sent. If the client has
// written, its writes may or may not be applied.
func (c *client) abortError(err error) error {
	switch {
	case c.srv.cfg.Group == nil:
		return err
	case c.wrote:
		return errOutcome
	}
	return errNotWritten
}

// sawExpired records that an expired key was found.
func (s *Server) sawExpired(expiry int64) {
	if s.cfg.Group != nil && expiry > s.clock.decided.Load() {
		now := s.nowMs()
		raise(&s.clock.floor, now) // the clock may be set back
		raise(&s.clock.seen, now)
	}
}

// confirm is sync for a group: it returns nil if no command has read stale data.
func (s *Server) confirm() error {
	if s.failed.Load() {
		return errNotWritten
	}
	if err := s.decideTime(); err != nil {
		return err
	}
	return s.cfg.Group.Confirm()
}

// decideTime writes the time up to which keys were seen to be expired. One client writes at a time,
// so that the written time never goes back.
func (s *Server) decideTime() error {
	c := &s.clock
	if c.seen.Load() <= c.decided.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen.Load()
	if seen <= c.decided.Load() {
		return nil
	}
	var b sift.Batch
	b.Put(metaTime, binary.BigEndian.AppendUint64(nil, uint64(seen)))
	if err := s.put(&b); err != nil {
		return err
	}
	c.decided.Store(seen)
	return nil
}

// Retire stops a leader from executing further commands, and returns when the replies to those in
// progress are confirmed. After that, another node may lead, or the server may be closed.
func (s *Server) Retire() {
	s.world.Lock()
	s.retired.Store(true)
	s.world.Unlock()
	s.unconfirmed.Lock() // no client takes it any more
	defer s.unconfirmed.Unlock()
}

// needsLeader reports whether only the leader of a group executes a command.
func (cmd *command) needsLeader() bool {
	switch cmd.name {
	case "scan", "keys", "randomkey", "dbsize", "flushall", "flushdb", "exec", "wait":
		return true
	}
	return !cmd.noKeys()
}

// canBeStale reports whether a follower executes a command other than EXEC for a client that has
// sent READONLY.
func (cmd *command) canBeStale() bool {
	switch cmd.name {
	case "get", "mget", "strlen", "getrange", "substr", "getbit", "bitcount", "bitpos", "lcs", "exists", "touch", "type", "object",
		"ttl", "pttl", "expiretime", "pexpiretime":
		return true
	}
	return false
}

// canBeStale reports whether a follower executes a command for a client that has sent READONLY: an
// EXEC if it executes all queued commands, since they may have been queued while the node led.
func (c *client) canBeStale(cmd *command) bool {
	if cmd.name != "exec" {
		return cmd.canBeStale()
	}
	for _, args := range c.queue {
		if queued := lookup(args[0]); queued.needsLeader() && !queued.canBeStale() {
			return false
		}
	}
	return true
}

// route reports whether this node of a group executes a command. If not, it redirects the client to
// the node that does, or replies with an error.
func (c *client) route(cmd *command, args [][]byte) bool {
	if text := notInGroup(cmd, args); text != "" {
		c.reject(cmd, text)
		return false
	}
	if !cmd.needsLeader() {
		return c.srv == c.srv.root || c.queueing || !cmd.aboutNode() || c.leaveServer()
	}
	if c.srv.shards != nil {
		return c.routeShard(cmd, args)
	}
	slot, ok := c.slotOf(cmd, args)
	if !ok {
		c.crossSlot(cmd)
		return false
	}
	s := c.srv
	switch {
	case s.follows() && cmd.name == "exec" && (c.broken || !c.queueing):
		return true // EXEC reports it
	case s.follows() && c.readsOld && c.canBeStale(cmd):
		if err := s.readGens(); err != nil && !errors.Is(err, sift.ErrNotFound) {
			return !c.reply(err)
		}
		return true
	case s.leads():
		return true
	case cmd.name == "wait":
		c.reject(cmd, "ERR WAIT cannot be used with replica instances. Please also note that writes to replicas are just local and are not propagated.")
		return false
	}
	c.sendTo(cmd, slot, s.cfg.Group.Leader(s.ctx))
	return false
}

// crossSlot rejects a command whose keys are in different slots. If it is an EXEC, the transaction
// ends.
func (c *client) crossSlot(cmd *command) {
	if cmd.name == "exec" {
		c.dropQueue()
		c.unwatch()
	}
	cmd.rejected.Add(1)
	c.fault("CROSSSLOT Keys in request don't hash to the same slot")
}

// notInGroup returns why a group does not execute a command, or "".
func notInGroup(cmd *command, args [][]byte) string {
	switch cmd.name {
	case "select":
		if string(args[1]) != "0" {
			return "ERR SELECT is not allowed in cluster mode"
		}
	case "move", "swapdb":
		return "ERR " + cmd.upper + " is not allowed in cluster mode"
	case "copy":
		for _, a := range args[3:] {
			if is(a, "DB") {
				return "ERR COPY with DB is not allowed in cluster mode"
			}
		}
	case "config":
		for i := 2; is(args[1], "SET") && i < len(args); i += 2 {
			if is(args[i], "appendfsync") || is(args[i], "requirepass") {
				return "ERR CONFIG SET failed (possibly related to argument '" + string(args[i]) + "') - can't set immutable config"
			}
		}
	}
	return ""
}

// stillLeads reports whether the node still leads, if it did when the command was admitted;
// otherwise it replies with an error. World is held. From here on, replies wait for confirm.
func (c *client) stillLeads(cmd *command) bool {
	s := c.srv
	if !s.cfg.Leads || !cmd.needsLeader() {
		return true
	}
	if s.retired.Load() {
		if cmd.name == "exec" {
			c.dropQueue()
			c.unwatch()
		}
		c.w.Error(errNotWritten.Error())
		return false
	}
	c.needSync = true
	if !c.unconfirmed {
		c.unconfirmed = true
		s.unconfirmed.RLock()
	}
	return true
}

// waitReplicas is WAIT in a group. It replies with the number of other nodes that have all writes,
// the lowest number among the groups that the node leads. It waits for n nodes, for up to ms
// milliseconds, 0 for no limit, or until the client hangs up. A leader may retire meanwhile. In a
// transaction it does not wait.
func (c *client) waitReplicas(n, ms int64) {
	if c.inExec {
		c.w.Int(int64(c.srv.cfg.Group.Replicas(c.srv.serving, 0, 0)))
		return
	}
	if err := c.finishWrites(); err != nil {
		c.abort(err)
		return
	}
	if ms == 0 {
		ms = int64(365 * 24 * time.Hour / time.Millisecond)
	}
	most := time.Duration(min(ms, 1<<40)) * time.Millisecond
	ctx, cancel := context.WithTimeout(c.srv.serving, most)
	defer cancel()
	go c.watchConn(ctx, cancel)
	led := []*Server{c.srv}
	if c.srv.shards != nil {
		led = c.srv.shards.all(true)
	}
	least := -1
	for _, s := range led {
		if have := s.cfg.Group.Replicas(ctx, int(min(n, 1<<20)), most); least < 0 || have < least {
			least = have
		}
	}
	c.w.Int(int64(max(0, least)))
}
