package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/redisbloom"
)

// Replies count as memory until the client has read them. One that does not fit is replaced with an
// error, for that client alone. The memory is released when a client disconnects.
func TestReplyMemory(t *testing.T) { everyWay(t, testReplyMemory) }

func testReplyMemory(t *testing.T) {
	s := start(t, t.TempDir(), Config{MaxBulkBytes: 1 << 20, RequestBytes: 8 << 20, Fsync: FsyncNo})
	c := dial(t, s)
	big := strings.Repeat("v", 1<<20)
	for i := range 4 {
		if got := c.do("SET", fmt.Sprint("big", i), big); got != simple("OK") {
			t.Fatal(got)
		}
	}
	if got := c.do("MGET", "big0", "big1", "big2", "none").([]any); len(got[2].(string)) != 1<<20 || got[3] != any(null{2}) {
		t.Error("MGET of values that fit in the memory does not return them")
	}
	oom := failure(errReplyOOM.Error())
	many := []string{"MGET"}
	for range 20 {
		many = append(many, "big0")
	}
	if got := c.do(many...); got != oom {
		t.Errorf("MGET of too much: %.80v", got)
	}
	c.do("MULTI")
	for range 20 {
		c.do("GET", "big0")
	}
	c.do("SET", "after", "v")
	if got := c.do("EXEC"); got != oom {
		t.Errorf("EXEC of too much: %.80v", got)
	}
	if got := c.do("GET", "after"); got != "v" {
		t.Errorf("the transaction's last command: %v", got)
	}
	if got := s.requestBytes.Load(); got != 0 {
		t.Errorf("%d bytes are taken", got)
	}
	// These clients request more than they read.
	var slow []net.Conn
	for range 40 {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		for range 8 {
			conn.Write(appendCall(nil, "MGET", "big0", "big1"))
		}
		slow = append(slow, conn)
	}
	for deadline := time.Now().Add(20 * time.Second); s.requestBytes.Load() < 4<<20 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	for range 100 {
		if got := s.requestBytes.Load(); got > 8<<20 {
			t.Fatalf("%d bytes are taken", got)
		}
		if got := c.do("GET", "after"); got != "v" {
			t.Errorf("another client: %v", got)
		}
	}
	for _, conn := range slow {
		conn.Close()
	}
	for deadline := time.Now().Add(20 * time.Second); s.requestBytes.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are taken after all clients have disconnected", s.requestBytes.Load())
		}
	}
}

// A request that is refused does not cause another one that fits to be refused.
func TestTakeDuringRefusal(t *testing.T) {
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 2000000 {
				if take(&taken, 9, 8) {
					t.Error("9 of 8 bytes are taken")
					return
				}
			}
		})
		wg.Go(func() {
			for range 2000000 {
				if !take(&taken, 1, 8) {
					t.Error("1 of 8 bytes is refused")
					return
				}
				take(&taken, -1, 8)
			}
		})
	}
	wg.Wait()
	if got := taken.Load(); got != 0 {
		t.Errorf("%d bytes are taken at the end", got)
	}
}

// When a client that has not authenticated is refused memory, no other client is refused because of
// that.
func TestUnauthenticatedRefused(t *testing.T) {
	s := &Server{front: &front{}}
	s.cfg.RequestBytes = 1 << 20
	unauth, other := &client{srv: s}, &client{srv: s, trusted: true}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 1000000 {
			if unauth.reserve(600 << 10) {
				t.Error("a client without the password gets more than its share")
				return
			}
		}
	})
	wg.Go(func() {
		for range 1000000 {
			if !other.reserve(600 << 10) {
				t.Error("a client with the password is refused")
				return
			}
			other.reserve(-600 << 10)
		}
	})
	wg.Wait()
}

// The memory of a filter includes its name, its links and its overhead, so that many small filters
// reach the limit, too.
func TestFilterOverheadCounts(t *testing.T) {
	s := start(t, t.TempDir(), Config{FilterBytes: 1 << 20, Fsync: FsyncNo})
	c := dial(t, s)
	n := 0
	for ; n < 10000; n++ {
		if got := c.do("BF.ADD", fmt.Sprint("f", n), "x"); got == any(failure(errOOM.Error())) {
			break
		}
	}
	if n < 500 || n > 1100 {
		t.Errorf("%d filters in 1 MiB", n)
	}
	c.do("FLUSHALL")
	long := strings.Repeat("k", 600<<10)
	if got := c.do("BF.ADD", long, "x"); got != any(int64(1)) {
		t.Error(got)
	}
	if got := c.do("BF.ADD", long+"2", "x"); got != any(failure(errOOM.Error())) {
		t.Error(got)
	}
	if got := c.do("RENAME", long, "short"); got != simple("OK") {
		t.Error(got)
	}
	if got := s.filterBytes.Load(); got > 4096 {
		t.Errorf("%d bytes after the rename", got)
	}
	short := s.filterBytes.Load()
	if got := c.do("BF.ADD", long, "x"); got != any(int64(1)) {
		t.Error(got)
	}
	full := s.filterBytes.Load()
	if got := c.do("RENAME", "short", long+"2"); got != any(failure(errOOM.Error())) {
		t.Error(got)
	}
	c.do("MULTI")
	c.do("RENAME", "short", long+"2")
	if got := c.do("EXEC").([]any); got[0] != any(failure(errOOM.Error())) {
		t.Error(got)
	}
	if got := c.do("BF.EXISTS", "short", "x"); got != any(int64(1)) || s.filterBytes.Load() != full {
		t.Errorf("after a rename that was refused: %v, %d bytes, want %d", got, s.filterBytes.Load(), full)
	}
	if c.do("DEL", long); s.filterBytes.Load() != short {
		t.Errorf("%d bytes, want %d", s.filterBytes.Load(), short)
	}
	if c.do("DEL", "short"); s.filterBytes.Load() != 0 {
		t.Errorf("%d bytes without a filter", s.filterBytes.Load())
	}
}

// While a filter takes memory that it has found to be free, no other filter takes it, not even one
// of another group of the same node.
func TestFiltersGrowTogether(t *testing.T) {
	const most = 1 << 20
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", FilterBytes: most, Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	create := func(f *filter, _ uint64) error {
		return s.makeBloom(redisbloom.BloomOptions{Capacity: 400 << 10, Error: 0.01, Expansion: 2})(f, most)
	}
	for _, other := range []*Server{s, {front: s.front, cfg: s.cfg}} {
		s.filterBytes.Store(0)
		done := make(chan error, 1)
		if err := s.account(0, func(room uint64) (uint64, error) {
			go func() { done <- other.makeLarge(&filter{kind: kindBloom}, create) }()
			time.Sleep(100 * time.Millisecond) // in which makeLarge would finish if it did not wait
			return room, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != errOOM {
			t.Errorf("a large filter, after all memory was taken: %v, want %v", err, errOOM)
		}
		if got := s.filterBytes.Load(); got != most {
			t.Errorf("%d bytes, the limit is %d", got, most)
		}
	}
}

// Cursors are bounded in number and in the bytes of their keys. A step of a scan ends early if its
// keys are long.
func TestCursors(t *testing.T) {
	var k cursors
	for i := range 2 * maxCursors {
		k.add(0, []byte{byte(i)})
	}
	if len(k.kept) > maxCursors || k.bytes != len(k.kept) {
		t.Errorf("%d cursors, %d bytes", len(k.kept), k.bytes)
	}
	var last uint64
	for range 40 {
		last = k.add(0, make([]byte, 1<<20))
	}
	if k.bytes > cursorBytes || len(k.kept) > 16 {
		t.Errorf("%d cursors, %d bytes", len(k.kept), k.bytes)
	}
	if _, ok := k.get(last); !ok {
		t.Error("the newest cursor was dropped")
	}
	var one, other cursors
	other.add(0, []byte("other"))
	if at, ok := other.get(one.add(0, []byte("one"))); ok {
		t.Errorf("the first cursor of one server is that of another, at %q", at)
	}
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
	for i := range 30 {
		c.do("SET", strings.Repeat("k", 200<<10)+fmt.Sprint(i), "v")
	}
	seen, steps := 0, 0
	for cursor := "0"; steps == 0 || cursor != "0"; steps++ {
		r := c.do("SCAN", cursor, "COUNT", "1000").([]any)
		cursor = r[0].(string)
		seen += len(r[1].([]any))
	}
	if seen != 30 || steps < 5 {
		t.Errorf("%d keys in %d steps", seen, steps)
	}
}

// A slow scan ends although other clients make more steps between its steps than cursors are kept.
func TestSlowScanEnds(t *testing.T) {
	const keys = maxCursors + 200
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	slow, other := dial(t, s), dial(t, s)
	args := []string{"MSET"}
	for i := range keys {
		args = append(args, fmt.Sprintf("k%05d", i), "v")
	}
	slow.do(args...)
	step := func(c *caller, cursor, count string) (next string, n int) {
		r := c.do("SCAN", cursor, "COUNT", count).([]any)
		return r[0].(string), len(r[1].([]any))
	}
	seen := 0
	for cursor, steps := "0", 0; steps == 0 || cursor != "0"; steps++ {
		if steps == 4 {
			t.Fatalf("the scan of %d keys has found %d in 4 steps and goes on", keys, seen)
		}
		next, n := step(slow, cursor, "2000")
		if next != "0" { // a client that has lost the reply repeats the step
			if next, n = step(slow, cursor, "2000"); n != 2000 {
				t.Fatalf("step %d, repeated: %d keys", steps, n)
			}
		}
		cursor = next
		seen += n
		for at, _ := step(other, "0", "1"); at != "0"; {
			at, _ = step(other, at, "1")
		}
	}
	if seen != keys {
		t.Errorf("%d keys, want %d", seen, keys)
	}
}

// A scan keeps two cursors while it runs, and one when it has ended.
func TestCursorsOfScan(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("MSET", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5")
	cursor := "0"
	for _, want := range []int{1, 2, 2, 2, 1} {
		cursor = c.do("SCAN", cursor, "COUNT", "1").([]any)[0].(string)
		s.cursors.mu.Lock()
		if n, bytes := len(s.cursors.kept), s.cursors.bytes; n != want || bytes != n {
			t.Errorf("%d cursors of %d bytes, want %d of one byte each", n, bytes, want)
		}
		s.cursors.mu.Unlock()
	}
}

// repeatedScan scans all keys. It executes each step twice, as a client does that has lost the
// first reply, and checks that both replies have the same keys and either both end the scan or
// neither.
func repeatedScan(t *testing.T, c *caller, count string) (seen int) {
	t.Helper()
	for cursor, steps := "0", 0; steps == 0 || cursor != "0"; steps++ {
		if steps == 100 {
			t.Fatalf("the scan has found %d keys in %d steps and goes on", seen, steps)
		}
		first := c.do("SCAN", cursor, "COUNT", count).([]any)
		again := c.do("SCAN", cursor, "COUNT", count).([]any)
		if !reflect.DeepEqual(first[1], again[1]) || (first[0] == "0") != (again[0] == "0") {
			t.Fatalf("step %d, cursor %s: %v, repeated: %v", steps, cursor, first, again)
		}
		cursor = again[0].(string)
		seen += len(again[1].([]any))
	}
	return seen
}

// Each step of a scan can be repeated, even the last one.
func TestRepeatedScan(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
	c.do("MSET", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5")
	if n := repeatedScan(t, c, "2"); n != 5 {
		t.Errorf("%d keys, want 5", n)
	}
}

// Cursors of scans that have ended are dropped before those of scans that have not.
func TestCursorsOfEndedScans(t *testing.T) {
	var k cursors
	slow := k.add(0, []byte("slow"))
	var ended uint64
	for range 2 * maxCursors {
		ended = k.add(0, []byte("short"))
		k.end(ended)
	}
	for name, id := range map[string]uint64{"a scan that has not ended": slow, "the scan that has ended last": ended} {
		if _, ok := k.get(id); !ok {
			t.Errorf("the cursor of %s was dropped", name)
		}
	}
	for range maxCursors - 1 {
		k.add(0, []byte("long"))
	}
	if _, ok := k.get(ended); ok || k.ended.Len() > 0 {
		t.Errorf("%d cursors of scans that have ended are left", k.ended.Len())
	}
	if _, ok := k.get(slow); !ok || len(k.kept) != maxCursors || k.running.Len() != maxCursors {
		t.Errorf("%d cursors, %d of them of scans that have not ended; the oldest is there: %v", len(k.kept), k.running.Len(), ok)
	}
}

// A client that does not authenticate in time is disconnected; one that has authenticated may be
// idle.
func TestAuthTimeout(t *testing.T) { everyWay(t, testAuthTimeout) }

func testAuthTimeout(t *testing.T) {
	s := start(t, t.TempDir(), Config{Password: "p", AuthTimeout: 200 * time.Millisecond, Fsync: FsyncNo})
	c := dial(t, s)
	if got := c.do("AUTH", "p"); got != simple("OK") {
		t.Fatal(got)
	}
	if got := raw(t, s, "*2\r\n$4\r\nAUTH\r\n$1\r\n"); got != "" {
		t.Errorf("half a command: %q", got)
	}
	if got := raw(t, s, ""); got != "" {
		t.Errorf("silence: %q", got)
	}
	time.Sleep(300 * time.Millisecond)
	if got := c.do("PING"); got != simple("PONG") {
		t.Errorf("after a while: %v", got)
	}
	c.do("RESET")
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("after RESET: %v", err)
	}
}

// crowd returns how many idle and slow clients TestCrowd connects.
func crowd() (idle, slow int) {
	if os.Getenv("SIFT_SERVE_CROWD") != "" {
		return 10_000, 1000
	}
	return 300, 50
}

// TestCrowd logs the latencies of some clients, alone and next to many idle and slow ones, whose
// requests and replies must take limited memory. With SIFT_SERVE_CROWD there are 10,000 idle and
// 1,000 slow ones. The server is another process, because each connection takes a file descriptor
// on both sides.
func TestCrowd(t *testing.T) {
	idle, slow := crowd()
	dir := t.TempDir()
	cmd, addr := spawn(t, dir, FsyncNo)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	conn, r := connect(t, addr)
	value := strings.Repeat("v", 100)
	for i := range 1000 {
		conn.Write(appendCall(nil, "SET", fmt.Sprint("k", i), value))
		if v, err := readReply(r); v != any(simple("OK")) {
			t.Fatal(v, err)
		}
	}
	conn.Write(appendCall(nil, "SET", "large", strings.Repeat("v", 1<<20)))
	readReply(r)
	var p99 [2][]time.Duration
	for round := range 3 {
		alone := waits(t, addr)
		leave := connectCrowd(t, addr, idle, slow)
		time.Sleep(time.Second) // until all are connected and the server is idle
		crowded := waits(t, addr)
		rss := residentBytes(cmd.Process.Pid)
		requests := infoNumber(t, addr, "request_memory")
		leave()
		for infoNumber(t, addr, "connected_clients") > 2 {
			time.Sleep(10 * time.Millisecond)
		}
		p99[0], p99[1] = append(p99[0], alone), append(p99[1], crowded)
		t.Logf("round %d: p99 %v alone, %v with %d idle and %d slow clients; %d MiB resident, %d MiB of requests and replies",
			round, alone, crowded, idle, slow, rss>>20, requests>>20)
		if requests > 256<<20 {
			t.Errorf("requests and replies take %d bytes", requests)
		}
	}
	for i := range p99 {
		sort.Slice(p99[i], func(a, b int) bool { return p99[i][a] < p99[i][b] })
	}
	t.Logf("median of p99: %v alone, %v in the crowd", p99[0][1], p99[1][1])
}

func connect(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(5 * time.Minute))
	return conn, bufio.NewReader(conn)
}

// connectCrowd connects idle clients, and slow ones that send a byte at a time or read no replies.
func connectCrowd(t *testing.T, addr string, idle, slow int) (leave func()) {
	t.Helper()
	var conns []net.Conn
	for i := range idle + slow {
		// Each local address has its own ports.
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i%8))}}
		if runtime.GOOS != "linux" {
			d.LocalAddr = nil
		}
		conn, err := d.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		conns = append(conns, conn)
		switch {
		case i < idle:
		case i%2 == 0:
			io.WriteString(conn, "*2\r\n$3\r\nGET\r\n$1000\r\nk")
		default:
			conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			for range 4 {
				conn.Write(appendCall(nil, "GET", "large"))
			}
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		// Every second slow client sends a byte about every half second, one client after the
		// other.
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := idle; ; i++ {
			if i%max(1, slow/250) == 0 {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
			}
			if i == len(conns) {
				i = idle
			}
			if i%2 == 0 {
				conns[i].Write([]byte("k"))
			}
		}
	})
	return func() {
		close(stop)
		wg.Wait()
		for _, c := range conns {
			c.Close()
		}
	}
}

// waits returns the 99th percentile of the latency of GETs, with eight clients.
func waits(t *testing.T, addr string) time.Duration {
	t.Helper()
	const clients, each = 8, 2000
	var all [clients][]time.Duration
	var wg sync.WaitGroup
	for n := range clients {
		conn, r := connect(t, addr)
		wg.Go(func() {
			defer conn.Close()
			for i := range each {
				start := time.Now()
				conn.Write(appendCall(nil, "GET", fmt.Sprint("k", (i*7+n)%1000)))
				if v, err := readReply(r); err != nil || len(v.(string)) != 100 {
					t.Error(v, err)
					return
				}
				all[n] = append(all[n], time.Since(start))
			}
		})
	}
	wg.Wait()
	var sorted []time.Duration
	for n := range all {
		sorted = append(sorted, all[n]...)
	}
	sort.Slice(sorted, func(a, b int) bool { return sorted[a] < sorted[b] })
	if len(sorted) < clients*each {
		t.Fatal("not all GETs got a reply")
	}
	return sorted[len(sorted)*99/100]
}

func infoNumber(t *testing.T, addr, name string) int64 {
	t.Helper()
	conn, r := connect(t, addr)
	defer conn.Close()
	conn.Write(appendCall(nil, "INFO"))
	v, err := readReply(r)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(v.(string), "\n"+name+":")
	digits, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// residentBytes returns the resident memory of a process, 0 where that is unknown.
func residentBytes(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// Clients that hold memory for requests and replies without making progress are disconnected when
// others need it.
func TestEviction(t *testing.T) { everyWay(t, testEviction) }

func testEviction(t *testing.T) {
	s := start(t, t.TempDir(), Config{MaxBulkBytes: 1 << 20, RequestBytes: 8 << 20, Fsync: FsyncNo, WriteTimeout: time.Hour},
		func(s *Server) { s.shortTime = 200 * time.Millisecond })
	big := strings.Repeat("v", 1<<20)
	dial(t, s).do("SET", "big", big)
	hold := func(call []byte) {
		for range 20 {
			conn, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			go conn.Write(call)
		}
	}
	for what, call := range map[string][]byte{
		"reads no replies":           []byte(strings.Repeat("MGET big big\r\n", 8)),
		"has sent half of a request": appendCall(nil, "SET", "half", big)[:900_000],
		"has queued a SET":           append([]byte("MULTI\r\n"), appendCall(nil, "SET", "half", big[:900_000])...),
	} {
		hold(call)
		waitFor(t, "some memory is held", func() bool { return s.requestBytes.Load() > s.cfg.RequestBytes/4 })
		waitFor(t, "others are served although one "+what, func() bool {
			c := dial(t, s)
			defer c.conn.Close()
			c.conn.Write(appendCall(nil, "SET", "big", big))
			if got, err := readReply(c.r); got != simple("OK") || err != nil {
				return false
			}
			return c.do("MGET", "big", "big") != any(failure(errReplyOOM.Error()))
		})
	}
	waitFor(t, "a client is disconnected because others need memory", func() bool {
		c := dial(t, s) // stays, with half of a request
		c.conn.Write(appendCall(nil, "SET", "half", big)[:900_000])
		return s.stats.evicted.Load() > 0
	})
}

// While a filter grows, others can be created and grow. Afterwards, exactly what it takes is
// counted.
func TestGrowthDelaysNoFilter(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	run := func(call string) {
		args := fields(call)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
	}
	run("BF.RESERVE b 0.01 1")
	run("BF.ADD b x")
	f := filterOf(s, "b")
	f.mu.Lock()
	err = c.grow(f, func(room uint64) error {
		if room > 0 {
			if !s.growMu.TryLock() {
				t.Error("other filters wait")
			} else {
				s.growMu.Unlock()
			}
		}
		_, err := f.bloom.Add([]byte("y"), room)
		return err
	})
	links := f.bloom.Links()
	f.mu.Unlock()
	if err != nil || links != 2 {
		t.Fatalf("%d links, %v", links, err)
	}
	for i := range 100 {
		run(fmt.Sprintf("BF.ADD b item%d", i))
		run(fmt.Sprintf("CF.ADD c item%d", i))
	}
	sum := int64(0)
	for _, key := range []string{"b", "c"} {
		sum += int64(filterOf(s, key).memory())
	}
	if got := s.filterBytes.Load(); got != sum {
		t.Errorf("the filters take %d bytes, but %d are counted", sum, got)
	}
}

// A client that has sent CLIENT NO-EVICT ON keeps its connection when others need memory.
func TestNoEvict(t *testing.T) { everyWay(t, testNoEvict) }

func testNoEvict(t *testing.T) {
	s := start(t, t.TempDir(), Config{MaxBulkBytes: 1 << 20, RequestBytes: 8 << 20, Fsync: FsyncNo},
		func(s *Server) { s.shortTime = 50 * time.Millisecond })
	c := dial(t, s)
	wantReply(t, c.do("CLIENT", "NO-EVICT", "ON"), "+OK")
	wantReply(t, c.do("MULTI"), "+OK")
	wantReply(t, c.do("SET", "k", strings.Repeat("v", 300<<10)), "+QUEUED")
	for range 3 {
		time.Sleep(2 * s.shortTime)
		s.short.Store(true)
		waitFor(t, "the server looks for clients to close", func() bool { return !s.short.Load() })
	}
	if got, ok := c.do("EXEC").([]any); !ok || len(got) != 1 || s.stats.evicted.Load() > 0 {
		t.Errorf("EXEC: %v; %d closed", got, s.stats.evicted.Load())
	}
}
