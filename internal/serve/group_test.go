package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// singleNodeGroup is a group of one node, whose log is its database. A test can make it fail.
type singleNodeGroup struct {
	db                     *sift.DB
	leader                 string
	writeFails, readsFail  atomic.Pointer[error]
	writes, confirms       atomic.Int64
	replicas, lastReplicas int
	writing                func() // may be nil, as the next two
	confirming, failover   func()
	waiting                chan struct{} // WAIT sends to it, and receives or closes it; may be nil
	maxBatch               int           // 0: 512 MiB
}

func (g *singleNodeGroup) MaxBatch() int {
	if g.maxBatch == 0 {
		return 512 << 20
	}
	return g.maxBatch
}

func (g *singleNodeGroup) Write(b *sift.Batch) error {
	g.writes.Add(1)
	if g.writing != nil {
		g.writing()
	}
	if err := g.writeFails.Load(); err != nil {
		return *err
	}
	if b.Size() > g.MaxBatch() {
		return ErrNotWritten
	}
	return g.db.Write(b, sift.NoSync)
}

func (g *singleNodeGroup) Confirm() error {
	g.confirms.Add(1)
	if g.confirming != nil {
		g.confirming()
	}
	if err := g.readsFail.Load(); err != nil {
		return *err
	}
	return nil
}

func (g *singleNodeGroup) Leader(context.Context) string { return g.leader }

func (g *singleNodeGroup) Replicas(ctx context.Context, n int, _ time.Duration) int {
	g.lastReplicas = n
	if g.waiting != nil {
		g.waiting <- struct{}{}
		select {
		case <-g.waiting:
		case <-ctx.Done():
			close(g.waiting)
		}
	}
	return g.replicas
}

func (g *singleNodeGroup) State() GroupState {
	const self, other = "1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222"
	return GroupState{Self: self, Leader: other, Term: 3, Members: []GroupMember{
		{ID: self, Addr: "127.0.0.1:1", Voter: true, Lag: -1}, {ID: other, Addr: g.leader, Voter: true, Lag: 7}, {ID: "3", Addr: "127.0.0.1:3"},
	}}
}

func (g *singleNodeGroup) Join(GroupMember, bool) (uint64, error) { return 42, nil }
func (g *singleNodeGroup) Forget(string) error                    { return ErrNotWritten }

func (g *singleNodeGroup) Failover(string) error {
	if g.failover != nil {
		g.failover()
	}
	return nil
}

// startGroup starts a server of a group on a database.
func startGroup(t *testing.T, db *sift.DB, leads bool) (*Server, *singleNodeGroup) {
	t.Helper()
	g := &singleNodeGroup{db: db, leader: "127.0.0.1:2"}
	s, err := New(db, Config{Addr: "127.0.0.1:0", Group: g, Leads: leads})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	go s.Serve()
	t.Cleanup(func() {
		if err := s.Close(time.Second); err != nil {
			t.Error(err)
		}
	})
	return s, g
}

func groupDB(t *testing.T) *sift.DB {
	t.Helper()
	db, err := sift.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func wantReply(t *testing.T, got any, want string) {
	t.Helper()
	text, _ := got.(string)
	switch v := got.(type) {
	case failure:
		text = "-" + string(v)
	case simple:
		text = "+" + string(v)
	case int64:
		text = ":" + formatInt(v)
	case null:
		text = "nil"
	}
	if !strings.HasPrefix(text, want) || want == "" && text != "" {
		t.Errorf("%q, want %q", text, want)
	}
}

// The slots are those of Redis Cluster's specification.
func TestSlots(t *testing.T) {
	for key, want := range map[string]int{
		"": 0, "123456789": 12739, "foo": 12182, "{foo}.bar": 12182, "x{foo}{bar}": 12182, "{}foo": keySlot([]byte("{}foo")), "{{foo}": keySlot([]byte("{foo")),
	} {
		if got := keySlot([]byte(key)); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
	if keySlot([]byte("{}foo")) == keySlot([]byte("foo")) {
		t.Error("an empty tag counts")
	}
}

func TestGroupFollower(t *testing.T) {
	db := groupDB(t)
	leader, _ := startGroup(t, db, true)
	l := dial(t, leader)
	l.do("SET", "foo", "bar")
	l.do("BF.ADD", "f", "x")
	follower, g := startGroup(t, db, false)
	c := dial(t, follower)
	for _, step := range []struct{ send, want string }{
		{"PING", "+PONG"}, {"GET foo", "-MOVED 12182 127.0.0.1:2"}, {"SET foo x", "-MOVED 12182 127.0.0.1:2"},
		{"READONLY", "+OK"}, {"GET foo", "bar"}, {"SET foo x", "-MOVED 12182 "}, {"BF.EXISTS f x", "-MOVED "}, {"WATCH foo", "-MOVED "},
		{"FLUSHALL", "-MOVED 0 "}, {"DBSIZE", "-MOVED 0 "}, {"WAIT 1 1", "-ERR WAIT cannot"}, {"SELECT 1", "-ERR SELECT"},
		{"MULTI", "+OK"}, {"SET foo x", "-MOVED "}, {"EXEC", "-EXECABORT"}, {"CLUSTER MYID", "1111"},
		{"CLUSTER FORGET 2", "-MOVED 0 127.0.0.1:2"}, {"CLUSTER KEYSLOT foo", ":12182"}, {"CLUSTER NOSUCH", "-ERR unknown subcommand"},
		{"CLUSTER JOIN a b c", ":42"}, {"READWRITE", "+OK"}, {"GET foo", "-MOVED "}, {"EXEC", "-ERR EXEC without"},
	} {
		wantReply(t, c.do(strings.Fields(step.send)...), step.want)
	}
	if n := g.writes.Load(); n != 0 {
		t.Errorf("a follower writes %d times", n)
	}
	// The databases that the leader has flushed are empty here.
	l.do("FLUSHALL")
	c.do("READONLY")
	wantReply(t, c.do("GET", "foo"), "nil")
	g.leader = ""
	wantReply(t, c.do("SET", "foo", "x"), "-CLUSTERDOWN ")
}

func TestGroupLeader(t *testing.T) {
	s, g := startGroup(t, groupDB(t), true)
	g.replicas = 2
	c := dial(t, s)
	for _, step := range []struct{ send, want string }{
		{"MSET a 1 b 2", "-CROSSSLOT "}, {"MSET {a}1 1 {a}2 2", "+OK"}, {"DEL {a}1 {b}1", "-CROSSSLOT"}, {"RENAME {a}1 {a}3", "+OK"},
		{"WAIT 1 100", ":2"}, {"MOVE a 1", "-ERR MOVE"}, {"SWAPDB 0 1", "-ERR SWAPDB"}, {"COPY {a}2 {a}4 DB 1", "-ERR COPY"}, {"COPY {a}2 {a}4", ":1"},
		{"CONFIG SET requirepass x", "-ERR CONFIG"}, {"CONFIG SET appendfsync no", "-ERR CONFIG"}, {"SELECT 0", "+OK"},
		{"MULTI", "+OK"}, {"SET a 1", "+QUEUED"}, {"SET b 1", "+QUEUED"}, {"EXEC", "-CROSSSLOT"},
		{"EXISTS a", ":0"}, {"WATCH a b", "-CROSSSLOT"}, {"BF.ADD f x", ":1"}, {"BF.EXISTS f x", ":1"}, {"DBSIZE", ":4"},
	} {
		wantReply(t, c.do(strings.Fields(step.send)...), step.want)
	}
	before := g.confirms.Load()
	c.do("PING")
	c.do("CLUSTER", "SLOTS")
	if n := g.confirms.Load(); n != before {
		t.Error("commands that read nothing are confirmed")
	}
	c.do("GET", "a")
	if n := g.confirms.Load(); n == before {
		t.Error("a read is not confirmed")
	}
	before = g.confirms.Load()
	c.do("SET", "a", "1")
	if n := g.confirms.Load(); n != before {
		t.Error("a write is confirmed once more after it was applied")
	}
	s.Retire() // from now on another node executes the commands
	wantReply(t, c.do("SET", "a", "1"), "-MOVED 15495 127.0.0.1:2")
	wantReply(t, c.do("GET", "a"), "-MOVED 15495 127.0.0.1:2")
}

// When the leader is deposed, a client gets CLUSTERDOWN, after which it may retry, only if none of
// its commands can have been executed.
func TestGroupDeposed(t *testing.T) {
	unknown := errors.New("gone")
	refused := error(ErrNotWritten)
	for _, c := range []struct {
		name          string
		writes, reads *error
		send          []string // one pipeline
		want          []string
	}{
		{"plain write, unknown", &unknown, nil, []string{"SET a 1"}, []string{"-UNKNOWN"}},
		{"write, unknown", &unknown, nil, []string{"INCR a"}, []string{"-UNKNOWN"}},
		{"write, refused", &refused, nil, []string{"INCR a"}, []string{"-UNKNOWN"}},
		{"filter, unknown", &unknown, nil, []string{"BF.ADD g x"}, []string{"-UNKNOWN"}},
		{"filter, refused", &refused, nil, []string{"BF.ADD f y"}, []string{"-UNKNOWN"}},
		{"transaction, unknown", &unknown, nil, []string{"MULTI", "SET a 1", "EXEC"}, []string{"-UNKNOWN"}},
		{"transaction, then deposed", nil, &unknown, []string{"MULTI", "SET a 1", "EXEC"}, []string{"-UNKNOWN"}},
		{"transaction of reads", nil, &unknown, []string{"MULTI", "GET k", "EXEC"}, []string{"-UNKNOWN"}},
		{"read", nil, &unknown, []string{"GET k"}, []string{"-CLUSTERDOWN"}},
		{"filter read", nil, &unknown, []string{"BF.EXISTS f x"}, []string{"-CLUSTERDOWN"}},
		{"scan", nil, &unknown, []string{"DBSIZE"}, []string{"-CLUSTERDOWN"}},
		{"write, then read", nil, &unknown, []string{"INCR n", "GET n"}, []string{"-UNKNOWN"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, g := startGroup(t, groupDB(t), true)
			first := dial(t, s)
			first.do("SET", "k", "v")
			first.do("BF.ADD", "f", "x")
			g.writeFails.Store(c.writes)
			g.readsFail.Store(c.reads)
			cl := dial(t, s)
			var b []byte
			for _, line := range c.send {
				b = appendCall(b, strings.Fields(line)...)
			}
			if _, err := cl.conn.Write(b); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				wantReply(t, cl.reply(), want)
			}
			if _, err := cl.r.ReadByte(); err != io.EOF {
				t.Errorf("the connection stays: %v", err)
			}
		})
	}
}

// A leader retires only after the replies to all commands that it has executed are confirmed:
// otherwise their clients would get UNKNOWN.
func TestGroupRetires(t *testing.T) {
	for _, commands := range []string{"SET a 1,GET a", "GET a", "INCR n", "BF.ADD f x", "MULTI,SET a 1,EXEC", "MULTI,GET a,EXEC", "FLUSHALL", "DBSIZE", "SCAN 0", "SET a 1,WAIT 1 1"} {
		t.Run(commands, func(t *testing.T) {
			s, g := startGroup(t, groupDB(t), true)
			var once sync.Once
			var confirmed atomic.Bool
			early := make(chan bool, 1)
			g.confirming = func() {
				once.Do(func() {
					go func() {
						s.Retire()
						early <- !confirmed.Load()
					}()
					time.Sleep(50 * time.Millisecond) // in which Retire would return if it did not wait
					confirmed.Store(true)
				})
			}
			c := dial(t, s)
			var b []byte
			for line := range strings.SplitSeq(commands, ",") {
				b = appendCall(b, strings.Fields(line)...)
			}
			if _, err := c.conn.Write(b); err != nil {
				t.Fatal(err)
			}
			for range strings.Count(commands, ",") + 1 {
				c.reply()
			}
			if <-early {
				t.Error("another node may lead while replies are not confirmed")
			}
		})
	}
}

// A client that transfers the leadership does not wait for itself, and WAIT delays no other client.
func TestGroupRetiresMidPipeline(t *testing.T) {
	s, g := startGroup(t, groupDB(t), true)
	g.failover = s.Retire
	g.waiting = make(chan struct{})
	waiter := dial(t, s)
	if _, err := waiter.conn.Write(appendCall(appendCall(nil, "SET", "a", "1"), "WAIT", "1", "0")); err != nil {
		t.Fatal(err)
	}
	<-g.waiting
	c := dial(t, s)
	b := appendCall(nil, "SET", "b", "1")
	b = appendCall(b, "CLUSTER", "FAILOVER")
	if _, err := c.conn.Write(appendCall(b, "GET", "b")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+OK", "+OK", "-MOVED 3300 "} {
		wantReply(t, c.reply(), want)
	}
	g.waiting <- struct{}{}
	wantReply(t, waiter.reply(), "+OK")
	wantReply(t, waiter.reply(), ":0")
}

// EXEC, during which no other command runs, waits for no other node.
func TestGroupExecDoesNotWait(t *testing.T) {
	s, g := startGroup(t, groupDB(t), true)
	g.replicas, g.failover = 2, s.Retire
	c := dial(t, s)
	for _, call := range []string{"MULTI", "BF.ADD f x", "WAIT 3 0", "CLUSTER FAILOVER"} {
		c.do(strings.Fields(call)...)
	}
	got, _ := c.do("EXEC").([]any)
	if len(got) != 3 {
		t.Fatal(got)
	}
	for i, want := range []string{":1", ":2", "-ERR CLUSTER FAILOVER is not allowed in transactions"} {
		wantReply(t, got[i], want)
	}
	if g.lastReplicas != 0 {
		t.Errorf("WAIT waited for %d nodes", g.lastReplicas)
	}
	wantReply(t, c.do("BF.EXISTS", "f", "x"), ":1")
}

// Before a reply shows that a key has expired, the time is stored, so that the key has also expired
// for the next leader.
func TestGroupExpired(t *testing.T) {
	db := groupDB(t)
	s, _ := startGroup(t, db, true)
	c := dial(t, s)
	c.do("SET", "k", "v", "PX", "1")
	for end := time.Now().Add(30 * time.Second); c.do("GET", "k") != (null{2}); {
		if time.Now().After(end) {
			t.Fatal("the key does not expire")
		}
	}
	if s.clock.floor.Load() == 0 {
		t.Error("if the clock is set back, the key is there again")
	}
	seen, err := db.Get(metaTime)
	if err != nil {
		t.Fatal(err)
	}
	if at := int64(binary.BigEndian.Uint64(seen)); at > s.nowMs() || at < s.nowMs()-60_000 {
		t.Errorf("the time is %d, now it is %d", at, s.nowMs())
	}
	// A leader whose clock is an hour behind.
	ahead := time.Now().Add(time.Hour).UnixMilli()
	if err := db.Put(metaTime, binary.BigEndian.AppendUint64(nil, uint64(ahead)), nil); err != nil {
		t.Fatal(err)
	}
	next, _ := startGroup(t, db, true)
	n := dial(t, next)
	n.do("SET", "k", "v", "PXAT", formatInt(ahead-1000))
	wantReply(t, n.do("EXISTS", "k"), ":0")
	if s.nowMs() >= ahead-1000 {
		t.Error("the clock of one server moved another's")
	}
}

// The time is also stored if an expired key is left out of a reply about all keys.
func TestGroupLeavesOutExpired(t *testing.T) {
	for _, call := range []string{"KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE"} {
		db := groupDB(t)
		s, err := New(db, Config{Addr: "127.0.0.1:0", Group: &singleNodeGroup{db: db}, Leads: true}) // nothing runs in the background
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"SET k v PXAT 1000", call} {
			c := localClient(s)
			args := fields(line)
			c.do(lookup(args[0]), args)
			if err := c.finishWrites(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.Get(metaTime); err != nil {
			t.Errorf("%s: the time at which the key has expired: %v", call, err)
		}
	}
}
