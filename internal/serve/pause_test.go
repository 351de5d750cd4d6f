package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siftdb/sift/internal/serve/resp"
)

// runLocal executes a pipeline of a client without a connection.
func runLocal(t *testing.T, c *client, calls ...string) {
	for _, call := range calls {
		args := fields(call)
		c.do(c.lookup(args[0]), args)
	}
	if err := c.finishWrites(); err != nil {
		t.Error(err)
	}
}

// soon reports whether a channel is closed within 300 ms.
func soon(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(300 * time.Millisecond):
		return false
	}
}

// during runs fn on another goroutine, and returns a channel that is closed when fn has returned.
func during(fn func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	return done
}

// CLIENT PAUSE replies when the writes that were executed before it are in the store.
func TestPauseWaitsForWrites(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	writer, admin, reader := localClient(s), localClient(s), localClient(s)
	writer.do(lookup([]byte("set")), fields("SET k v"))
	paused := during(func() { runLocal(t, admin, "SET own v", "CLIENT PAUSE 60000 WRITE") })
	if soon(paused) {
		t.Error("CLIENT PAUSE has replied before a write that was executed is in the store")
	}
	if err := writer.finishWrites(); err != nil {
		t.Fatal(err)
	}
	<-paused
	if got := string(admin.w.Buf); got != "+OK\r\n+OK\r\n" {
		t.Errorf("CLIENT PAUSE: %q", got)
	}
	if runLocal(t, reader, "GET k", "GET own"); string(reader.w.Buf) != "$1\r\nv\r\n$1\r\nv\r\n" {
		t.Errorf("GET during the pause: %q", reader.w.Buf)
	}
	runLocal(t, admin, "CLIENT UNPAUSE")
}

// A write that waits for a lock while CLIENT PAUSE begins is not executed before the pause ends,
// and a read is.
func TestPauseOfWaitingCommands(t *testing.T) {
	for _, test := range []struct {
		calls, reply string // the last call waits
		waits        bool
	}{
		{"SET k v", "+OK\r\n", true},
		{"SETNX k v", ":1\r\n", true},
		{"FLUSHALL", "+OK\r\n", true},
		{"MULTI,SET k v,EXEC", "*1\r\n+OK\r\n", true},
		{"APPEND large x", ":100001\r\n", true},
		{"GET k", "$-1\r\n", false},
		{"MULTI,GET k,EXEC", "*1\r\n$-1\r\n", false},
	} {
		s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
		c, other, admin := localClient(s), localClient(s), localClient(s)
		c.r = resp.NewReader(strings.NewReader(""), resp.Limits{}, false) // large commands need one
		runLocal(t, other, "SET large "+strings.Repeat("v", 100_000))
		calls := strings.Split(test.calls, ",")
		last := len(calls) - 1
		runLocal(t, c, calls[:last]...)
		s.world.Lock() // as an EXEC does
		done := during(func() { runLocal(t, c, calls[last]) })
		time.Sleep(50 * time.Millisecond) // it has found no pause, and waits
		s.pause.extend(time.Now().UnixMilli()+60_000, true)
		s.world.Unlock()
		if waits := !soon(done); waits != test.waits {
			t.Errorf("%s waits until the pause ends: %v, want %v", test.calls, waits, test.waits)
		}
		if n := s.puts.Load(); test.waits && n != 1 {
			t.Errorf("%s: %d writes to the store before the pause ends, want 1", test.calls, n)
		}
		runLocal(t, admin, "CLIENT UNPAUSE")
		<-done
		if !strings.HasSuffix(string(c.w.Buf), test.reply) {
			t.Errorf("%s: %q, want %q", test.calls, c.w.Buf, test.reply)
		}
	}
}

// CLIENT PAUSE waits for the end of a command that lets other clients run in between.
func TestPauseWaitsForLongCommands(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	admin := localClient(s)
	for name, between := range map[string]func(c *client, fn func()){
		"a command with many arguments": func(c *client, fn func()) {
			n := 0
			c.parts(make([][]byte, 3*partArgs), func([][]byte) error {
				if n++; n == 2 {
					fn()
				}
				return nil
			})
		},
		"a command that makes a large filter": func(c *client, fn func()) {
			f := &filter{kind: kindBloom}
			s.makeFilter(c, f, func(f *filter, room uint64) error {
				o := s.defaults.bloom()
				o.Capacity = 10 * largeFilter
				if err := s.makeBloom(o)(f, room); err != nil {
					return err
				}
				fn()
				return nil
			})
		},
	} {
		c := localClient(s)
		c.hold()
		var over atomic.Bool
		var paused <-chan struct{}
		between(c, func() {
			paused = during(func() {
				runLocal(t, admin, "CLIENT PAUSE 60000 WRITE")
				if !over.Load() {
					t.Errorf("CLIENT PAUSE has replied during %s", name)
				}
			})
			if soon(paused) {
				t.Errorf("CLIENT PAUSE has replied during %s", name)
			}
		})
		if paused == nil {
			t.Fatalf("%s does not call the function", name)
		}
		time.Sleep(50 * time.Millisecond)
		over.Store(true)
		c.release()
		<-paused
		runLocal(t, admin, "CLIENT UNPAUSE")
	}
}

// While a pause is in progress, another CLIENT PAUSE neither ends it earlier nor lets writes or
// reads run that wait.
func TestShorterPause(t *testing.T) { everyWay(t, testShorterPause) }

func testShorterPause(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	admin := localClient(s)
	for _, test := range []struct{ first, second, waits string }{
		{"60000 WRITE", "1 WRITE", "SET k v"},
		{"60000 ALL", "1 WRITE", "GET k"},
		{"60000 ALL", "120000 WRITE", "GET k"},
		{"60000 WRITE", "1 ALL", "GET k"},
	} {
		c := dial(t, s)
		// Without do, the second command does not wait for the end of the first one's pause.
		clientCommand(admin, fields("CLIENT PAUSE "+test.first))
		clientCommand(admin, fields("CLIENT PAUSE "+test.second))
		time.Sleep(5 * time.Millisecond)
		c.conn.Write(appendCall(nil, strings.Fields(test.waits)...))
		done := during(func() { readReply(c.r) })
		if soon(done) {
			t.Errorf("%s does not wait after CLIENT PAUSE %s and %s", test.waits, test.first, test.second)
		}
		clientCommand(admin, fields("CLIENT UNPAUSE"))
		<-done
	}
	// A pause that is over has no effect on the next one.
	runLocal(t, admin, "CLIENT PAUSE 1 ALL")
	time.Sleep(5 * time.Millisecond)
	runLocal(t, admin, "CLIENT PAUSE 60000 WRITE")
	if got := dial(t, s).do("GET", "none"); got != any(null{2}) {
		t.Errorf("GET while writes are paused: %v", got)
	}
	runLocal(t, admin, "CLIENT UNPAUSE")
	if got := string(admin.w.Buf); strings.Contains(got, "-") {
		t.Errorf("the replies: %q", got)
	}
}

// With clients that write all the time, nothing is written from the reply to CLIENT PAUSE to the
// end of the pause, and everything is afterwards.
func TestNothingIsWrittenDuringPause(t *testing.T) { everyWay(t, testNothingIsWrittenDuringPause) }

func testNothingIsWrittenDuringPause(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	admin := dial(t, s)
	const keys = 3 * partArgs
	long := []string{"DEL"}
	for i := range keys {
		long = append(long, fmt.Sprint("long", i))
	}
	last := long[keys]
	var running []<-chan struct{}
	var stop atomic.Bool
	for n := range 6 {
		c := dial(t, s)
		running = append(running, during(func() {
			for i := 0; !stop.Load(); i++ {
				b := appendCall(nil, "SET", fmt.Sprint("k", n), fmt.Sprint(i))
				b = appendCall(b, "BF.ADD", fmt.Sprint("f", n), fmt.Sprint(i))
				b = appendCall(appendCall(appendCall(b, "MULTI"), "INCR", "n"), "EXEC")
				replies := 5
				if n == 0 {
					b = appendCall(appendCall(b, "SET", last, "v"), long...)
					replies += 2
				}
				c.conn.Write(b)
				for range replies {
					if v, err := readReply(c.r); err != nil {
						t.Error(err)
						return
					} else if e, ok := v.(failure); ok {
						t.Error(e)
					}
				}
			}
		}))
	}
	for range 20 {
		before := s.puts.Load()
		if got := admin.do("CLIENT", "PAUSE", "60000", "WRITE"); got != simple("OK") {
			t.Fatal(got)
		}
		from := s.puts.Load()
		time.Sleep(5 * time.Millisecond)
		if n := s.puts.Load() - from; n > 0 {
			t.Errorf("%d writes to the store during the pause", n)
		}
		admin.do("CLIENT", "UNPAUSE")
		for begin := time.Now(); s.puts.Load() < before+10; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 20*time.Second {
				t.Fatal("nothing is written after the pause")
			}
		}
	}
	stop.Store(true)
	for _, done := range running {
		<-done
	}
}

// sleepers are clients that wait for the end of a pause.
type sleepers struct {
	srv    *Server
	end    time.Time               // of the pause
	errs   []atomic.Pointer[error] // what waitUnlocked returned; nil: a client waits
	cancel func()                  // ends the server
}

// startSleepers starts n clients and a pause of an hour for which they wait.
func startSleepers(t *testing.T, n int) *sleepers {
	ctx, cancel := context.WithCancel(t.Context())
	s := &Server{front: &front{serving: ctx, clients: map[uint64]*client{}}}
	p := &sleepers{s, time.Now().Add(time.Hour), make([]atomic.Pointer[error], n), cancel}
	s.pause.extend(p.end.UnixMilli(), true)
	for i := range p.errs {
		conn, _ := net.Pipe() // for kill
		c := &client{srv: s, id: uint64(i + 1), conn: conn}
		s.clients[c.id] = c
		go func() { p.errs[i].Store(new(c.waitUnlocked())) }()
	}
	synctest.Wait()
	return p
}

// do makes another client send a command.
func (p *sleepers) do(call string) { clientCommand(&client{srv: p.srv}, fields(call)) }

// awake fails the test unless exactly n clients no longer wait, all of them with one error.
func (p *sleepers) awake(t *testing.T, n int, want error) {
	t.Helper()
	synctest.Wait()
	for i := range p.errs {
		err := p.errs[i].Load()
		if err == nil {
			continue
		}
		if n--; *err != want {
			t.Errorf("a client has received %v, want %v", *err, want)
		}
	}
	if n != 0 {
		t.Errorf("%d more clients should no longer wait", n)
	}
}

// awakeAt fails the test unless all clients wait until the pause ends, at a point in time, and no
// longer.
func (p *sleepers) awakeAt(t *testing.T, end time.Time) {
	t.Helper()
	time.Sleep(time.Until(end) - time.Millisecond)
	p.awake(t, 0, nil)
	time.Sleep(time.Millisecond)
	p.awake(t, len(p.errs), nil)
	if p.srv.pause.until.Load() != 0 {
		t.Error("the pause goes on")
	}
}

// Clients that wait for the end of a pause do nothing meanwhile. The end of the pause, CLIENT
// UNPAUSE, CLIENT KILL, an eviction and the end of the server wake them at once. CLIENT PAUSE makes
// them wait longer.
func TestPausedClientsSleep(t *testing.T) {
	const clients = 200
	for name, fn := range map[string]func(t *testing.T, p *sleepers){
		"the end of the pause": func(t *testing.T, p *sleepers) { p.awakeAt(t, p.end) },
		"CLIENT PAUSE": func(t *testing.T, p *sleepers) {
			later := p.end.Add(time.Hour)
			p.srv.pause.extend(later.UnixMilli(), false)
			p.awakeAt(t, later)
		},
		"CLIENT UNPAUSE": func(t *testing.T, p *sleepers) {
			p.do("CLIENT UNPAUSE")
			p.awake(t, clients, nil)
		},
		"CLIENT KILL": func(t *testing.T, p *sleepers) {
			p.do("CLIENT KILL ID 7")
			p.awake(t, 1, net.ErrClosed)
			p.do("CLIENT KILL TYPE normal")
			p.awake(t, clients, net.ErrClosed)
		},
		"an eviction": func(t *testing.T, p *sleepers) {
			s := p.srv
			s.cfg, s.shortTime = Config{RequestBytes: 1 << 20, Logger: slog.Default()}, shortTime
			s.clients[7].taken.Store(1 << 20)
			s.short.Store(true)
			go s.evict()
			time.Sleep(shortTime)
			p.awake(t, 1, net.ErrClosed)
		},
		"the end of the server": func(t *testing.T, p *sleepers) {
			p.cancel()
			p.awake(t, clients, net.ErrClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startSleepers(t, clients)
				defer p.cancel()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				time.Sleep(time.Minute)
				runtime.ReadMemStats(&after)
				if n := after.Mallocs - before.Mallocs; n > 10*clients {
					t.Fatalf("%d allocations while %d clients wait for a minute", n, clients)
				}
				fn(t, p)
			})
		})
	}
}

// On a node of several groups CLIENT PAUSE waits for the writes of each of them, and a FLUSHALL
// that has flushed one group waits for the end of the pause before it flushes the next one.
func TestPauseOfShards(t *testing.T) {
	h := startHalves(t)
	lower, upper := h.attach(t, 0, true), h.attach(t, 1, true)
	var inNextWrite atomic.Pointer[func()] // of the lower half
	lower.writing = func() {
		if fn := inNextWrite.Swap(nil); fn != nil {
			(*fn)()
		}
	}
	c, other, admin := dial(t, h.front), dial(t, h.front), dial(t, h.front)
	writing, goOn := make(chan struct{}), make(chan struct{})
	inNextWrite.Store(new(func() {
		close(writing)
		<-goOn
	}))
	c.send("SET b 1")
	<-writing
	wantReply(t, other.do("SET", "a", "1"), "+OK")
	var got any
	paused := during(func() { got = admin.do("CLIENT", "PAUSE", "60000", "WRITE") })
	if soon(paused) {
		t.Error("CLIENT PAUSE has replied during a write of a group")
	}
	close(goOn)
	<-paused
	wantReply(t, got, "+OK")
	wantReply(t, c.reply(), "+OK")
	wantReply(t, admin.do("CLIENT", "UNPAUSE"), "+OK")

	flushing := make(chan struct{})
	inNextWrite.Store(new(func() {
		paused = during(func() { got = admin.do("CLIENT", "PAUSE", "60000", "WRITE") })
		for h.front.pause.until.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		close(flushing)
	}))
	before := upper.writes.Load()
	flushed := during(func() { wantReply(t, c.do("FLUSHALL"), "+OK") })
	<-flushing
	<-paused
	wantReply(t, got, "+OK")
	if soon(flushed) || upper.writes.Load() != before {
		t.Error("FLUSHALL does not wait for the end of the pause")
	}
	wantReply(t, admin.do("CLIENT", "UNPAUSE"), "+OK")
	<-flushed
	if upper.writes.Load() == before {
		t.Error("FLUSHALL has not flushed the second group")
	}
}
