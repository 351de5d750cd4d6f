package serve

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// A client's commands are executed in order, no matter which of them are handed over to other
// goroutines, what other clients do, and how the input is split.
func TestOrder(t *testing.T) { everyWay(t, testOrder) }

func testOrder(t *testing.T) {
	for _, fsync := range []Fsync{FsyncNo, FsyncAlways} {
		s := start(t, t.TempDir(), Config{Fsync: fsync})
		var wg sync.WaitGroup
		for n := range 6 {
			c := dial(t, s)
			wg.Go(func() { orderly(c, n, 40) })
		}
		wg.Wait()
	}
}

// orderly sends pipelines whose replies it knows.
func orderly(c *caller, number, rounds int) {
	large := strings.Repeat("x", 100_000)
	many := []string{"MGET"}
	for i := range 200 {
		many = append(many, fmt.Sprintf("none%d", i))
	}
	for round := range rounds {
		key, filter := fmt.Sprint("k", number), fmt.Sprint("f", number)
		item := fmt.Sprint(round)
		steps := []struct {
			args []string
			want any
		}{
			{[]string{"SET", key, item}, simple("OK")},
			{[]string{"GET", key}, item},
			{[]string{"SET", key, "a"}, simple("OK")},
			{[]string{"SET", key, "b" + item}, simple("OK")},
			{[]string{"SCAN", "0", "MATCH", "nothing", "COUNT", "1"}, nil},
			{[]string{"GET", key}, "b" + item},
			{[]string{"BF.ADD", filter, item}, int64(1)},
			{[]string{"INFO", "server"}, nil},
			{[]string{"BF.ADD", filter, item}, int64(0)},
			{[]string{"MULTI"}, simple("OK")},
			{[]string{"APPEND", key, "c"}, simple("QUEUED")},
			{[]string{"EXEC"}, nil},
			{[]string{"GET", key}, "b" + item + "c"},
			{[]string{"SET", key, large}, simple("OK")},
			{[]string{"STRLEN", key}, int64(len(large))},
			{[]string{"GET", key}, large},
			{many, nil},
			{[]string{"DEL", key}, int64(1)},
			{[]string{"EXISTS", key}, int64(0)},
		}
		var b []byte
		for _, step := range steps {
			b = appendCall(b, step.args...)
		}
		go func() {
			// In pieces of any length.
			for size := 1 + (round*977+number)%5000; len(b) > 0; {
				n := min(size, len(b))
				if _, err := c.conn.Write(b[:n]); err != nil {
					return
				}
				b = b[n:]
			}
		}()
		for _, step := range steps {
			got, err := readReply(c.r)
			if err != nil {
				c.t.Error(err)
				return
			}
			if step.want != nil && got != step.want {
				c.t.Errorf("client %d, round %d: %.60v: %.60v, want %.60v", number, round, step.args, got, step.want)
			}
			if e, ok := got.(failure); ok {
				c.t.Errorf("%.60v: %v", step.args, e)
			}
		}
	}
}

// Clients that are idle or read no replies are disconnected in time; others are not.
func TestTimeouts(t *testing.T) { everyWay(t, testTimeouts) }

func testTimeouts(t *testing.T) {
	const limit = 2 * time.Second // even on a busy machine, a client at work is not silent for so long
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, IdleTimeout: limit, WriteTimeout: limit})
	c, silent, slow := dial(t, s), dial(t, s), dial(t, s)
	c.do("SET", "large", strings.Repeat("v", 8<<20))
	slow.conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	slow.conn.Write(appendCall(nil, "GET", "large"))
	others := func() (left []string) {
		s.clientsMu.Lock()
		defer s.clientsMu.Unlock()
		for _, other := range s.clients {
			if other.addr != c.conn.LocalAddr().String() {
				left = append(left, other.addr)
			}
		}
		return left
	}
	for begin := time.Now(); len(others()) > 0; time.Sleep(limit / 20) {
		if got := c.do("PING"); got != simple("PONG") {
			t.Fatal(got)
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("%v are still connected; the silent client is %v, the slow one %v", others(), silent.conn.LocalAddr(), slow.conn.LocalAddr())
		}
	}
	if got := c.do("PING"); got != simple("PONG") {
		t.Fatal(got)
	}
	if _, err := silent.r.ReadByte(); err != io.EOF {
		t.Errorf("the silent client reads %v", err)
	}
	for begin := time.Now(); s.requestBytes.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("%d bytes are taken by clients that left", s.requestBytes.Load())
		}
	}
}

// A client that reads its replies slowly but steadily gets them all.
func TestSlowButSteady(t *testing.T) { everyWay(t, testSlowButSteady) }

func testSlowButSteady(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo, WriteTimeout: time.Second})
	c := dial(t, s)
	c.do("SET", "large", strings.Repeat("v", 3<<20))
	c.conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	const times = 4
	for range times {
		c.conn.Write(appendCall(nil, "GET", "large"))
	}
	c.conn.Write(appendCall(nil, "PING"))
	buf := make([]byte, 256<<10)
	total := 0
	for total < times*(3<<20+len("$3145728\r\n\r\n"))+len("+PONG\r\n") {
		n, err := c.r.Read(buf)
		if total += n; err != nil {
			t.Fatalf("after %d bytes: %v", total, err)
		}
		time.Sleep(time.Millisecond)
	}
	if s.requestBytes.Load() != 0 {
		t.Errorf("%d bytes are taken", s.requestBytes.Load())
	}
}

func TestClientKill(t *testing.T) { everyWay(t, testClientKill) }

func testClientKill(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c, other := dial(t, s), dial(t, s)
	id := fmt.Sprint(other.do("CLIENT", "ID"))
	if got := c.do("CLIENT", "KILL", "ID", id); got != any(int64(1)) {
		t.Fatal(got)
	}
	if _, err := other.r.ReadByte(); err != io.EOF {
		t.Errorf("the killed client reads %v", err)
	}
	for deadline := time.Now().Add(10 * time.Second); c.do("CLIENT", "KILL", "ID", id) != any(int64(0)); {
		if time.Now().After(deadline) {
			t.Fatal("the killed client stays in the list")
		}
	}
	myID := fmt.Sprint(c.do("CLIENT", "ID"))
	if got := c.do("CLIENT", "KILL", "ID", myID, "SKIPME", "no"); got != any(int64(1)) {
		t.Errorf("a client kills itself: %v", got)
	}
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("a client that has killed itself reads %v", err)
	}
}

// CLIENT KILL with an empty address finds no client.
func TestKillOfEmptyAddress(t *testing.T) { everyWay(t, testKillOfEmptyAddress) }

func testKillOfEmptyAddress(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c, other := dial(t, s), dial(t, s)
	other.do("PING")
	for _, test := range []struct {
		args []string
		want any
	}{
		{[]string{"ADDR", ""}, int64(0)},
		{[]string{"LADDR", ""}, int64(0)},
		{[]string{"ADDR", "", "SKIPME", "no"}, int64(0)},
		{[]string{""}, failure("ERR No such client")},
	} {
		if got := c.do(append([]string{"CLIENT", "KILL"}, test.args...)...); got != test.want {
			t.Errorf("CLIENT KILL %q: %v, want %v", test.args, got, test.want)
		}
		other.do("PING")
	}
	if got := c.do("CLIENT", "KILL", "ADDR", other.conn.LocalAddr().String()); got != any(int64(1)) {
		t.Errorf("CLIENT KILL of the other client's address: %v", got)
	}
}

// When the store fails, no write is acknowledged, even if several clients' writes were one write to
// the store.
func TestStoreFails(t *testing.T) { everyWay(t, testStoreFails) }

func testStoreFails(t *testing.T) {
	db, fsys := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo, NoLoops: way == goroutines})
	if err != nil {
		t.Fatal(err)
	}
	way.slow(s)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	go s.Serve()
	defer s.Close(time.Second)
	var calls []*caller
	for n := range 8 {
		c := dial(t, s)
		if got := c.do("BF.ADD", "f", fmt.Sprint("before", n)); got != any(int64(1)) {
			t.Fatal(got)
		}
		calls = append(calls, c)
	}
	fsys.SetFaults(vfstest.Fault{Index: -1, Sticky: true, Match: func(op vfstest.Op) bool { return strings.Contains(op.Name, ".log") }})
	for n, c := range calls {
		args := []string{"SET", fmt.Sprint("k", n), "v"}
		if n%2 == 0 {
			args = []string{"BF.ADD", "f", fmt.Sprint("after", n)}
		}
		c.conn.Write(appendCall(nil, args...))
	}
	for n, c := range calls {
		got, err := readReply(c.r)
		if e, ok := got.(failure); err == nil && (!ok || !strings.HasPrefix(string(e), "MISCONF")) {
			t.Errorf("client %d: %v", n, got)
		}
	}
	c := dial(t, s)
	if got := c.do("GET", "k1"); got != any(null{2}) {
		t.Errorf("a read: %v", got)
	}
	if got, ok := c.do("SET", "k", "v").(failure); !ok || !strings.HasPrefix(string(got), "MISCONF") {
		t.Errorf("a write afterwards: %v", got)
	}
}

// A client that reads its replies only after it has sent all of a long pipeline gets them all.
func TestLongPipeline(t *testing.T) {
	defer func() { way = loops }()
	for _, way = range []serving{loops, handedOn} {
		s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
		if s.cfg.NoLoops || runtime.GOOS != "linux" {
			t.Skip("no event loops here")
		}
		c := dial(t, s)
		c.conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		const n = 30_000 // more than the kernel's buffers hold
		word := strings.Repeat("x", 1000)
		c.conn.Write([]byte(strings.Repeat("ECHO "+word+"\r\n", n) + "SET k v\r\nGET k\r\n"))
		for i := range n {
			if got := c.reply(); got != any(word) {
				t.Fatalf("%s: reply %d is %.20q", way, i, got)
			}
		}
		if a, b := c.reply(), c.reply(); a != simple("OK") || b != any("v") {
			t.Errorf("%s: %v, %v", way, a, b)
		}
		c.do("PING")
		if got := s.requestBytes.Load(); got != 0 {
			t.Errorf("%s: %d bytes are taken", way, got)
		}
	}
}

// A waiting EXEC runs before a long command ends.
func TestExecRunsDuringLongCommand(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	const n = 2*partArgs + 1
	for _, test := range []struct{ call, reply string }{
		{"BF.MADD f", "*2001\r\n:1\r\n"}, {"BF.MEXISTS f", "*2001\r\n:1\r\n"}, {"CF.INSERT c ITEMS", "*2001\r\n:1\r\n"},
		{"EXISTS", ":0\r\n"}, {"MGET", "*2001\r\n$-1\r\n"}, {"DEL", ":1\r\n"},
	} {
		c := localClient(s)
		if strings.HasPrefix(test.call, "DEL") {
			args := fields("SET item2000 v")
			c.do(lookup(args[0]), args)
		}
		c.w.Buf = nil
		c.hold()
		went := make(chan struct{})
		go func() {
			s.world.Lock()
			close(went)
			s.world.Unlock()
		}()
		for s.world.TryRLock() { // until it waits
			s.world.RUnlock()
			time.Sleep(time.Millisecond)
		}
		args := fields(test.call)
		for i := range n {
			args = append(args, fmt.Append(nil, "item", i))
		}
		c.do(lookup(args[0]), args)
		select {
		case <-went:
		case <-time.After(20 * time.Second):
			t.Errorf("%s of %d does not let an EXEC go first", test.call, n)
		}
		if err := c.finishWrites(); err != nil {
			t.Error(err)
		}
		<-went
		if got := string(c.w.Buf); !strings.HasPrefix(got, test.reply) {
			t.Errorf("%s: %.30q, want %q first", test.call, got, test.reply)
		}
	}
}
