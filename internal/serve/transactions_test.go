package serve

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

// EXEC is one write to the store, and its reads see its own writes. It does nothing if a watched
// key has changed, has expired or was flushed.
func TestTransactions(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c, other := dial(t, s), dial(t, s)
	c.do("SET", "gone", "v")
	before := s.puts.Load()
	c.do("MULTI")
	calls := []struct {
		call string
		want any
	}{
		{"SET a 1", simple("OK")}, {"INCR a", int64(2)}, {"GET a", "2"}, {"APPEND a x", int64(2)}, {"MSET b 1 c 2", simple("OK")},
		{"DEL gone", int64(1)}, {"EXISTS gone a b", int64(2)}, {"DBSIZE", int64(3)}, {"BF.ADD f x", int64(1)}, {"BF.EXISTS f x", int64(1)},
		{"RENAME f g", simple("OK")}, {"BF.EXISTS g x", int64(1)}, {"EXPIRE b 100", int64(1)}, {"TTL b", int64(100)}, {"RENAME b d", simple("OK")},
		{"SELECT 1", simple("OK")}, {"SET a other", simple("OK")}, {"GET a", "other"}, {"SELECT 0", simple("OK")}, {"GET a", "2x"},
	}
	for _, step := range calls {
		if got := c.do(strings.Fields(step.call)...); got != simple("QUEUED") {
			t.Fatal(got)
		}
	}
	got := c.do("EXEC").([]any)
	for i, step := range calls {
		if got[i] != step.want {
			t.Errorf("%s: %v, want %v", step.call, got[i], step.want)
		}
	}
	if n := s.puts.Load() - before; n != 1 {
		t.Errorf("EXEC was %d writes, want 1", n)
	}
	for _, step := range []struct {
		watch, other string
		want         any
	}{
		{"k", "SET k v", null{2}}, {"k", "GET k", []any{}}, {"k", "DEL nothing", []any{}}, {"k", "EXPIRE k 100", null{2}}, {"k", "DEL k", null{2}},
		{"nothing", "FLUSHALL", []any{}}, {"k", "SET k v", null{2}}, {"k", "FLUSHALL", null{2}}, {"g", "BF.ADD g z", null{2}}, {"k", "MSET x 1 k 2", null{2}},
	} {
		c.do("WATCH", step.watch)
		other.do(strings.Fields(step.other)...)
		c.do("MULTI")
		if got := c.do("EXEC"); fmt.Sprint(got) != fmt.Sprint(step.want) {
			t.Errorf("EXEC after WATCH %s and another client's %s: %v, want %v", step.watch, step.other, got, step.want)
		}
	}
	// An absent key is still watched after a FLUSHALL.
	c.do("WATCH", "new")
	other.do("FLUSHALL")
	other.do("SET", "new", "v")
	c.do("MULTI")
	if got := c.do("EXEC"); got != any(null{2}) {
		t.Errorf("after FLUSHALL and SET: %v", got)
	}
	if got := s.watching.Load(); got != 0 {
		t.Errorf("%d keys are watched", got)
	}
}

// MSET in a transaction does not change the map of filters while another goroutine reads it, as the
// status pages do without holding world.
func TestExecMSetWhileFiltersAreListed(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	run := func(calls ...string) error {
		c := localClient(s)
		for _, call := range calls {
			args := fields(call)
			c.do(lookup(args[0]), args)
		}
		return c.finishWrites()
	}
	if err := run("BF.ADD f x"); err != nil {
		t.Fatal(err)
	}
	st := s.stripe([]byte("f"))
	st.names.RLock()
	done := make(chan error, 1)
	go func() { done <- run("MULTI", "MSET f v", "EXEC") }()
	select {
	case err := <-done:
		t.Errorf("MSET has replaced a filter while the filters were listed (error: %v)", err)
		st.names.RUnlock()
		return
	case <-time.After(300 * time.Millisecond):
	}
	st.names.RUnlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A transaction whose short commands write much more than the store accepts at once does not make
// the server read-only: above some size its commands fail.
func TestLargeTransaction(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo}, func(s *Server) { s.execMax = 1 << 20 })
	c := dial(t, s)
	c.do("MULTI")
	for _, key := range []string{"a", "b", "c"} {
		c.do("SETRANGE", key, fmt.Sprint(600<<10), "x")
	}
	c.do("STRLEN", "b")
	const n = 600<<10 + 1
	if got, want := fmt.Sprint(c.do("EXEC")), fmt.Sprint([]any{n, n, failure(errExecOOM.Error()), n}); got != want {
		t.Errorf("EXEC: %s, want %s", got, want)
	}
	if got := fmt.Sprint(c.do("STRLEN", "a"), c.do("STRLEN", "c")); got != fmt.Sprint(n, 0) {
		t.Errorf("afterwards: %s", got)
	}
}

// The changes of a transaction count as memory for requests until they are written: further writes
// are refused, and reads are not.
func TestExecMemory(t *testing.T) { everyWay(t, testExecMemory) }

func testExecMemory(t *testing.T) {
	const n = 1_900_000
	s := start(t, t.TempDir(), Config{RequestBytes: 4 << 20, Fsync: FsyncNo})
	c := dial(t, s)
	c.do("MULTI")
	for i := range 5 {
		c.do("SETRANGE", fmt.Sprint("k", i), fmt.Sprint(n-1), "x")
	}
	c.do("STRLEN", "k1")
	oom := failure(errOOM.Error())
	if got, want := fmt.Sprint(c.do("EXEC")), fmt.Sprint([]any{n, n, oom, oom, oom, n}); got != want {
		t.Errorf("EXEC: %s, want %s", got, want)
	}
	if got := fmt.Sprint(c.do("STRLEN", "k1"), c.do("STRLEN", "k2")); got != fmt.Sprint(n, 0) {
		t.Errorf("afterwards: %s", got)
	}
	if got := s.requestBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken", got)
	}
}

// A transaction that writes its arguments fits if its commands could be queued.
func TestExecOfArguments(t *testing.T) { everyWay(t, testExecOfArguments) }

func testExecOfArguments(t *testing.T) {
	s := start(t, t.TempDir(), Config{RequestBytes: 3 << 20, Fsync: FsyncNo})
	c := dial(t, s)
	value := strings.Repeat("v", 700<<10)
	c.do("MULTI")
	for i := range 3 {
		if got := c.do("SET", fmt.Sprint("k", i), value); got != simple("QUEUED") {
			t.Fatal(got)
		}
	}
	if got, want := fmt.Sprint(c.do("EXEC")), fmt.Sprint([]any{"OK", "OK", "OK"}); got != want {
		t.Errorf("EXEC: %s, want %s", got, want)
	}
	if got := s.requestBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken", got)
	}
}

// The commands of a transaction see its large changes, of a key that it has changed before and of
// one that it has removed.
func TestExecSeesItsChanges(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	a, b := strings.Repeat("a", 100_000), strings.Repeat("b", 300_000)
	c.do("SET", "old", "v", "EX", "1000")
	calls := []struct {
		call []string
		want any
	}{
		{[]string{"SET", "x", a}, simple("OK")}, {[]string{"SET", "y", b, "EX", "1000"}, simple("OK")}, {[]string{"GET", "x"}, a},
		{[]string{"APPEND", "x", b}, int64(400_000)}, {[]string{"GET", "y"}, b}, {[]string{"GET", "x"}, a + b},
		{[]string{"RENAME", "y", "z"}, simple("OK")}, {[]string{"GET", "y"}, null{2}}, {[]string{"GET", "z"}, b}, {[]string{"TTL", "z"}, int64(1000)},
		{[]string{"DEL", "old"}, int64(1)}, {[]string{"GET", "old"}, null{2}}, {[]string{"SET", "old", ""}, simple("OK")}, {[]string{"GET", "old"}, ""},
		{[]string{"TTL", "old"}, int64(-1)}, {[]string{"DBSIZE"}, int64(3)}, {[]string{"GET", "x"}, a + b},
	}
	c.do("MULTI")
	for _, step := range calls {
		c.do(step.call...)
	}
	got := c.do("EXEC").([]any)
	for i, step := range calls {
		if got[i] != step.want {
			t.Errorf("%d: %.20s: %.20v, want %.20v", i, step.call, got[i], step.want)
		}
	}
	for key, want := range map[string]any{"x": a + b, "y": null{2}, "z": b, "old": ""} {
		if got := c.do("GET", key); got != want {
			t.Errorf("afterwards %s: %.20v, want %.20v", key, got, want)
		}
	}
}

// Changes of filters count toward the size of a transaction as well.
func TestLargeTransactionOfFilters(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo}, func(s *Server) { s.execMax = muchRedo })
	c := dial(t, s)
	c.do("BF.RESERVE", "b", "0.0001", "100000")
	c.do("MULTI")
	c.do(manyItems(0)...)
	c.do("BF.ADD", "b", "x")
	got, _ := c.do("EXEC").([]any)
	if len(got) != 2 {
		t.Fatalf("EXEC: %d replies", len(got))
	}
	if got[1] != any(failure(errExecOOM.Error())) {
		t.Errorf("EXEC: the last reply is %v", got[1])
	}
	if got := c.do("BF.ADD", "b", "x"); got != any(int64(1)) {
		t.Errorf("afterwards: %v", got)
	}
}

// A key that has expired counts as absent, even if it has not been removed: a SWAPDB that puts it
// in the place of an absent key does not signal a change.
func TestSwapOfExpired(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo}) // nothing runs in the background
	if err != nil {
		t.Fatal(err)
	}
	c, other := localClient(s), localClient(s)
	run := func(c *client, call string) string {
		t.Helper()
		c.w.Reset()
		args := fields(call)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
		return string(c.w.Buf)
	}
	for px, want := range map[string]string{"1": "*1\r\n+PONG\r\n", "1000000": "*-1\r\n"} {
		run(other, "FLUSHALL")
		run(other, "SELECT 1")
		run(other, "SET k v PX "+px)
		time.Sleep(5 * time.Millisecond)
		run(c, "WATCH k")
		run(other, "SWAPDB 0 1")
		run(c, "MULTI")
		run(c, "PING")
		if got := run(c, "EXEC"); got != want {
			t.Errorf("EXEC after SWAPDB with a key that expires in %s ms: %q, want %q", px, got, want)
		}
	}
}

// WATCH watches a key in the selected database number, whatever SWAPDB puts there.
func TestWatchAndSwapDB(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c, other := dial(t, s), dial(t, s)
	other.do("SET", "zero", "v")
	for _, test := range []struct {
		watch, other string // commands, separated by commas
		want         any
	}{
		{"WATCH k", "SWAPDB 0 1", []any{}},
		{"WATCH zero", "SWAPDB 0 1,SWAPDB 0 1", null{2}},
		{"SELECT 1,WATCH zero,SELECT 0", "SWAPDB 0 1,SWAPDB 0 1", null{2}},
		{"WATCH k", "SWAPDB 0 1,SET k v,DEL k", null{2}},
		{"WATCH k", "SWAPDB 0 1,SWAPDB 0 1,SET k v,DEL k", null{2}},
		{"WATCH k", "SWAPDB 0 1,SELECT 1,SET k v,DEL k,SELECT 0", []any{}},
		{"WATCH k,SELECT 1,WATCH k,SELECT 0", "SWAPDB 0 1", []any{}},
		{"WATCH k,SELECT 1,WATCH k,SELECT 0", "SWAPDB 0 1,SET k v,DEL k", null{2}},
		{"WATCH k,SELECT 1,WATCH k,SELECT 0", "SWAPDB 0 1,SELECT 1,SET k v,DEL k,SELECT 0", null{2}},
	} {
		for call := range strings.SplitSeq(test.watch, ",") {
			c.do(strings.Fields(call)...)
		}
		for call := range strings.SplitSeq(test.other, ",") {
			other.do(strings.Fields(call)...)
		}
		c.do("MULTI")
		if got := c.do("EXEC"); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("EXEC after %s and another client's %s: %v, want %v", test.watch, test.other, got, test.want)
		}
	}
	if got := s.watching.Load(); got != 0 {
		t.Errorf("%d keys are watched", got)
	}
}

// A client that begins to watch a key while another one is about to write it, and reads the old
// value, is notified.
func TestWatchDuringWrite(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c, writer := dial(t, s), localClient(s)
	for _, change := range []func(){
		func() { writer.setString([]byte("k"), []byte("new"), 0) },
		func() { writer.remove([]byte("k")) },
	} {
		c.do("SET", "k", "old")
		writer.hold()
		err := writer.locked(func() error {
			change()
			c.do("WATCH", "k")
			if got := c.do("GET", "k"); got != "old" {
				t.Errorf("GET: %v", got)
			}
			return nil
		}, []byte("k"))
		writer.release()
		if err != nil {
			t.Fatal(err)
		}
		c.do("MULTI")
		c.do("SET", "k", "lost")
		if got := c.do("EXEC"); got != any(null{2}) {
			t.Errorf("EXEC: %v", got)
		}
	}
}

// A scan that begins in a transaction finds the keys that the transaction has changed, even if it
// goes on afterwards.
func TestScanInTransaction(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("MSET", "b", "1", "d", "1", "f", "1", "h", "1")
	for _, call := range []string{"MULTI", "MSET a 2 b 2 c 2 i 2 j 2", "DEL d", "KEYS *", "SCAN 0 COUNT 3"} {
		c.do(strings.Fields(call)...)
	}
	got, ok := c.do("EXEC").([]any)
	if !ok || len(got) != 4 {
		t.Fatal(got)
	}
	const want = "[a b c f h i j]"
	if fmt.Sprint(got[2]) != want {
		t.Errorf("KEYS: %v, want %s", got[2], want)
	}
	var found []any
	for reply := got[3].([]any); ; reply = c.do("SCAN", reply[0].(string), "COUNT", "1").([]any) {
		found = append(found, reply[1].([]any)...)
		if reply[0] == "0" {
			break
		}
	}
	if fmt.Sprint(found) != want {
		t.Errorf("SCAN: %v, want %s", found, want)
	}
}

// After an EXEC that is rejected, the client no longer watches keys.
func TestRefusedExecUnwatches(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c, other := dial(t, s), dial(t, s)
	c.do("WATCH", "k")
	c.do("MULTI")
	const want = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
	if got := c.do("EXEC", "x"); got != failure(want) {
		t.Errorf("%v", got)
	}
	other.do("SET", "k", "v")
	c.do("MULTI")
	if got, ok := c.do("EXEC").([]any); !ok {
		t.Errorf("the next EXEC: %v", got)
	}
}

// All replies of a transaction together are one reply, which is replaced with an error if it takes
// too much memory, even without strings.
func TestExecReplyMemory(t *testing.T) { everyWay(t, testExecReplyMemory) }

func testExecReplyMemory(t *testing.T) {
	s := start(t, t.TempDir(), Config{RequestBytes: 1 << 20, Fsync: FsyncNo})
	c := dial(t, s)
	const n = 5000 // replies of more than 300 bytes
	calls := appendCall(nil, "MULTI")
	for range n {
		calls = appendCall(calls, "CLIENT", "HELP")
	}
	if _, err := c.conn.Write(appendCall(calls, "EXEC")); err != nil {
		t.Fatal(err)
	}
	for range 1 + n {
		c.reply()
	}
	if got := c.reply(); got != any(failure(errReplyOOM.Error())) {
		t.Errorf("EXEC: %.80v", got)
	}
	if got := c.do("PING"); got != simple("PONG") {
		t.Error(got)
	}
}

// The keys that a client watches count as memory for requests until it no longer watches them.
func TestWatchMemory(t *testing.T) { everyWay(t, testWatchMemory) }

func testWatchMemory(t *testing.T) {
	const budget = 1 << 16
	s := start(t, t.TempDir(), Config{RequestBytes: budget, Fsync: FsyncNo})
	c := dial(t, s)
	key := strings.Repeat("k", 500)
	var got any = simple("OK")
	n := 0
	for ; got == any(simple("OK")) && n <= budget/len(key); n++ {
		got = c.do("WATCH", key+fmt.Sprint(n))
	}
	if got != any(failure(errOOM.Error())) {
		t.Fatalf("after %d keys: %v", n, got)
	}
	if got := c.do("UNWATCH"); got != simple("OK") {
		t.Error(got)
	}
	if got := s.requestBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken", got)
	}
}

// With WATCH no increment is lost between a GET and a SET.
func TestWatchedIncrements(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	const clients, each = 4, 50
	var wg sync.WaitGroup
	for range clients {
		c := dial(t, s)
		wg.Go(func() {
			for done := 0; done < each; {
				c.conn.Write(appendCall(appendCall(nil, "WATCH", "n"), "GET", "n"))
				readReply(c.r)
				v, _ := readReply(c.r)
				n := 0
				if text, ok := v.(string); ok {
					fmt.Sscan(text, &n)
				}
				c.conn.Write(appendCall(appendCall(appendCall(nil, "MULTI"), "SET", "n", fmt.Sprint(n+1)), "EXEC"))
				readReply(c.r)
				readReply(c.r)
				got, err := readReply(c.r)
				if err != nil {
					t.Error(err)
					return
				}
				if _, ok := got.([]any); ok {
					done++
				}
			}
		})
	}
	wg.Wait()
	if got := dial(t, s).do("GET", "n"); got != fmt.Sprint(clients*each) {
		t.Errorf("%v of %d increments", got, clients*each)
	}
}

// After a kill, either all of a transaction is there or none of it.
func TestTransactionsAreWholeAfterKill(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		cmd, addr := spawn(t, dir, FsyncNo)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		r := bufio.NewReader(conn)
		conn.Write(appendCall(appendCall(nil, "MGET", "a", "b", "c", "d"), "BF.CARD", "f"))
		v, err := readReply(r)
		if err != nil {
			t.Fatal(err)
		}
		card, _ := readReply(r)
		list := v.([]any)
		for _, e := range list {
			if e != list[0] {
				t.Fatalf("round %d: %v", round, list)
			}
		}
		n := 0
		if text, ok := list[0].(string); ok {
			fmt.Sscan(text, &n)
		}
		if card != any(int64(n)) {
			t.Fatalf("round %d: %d transactions, %v items", round, n, card)
		}
		time.AfterFunc(time.Duration(100+50*round)*time.Millisecond, func() { cmd.Process.Kill() })
		for {
			var b []byte
			for range 10 {
				n++
				text := fmt.Sprint(n)
				b = appendCall(appendCall(appendCall(b, "MULTI"), "SET", "a", text), "SET", "b", text)
				b = appendCall(appendCall(appendCall(b, "BF.INSERT", "f", "CAPACITY", "1000000", "ITEMS", text), "MSET", "c", text, "d", text), "EXEC")
			}
			if _, err := conn.Write(b); err != nil {
				break
			}
			for range 60 {
				if _, err = readReply(r); err != nil {
					break
				}
			}
			if err != nil {
				break
			}
		}
		conn.Close()
		cmd.Wait()
	}
}

// A database of an older version, with one generation, has its keys in database 0.
func TestDatabases(t *testing.T) {
	dir := t.TempDir()
	db, err := sift.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	db.Put(metaFormat, []byte(formatVersion), nil)
	db.Put(metaGen, binary.BigEndian.AppendUint32(nil, 7), nil)
	db.Put([]byte("k\x00\x00\x00\x07old"), []byte("\x01v"), nil)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, Config{Fsync: FsyncNo})
	c := dial(t, s)
	for _, step := range []struct {
		call string
		want any
	}{
		{"GET old", "v"}, {"SELECT 16", failure("ERR DB index is out of range")}, {"SELECT 3", simple("OK")}, {"GET old", null{2}},
		{"SET old three", simple("OK")}, {"BF.ADD f x", int64(1)}, {"SELECT 4", simple("OK")}, {"BF.EXISTS f x", int64(0)}, {"SET four v EX 100", simple("OK")},
		{"FLUSHDB", simple("OK")}, {"DBSIZE", int64(0)}, {"SELECT 3", simple("OK")}, {"DBSIZE", int64(2)}, {"BF.EXISTS f x", int64(1)}, {"GET old", "three"},
		{"SELECT 0", simple("OK")}, {"GET old", "v"}, {"FLUSHALL", simple("OK")}, {"SELECT 3", simple("OK")}, {"DBSIZE", int64(0)},
	} {
		if got := c.do(strings.Fields(step.call)...); got != step.want {
			t.Errorf("%s: %v, want %v", step.call, got, step.want)
		}
	}
}
