package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// halves are the two groups of a front end. The node leads those whose server leads.
type halves struct {
	addr     string
	front    *Server
	dbs      [2]*sift.DB
	managing func()                                   // called by CLUSTER NODE; may be nil
	leading  func(shard int) (addr string, self bool) // replaces Leader; may be nil
	down     [2]atomic.Bool                           // the group has no leader
}

// directoryGroup is the group of a front end. Unlike the groups of shards, it can remove nodes, and
// has another member.
type directoryGroup struct{ singleNodeGroup }

func (*directoryGroup) Forget(string) error { return nil }

func (g *directoryGroup) State() GroupState {
	s := g.singleNodeGroup.State()
	s.Members = append(s.Members, GroupMember{ID: "4", Addr: "127.0.0.1:4", Voter: true})
	return s
}

func (h *halves) Leader(ctx context.Context, shard int) (string, bool) {
	if h.leading != nil {
		return h.leading(shard)
	}
	if h.down[shard].Load() {
		select {
		case <-ctx.Done():
		case <-time.After(h.front.shards.wait):
		}
		return "", false
	}
	if s := h.front.shards.at(shard); s != nil && s.cfg.Leads {
		return "127.0.0.1:1", true
	}
	return h.addr, false
}

func (h *halves) States() []GroupState {
	g := (&singleNodeGroup{leader: h.addr}).State()
	return []GroupState{g, g}
}

func (h *halves) Manage(args []string) (string, error) {
	if h.managing != nil {
		h.managing()
	}
	return strings.Join(args, "+"), nil
}

// attach replaces the server of a shard, if it has one.
func (h *halves) attach(t *testing.T, shard int, leads bool) *singleNodeGroup {
	t.Helper()
	h.detach(shard)
	g := &singleNodeGroup{db: h.dbs[shard], leader: h.addr}
	s, err := New(g.db, Config{Front: h.front, Group: g, Leads: leads, Shard: shard})
	if err != nil {
		t.Fatal(err)
	}
	s.Attach()
	return g
}

func (h *halves) detach(shard int) {
	if s := h.front.shards.at(shard); s != nil {
		s.Detach()
	}
}

func startHalves(t *testing.T, set ...func(*Config)) *halves {
	t.Helper()
	h := &halves{addr: "127.0.0.1:2"}
	cfg := Config{Addr: "127.0.0.1:0", Group: &directoryGroup{singleNodeGroup{leader: h.addr}}, Leads: true, Shards: h}
	for _, f := range set {
		f(&cfg)
	}
	var err error
	if h.front, err = New(nil, cfg); err != nil {
		t.Fatal(err)
	}
	h.front.SetShards(2)
	for i := range h.dbs {
		h.dbs[i] = groupDB(t)
		h.attach(t, i, true)
	}
	if err := h.front.Listen(); err != nil {
		t.Fatal(err)
	}
	go h.front.Serve()
	t.Cleanup(func() {
		if err := h.front.Close(time.Second); err != nil {
			t.Error(err)
		}
		h.detach(0)
		h.detach(1)
	})
	return h
}

// Of the slots of these keys, 3300 (b) and 7365 (c) are in the lower half, and 15495 (a) in the
// upper one.
var halvesSteps = []struct{ send, want string }{
	{"SET a 1", "+OK"}, {"SET b 2", "+OK"}, {"GET a", "1"}, {"GET b", "2"}, {"PING", "+PONG"}, {"MGET a b", "-CROSSSLOT Keys"}, {"MGET b c", "-CROSSSLOT Keys"},
	{"MSET {b}1 x {b}2 y", "+OK"}, {"MGET {b}1 {b}2", "[x y]"}, {"DEL a b", "-CROSSSLOT"}, {"RENAME a b", "-CROSSSLOT"}, {"COPY a b", "-CROSSSLOT"}, {"BITOP AND a b", "-CROSSSLOT"},
	{"EXISTS {b}1 {b}2", ":2"}, {"DBSIZE", ":4"}, {"SELECT 1", "-ERR SELECT is not allowed in cluster mode"}, {"CLUSTER KEYSLOT b", ":3300"},
	{"MULTI", "+OK"}, {"SET a 3", "+QUEUED"}, {"INCR a", "+QUEUED"}, {"EXEC", "[OK 4]"},
	{"MULTI", "+OK"}, {"SET a 3", "+QUEUED"}, {"SET b 3", "+QUEUED"}, {"EXEC", "-CROSSSLOT"}, {"GET a", "4"}, {"EXEC", "-ERR EXEC without MULTI"},
	{"MULTI", "+OK"}, {"PING", "+QUEUED"}, {"EXEC", "[PONG]"}, {"MULTI", "+OK"}, {"EXEC", "[]"}, {"MULTI", "+OK"}, {"GET a b", "-ERR wrong number"}, {"EXEC", "-EXECABORT"},
	{"WATCH a", "+OK"}, {"SET a 5", "+OK"}, {"MULTI", "+OK"}, {"GET a", "+QUEUED"}, {"EXEC", "nil"}, {"WATCH a", "+OK"}, {"UNWATCH", "+OK"}, {"MULTI", "+OK"}, {"GET a", "+QUEUED"}, {"EXEC", "[5]"},
	{"FLUSHALL", "+OK"}, {"DBSIZE", ":0"},
}

func (c *caller) table(t *testing.T) {
	t.Helper()
	for _, step := range halvesSteps {
		got := c.do(strings.Fields(step.send)...)
		if list, ok := got.([]any); ok {
			got = fmt.Sprint(list)
		}
		t.Run(step.send, func(t *testing.T) { wantReply(t, got, step.want) })
	}
}

// TestShards: each command goes to the server of its slot, in whatever order commands arrive.
func TestShards(t *testing.T) {
	h := startHalves(t)
	dial(t, h.front).table(t)
}

// The replies that TestShards expects are those of a node of Redis Cluster that has all slots.
func TestShardsAreRedis(t *testing.T) {
	conn, err := net.Dial("tcp", startRedis(t, "--cluster-enabled", "yes"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	c := &caller{t, conn, bufio.NewReader(conn)}
	slots := []string{"CLUSTER", "ADDSLOTS"}
	for i := range numSlots {
		slots = append(slots, formatInt(int64(i)))
	}
	wantReply(t, c.do(slots...), "+OK")
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if state, _ := c.do("CLUSTER", "INFO").(string); strings.Contains(state, "cluster_state:ok") {
			break
		}
	}
	c.table(t)
}

// TestShardsOfNode: commands about all keys cover the groups that the node leads.
func TestShardsOfNode(t *testing.T) {
	h := startHalves(t)
	c := dial(t, h.front)
	want := map[string]bool{}
	for i := range 50 {
		key := "key" + formatInt(int64(i))
		want[key] = true
		wantReply(t, c.do("SET", key, "v"), "+OK")
	}
	wantReply(t, c.do("DBSIZE"), ":50")
	if got := c.do("KEYS", "*").([]any); len(got) != 50 {
		t.Errorf("KEYS: %d", len(got))
	}
	found := map[string]bool{}
	for cursor := "0"; ; {
		reply := c.do("SCAN", cursor, "COUNT", "7").([]any)
		for _, key := range reply[1].([]any) {
			found[key.(string)] = true
		}
		if cursor = reply[0].(string); cursor == "0" {
			break
		}
	}
	if len(found) != len(want) {
		t.Errorf("SCAN: %d of %d keys", len(found), len(want))
	}
	if key, _ := c.do("RANDOMKEY").(string); !want[key] {
		t.Errorf("RANDOMKEY: %q", key)
	}
	if text, _ := c.do("INFO", "keyspace").(string); !strings.Contains(text, "keys=50,") {
		t.Errorf("INFO: %q", text)
	}
	lower := 0
	for key := range want {
		if keySlot([]byte(key)) < numSlots/2 {
			lower++
		}
	}
	h.attach(t, 1, false)
	wantReply(t, c.do("DBSIZE"), ":"+formatInt(int64(lower)))
	h.detach(0)
	wantReply(t, c.do("DBSIZE"), ":0")
	wantReply(t, c.do("RANDOMKEY"), "nil")
	wantReply(t, c.do("MULTI"), "+OK")
	wantReply(t, c.do("DBSIZE"), "-ERR DBSIZE is not allowed")
	wantReply(t, c.do("EXEC"), "-EXECABORT")
}

// between returns a replacement for Leader: this node leads both shards, but a server that is not
// attached is attached only when a client has asked for the third time.
func (h *halves) between(t *testing.T) func(shard int) (string, bool) {
	asked := [2]int{}
	return func(shard int) (string, bool) {
		if asked[shard]++; asked[shard]%3 == 0 {
			h.attach(t, shard, true)
		}
		return "127.0.0.1:1", true
	}
}

// TestShardsOfNodeWait: commands about all keys wait for the servers of groups that the node leads,
// at any step of a SCAN, too.
func TestShardsOfNodeWait(t *testing.T) {
	h := startHalves(t)
	h.front.shards.wait = time.Minute
	h.leading = h.between(t)
	c := dial(t, h.front)
	all := map[string]bool{}
	for i := range 20 {
		all["key"+formatInt(int64(i))] = true
		wantReply(t, c.do("SET", "key"+formatInt(int64(i)), "v"), "+OK")
	}
	detached := func(args ...string) any {
		h.detach(0)
		h.detach(1)
		return c.do(args...)
	}
	wantReply(t, detached("DBSIZE"), ":20")
	if got := detached("KEYS", "*").([]any); len(got) != 20 {
		t.Errorf("KEYS: %d", len(got))
	}
	if key, _ := detached("RANDOMKEY").(string); !all[key] {
		t.Errorf("RANDOMKEY: %q", key)
	}
	found := map[string]bool{}
	for cursor := "0"; ; {
		reply := detached("SCAN", cursor, "COUNT", "3").([]any)
		for _, key := range reply[1].([]any) {
			found[key.(string)] = true
		}
		if cursor = reply[0].(string); cursor == "0" {
			break
		}
	}
	if len(found) != 20 {
		t.Errorf("SCAN: %d of 20 keys", len(found))
	}
	wantReply(t, detached("FLUSHALL"), "+OK")
	wantReply(t, c.do("DBSIZE"), ":0")
}

// TestShardsRepeatedScan: each step of a SCAN over several groups can be repeated, also where one
// group ends.
func TestShardsRepeatedScan(t *testing.T) {
	h := startHalves(t)
	c := dial(t, h.front)
	for _, tag := range []string{"a", "b"} { // in different groups
		for i := range 5 {
			wantReply(t, c.do("SET", fmt.Sprintf("{%s}%d", tag, i), "v"), "+OK")
		}
	}
	if n := repeatedScan(t, c, "2"); n != 10 {
		t.Errorf("%d keys, want 10", n)
	}
}

// TestShardsOfNodeDown: commands about all keys are not executed while the node leads a group whose
// server is not attached, or does not know who leads it. FLUSHALL is not executed on a replica.
func TestShardsOfNodeDown(t *testing.T) {
	h := startHalves(t)
	h.front.shards.wait = 10 * time.Millisecond
	c := dial(t, h.front)
	for _, key := range []string{"a", "b", "c"} {
		wantReply(t, c.do("SET", key, "v"), "+OK")
	}
	for shard := range h.dbs {
		for _, self := range []bool{true, false} {
			h.detach(shard)
			h.leading = func(int) (string, bool) { return "", self }
			for _, line := range []string{"DBSIZE", "KEYS *", "RANDOMKEY", "SCAN 0 COUNT 100", "FLUSHALL", "FLUSHDB"} {
				wantReply(t, c.do(strings.Fields(line)...), "-CLUSTERDOWN The cluster is down")
			}
			h.leading = nil
			h.attach(t, shard, true)
			wantReply(t, c.do("DBSIZE"), ":3")
		}
	}
	h.attach(t, 0, false)
	h.attach(t, 1, false)
	wantReply(t, c.do("FLUSHALL"), "-READONLY You can't write against a read only replica.")
	wantReply(t, c.do("DBSIZE"), ":0")
	h.detach(0)
	h.detach(1)
	wantReply(t, c.do("FLUSHALL"), "+OK") // a node without groups has nothing to flush
	h.attach(t, 0, true)
	h.attach(t, 1, true)
	wantReply(t, c.do("DBSIZE"), ":3")
}

// TestShardsPipelineDown: all commands of a pipeline together wait for a leader as long as one
// command alone does. Those of groups whose leaders are known are executed or redirected even if
// nothing is left of that time.
func TestShardsPipelineDown(t *testing.T) {
	h := startHalves(t)
	h.front.shards.wait = 200 * time.Millisecond
	c := dial(t, h.front)
	wantReply(t, c.do("SET", "a", "1"), "+OK")
	h.detach(0)
	h.down[0].Store(true)
	for _, last := range []string{"1", "-MOVED 15495 127.0.0.1:2"} {
		for _, command := range []string{"GET b", "DBSIZE"} {
			var pipeline []string
			for range 20 {
				pipeline = append(pipeline, command)
			}
			start := time.Now()
			c.send(append(pipeline, "GET a")...)
			for range pipeline {
				wantReply(t, c.reply(), "-CLUSTERDOWN The cluster is down")
			}
			if took := time.Since(start); took < h.front.shards.wait || took > 10*h.front.shards.wait {
				t.Errorf("%d times %s without a leader take %v", len(pipeline), command, took)
			}
			wantReply(t, c.reply(), last)
		}
		h.attach(t, 1, false)
	}
}

// TestShardsFlushSome: if FLUSHALL flushes only some of the groups, it does not reply that it was
// not executed.
func TestShardsFlushSome(t *testing.T) {
	for _, how := range []string{"detached", "retired"} {
		t.Run(how, func(t *testing.T) {
			h := startHalves(t)
			g := h.attach(t, 0, true)
			c := dial(t, h.front)
			wantReply(t, c.do("SET", "a", "v"), "+OK")
			wantReply(t, c.do("SET", "b", "v"), "+OK")
			var once sync.Once // later, g removes what was flushed
			g.writing = func() {
				once.Do(func() {
					if how == "detached" {
						h.detach(1)
					} else {
						h.front.shards.at(1).Retire()
					}
				})
			}
			wantReply(t, c.do("FLUSHALL"), "-UNKNOWN")
			h.attach(t, 1, true)
			wantReply(t, c.do("GET", "b"), "nil")
			wantReply(t, c.do("GET", "a"), "v")
		})
	}
}

// TestShardsKeysMemory: KEYS reserves memory for the keys of all groups together. If there is not
// enough, or a group fails, the reply is one error.
func TestShardsKeysMemory(t *testing.T) {
	const each, size = 12, 100_000
	for _, budget := range []int64{32 << 20, 4 << 20} {
		h := startHalves(t, func(cfg *Config) { cfg.RequestBytes = budget })
		groups := [2]*singleNodeGroup{h.attach(t, 0, true), h.attach(t, 1, true)}
		var most atomic.Int64 // when the last group confirms what it has read
		groups[1].confirming = func() { raise(&most, h.front.requestBytes.Load()) }
		c := dial(t, h.front)
		for _, tag := range []string{"a", "b"} {
			for i := range each {
				wantReply(t, c.do("SET", fmt.Sprintf("{%s}%0*d", tag, size, i), "v"), "+OK")
			}
		}
		c.send("PING", "KEYS *", "PING")
		wantReply(t, c.reply(), "+PONG")
		got := c.reply()
		if budget == 4<<20 {
			wantReply(t, got, "-"+errReplyOOM.Error())
		} else {
			found := map[string]bool{}
			for _, key := range got.([]any) {
				found[key.(string)] = true
			}
			if len(found) != 2*each {
				t.Errorf("%d keys, want %d", len(found), 2*each)
			}
			if n := most.Load(); n < 2*each*size {
				t.Errorf("at most %d bytes are taken for the reply", n)
			}
		}
		wantReply(t, c.reply(), "+PONG")
		waitFor(t, "the memory is released", func() bool { return h.front.requestBytes.Load() == 0 })
		gone := errors.New("gone")
		for i, g := range groups {
			g.readsFail.Store(&gone)
			c := dial(t, h.front)
			c.send("PING", "KEYS {b}*", "PING")
			wantReply(t, c.reply(), "+PONG")
			wantReply(t, c.reply(), "-CLUSTERDOWN")
			if _, err := c.r.ReadByte(); err != io.EOF {
				t.Errorf("group %d: the connection stays: %v", i, err)
			}
			g.readsFail.Store(nil)
		}
	}
}

// TestShardsKeysFail: no key is sent if the last of three groups fails.
func TestShardsKeysFail(t *testing.T) {
	h := startHalves(t)
	h.detach(0)
	h.detach(1)
	h.front.SetShards(3)
	gone := errors.New("gone")
	for i, db := range []*sift.DB{h.dbs[0], h.dbs[1], groupDB(t)} {
		g := &singleNodeGroup{db: db, leader: h.addr}
		s, err := New(db, Config{Front: h.front, Group: g, Leads: true, Shard: i})
		if err != nil {
			t.Fatal(err)
		}
		s.Attach()
		if i == 2 {
			t.Cleanup(s.Detach)
			g.readsFail.Store(&gone)
		}
	}
	c := dial(t, h.front)
	c.send("SET b 1", "SET c 1") // in the first group and the second one
	wantReply(t, c.reply(), "+OK")
	wantReply(t, c.reply(), "+OK")
	c.send("PING", "KEYS *")
	wantReply(t, c.reply(), "+PONG")
	wantReply(t, c.reply(), "-CLUSTERDOWN")
}

// TestShardsMove: a connection stays open when the server of a shard is replaced. The keys are
// still there, those that were watched count as changed, and replies that may be stale are not
// sent.
func TestShardsMove(t *testing.T) {
	h := startHalves(t)
	c := dial(t, h.front)
	c.do("SET", "a", "1")
	c.do("SET", "b", "1")
	wantReply(t, c.do("WATCH", "a"), "+OK")
	wantReply(t, c.do("WATCH", "b"), "-CROSSSLOT")
	h.attach(t, 1, true)
	wantReply(t, c.do("MULTI"), "+OK")
	wantReply(t, c.do("SET", "a", "2"), "+QUEUED")
	wantReply(t, c.do("EXEC"), "nil")
	wantReply(t, c.do("GET", "a"), "1")
	h.attach(t, 1, false)
	wantReply(t, c.do("GET", "a"), "-MOVED 15495 127.0.0.1:2")
	wantReply(t, c.do("GET", "b"), "1")
	wantReply(t, c.do("READONLY"), "+OK")
	wantReply(t, c.do("GET", "a"), "1")
	wantReply(t, c.do("SET", "a", "2"), "-MOVED 15495 ")
	wantReply(t, c.do("MULTI"), "+OK")
	wantReply(t, c.do("SET", "b", "2"), "+QUEUED")
	wantReply(t, c.do("SET", "a", "2"), "-MOVED")
	wantReply(t, c.do("EXEC"), "-EXECABORT")
	h.detach(1)
	wantReply(t, c.do("GET", "a"), "-MOVED 15495 127.0.0.1:2")
	old := fmt.Errorf("another leader")
	h.attach(t, 0, true).readsFail.Store(&old)
	wantReply(t, c.do("GET", "b"), "-CLUSTERDOWN the leader has changed")
}

// TestShardsStaleTransaction: a follower executes a transaction after READONLY only if it executes
// each of its commands, even if they were queued while the node led.
func TestShardsStaleTransaction(t *testing.T) {
	for _, c := range []struct {
		queued []string
		want   string
	}{
		{[]string{"BF.EXISTS {a}f x"}, "-MOVED 15495 127.0.0.1:2"},
		{[]string{"GET a", "SET a 2"}, "-MOVED 15495 127.0.0.1:2"},
		{[]string{"GET a", "PING", "STRLEN a"}, "[1 PONG 1]"},
	} {
		h := startHalves(t)
		cl := dial(t, h.front)
		cl.do("SET", "a", "1")
		cl.do("BF.ADD", "{a}f", "x")
		wantReply(t, cl.do("READONLY"), "+OK")
		wantReply(t, cl.do("MULTI"), "+OK")
		for _, line := range c.queued {
			wantReply(t, cl.do(strings.Fields(line)...), "+QUEUED")
		}
		h.attach(t, 1, false)
		got := cl.do("EXEC")
		if list, ok := got.([]any); ok {
			got = fmt.Sprint(list)
		}
		wantReply(t, got, c.want)
		wantReply(t, cl.do("GET", "a"), "1")
	}
}

// send sends commands as one pipeline.
func (c *caller) send(commands ...string) {
	c.t.Helper()
	var b []byte
	for _, line := range commands {
		b = appendCall(b, strings.Fields(line)...)
	}
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// TestShardsTogether: a pipeline over several groups waits once for each group, and for all groups
// at the same time. If one fails, no reply is sent.
func TestShardsTogether(t *testing.T) {
	h := startHalves(t)
	groups := [2]*singleNodeGroup{h.attach(t, 0, true), h.attach(t, 1, true)}
	for _, c := range []struct {
		name     string
		commands []string
		want     []string
		of       func(g *singleNodeGroup, fn func())
	}{
		{"writes", []string{"SET a 1", "SET b 1", "SET {a}2 1", "SET c 2"}, []string{"+OK", "+OK", "+OK", "+OK"}, func(g *singleNodeGroup, fn func()) { g.writing = fn }},
		{"reads", []string{"GET a", "GET b", "GET a", "GET b"}, []string{"1", "1", "1", "1"}, func(g *singleNodeGroup, fn func()) { g.confirming = fn }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var met sync.WaitGroup
			var calls atomic.Int64
			met.Add(2)
			for _, g := range groups {
				c.of(g, func() {
					if calls.Add(1) <= 2 {
						met.Done()
					}
					met.Wait()
				})
				defer c.of(g, nil)
			}
			cl := dial(t, h.front)
			cl.send(c.commands...)
			for _, want := range c.want {
				wantReply(t, cl.reply(), want)
			}
			if n := calls.Load(); n != 2 {
				t.Errorf("the groups were called %d times", n)
			}
		})
	}
	cl := dial(t, h.front)
	cl.send("SET a 5", "SET b 6", "GET a", "INCR b", "GET a", "GET b")
	for _, want := range []string{"+OK", "+OK", "5", ":7", "5", "7"} {
		wantReply(t, cl.reply(), want)
	}
	gone := errors.New("gone")
	for i, g := range groups {
		g.readsFail.Store(&gone)
		cl := dial(t, h.front)
		cl.send("GET b", "GET a", "GET b")
		wantReply(t, cl.reply(), "-CLUSTERDOWN")
		if _, err := cl.r.ReadByte(); err != io.EOF {
			t.Errorf("group %d: the connection stays: %v", i, err)
		}
		cl = dial(t, h.front)
		cl.send("SET b 1", "SET a 1", "GET a", "GET b")
		wantReply(t, cl.reply(), "-UNKNOWN")
		g.readsFail.Store(nil)
	}
}

// TestShardsSwitch: clients switch between groups, while transactions and changes of the leader
// lock each group exclusively. There is no deadlock, and each client reads its own writes.
func TestShardsSwitch(t *testing.T) {
	h := startHalves(t)
	var clients sync.WaitGroup
	var stop atomic.Bool
	var moved, done atomic.Int64
	for i := range 6 {
		c := dial(t, h.front)
		c.conn.SetDeadline(time.Now().Add(time.Minute))
		random := rand.New(rand.NewPCG(1, uint64(i)))
		clients.Go(func() {
			want := map[string]int64{} // -1: not known
			for !stop.Load() {
				var keys []string
				var commands [][]string
				for range 1 + random.IntN(20) {
					key := fmt.Sprintf("{%s}%d", []string{"a", "b"}[random.IntN(2)], i)
					n := random.IntN(1000)
					commands = append(commands, [][]string{{"SET", key, formatInt(int64(n))}, {"GET", key}, {"INCR", key}, {"PING"}, {"BF.ADD", "f" + key, "x"},
						{"MULTI"}, {"DBSIZE"}, {"DEL", key}}[random.IntN(8)])
					keys = append(keys, key)
					if last := len(commands) - 1; commands[last][0] == "MULTI" {
						commands = append(commands, []string{"SET", key, "7"}, []string{"EXEC"})
						keys = append(keys, key, key)
					}
				}
				var b []byte
				for _, args := range commands {
					b = appendCall(b, args...)
				}
				if _, err := c.conn.Write(b); err != nil {
					t.Error(err)
					return
				}
				for j, args := range commands {
					key, reply := keys[j], c.reply()
					if text, failed := reply.(failure); failed {
						if moved.Add(1); strings.HasPrefix(string(text), "UNKNOWN") || strings.HasPrefix(string(text), "ERR") {
							t.Errorf("%v: %v", args, text)
							return
						}
						want[key] = -1
						continue
					}
					done.Add(1)
					was := want[key]
					switch args[0] {
					case "SET":
						want[key] = -1
						if reply != (simple("QUEUED")) {
							want[key], _ = strconv.ParseInt(args[2], 10, 64)
						}
					case "EXEC":
						want[key] = 7
					case "INCR":
						if want[key] = reply.(int64); was >= 0 && want[key] != was+1 {
							t.Errorf("INCR after %d: %d", was, reply)
						}
					case "DEL":
						want[key] = 0
					case "GET":
						got, _ := reply.(string)
						if n, _ := strconv.ParseInt(got, 10, 64); was >= 0 && n != was {
							t.Errorf("GET %s: %v, want %d", key, reply, was)
						}
					}
				}
			}
		})
	}
	for i := range 60 {
		time.Sleep(10 * time.Millisecond)
		if s := h.front.shards.at(i % 2); i%3 > 0 {
			s.Retire()
			h.attach(t, i%2, true)
		}
	}
	stop.Store(true)
	clients.Wait()
	if done.Load() < 1000 || moved.Load() == 0 {
		t.Errorf("%d commands executed, %d redirected", done.Load(), moved.Load())
	}
}

// TestShardsRole: a node is a slave if it leads none of its groups.
func TestShardsRole(t *testing.T) {
	h := startHalves(t)
	c := dial(t, h.front)
	for _, step := range []struct {
		leads [2]bool
		want  string
	}{{[2]bool{true, true}, "role:master"}, {[2]bool{false, true}, "role:master"}, {[2]bool{false, false}, "role:slave"}} {
		for shard, leads := range step.leads {
			h.attach(t, shard, leads)
		}
		if got := fmt.Sprint(c.do("INFO", "replication")); !strings.Contains(got, step.want+"\r\n") {
			t.Errorf("%v: %q, want %s", step.leads, got, step.want)
		}
	}
}

// TestShardsNode: commands about the node are not about the group that the client's pipeline or
// transaction has used before. Here that group has another leader.
func TestShardsNode(t *testing.T) {
	h := startHalves(t)
	h.attach(t, 1, false)
	c := dial(t, h.front)
	wantReply(t, c.do("SET", "b", "1"), "+OK")
	wantReply(t, c.do("READONLY"), "+OK")
	for _, step := range []struct {
		send, want string
		alone      bool // not in a transaction
	}{
		{"CLUSTER FORGET x", "OK", true}, {"CLUSTER NODES", " 127.0.0.1:4@", false}, {"CLUSTER INFO", "known_nodes:3\r\n", false},
		{"INFO replication", "role:master\r\nconnected_slaves:3\r\n", false}, {"INFO keyspace", "db0:keys=1,", true}, {"HELLO", "role master", false},
		{"SAVE", "OK", true}, {"BGSAVE", "Background saving started", false},
	} {
		c.send("GET a", step.send)
		wantReply(t, c.reply(), "nil")
		if got := fmt.Sprint(c.reply()); !strings.Contains(got, step.want) {
			t.Errorf("%s: %q, want %q", step.send, got, step.want)
		}
		if step.alone {
			continue
		}
		c.send("MULTI", "GET a", step.send, "EXEC")
		for range 3 {
			c.reply()
		}
		if got := fmt.Sprint(c.reply()); !strings.Contains(got, step.want) {
			t.Errorf("%s in a transaction: %q, want %q", step.send, got, step.want)
		}
	}
}

// TestShardsDrop: a command that removes a server does not wait for its own client, which has used
// the server.
func TestShardsDrop(t *testing.T) {
	h := startHalves(t)
	h.managing = func() {
		removed := make(chan struct{})
		go func() {
			h.detach(1)
			close(removed)
		}()
		select {
		case <-removed:
		case <-time.After(30 * time.Second):
			t.Error("the server is not removed while the command waits for that")
		}
	}
	c := dial(t, h.front)
	c.send("SET a 1", "CLUSTER NODE x", "GET b")
	for _, want := range []string{"+OK", "+x", "nil"} {
		wantReply(t, c.reply(), want)
	}
}

// TestShardRanges: shards have equally many slots, to within one, and each slot is in one shard.
func TestShardRanges(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 16, 1000, numSlots} {
		var sizes []int
		for i := range n {
			first, last := firstSlot(i, n), firstSlot(i+1, n)-1
			sizes = append(sizes, last-first+1)
			for slot := first; slot <= last; slot++ {
				if shardOf(slot, n) != i {
					t.Fatalf("slot %d of %d shards: %d, want %d", slot, n, shardOf(slot, n), i)
				}
			}
		}
		if slices.Max(sizes)-slices.Min(sizes) > 1 || firstSlot(n, n) != numSlots {
			t.Errorf("%d shards of %v slots", n, sizes)
		}
	}
}

// TestShardsInfoInExec: INFO in a transaction, during which the clients of its group wait, does not
// wait for other groups.
func TestShardsInfoInExec(t *testing.T) {
	h := startHalves(t)
	h.attach(t, 0, true)
	h.attach(t, 1, true)
	for shard, key := range []string{"b", "a"} {
		c := dial(t, h.front)
		wantReply(t, c.do("SET", key, "v"), "+OK")
		wantReply(t, c.do("MULTI"), "+OK")
		wantReply(t, c.do("GET", key), "+QUEUED")
		wantReply(t, c.do("INFO"), "+QUEUED")
		other := h.front.shards.at(1 - shard)
		for i := range other.stripes {
			other.stripes[i].names.Lock()
		}
		c.conn.SetDeadline(time.Now().Add(20 * time.Second))
		if got, ok := c.do("EXEC").([]any); !ok || len(got) != 2 {
			t.Errorf("EXEC: %v", got)
		}
		for i := range other.stripes {
			other.stripes[i].names.Unlock()
		}
	}
}

// A leader retires while a command scans its keys: until it has, it executes no commands, and nor
// does another node.
func TestRetireDuringScan(t *testing.T) {
	h := startHalves(t)
	c := localClient(h.front)
	cmd := lookup([]byte("dbsize"))
	probe := &command{name: cmd.name, upper: cmd.upper, arity: cmd.arity, flags: cmd.flags, run: func(c *client, args [][]byte) {
		s, retired := c.srv, make(chan struct{})
		go func() { s.Retire(); close(retired) }()
		select {
		case <-retired:
		case <-time.After(5 * time.Second):
			t.Error("a leader does not retire while DBSIZE scans")
		}
		cmd.run(c, args)
	}}
	c.do(probe, fields("DBSIZE"))
	if !strings.HasPrefix(string(c.w.Buf), "-CLUSTERDOWN") {
		t.Errorf("DBSIZE of a leader that has retired: %s", c.w.Buf)
	}
}

// A scan has ended, too, if the node no longer leads the groups that are left.
func TestShardsScanEndsEarly(t *testing.T) {
	h := startHalves(t)
	c := dial(t, h.front)
	wantReply(t, c.do("SET", "a", "1"), "+OK")
	wantReply(t, c.do("SET", "b", "1"), "+OK")
	cursor := c.do("SCAN", "0").([]any)[0].(string)
	if cursor == "0" {
		t.Fatal("the scan has ended after one group")
	}
	h.attach(t, 1, false)
	if r := c.do("SCAN", cursor).([]any); r[0] != "0" {
		t.Fatalf("the scan goes on: %v", r)
	}
	k := &h.front.cursors
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running.Len() != 0 || k.ended.Len() != 1 {
		t.Errorf("%d cursors of running scans, %d of ended ones, want 0 and 1", k.running.Len(), k.ended.Len())
	}
}
