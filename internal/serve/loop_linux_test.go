package serve

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/redisbloom"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// loopsWork fails the test unless each event loop in use makes progress: it closes the connections
// of clients that have closed their end, which needs no lock.
func loopsWork(t *testing.T, s *Server, what string) {
	t.Helper()
	for range 2 * len(s.loops) {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		conn.(*net.TCPConn).CloseWrite()
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatalf("%s: an event loop waits: %v", what, err)
		}
	}
}

// A command that holds world for long, and an EXEC that waits for it, do not stop the event loops:
// commands that have to wait do so on other goroutines.
func TestLoopsDoNotWaitForWorld(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	s.world.RLock()
	exec := dial(t, s)
	for _, call := range []string{"MULTI", "SET k v"} {
		exec.do(strings.Fields(call)...)
	}
	exec.conn.Write(appendCall(nil, "EXEC"))
	for s.world.TryRLock() { // until EXEC waits
		s.world.RUnlock()
		time.Sleep(time.Millisecond)
	}
	var others []*caller
	for range 2 * len(s.loops) {
		c := dial(t, s)
		c.conn.Write(appendCall(nil, "GET", "k"))
		others = append(others, c)
	}
	loopsWork(t, s, "an EXEC waits")
	s.world.RUnlock()
	if got := exec.reply(); fmt.Sprint(got) != "[OK]" {
		t.Errorf("EXEC: %v", got)
	}
	for _, c := range others {
		if got := c.reply(); got != any("v") {
			t.Errorf("GET after EXEC: %v", got)
		}
	}
}

// canLock reports whether a lock is free within some seconds.
func canLock(mu interface {
	TryLock() bool
	Unlock()
}) bool {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if mu.TryLock() {
			mu.Unlock()
			return true
		}
	}
	return false
}

// The memory of a large filter is not allocated by an event loop, nor while holding a lock that
// others wait for.
func TestLargeFilterHoldsNoLock(t *testing.T) {
	var made, bad atomic.Int32
	var s *Server
	o := redisbloom.BloomOptions{Capacity: 10 * largeFilter, Error: 0.01, Expansion: 2}
	maker := func(c *client) func(*filter, uint64) error {
		return func(f *filter, room uint64) error {
			if room > largeFilter {
				made.Add(1)
				if c.onLoop() || !canLock(&s.growMu) || !canLock(&s.world) {
					bad.Add(1)
				}
				for i := range s.stripes {
					if !canLock(&s.stripes[i].mu) {
						bad.Add(1)
					}
				}
			}
			return s.makeBloom(o)(f, room)
		}
	}
	add := commands["bf.add"].run
	t.Cleanup(func() { commands["bf.add"].run = add }) // after the server is closed
	commands["bf.add"].run = func(c *client, args [][]byte) {
		f, err := s.write(c, args[1], kindBloom, maker(c))
		if c.reply(err) {
			return
		}
		added, err := c.bloomAdd(f, args[2])
		f.mu.Unlock()
		if !c.reply(err) {
			c.w.Bool(added)
		}
	}
	start(t, t.TempDir(), Config{Fsync: FsyncNo}, func(started *Server) { s = started })
	c := dial(t, s)
	for i := range 3 {
		if got := c.do("BF.ADD", fmt.Sprint("f", i), "x"); got != any(int64(1)) {
			t.Fatal(got)
		}
	}
	if made.Load() != 3 || bad.Load() > 0 {
		t.Errorf("%d filters created, want 3; %d times on an event loop or while a lock was held", made.Load(), bad.Load())
	}
	if !lookup([]byte("bf.reserve")).isLong(4, 40) || !lookup([]byte("bf.insert")).isLong(4, 40) {
		t.Error("an event loop executes BF.RESERVE or BF.INSERT")
	}
}

// An event loop that has ended does not write to its eventfd, whose number may be another file's.
func TestEndedLoopDoesNotWriteToWakeFD(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	l, err := s.newLoop()
	if err != nil {
		t.Fatal(err)
	}
	l.asleep.Store(true) // as when a message comes at the wrong time
	l.free()
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	l.wakeFD = pipe[1]
	l.post(message{what: kicked, c: &client{srv: s}})
	if n, err := syscall.Read(pipe[0], make([]byte, 8)); n > 0 {
		t.Errorf("%d bytes were written to another file, %v", n, err)
	}
}

// Event loops do not wait for a slow sync, neither for WAIT nor for replies with --fsync always.
// Such a reply is not sent before the writes that it acknowledges, and those of other clients that
// it shows, are synced.
func TestLoopsDoNotWaitForSync(t *testing.T) {
	for _, fsync := range []Fsync{FsyncNo, FsyncAlways} {
		s, fsys := startFaulty(t, Config{Fsync: fsync})
		writer, reader := dial(t, s), dial(t, s)
		writer.do("SET", "k", "old")
		hung, free := make(chan struct{}, 16), make(chan struct{})
		release := sync.OnceFunc(func() { close(free) })
		t.Cleanup(release)
		fsys.SetHook(func(op vfstest.Op) error {
			if op.Kind == vfstest.OpSync && strings.Contains(op.Name, ".log") {
				hung <- struct{}{}
				<-free
			}
			return nil
		})
		var calls []*caller
		if fsync == FsyncAlways {
			writer.conn.Write(appendCall(nil, "INCRBY", "n", "5"))
			<-hung
			reader.conn.Write(appendCall(nil, "GET", "n"))
			calls = []*caller{writer, reader}
		} else {
			writer.conn.Write(appendCall(appendCall(nil, "SET", "k", "v"), "WAIT", "0", "0"))
			<-hung
			if got := reader.do("GET", "k"); got != any("v") {
				t.Errorf("while WAIT waits: %v", got)
			}
			other := dial(t, s)
			other.conn.Write(appendCall(nil, "SET", "other", "v"))
			calls = []*caller{writer, other}
		}
		loopsWork(t, s, "a sync takes long")
		for i, c := range calls {
			c.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if b, err := c.r.Peek(1); err == nil && fsync == FsyncAlways {
				t.Errorf("client %d gets %q before the sync", i, b)
			}
			c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		}
		fsys.SetHook(nil)
		release()
		if fsync == FsyncAlways {
			if got := writer.reply(); got != any(int64(5)) {
				t.Error(got)
			}
			if got := reader.reply(); got != any("5") {
				t.Error(got)
			}
			continue
		}
		if got := calls[1].reply(); got != simple("OK") {
			t.Error(got)
		}
		if a, b := writer.reply(), writer.reply(); a != simple("OK") || b != any(int64(0)) {
			t.Error(a, b)
		}
	}
}

// SETs of one round from clients that have selected different databases go to the right database.
func TestPendingOfTwoDatabases(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	first, second := localClient(s), localClient(s)
	second.writes = first.writes
	run := func(c *client, db int, call string) string {
		args := fields(call)
		c.db = db
		c.w.Buf = c.w.Buf[:0]
		c.do(lookup(args[0]), args)
		return strings.TrimSpace(string(c.w.Buf))
	}
	run(first, 1, "BF.ADD f x")
	run(first, 1, "SETEX k 1000 v")
	run(first, 1, "SET f v")
	run(first, 1, "MSET k v l v")
	run(second, 0, "SET k w")
	if err := second.finishWrites(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		db         int
		call, want string
	}{
		{1, "BF.EXISTS f x", ":0"}, {1, "GET f", "$1\r\nv"}, {1, "TTL k", ":-1"}, {1, "GET l", "$1\r\nv"},
		{0, "GET k", "$1\r\nw"}, {0, "EXISTS f l", ":0"},
	} {
		if got := run(first, step.db, step.call); got != step.want {
			t.Errorf("database %d: %s: %q, want %q", step.db, step.call, got, step.want)
		}
	}
	first.release()
	for e, err := range s.db.Scan(&sift.IterOptions{Prefix: []byte{spaceExpiry}}) {
		t.Errorf("%q is left in the expiry index, %v", e.Key, err)
	}
	for e, err := range s.db.Scan(&sift.IterOptions{Prefix: []byte{spaceName}}) {
		t.Errorf("%q is left of the filter, %v", e.Key, err)
	}
}

// localLoop returns a loop without connections, and a function that executes commands of a client
// in it, of which it returns the replies.
func localLoop(t *testing.T) (db *sift.DB, l *loop, run func(calls ...string) string) {
	t.Helper()
	db, _ = faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	l = &loop{srv: s, writes: s.newWrites(loopKept)}
	return db, l, func(calls ...string) string {
		c := localClient(s)
		c.writes = l.writes
		for _, call := range calls {
			args := fields(call)
			c.do(lookup(args[0]), args)
		}
		return string(c.w.Buf)
	}
}

// A SET that fails because an earlier write of the round failed is not executed in a later round,
// when it could replace a newer value.
func TestRefusedSetIsDropped(t *testing.T) {
	_, l, run := localLoop(t)
	l.writes.err = errHead
	run("SET other refused")
	l.finish(0)
	run("SET third v")
	l.finish(0)
	if got, want := run("GET other", "GET third"), "$-1\r\n$1\r\nv\r\n"; got != want {
		t.Errorf("in later rounds: %q, want %q", got, want)
	}
	l.finish(0)
}

// CLIENT PAUSE delays clients, not event loops, and a client that waits can be killed.
func TestLoopsDoNotPause(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	var writers []*caller
	var ids []string
	for range 4 * len(s.loops) {
		w := dial(t, s)
		ids = append(ids, fmt.Sprint(w.do("CLIENT", "ID")))
		writers = append(writers, w)
	}
	if got := c.do("CLIENT", "PAUSE", "100000", "WRITE"); got != simple("OK") {
		t.Fatal(got)
	}
	for _, w := range writers {
		w.conn.Write(appendCall(appendCall(nil, "PING", "before"), "SET", "k", "v"))
		if got := w.reply(); got != any("before") {
			t.Errorf("before a write that waits: %v", got)
		}
	}
	loopsWork(t, s, "writes are paused")
	if got := c.do("GET", "k"); got != any(null{2}) {
		t.Errorf("while writes are paused: %v", got)
	}
	c.do("CLIENT", "KILL", "ID", ids[0])
	if _, err := writers[0].r.ReadByte(); err != io.EOF {
		t.Errorf("the killed client reads %v", err)
	}
	c.do("CLIENT", "UNPAUSE")
	for _, w := range writers[1:] {
		if got := w.reply(); got != simple("OK") {
			t.Error(got)
		}
	}
	// Close, at the end of the test, does not wait for a command that is paused.
	c.do("CLIENT", "PAUSE", "100000", "ALL")
	c.conn.Write(appendCall(nil, "PING"))
}

// An event loop does not allocate the memory for a filter that grows much.
func TestLargeGrowthIsHandedOver(t *testing.T) {
	var grown, onLoop atomic.Int32
	for _, name := range []string{"bf.madd", "cf.add"} {
		cmd := commands[name]
		run := cmd.run
		t.Cleanup(func() { cmd.run = run }) // after the server is closed
		cmd.run = func(c *client, args [][]byte) {
			before := c.find(args[1])
			links := before.parts().Links()
			if run(c, args); before.parts().Links() > links {
				grown.Add(1)
				if c.onLoop() {
					onLoop.Add(1)
				}
			}
		}
	}
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
	c.do("BF.RESERVE", "b", "0.000000001", "1000", "EXPANSION", "500")
	c.do("CF.RESERVE", "c", "64", "EXPANSION", "32768")
	for i := range 1100 {
		item := fmt.Sprint(i)
		// If the filter grows in the middle of a command, another goroutine executes all of it.
		if got := c.do("BF.MADD", "b", item, item+"+", item+"-"); fmt.Sprint(got) != "[1 1 1]" {
			t.Fatalf("BF.MADD %d: %v", i, got)
		}
		if got, ok := c.do("CF.ADD", "c", item).(failure); ok {
			t.Fatal(got)
		}
	}
	if grown.Load() != 2 || onLoop.Load() > 0 {
		t.Errorf("%d filters grew, want 2; %d on an event loop", grown.Load(), onLoop.Load())
	}
}

// An event loop decides before a BF.MADD whether to hand it over: some items may fit in the filter
// before it grows, and if they were added twice, the reply would be that they were there. Filters
// from dumps may have links that are not full, and may grow by little, then by much.
func TestGrowthOfLoadedFilter(t *testing.T) {
	type link struct{ bits, entries uint64 }
	le := binary.LittleEndian
	c := dial(t, start(t, t.TempDir(), Config{Fsync: FsyncNo}))
	for name, links := range map[string][]link{
		"much":              {{8 * largeFilter, 1 << 20}, {1 << 10, 5}},
		"little, then much": {{8*largeFilter/2 - 128, 1 << 20}, {64, 1}},
	} {
		header := le.AppendUint64(nil, 0)                      // items
		for _, v := range []uint32{uint32(len(links)), 5, 2} { // the options of a filter that grows; by which factor
			header = le.AppendUint32(header, v)
		}
		for _, l := range links {
			for _, v := range []uint64{l.bits / 8, l.bits, 0, math.Float64bits(0.01), math.Float64bits(10)} {
				header = le.AppendUint64(header, v)
			}
			header = le.AppendUint32(header, 7) // hashes
			header = append(le.AppendUint64(header, l.entries), 0)
		}
		if got := c.do("BF.LOADCHUNK", name, "1", string(header)); got != simple("OK") {
			t.Fatal(got)
		}
		call := []string{"BF.MADD", name}
		for i := range 10 {
			call = append(call, fmt.Sprint("item", i))
		}
		if got := fmt.Sprint(c.do(call...)); got != "[1 1 1 1 1 1 1 1 1 1]" {
			t.Errorf("%s: new items: %s", name, got)
		}
	}
}

// While a heavy command holds locks, the event loop still executes reads of strings, which need no
// other goroutine to be scheduled. Commands that need a lock wait on other goroutines.
func TestReadsStayOnLoopWhileHeavy(t *testing.T) {
	var onLoop atomic.Bool
	cmd := commands["strlen"]
	run := cmd.run
	t.Cleanup(func() { cmd.run = run }) // after the server is closed
	cmd.run = func(c *client, args [][]byte) {
		onLoop.Store(c.onLoop())
		run(c, args)
	}
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	reader, asker := dial(t, s), dial(t, s)
	if got := reader.do("SET", "k", "value"); got != simple("OK") {
		t.Fatal(got)
	}
	s.heavy.Add(1)
	for i := range s.stripes {
		s.stripes[i].lock()
	}
	if _, err := asker.conn.Write(appendCall(nil, "BF.EXISTS", "filter", "item")); err != nil {
		t.Fatal(err)
	}
	loopsWork(t, s, "a lookup in a filter waits")
	if got := reader.do("STRLEN", "k"); got != int64(5) || !onLoop.Load() {
		t.Errorf("STRLEN: %v, on an event loop %v", got, onLoop.Load())
	}
	for i := range s.stripes {
		s.stripes[i].unlock()
	}
	s.heavy.Add(-1)
	if got := asker.reply(); got != int64(0) {
		t.Errorf("BF.EXISTS: %v", got)
	}
}

// While CF.COMPACT or DUMP holds a large filter's lock, event loops hand commands that may wait for
// it over to other goroutines. They also hand over a CF.DEL that compacts the filter.
func TestLoopsDoNotWaitForLongFilters(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	run := func(c *client, call string) {
		t.Helper()
		args := fields(call)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Error(err)
		}
	}
	c := localClient(s)
	run(c, fmt.Sprint("CF.RESERVE c ", 16<<20))
	f := filterOf(s, "c")
	for f.cuckoo.Links() < 2 { // the same item soon finds no more room
		run(c, "CF.ADD c x")
	}
	onLoop := localClient(s)
	onLoop.loop.Store(&loop{})
	c.w.Reset()
	if run(onLoop, "CF.DEL c x"); !onLoop.handOver || len(onLoop.w.Buf) > 0 {
		t.Errorf("CF.DEL is executed on an event loop: %q", onLoop.w.Buf)
	}
	if s.heavy.Load() != 0 {
		t.Error("CF.DEL on an event loop stays heavy")
	}
	seen := false
	for range 20 { // each takes some time, during which this goroutine nearly always runs
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(c, "CF.COMPACT c")
		}()
		for ended := false; !ended; runtime.Gosched() {
			seen = seen || s.heavy.Load() > 0
			select {
			case <-done:
				ended = true
			default:
			}
		}
		if seen {
			break
		}
	}
	if !seen {
		t.Error("CF.COMPACT does not count as heavy")
	}
	// DUMP reserves memory for its reply while the filter is locked.
	heavy := false
	c.w.Reset()
	c.w.Reserve = func(int) bool {
		heavy = heavy || s.heavy.Load() > 0
		return true
	}
	if run(c, "DUMP c"); !heavy {
		t.Errorf("DUMP does not count as heavy: %.80q", c.w.Buf)
	}
	if s.heavy.Load() != 0 {
		t.Error("a command that has ended counts as heavy")
	}
}

// onlyLost is false for a thread that has waited, even if it has also been preempted meanwhile.
func TestSwitches(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := readSwitches()
	syscall.Nanosleep(&syscall.Timespec{Nsec: 1e6}, nil)
	if after := readSwitches(); after.waited <= before.waited || after.onlyLost(before) {
		t.Errorf("%+v before a sleep, %+v after it", before, after)
	}
	for _, c := range []struct {
		waited, lost int64
		want         bool
	}{{5, 7, false}, {5, 8, true}, {6, 7, false}, {6, 8, false}} {
		if got := (switches{c.waited, c.lost}).onlyLost(switches{5, 7}); got != c.want {
			t.Errorf("waited %d and lost %d times: onlyLost is %t, want %t", c.waited, c.lost, got, c.want)
		}
	}
}

// TestSetOverDamage: a plain SET replaces a value that cannot be read, even one that may have had
// an expiry, and does not make other clients' SETs fail. The old entry in the expiry index has no
// effect.
func TestSetOverDamage(t *testing.T) {
	db, l, run := localLoop(t)
	s := l.srv
	at := s.nowMs() + 1_000_000
	for _, large := range []bool{false, true} {
		run(fmt.Sprint("SET k v PXAT ", at))
		l.finish(0)
		if err := db.Put([]byte("k\x00\x00\x00\x00k"), []byte("\xffno head"), nil); err != nil {
			t.Fatal(err)
		}
		run("SET k new")
		if large {
			run("SET large " + strings.Repeat("v", largePending))
		}
		run("SET other v")
		l.finish(0)
		if got, want := run("GET k", "GET other", "PTTL k"), "$3\r\nnew\r\n$1\r\nv\r\n:-1\r\n"; got != want {
			t.Errorf("large %v: %q, want %q", large, got, want)
		}
		l.finish(0)
		var damage error
		index := l.writes.expiryKey(nil, at, []byte("k"))
		if err := s.sweep(&client{srv: s, writes: s.newWrites(keptBytes)}, [][]byte{index}, &damage); err != nil || damage != nil {
			t.Fatal(err, damage)
		}
		if n := indexEntries(t, s); n != 0 {
			t.Errorf("%d entries are left in the index", n)
		}
		if got := run("GET k"); got != "$3\r\nnew\r\n" {
			t.Errorf("after the sweeper: %q", got)
		}
		run("DEL k other")
		l.finish(0)
	}
}
