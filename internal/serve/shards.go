package serve

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// A node of several groups has a front end, which owns the clients, and a server with a database
// for each group that it is in. A command goes to the server of its key's slot. The writes that a
// client's commands have collected for these servers are finished concurrently, before the replies
// are sent. Commands on all keys of the node are executed by the servers that lead, one after the
// other, after all collected writes are finished. The front end executes commands about the node.
// Other commands without a key do not depend on the server.

// Shards are the groups that share the slots, in the order of the slots. Its methods are called by
// many goroutines.
type Shards interface {
	// Leader returns the address at which clients reach the leader of a group, and whether it is
	// this node, whose server is attached or about to be. If none is known, it waits for a while,
	// but only until ctx ends, and returns "" if there is still none. It returns a leader that is
	// known even if ctx has ended.
	Leader(ctx context.Context, shard int) (addr string, self bool)
	// States returns the states of the groups. For groups that the node is not in, it returns only
	// the leader and the members.
	States() []GroupState
	// Manage executes CLUSTER NODE, which nodes send to each other.
	Manage(args []string) (reply string, err error)
}

// shards are the servers of a node, by shard; nil where the node has none.
type shards struct {
	Shards
	servers atomic.Pointer[[]atomic.Pointer[Server]]
	wait    time.Duration // shardWait, except in tests
}

// SetShards sets the number of shards of a front end, once it is known.
func (s *Server) SetShards(n int) {
	servers := make([]atomic.Pointer[Server], n)
	s.shards.servers.Store(&servers)
}

// Attach starts a server that has a Front, and assigns it the slots of its shard.
func (s *Server) Attach() {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.work()
	(*s.shards.servers.Load())[s.cfg.Shard].Store(s)
}

// Detach undoes Attach: it returns when no client uses the server, and its background work has
// ended.
func (s *Server) Detach() {
	(*s.shards.servers.Load())[s.cfg.Shard].CompareAndSwap(s, nil)
	s.cancel()
	s.gate.Lock()
	s.detached = true
	s.gate.Unlock()
	s.tasks.Wait()
	if b := s.keyCounts.base.Load(); b != nil {
		s.keyCounts.drop(b)
	}
	s.unloadFilters()
}

// at returns the server of a shard, nil if the node has none at the moment.
func (f *shards) at(shard int) *Server {
	servers := f.servers.Load()
	if servers == nil || shard >= len(*servers) {
		return nil
	}
	return (*servers)[shard].Load()
}

// n returns how many shards there are, 0 while it is not known.
func (f *shards) n() int {
	if servers := f.servers.Load(); servers != nil {
		return len(*servers)
	}
	return 0
}

// all returns the servers of a node, or those that lead.
func (f *shards) all(leading bool) (out []*Server) {
	for i := range f.n() {
		if s := f.at(i); s != nil && (!leading || s.cfg.Leads) {
			out = append(out, s)
		}
	}
	return out
}

// shardOf returns which of n shards a slot belongs to: the first slots to the first shard.
func shardOf(slot, n int) int { return slot * n / numSlots }

// firstSlot returns the first slot of a shard.
func firstSlot(shard, n int) int { return (shard*numSlots + n - 1) / n }

// session is a client's use of one server, from the first command that goes to it until the writes
// of its commands are finished.
type session struct {
	srv         *Server
	writes      *writes
	pendedIn    uint64
	unconfirmed bool
}

// mostAside is how many sessions a client may have in addition to the current one.
const mostAside = 63

// session returns the client's current session.
func (c *client) session() session { return session{c.srv, c.writes, c.pendedIn, c.unconfirmed} }

// resume makes t the current session.
func (c *client) resume(t session) {
	t.writes.clock = c.clock
	c.srv, c.writes, c.pendedIn, c.unconfirmed = t.srv, t.writes, t.pendedIn, t.unconfirmed
}

// switchTo makes the client use a server, and sets its current session aside. It returns false, and
// does nothing, if the client might have to wait while it holds locks that others wait for.
func (c *client) switchTo(s *Server, cmd *command) bool {
	if c.srv == c.srv.root || c.asideErr != nil || cmd.flags&(exclusive|unlocked) != 0 {
		return false
	}
	size := c.pending.Size()
	for i, t := range c.aside {
		if t.srv == s && t.writes.held {
			c.aside[i] = c.session()
			c.resume(t)
			return true
		}
		if size += t.writes.pending.Size(); t.srv == s {
			return false
		}
	}
	if len(c.aside) == mostAside || size > pendBytes || !s.gate.TryRLock() {
		return false
	}
	if s.detached || !s.world.TryRLock() {
		s.gate.RUnlock()
		return false
	}
	w := s.collectors.Get().(*writes)
	w.srv, w.held, w.db = s, true, c.db
	c.aside = append(c.aside, c.session())
	c.resume(session{srv: s, writes: w})
	return true
}

// finishAside finishes the writes of the sessions that were set aside. It joins errors into
// asideErr.
func (c *client) finishAside() {
	if len(c.aside) == 0 {
		return
	}
	errs := make([]error, len(c.aside))
	var all sync.WaitGroup
	replies := len(c.w.Buf) > 0
	for i := range c.aside {
		all.Go(func() { errs[i] = c.aside[i].finishWrites(replies) })
	}
	all.Wait()
	for i, t := range c.aside {
		t.srv.gate.RUnlock()
		if errs[i] == nil {
			c.srv.collectors.Put(t.writes)
		}
	}
	clear(c.aside)
	c.aside = c.aside[:0]
	c.asideErr = errors.Join(append(errs, c.asideErr)...)
}

// finishAll is finishWrites if sessions were set aside.
func (c *client) finishAll() error {
	now := make(chan error, 1)
	t, replies := c.session(), len(c.w.Buf) > 0
	go func() { now <- t.finishWrites(replies) }()
	c.finishAside()
	err := errors.Join(<-now, c.asideErr)
	c.asideErr, c.unconfirmed = nil, false
	return err
}

// release releases world, so that others can run. It also finishes the sessions that were set
// aside, because others may wait for locks that the client holds there.
func (c *client) release() {
	c.finishAside()
	c.writes.release()
}

// enter makes the client use a server, until useRoot. It returns false if the server is detached.
func (c *client) enter(s *Server) bool {
	if c.srv == s {
		return true
	}
	s.gate.RLock()
	if s.detached {
		s.gate.RUnlock()
		return false
	}
	c.srv, c.writes.srv = s, s
	return true
}

// useRoot makes the client use the root of its front end again, after finishWrites.
func (c *client) useRoot() {
	if s := c.srv; s != c.srv.root {
		c.srv, c.writes.srv = s.root, s.root
		s.gate.RUnlock()
	}
}

// leaveServer finishes the client's writes, so that it can use another server. It reports whether
// that succeeded.
func (c *client) leaveServer() bool {
	if err := c.finishWrites(); err != nil {
		c.abort(err)
		return false
	}
	c.useRoot()
	c.wrote = false
	c.safe = len(c.w.Buf)
	return true
}

// aboutNode reports whether a command without a key shows or changes the state of the node or its
// groups. The root executes it: a client that uses the server of a group would see only that group,
// and a command that replaces the server would wait for its own client. In a transaction, the
// server of the keys executes the command, but with the root's group.
func (cmd *command) aboutNode() bool {
	switch cmd.name {
	case "cluster", "info", "hello", "save", "bgsave", "bgrewriteaof":
		return true
	}
	return false
}

// coversNode reports whether a command covers all keys that a node holds.
func (cmd *command) coversNode() bool {
	switch cmd.name {
	case "scan", "keys", "randomkey", "dbsize", "flushall", "flushdb", "wait":
		return true
	}
	return false
}

// shardWait is how long a client waits if a shard has no leader, or if this node leads it but has
// not attached its server yet. The commands whose replies are sent together share it.
const shardWait = 5 * time.Second

// routeShard is route for a node of several groups.
func (c *client) routeShard(cmd *command, args [][]byte) bool {
	f := c.srv.shards
	n := f.n()
	if n == 0 {
		c.reject(cmd, "CLUSTERDOWN The cluster is down")
		return false
	}
	if cmd.coversNode() {
		if c.queueing {
			c.reject(cmd, "ERR "+cmd.upper+" is not allowed in transactions of a cluster")
			return false
		}
		return true
	}
	slot, ok := c.slotOf(cmd, args)
	shard := shardOf(slot, n)
	switch {
	case ok && slot < 0 && c.watchAt != nil:
		shard = c.watchAt.cfg.Shard
	case ok && slot < 0:
		return c.leaveServer()
	case ok && c.watchAt != nil && (cmd.name == "exec" || cmd.name == "watch"):
		ok = c.watchAt.cfg.Shard == shard
	}
	if !ok {
		c.crossSlot(cmd)
		return false
	}
	for {
		s := f.at(shard)
		if c.srv != s && (s == nil || !c.switchTo(s, cmd)) && !c.leaveServer() {
			return false
		}
		if s != nil && c.enter(s) {
			if c.executesHere(cmd) {
				c.moveWatch(cmd)
				return true
			}
			if !c.leaveServer() {
				return false
			}
		}
		if addr, again := c.findLeader(shard); !again {
			c.sendTo(cmd, slot, addr)
			return false
		}
	}
}

// findLeader returns the address of the leader of a shard, if that is another node. It waits as
// long as shardWait allows, and returns "" if there is still none. If this node is about to serve
// the shard, again is true: the caller must check whether it does, and otherwise call findLeader
// again.
func (c *client) findLeader(shard int) (addr string, again bool) {
	begin := time.Now()
	defer func() { c.waited += time.Since(begin) }()
	ctx, cancel := context.WithTimeout(c.srv.serving, c.srv.shards.wait-c.waited)
	defer cancel()
	addr, self := c.srv.shards.Leader(ctx, shard)
	if !self {
		return addr, false
	}
	if ctx.Err() != nil {
		return "", false
	}
	time.Sleep(time.Millisecond)
	return "", true
}

// executesHere reports whether the client's current server executes a command.
func (c *client) executesHere(cmd *command) bool {
	s := c.srv
	switch {
	case s.follows() && cmd.name == "exec" && (c.broken || !c.queueing):
		return true // EXEC reports it
	case s.follows() && c.readsOld && c.canBeStale(cmd):
		return s.readGens() == nil // without generations, nothing has been written
	}
	return s.leads()
}

// moveWatch makes a transaction fail if the server whose keys it watches has been replaced.
func (c *client) moveWatch(cmd *command) {
	if c.watchAt != nil && c.watchAt != c.srv && (cmd.name == "watch" || cmd.name == "exec") {
		c.unwatch()
		c.dirty.Store(true)
	}
}

// sendTo redirects the client to the leader at an address, "" if there is none.
func (c *client) sendTo(cmd *command, slot int, addr string) {
	if cmd.name == "exec" {
		c.dropQueue()
		c.unwatch()
	}
	cmd.rejected.Add(1)
	if addr == "" {
		c.fault("CLUSTERDOWN The cluster is down")
	} else {
		c.fault("MOVED " + formatInt(int64(max(slot, 0))) + " " + addr)
	}
}

// leading returns the server of a shard that this node leads, nil if another node leads it. It
// waits while there is no leader or the server is not attached; if that lasts, it replies with an
// error and returns false.
func (c *client) leading(shard int) (s *Server, ok bool) {
	for {
		if s := c.srv.shards.at(shard); s != nil && s.leads() {
			return s, true
		}
		switch addr, again := c.findLeader(shard); {
		case again:
		case addr != "":
			return nil, true
		default:
			c.w.Error("CLUSTERDOWN The cluster is down")
			return nil, false
		}
	}
}

// allLeading returns the servers of the shards that this node leads. It waits and fails as leading
// does.
func (c *client) allLeading() (servers []*Server, ok bool) {
	for shard := range c.srv.shards.n() {
		s, ok := c.leading(shard)
		if !ok {
			return nil, false
		}
		if s != nil {
			servers = append(servers, s)
		}
	}
	return servers, true
}

// runOnAll executes a command on all keys of the node.
func (c *client) runOnAll(cmd *command, args [][]byte) {
	if !c.leaveServer() {
		return
	}
	switch cmd.name {
	case "scan":
		c.scanAll(cmd, args)
	case "wait":
		waitCommand(c, args)
	case "randomkey":
		c.randomOfAll(cmd, args)
	default:
		c.sumOfAll(cmd, args)
	}
}

// runOn executes a command on one server, finishes its writes, and returns its reply, which is
// valid until another one is written. If ok is false, the client has received an error instead.
func (c *client) runOn(s *Server, cmd *command, args [][]byte) (reply []byte, ok bool) {
	mark := len(c.w.Buf)
	if !c.enter(s) {
		c.w.Error(errNotWritten.Error())
		return nil, false
	}
	if cmd.flags&exclusive != 0 {
		c.wrote = true
		s.world.Lock()
		if c.paused(cmd) {
			s.world.Unlock()
			if !c.leaveServer() {
				return nil, false
			}
			if c.waitUnlocked() != nil {
				c.quit = true
				return nil, false
			}
			return c.runOn(s, cmd, args)
		}
	} else {
		c.hold()
	}
	if !c.stillLeads(cmd) { // it has replied with an error
		c.unlockWorld(cmd)
		c.leaveServer()
		return nil, false
	}
	if cmd.flags&exclusive == 0 {
		c.release()
		if c.unconfirmed { // a leader may retire during a long scan
			c.unconfirmed = false
			s.unconfirmed.RUnlock()
		}
	}
	cmd.run(c, args)
	c.unlockWorld(cmd)
	c.accountReply(mark)
	if cmd.flags&exclusive == 0 {
		c.hold()
		if s.retired.Load() {
			c.w.Buf = c.w.Buf[:mark]
		}
		leads := c.stillLeads(cmd)
		c.release()
		if !leads {
			c.leaveServer()
			return nil, false
		}
	}
	if !c.leaveServer() {
		return nil, false
	}
	reply = c.w.Buf[mark:]
	if len(reply) > 0 && reply[0] == '-' {
		return nil, false
	}
	c.w.Buf = c.w.Buf[:mark]
	c.safe = mark
	return reply, true
}

// unlockWorld releases world if a command holds it exclusively.
func (c *client) unlockWorld(cmd *command) {
	if cmd.flags&exclusive != 0 {
		c.srv.world.Unlock()
	}
}

// sumOfAll is DBSIZE, KEYS, FLUSHALL and FLUSHDB: it adds up numbers and joins arrays. The arrays
// are joined in c.w, which accounts for their memory.
func (c *client) sumOfAll(cmd *command, args [][]byte) {
	servers, ok := c.allLeading()
	if !ok {
		return
	}
	writes := cmd.flags&isWrite != 0
	if writes && len(servers) == 0 && len(c.srv.parts()) > 0 {
		c.w.Error("READONLY You can't write against a read only replica.")
		return
	}
	total, mark := int64(0), len(c.w.Buf)
	for i, s := range servers {
		from := len(c.w.Buf)
		reply, ok := c.runOn(s, cmd, args)
		c.safe = mark // a part of an array must not be sent
		if !ok {
			switch {
			case writes && i > 0: // some shards are flushed
				c.w.Buf, c.w.Errors = c.w.Buf[:mark], c.errorsSeen
				c.w.Error(errOutcome.Error())
			case !c.quit: // else abort has removed the part
				c.w.Buf = append(c.w.Buf[:mark], c.w.Buf[from:]...)
			}
			return
		}
		if head, body, found := bytes.Cut(reply, []byte("\r\n")); found && (head[0] == ':' || head[0] == '*') {
			n, _ := resp.ParseInt(head[1:])
			total += n
			c.w.Buf = append(c.w.Buf, body...) // moves it to where its head was
		}
	}
	switch cmd.name {
	case "dbsize":
		c.w.Int(total)
	case "keys":
		var head resp.Writer
		head.Array(int(total))
		if !c.w.Grow(len(head.Buf)) {
			c.refuse(mark)
			return
		}
		c.w.Buf = slices.Insert(c.w.Buf, mark, head.Buf...)
	default:
		c.w.OK()
	}
}

// randomOfAll is RANDOMKEY.
func (c *client) randomOfAll(cmd *command, args [][]byte) {
	servers, ok := c.allLeading()
	if !ok {
		return
	}
	for _, i := range rand.Perm(len(servers)) {
		reply, ok := c.runOn(servers[i], cmd, args)
		if !ok {
			return
		}
		if len(reply) > 0 && reply[0] == '$' && reply[1] != '-' {
			c.w.Buf = append(c.w.Buf, reply...)
			return
		}
	}
	c.w.Nil()
}

// scanAll is SCAN: one shard after the other. A cursor's position begins with the shard, two
// bytes.
func (c *client) scanAll(cmd *command, args [][]byte) {
	f := c.srv.shards
	shard, inner := 0, []byte("0")
	id, ok := resp.ParseInt(args[1])
	if ok && id != 0 {
		if place, ok := c.srv.cursors.get(uint64(id)); ok && len(place) >= 2 {
			shard, inner = int(place[0])<<8|int(place[1]), place[2:]
		}
	} else if !ok && len(cString(args[1])) > 0 {
		inner = args[1] // scan replies with an error
	}
	next := func() (s *Server, ok bool) {
		for ; shard < f.n(); shard, inner = shard+1, []byte("0") {
			if s, ok = c.leading(shard); s != nil || !ok {
				return s, ok
			}
		}
		return nil, true
	}
	s, ok := next()
	if !ok {
		return
	}
	args = append([][]byte(nil), args...)
	if args[1] = inner; s == nil {
		c.srv.cursors.end(uint64(id))
		c.w.Array(2)
		c.w.Bulk([]byte("0"))
		c.w.Array(0)
		return
	}
	reply, ok := c.runOn(s, cmd, args)
	if !ok {
		return
	}
	cursor, keys := cutCursor(bytes.Clone(reply))
	if cursor == "0" {
		shard, inner = shard+1, []byte("0")
		if s, ok = next(); !ok {
			return
		}
		cursor = string(inner)
	}
	out := uint64(0)
	if s != nil {
		out = c.srv.cursors.add(uint64(id), append([]byte{byte(shard >> 8), byte(shard)}, cursor...))
	} else {
		c.srv.cursors.end(uint64(id))
	}
	c.w.Array(2)
	c.w.Bulk(appendUint(nil, out))
	c.w.Buf = append(c.w.Buf, keys...)
}

// cutCursor splits SCAN's reply into the cursor and the array of keys.
func cutCursor(reply []byte) (cursor string, keys []byte) {
	parts := bytes.SplitN(reply, []byte("\r\n"), 4) // *2, the cursor's length, the cursor, the rest
	return string(parts[2]), parts[3]
}

// hangUpEvery is how often the connection of a waiting client is checked.
const hangUpEvery = 100 * time.Millisecond

// watchConn calls gone when the client has hung up, unless ctx ends first.
func (c *client) watchConn(ctx context.Context, gone func()) {
	tick := time.NewTicker(hangUpEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if hungUp(c.conn) {
			gone()
			return
		}
	}
}

func (c *client) manage(args [][]byte) {
	var words []string
	for _, a := range args[2:] {
		words = append(words, string(a))
	}
	if c.srv.shards == nil {
		c.badSubcommand(args)
		return
	}
	if reply, err := c.srv.shards.Manage(words); !c.managed(err) {
		c.w.Simple(reply)
	}
}

// shardStates returns the states of a node's groups, each with its slots.
func (s *Server) shardStates() (out []shardState) {
	if s.shards == nil {
		return []shardState{{0, numSlots - 1, s.cfg.Group.State()}}
	}
	states := s.shards.States()
	for i, g := range states {
		out = append(out, shardState{firstSlot(i, len(states)), firstSlot(i+1, len(states)) - 1, g})
	}
	return out
}

// shardState is a group and its slots, first to last.
type shardState struct {
	first, last int
	GroupState
}

// Slots returns them as "first-last".
func (s shardState) Slots() string { return strconv.Itoa(s.first) + "-" + strconv.Itoa(s.last) }

// parts returns the servers that have a database: all that are attached to a front end, or else s.
func (s *Server) parts() []*Server {
	if s.shards != nil {
		return s.shards.all(false)
	}
	return []*Server{s}
}

// using calls fn, and keeps the server attached meanwhile. If it is being detached or has been,
// using does nothing.
func (s *Server) using(fn func() error) error {
	if !s.gate.TryRLock() { // RLock could deadlock: the caller may hold it for a client
		return nil
	}
	defer s.gate.RUnlock()
	if s.detached {
		return nil
	}
	return fn()
}

// eachPart calls fn with the servers that have a database.
func (s *Server) eachPart(fn func(*Server) error) (err error) {
	for _, p := range s.parts() {
		err = errors.Join(err, p.using(func() error { return fn(p) }))
	}
	return err
}
