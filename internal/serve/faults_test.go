package serve

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/testhook"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// An HTTP request, such as a POST that a web page makes a browser send, ends the connection before
// its body is parsed as commands.
func TestHTTPIsRefused(t *testing.T) { everyWay(t, testHTTPIsRefused) }

func testHTTPIsRefused(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("SET", "k", "v")
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\nContent-Length: 12\r\n\r\n\r\nFLUSHALL\r\n",
		"GET / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\n\r\nFLUSHALL\r\n",
		"PUT / HTTP/1.1\r\nFLUSHALL\r\n",
		"X y\r\nHost: x\r\nFLUSHALL\r\n",
		"post x\r\nFLUSHALL\r\n",
	} {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, request)
		b, _ := io.ReadAll(conn)
		conn.Close()
		if strings.Contains(string(b), "OK") {
			t.Errorf("%q gets %q", request, b)
		}
		if got := c.do("GET", "k"); got != "v" {
			t.Fatalf("after %q: %v", request, got)
		}
	}
}

// A SET that replaces a filter is one write to the store, so that a crash cannot leave half of it.
func TestSetOverFilter(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	for _, call := range []string{"BF.ADD f x", "SET f v"} {
		args := fields(call)
		c.do(lookup(args[0]), args)
	}
	before := s.puts.Load()
	c.hold()
	if err := c.commit(); err != nil {
		t.Fatal(err)
	}
	c.release()
	if n := s.puts.Load() - before; n != 1 {
		t.Errorf("SET was %d writes to the store, want 1", n)
	}
}

// faultyStore returns a database in memory, and its file system, in which a test can inject errors
// and delays. The database is closed at the end of the test.
func faultyStore(t *testing.T) (*sift.DB, *vfstest.Faulty) {
	t.Helper()
	fsys := vfstest.Inject(vfstest.NewMem())
	o := &sift.Options{}
	testhook.Apply(o, testhook.Settings{FS: fsys})
	db, err := sift.Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, fsys
}

// localClient returns a client without a connection, whose commands a test executes.
func localClient(s *Server) *client {
	c := &client{srv: s, writes: s.newWrites(keptBytes), trusted: true}
	c.w.Proto = 2
	return c
}

// startFaulty runs a server whose file system a test can delay.
func startFaulty(t *testing.T, cfg Config) (*Server, *vfstest.Faulty) {
	t.Helper()
	db, fsys := faultyStore(t)
	cfg.Addr = "127.0.0.1:0"
	way.set(&cfg)
	s, err := New(db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	way.slow(s)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	go s.Serve()
	t.Cleanup(func() {
		fsys.SetHook(nil)
		if err := s.Close(time.Second); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, fsys
}

// filterOf returns a filter of the first database.
func filterOf(s *Server, key string) *filter {
	st := s.stripe([]byte(key))
	st.names.RLock()
	defer st.names.RUnlock()
	f := st.filters["k\x00\x00\x00\x00"+key]
	f.mu.Lock() // waits for a change in progress
	defer f.mu.Unlock()
	return f
}

func fields(call string) (args [][]byte) {
	for _, f := range strings.Fields(call) {
		args = append(args, []byte(f))
	}
	return args
}

// A filter that cannot be loaded does not keep the server from starting, nor does one whose key
// holds a string. Commands on a filter that cannot be loaded fail, so that there is no false
// negative.
func TestDamagedFilter(t *testing.T) {
	dir := t.TempDir()
	db, err := sift.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	run := func(fn func(s *Server, c *caller)) {
		t.Helper()
		s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		go s.Serve()
		fn(s, dial(t, s))
		if err := s.Close(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	var bad [][]byte
	run(func(s *Server, c *caller) {
		for _, name := range []string{"bad", "good", "string"} {
			c.do("BF.ADD", name, "x")
			c.do("CF.ADD", "c"+name, "x")
		}
		for _, name := range []string{"bad", "cbad"} {
			bad = append(bad, filterKey(filterOf(s, name).id, partHeader))
		}
	})
	for _, key := range bad {
		if err := db.Put(key, []byte("no header"), sift.Sync); err != nil {
			t.Fatal(err)
		}
	}
	// What a crash between two writes of an older version left.
	if err := db.Put([]byte("k\x00\x00\x00\x00string"), []byte("\x01v"), sift.Sync); err != nil {
		t.Fatal(err)
	}
	run(func(s *Server, c *caller) {
		for _, call := range []string{"BF.EXISTS bad x", "BF.MEXISTS bad x y", "BF.ADD bad y", "BF.INFO bad", "BF.RESERVE bad 0.01 100",
			"CF.EXISTS cbad x", "CF.MEXISTS cbad x y", "CF.COUNT cbad x", "CF.ADD cbad y"} {
			if got, ok := c.do(strings.Fields(call)...).(failure); !ok || !strings.Contains(string(got), "damaged") && !strings.Contains(string(got), "exists") {
				t.Errorf("%s: %v", call, got)
			}
		}
		for call, want := range map[string]any{"BF.EXISTS good x": int64(1), "GET string": "v", "TYPE bad": simple("MBbloom--")} {
			if got := c.do(strings.Fields(call)...); got != want {
				t.Errorf("%s: %v", call, got)
			}
		}
		if got := c.do("DEL", "bad", "cbad"); got != any(int64(2)) {
			t.Errorf("DEL: %v", got)
		}
		if got := c.do("BF.ADD", "bad", "y"); got != any(int64(1)) {
			t.Errorf("after DEL: %v", got)
		}
	})
	run(func(s *Server, c *caller) {
		if got := c.do("BF.EXISTS", "bad", "y"); got != any(int64(1)) {
			t.Error(got)
		}
	})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A filter whose key cannot be read does not keep the server from starting. Commands on it fail,
// and those on other filters do not.
func TestDamagedHead(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	run := func(call string) string {
		t.Helper()
		c := localClient(s)
		args := fields(call)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
		return string(c.w.Buf)
	}
	for _, call := range []string{"BF.ADD f x", "BF.ADD other x", "CF.ADD c x"} {
		run(call)
	}
	for _, key := range []string{"f", "c"} {
		if err := db.Put([]byte("k\x00\x00\x00\x00"+key), []byte("\xffno head"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo}); err != nil {
		t.Fatal(err)
	}
	if got := run("BF.EXISTS other x"); got != ":1\r\n" {
		t.Errorf("BF.EXISTS of another filter: %q", got)
	}
	for _, call := range []string{"BF.EXISTS f x", "BF.MEXISTS f x", "BF.ADD f x", "BF.INFO f",
		"BF.RESERVE f 0.01 100", "CF.EXISTS c x", "CF.ADD c x", "TYPE f", "DEL f", "EXPIRE f 10"} {
		if got := run(call); got[0] != '-' || !strings.Contains(got, "damaged") {
			t.Errorf("%s: %q", call, got)
		}
	}
	if got := run("SET f v"); got != "+OK\r\n" {
		t.Errorf("SET: %q", got)
	}
	run("DEL f")
	if got := run("BF.ADD f y"); got != ":1\r\n" {
		t.Errorf("BF.ADD after SET and DEL: %q", got)
	}
}

// If loading a filter fails after some of its redo entries were read, it is not checkpointed when
// the server is closed.
func TestDamagedRedo(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range []string{"x", "y"} {
		c := localClient(s)
		args := fields("BF.ADD f " + item)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
	}
	f := filterOf(s, "f")
	if err := db.Put(redoKey(f.id, f.lsn), []byte("no redo entry"), nil); err != nil {
		t.Fatal(err)
	}
	s, err = New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	if filterOf(s, "f").damage == nil {
		t.Error("the damage is not found")
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	go s.Serve()
	if err := s.Close(time.Second); err != nil {
		t.Error(err)
	}
}

// A command that cannot replace a filter, because the key's head cannot be read, changes neither
// that filter nor others that it would have removed.
func TestFilterStaysIfNotReplaced(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	run := func(calls ...string) string {
		c := localClient(s)
		for _, call := range calls {
			args := fields(call)
			c.do(lookup(args[0]), args)
		}
		if err := c.finishWrites(); err != nil {
			return "-" + err.Error()
		}
		return string(c.w.Buf)
	}
	run("BF.ADD f x", "EXPIRE f 1000", "BF.ADD other x")
	if err := db.Put([]byte("k\x00\x00\x00\x00f"), []byte("\xffno head"), nil); err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"SETEX f 10 v", "SET f v EX 10", "DEL f", "DEL other f", "EXPIRE f 5", "RENAME f g", "MULTI,SETEX f 10 v,MSET a 1 f v,EXEC"} {
		if got := run(strings.Split(call, ",")...); !strings.Contains(got, errHead.Error()) {
			t.Errorf("%s: %q", call, got)
		}
		if got := run("BF.EXISTS f x", "BF.EXISTS other x"); got != ":1\r\n:1\r\n" {
			t.Fatalf("after %s: BF.EXISTS: %q", call, got)
		}
	}
	// The other commands of a transaction are executed.
	run("MULTI", "SET b 1", "SETEX f 10 v", "EXEC")
	if got := run("GET b", "BF.EXISTS f x"); got != "$1\r\n1\r\n:1\r\n" {
		t.Errorf("after EXEC: %q", got)
	}
	if s.failed.Load() {
		t.Error("the server takes no more writes")
	}
}

// A command that waits for a filter's lock while the filter is renamed does not change it under its
// new name.
func TestAddDuringRename(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	add := func(item string) {
		c := localClient(s)
		args := fields("BF.ADD a " + item)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Error(err)
		}
	}
	add("first")
	f := filterOf(s, "a")
	f.mu.Lock()
	var adding sync.WaitGroup
	adding.Go(func() { add("second") })
	time.Sleep(50 * time.Millisecond) // it has found the filter, and waits for the lock
	// What RENAME a b does in memory.
	from, to := s.stripe([]byte("a")), s.stripe([]byte("b"))
	from.names.Lock()
	delete(from.filters, f.name)
	from.names.Unlock()
	f.name = "k\x00\x00\x00\x00b"
	to.names.Lock()
	to.filters[f.name] = f
	to.names.Unlock()
	f.mu.Unlock()
	adding.Wait()
	if f.bloom.Contains([]byte("second")) {
		t.Fatal("what was added to a is in b")
	}
	if !filterOf(s, "a").bloom.Contains([]byte("second")) {
		t.Error("what was added to a is not there")
	}
}

// Clients that have not authenticated cannot exhaust the memory for requests.
func TestUnauthenticatedBudget(t *testing.T) { everyWay(t, testUnauthenticatedBudget) }

func testUnauthenticatedBudget(t *testing.T) {
	const budget = 4 << 20
	s := start(t, t.TempDir(), Config{Password: "p", RequestBytes: budget, MaxBulkBytes: 1 << 20, Fsync: FsyncNo})
	c := dial(t, s)
	if got := c.do("AUTH", "p"); got != simple("OK") {
		t.Fatal(got)
	}
	half := "*10\r\n" + strings.Repeat("$16000\r\n"+strings.Repeat("x", 16000)+"\r\n", 9) + "$16000\r\n"
	var halves []net.Conn
	for range 60 {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		halves = append(halves, conn)
		io.WriteString(conn, half)
	}
	large := strings.Repeat("v", 1<<20)
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		if got := c.do("SET", "k", large); got != simple("OK") {
			t.Fatalf("a client with the password gets %v", got)
		}
		if got := s.unauthBytes.Load(); got > budget/unauthShare {
			t.Fatalf("clients without the password hold %d bytes", got)
		}
	}
	// The bytes that a client holds move between the two counts when it logs in and out.
	d := dial(t, s)
	d.conn.Write([]byte(strings.Repeat("PING\r\n", 1000) + "AUTH p\r\nRESET\r\nAUTH p\r\nSET x " + strings.Repeat("y", 60000) + "\r\nRESET\r\n"))
	for range 1005 {
		d.reply()
	}
	d.conn.Close()
	c.conn.Close()
	for _, conn := range halves {
		conn.Close()
	}
	for deadline := time.Now().Add(10 * time.Second); s.requestBytes.Load() != 0 || s.unauthBytes.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("without clients, %d bytes are taken, %d of them without the password", s.requestBytes.Load(), s.unauthBytes.Load())
		}
	}
}

// The expiry index has at most one entry per key.
func TestExpiryIndexIsBounded(t *testing.T) {
	dir := t.TempDir()
	entries := func(s *Server) (n int) {
		for _, err := range s.db.Scan(&sift.IterOptions{Prefix: []byte{spaceExpiry}}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	db, err := sift.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for round := range 2 {
		s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		go s.Serve()
		c := dial(t, s)
		if round == 0 {
			c.do("SET", "k", "v")
			c.do("BF.ADD", "f", "x")
		}
		for i := range 100 {
			at := fmt.Sprint(1e9 + i)
			c.do("EXPIRE", "k", at)
			c.do("EXPIRE", "f", at)
			c.do("SET", "s", "v", "EX", at)
			c.do("SETEX", "s", at, "v")
		}
		if got := entries(s); got != 3+round { // t is left from the first round
			t.Errorf("round %d: %d entries of %d keys", round, got, 3+round)
		}
		c.do("MULTI")
		for i := range 10 {
			c.do("SET", "s", "v", "EX", fmt.Sprint(2e9+i))
		}
		c.do("EXEC")
		c.do("RENAME", "s", "t")
		if got := entries(s); got != 3 {
			t.Errorf("round %d: %d entries after EXEC and RENAME", round, got)
		}
		if round == 1 {
			c.do("SET", "t", "v")
			c.do("PERSIST", "f")
			c.do("DEL", "k")
			if got := entries(s); got != 0 {
				t.Errorf("%d entries without keys", got)
			}
		}
		if err := s.Close(time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// After a failed write, no client's change of the same filter is acknowledged, even if another
// client's failed write included it.
func TestLostWriteIsNotAcknowledged(t *testing.T) {
	for _, fsync := range []Fsync{FsyncAlways, FsyncNo} {
		t.Run(fsync.String(), func(t *testing.T) { testLostWriteIsNotAcknowledged(t, fsync) })
	}
}

func testLostWriteIsNotAcknowledged(t *testing.T, fsync Fsync) {
	db, fsys := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: fsync})
	if err != nil {
		t.Fatal(err)
	}
	first := localClient(s)
	args := fields("BF.ADD f first")
	first.do(lookup(args[0]), args)
	if err := first.finishWrites(); err != nil { // all is durable
		t.Fatal(err)
	}
	var clients [2]*client
	for i := range clients {
		clients[i] = localClient(s)
		args := fields(fmt.Sprint("BF.ADD f item", i))
		clients[i].do(lookup(args[0]), args)
		clients[i].release()
	}
	fsys.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return strings.Contains(op.Name, ".log") }})
	for i, c := range clients {
		if err := c.finishWrites(); err == nil {
			t.Errorf("client %d gets an acknowledgment for its item", i)
		}
	}
}

// A large SET, which is written before the end of the pipeline, is not acknowledged if its write
// fails.
func TestLostLargeSetIsNotAcknowledged(t *testing.T) {
	for _, fsync := range []Fsync{FsyncAlways, FsyncEverySec, FsyncNo} {
		db, fsys := faultyStore(t)
		s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: fsync})
		if err != nil {
			t.Fatal(err)
		}
		fsys.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return strings.Contains(op.Name, ".log") }})
		c := localClient(s)
		value := strings.Repeat("v", heavyBytes)
		c.runLarge(lookup([]byte("set")), [][]byte{[]byte("SET"), []byte("k"), []byte(value)}, writeCopies*heavyBytes)
		if err := c.finishWrites(); err == nil {
			t.Errorf("fsync %s: the client gets %q", fsync, c.w.Buf)
		}
	}
}

// A client receives the whole error that ends its connection, even after CLIENT REPLY OFF.
func TestErrorAfterReplyOff(t *testing.T) {
	db, fsys := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	for _, call := range []string{"PING", "CLIENT REPLY OFF", "MULTI", "SET k v", "EXEC"} {
		if call == "EXEC" {
			fsys.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return strings.Contains(op.Name, ".log") }})
		}
		args := fields(call)
		c.do(lookup(args[0]), args)
	}
	if got, want := string(c.w.Buf), "-"+errReadOnly.Error()+"\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// If a SET that is written before the end of the pipeline fails, the pipeline is not acknowledged,
// even if a large SET follows.
func TestLargeSetAfterError(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	args := fields("SET k v EX 1000")
	c.do(lookup(args[0]), args)
	if err := c.finishWrites(); err != nil {
		t.Fatal(err)
	}
	c = localClient(s)
	c.err = errHead
	large := [][]byte{[]byte("SET"), []byte("large"), make([]byte, largePending)}
	for _, args := range [][][]byte{large, fields("SET other v")} {
		c.do(lookup(args[0]), args)
	}
	if err := c.finishWrites(); err == nil {
		t.Errorf("the client gets %q", c.w.Buf)
	}
}

// With --fsync always no reply shows a write that is not yet durable.
func TestReadersWaitForSync(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncAlways})
	if err != nil {
		t.Fatal(err)
	}
	writer, reader := localClient(s), localClient(s)
	args := fields("INCR k")
	writer.do(lookup(args[0]), args) // in the store, and not yet synced
	writer.release()
	args = fields("GET k")
	reader.do(lookup(args[0]), args)
	if got := string(reader.w.Buf); got != "$1\r\n1\r\n" {
		t.Fatalf("the reader sees %q", got)
	}
	if err := reader.finishWrites(); err != nil {
		t.Fatal(err)
	}
	if s.synced.Load() < s.begun.Load() {
		t.Error("the reader's reply may go out before the write that it shows is durable")
	}
}

// WAIT syncs what the commands before it in the pipeline have changed, filters included.
func TestWaitSyncsFilters(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	for _, call := range []string{"BF.ADD f x", "BF.ADD f y", "CF.ADD g x", "SET k v", "WAIT 0 0"} {
		args := fields(call)
		c.do(lookup(args[0]), args)
	}
	if got, want := string(c.w.Buf), ":1\r\n:1\r\n:1\r\n+OK\r\n:0\r\n"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
	if s.unsynced() || filterOf(s, "f").parts().RedoBytes() > 0 || filterOf(s, "g").parts().RedoBytes() > 0 {
		t.Error("not all is durable after WAIT")
	}
}

// With --fsync always no reply shows another client's change of a filter that is not yet durable.
func TestReadersOfFiltersWaitForSync(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncAlways})
	if err != nil {
		t.Fatal(err)
	}
	for i, calls := range [][2]string{
		{"BF.ADD b x", "BF.EXISTS b x"}, {"BF.ADD b y", "BF.MEXISTS b y"}, {"BF.ADD b z", "BF.CARD b"},
		{"CF.ADD c x", "CF.EXISTS c x"}, {"CF.ADD c y", "CF.COUNT c y"}, {"CF.DEL c y", "CF.EXISTS c y"},
	} {
		writer, reader := localClient(s), localClient(s)
		if i == 0 || i == 3 { // the filter exists before
			args := fields(strings.Replace(calls[0], "x", "first", 1))
			writer.do(lookup(args[0]), args)
			if err := writer.finishWrites(); err != nil {
				t.Fatal(err)
			}
		}
		args := fields(calls[0])
		writer.do(lookup(args[0]), args)
		writer.release()
		args = fields(calls[1])
		reader.do(lookup(args[0]), args)
		if err := reader.finishWrites(); err != nil {
			t.Fatal(err)
		}
		f := filterOf(s, string(args[1]))
		if f.parts().RedoBytes() > 0 || s.synced.Load() < s.begun.Load() {
			t.Errorf("%s: %q may go out before %s is durable", calls[1], reader.w.Buf, calls[0])
		}
	}
}

// The time that a command takes does not count as time in which the client has not read its reply.
// Event loops have no deadlines for writes.
func TestReplyToLongCommand(t *testing.T) {
	defer func() { way = loops }()
	way = goroutines
	const limit = 250 * time.Millisecond
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, WriteTimeout: limit})
	c, other := dial(t, s), dial(t, s)
	if got := c.do("PING"); got != simple("PONG") {
		t.Fatal(got)
	}
	other.do("CLIENT", "PAUSE", fmt.Sprint((5 * limit / 2).Milliseconds()), "ALL")
	if got := c.do("PING"); got != simple("PONG") {
		t.Error(got)
	}
}

// CLIENT KILL immediately disconnects a client that does not read its replies.
func TestKillOfClientThatDoesNotRead(t *testing.T) { everyWay(t, testKillOfClientThatDoesNotRead) }

func testKillOfClientThatDoesNotRead(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, WriteTimeout: time.Hour})
	c, slow := dial(t, s), dial(t, s)
	c.do("SET", "large", strings.Repeat("v", 8<<20))
	id := fmt.Sprint(slow.do("CLIENT", "ID"))
	slow.conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	for range 4 {
		slow.conn.Write(appendCall(nil, "GET", "large"))
	}
	for s.requestBytes.Load() < 8<<20 {
		time.Sleep(time.Millisecond)
	}
	if got := c.do("CLIENT", "KILL", "ID", id); got != any(int64(1)) {
		t.Fatal(got)
	}
	for deadline := time.Now().Add(30 * time.Second); s.figures().Clients > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the killed client is still there")
		}
	}
}

// CLIENT KILL of a client whose command waits for the end of CLIENT PAUSE does not execute that
// command.
func TestKillDuringPause(t *testing.T) { everyWay(t, testKillDuringPause) }

func testKillDuringPause(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c, waiting := dial(t, s), dial(t, s)
	id := fmt.Sprint(waiting.do("CLIENT", "ID"))
	c.do("CLIENT", "PAUSE", "60000", "WRITE")
	waiting.conn.Write(appendCall(nil, "SET", "k", "v"))
	time.Sleep(50 * time.Millisecond) // it waits
	if got := c.do("CLIENT", "KILL", "ID", id); got != any(int64(1)) {
		t.Fatal(got)
	}
	for deadline := time.Now().Add(30 * time.Second); s.figures().Clients > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the killed client is still there")
		}
	}
	if got := c.do("GET", "k"); got != any(null{2}) {
		t.Errorf("GET during the pause: %v", got)
	}
	c.do("CLIENT", "UNPAUSE")
}

// A command that waits for the end of CLIENT PAUSE when the server is closed is not executed: what
// the pause protects, such as a copy of the data, is then complete.
func TestCloseDuringPause(t *testing.T) { everyWay(t, testCloseDuringPause) }

func testCloseDuringPause(t *testing.T) {
	dir := t.TempDir()
	var waiting *caller
	t.Run("pause", func(of *testing.T) { // at its end the server is closed, before its clients
		s := start(of, dir, Config{Fsync: FsyncNo})
		waiting = dial(t, s)
		dial(t, s).do("CLIENT", "PAUSE", "600000", "WRITE")
		waiting.conn.Write(appendCall(appendCall(nil, "PING"), "SET", "k", "v"))
		if got := waiting.reply(); got != simple("PONG") {
			t.Error(got)
		}
		time.Sleep(50 * time.Millisecond) // SET waits
	})
	if got, err := readReply(waiting.r); err == nil {
		t.Errorf("SET during the pause: %v", got)
	}
	if got := dial(t, start(t, dir, Config{Fsync: FsyncNo})).do("GET", "k"); got != any(null{2}) {
		t.Errorf("GET after the restart: %v", got)
	}
}

// SCAN and commands like it do not hold world: a long one would delay an EXEC, and that all other
// commands.
func TestScanDoesNotHoldWorld(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := localClient(s)
	for _, name := range []string{"scan", "keys", "dbsize", "info"} {
		cmd := lookup([]byte(name))
		if cmd == nil {
			continue
		}
		run := cmd.run
		free := false
		probe := &command{name: cmd.name, arity: cmd.arity, max: cmd.max, flags: cmd.flags, run: func(c *client, args [][]byte) {
			if free = s.world.TryLock(); free {
				s.world.Unlock()
			}
			run(c, args)
		}}
		args := fields(name)
		for len(args) < max(cmd.arity, -cmd.arity) {
			args = append(args, []byte("0"))
		}
		c.do(probe, args)
		c.release()
		if !free {
			t.Errorf("%s holds world: %s", name, c.w.Buf)
		}
	}
}

// A scrape of /metrics does not probe each filter thousands of times: the observed FPR is kept for
// some time.
func TestObservedRateIsKept(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("BF.ADD", "f", "x")
	s.filterStates(10)
	f := filterOf(s, "f")
	f.seen.Lock()
	at := f.seen.at
	f.seen.Unlock()
	c.do("BF.ADD", "f", "y")
	if s.filterStates(10); f.seen.at != at || at.IsZero() {
		t.Error("the filter is probed again at the next scrape")
	}
	f.seen.Lock()
	f.seen.at = at.Add(-observeEvery)
	f.seen.Unlock()
	if s.filterStates(10); !f.seen.at.After(at) {
		t.Error("the filter has changed, and is not probed again after observeEvery")
	}
}

// CLIENT REPLY suppresses replies.
func TestClientReply(t *testing.T) { everyWay(t, testClientReply) }

func testClientReply(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
	for _, calls := range []string{"CLIENT REPLY SKIP;PING a;PING b", "CLIENT REPLY SKIP;CLIENT REPLY SKIP;PING a;PING b", "CLIENT REPLY SKIP;CLIENT REPLY ON;PING b", "CLIENT REPLY OFF;PING a;SET k v;CLIENT REPLY ON;PING b"} {
		want := "b"
		for call := range strings.SplitSeq(calls, ";") {
			c.conn.Write(appendCall(nil, strings.Fields(call)...))
			time.Sleep(2 * time.Millisecond)
		}
		if strings.Contains(calls, "ON") {
			if got := c.reply(); got != simple("OK") {
				t.Errorf("%s: %v", calls, got)
			}
		}
		if got := c.reply(); got != want {
			t.Errorf("%s: %v", calls, got)
		}
	}
}

// Commands on filters do not wait for a write of strings, unless it replaces a filter.
func TestFiltersDoNotWaitForStrings(t *testing.T) {
	s, fsys := startFaulty(t, Config{Fsync: FsyncNo})
	asker := dial(t, s)
	asker.do("BF.ADD", "filter", "item")
	for _, replaces := range []bool{false, true} {
		hung, free := make(chan struct{}, 16), make(chan struct{})
		release := sync.OnceFunc(func() { close(free) })
		t.Cleanup(release)
		fsys.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.OpWrite && strings.Contains(op.Name, ".log") {
				hung <- struct{}{}
				<-free
			}
			return nil
		})
		args := []string{"MSET"}
		for i := range 10 * numStripes { // a key of each stripe
			args = append(args, fmt.Sprint(i), "v")
		}
		if replaces {
			args = append(args, "filter", "v")
		}
		writer := dial(t, s)
		writer.conn.Write(appendCall(nil, args...))
		<-hung
		if replaces {
			asker.conn.Write(appendCall(nil, "BF.EXISTS", "filter", "item"))
			asker.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if b, err := asker.r.Peek(1); err == nil {
				t.Errorf("while the filter is being replaced: %q", b)
			}
			asker.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		} else if got := asker.do("BF.EXISTS", "filter", "item"); got != any(int64(1)) {
			t.Errorf("while strings are written: %v", got)
		}
		fsys.SetHook(nil)
		release()
		if got := writer.reply(); got != any(simple("OK")) {
			t.Error(got)
		}
		if replaces {
			if got := asker.reply(); got != any(int64(0)) {
				t.Errorf("after the filter was replaced: %v", got)
			}
		}
	}
}

// Filters are counted and listed for the status pages while FLUSHALL removes them.
func TestFlushWhileFiltersAreListed(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	var ended atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !ended.Load() {
			s.filterStates(0)
		}
	})
	for range 5 {
		var b []byte
		const n = 1000
		for i := range n {
			b = appendCall(b, "BF.ADD", fmt.Sprint(i), "item")
		}
		c.conn.Write(b)
		for range n {
			c.reply()
		}
		if got := c.do("FLUSHALL"); got != simple("OK") {
			t.Fatal(got)
		}
	}
	ended.Store(true)
	wg.Wait()
	if _, n := s.filterStates(0); n != 0 {
		t.Errorf("%d filters", n)
	}
}

// A write that the store has no room for at the moment is retried, and the server stays writable.
func TestWriteIsRetried(t *testing.T) {
	fsys := vfstest.Inject(vfstest.NewMem())
	var once sync.Once
	o := &sift.Options{MemtableBytes: 64 << 10}
	o.Events.Failed = func(error) {
		once.Do(func() { time.AfterFunc(300*time.Millisecond, func() { fsys.SetFaults() }) })
	}
	testhook.Apply(o, testhook.Settings{FS: fsys})
	db, err := sift.Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	fsys.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Err: syscall.ENOSPC, Match: func(op vfstest.Op) bool {
		return op.Kind == vfstest.OpCreate && filepath.Ext(op.Name) == ".ldb"
	}})
	c := localClient(s)
	value := make([]byte, 4<<10)
	for i := range 200 { // several memtables
		args := [][]byte{[]byte("SET"), fmt.Append(nil, "k", i), value}
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Fatalf("SET %d while the disk is full for 0.3 s: %v", i, err)
		}
	}
	if s.failed.Load() {
		t.Error("the server is read-only")
	}
}
