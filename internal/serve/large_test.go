package serve

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// waiting sends a pipeline, and returns when its large command waits for others, until goOn is
// called.
func waiting(t *testing.T, s *Server, c *caller, pipeline ...[]string) (goOn func()) {
	t.Helper()
	s.largeCommands.enter(s.largeCommands.most)
	var calls []byte
	for _, call := range pipeline {
		calls = appendCall(calls, call...)
	}
	c.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.conn.Write(calls); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the client waits", func() bool {
		if s.largeCommands.next.TryLock() {
			s.largeCommands.next.Unlock()
			return false
		}
		return true
	})
	return func() { s.largeCommands.leave(s.largeCommands.most) }
}

// The SETs that a client has collected are written before it waits for memory: FLUSHALL may come in
// between.
func TestLargeAfterSET(t *testing.T) { everyWay(t, testLargeAfterSET) }

func testLargeAfterSET(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	a, b := dial(t, s), dial(t, s)
	b.do("SET", "large", strings.Repeat("v", heavyBytes))
	goOn := waiting(t, s, a, []string{"SET", "f", "plain"}, []string{"GET", "large"})
	b.do("FLUSHALL")
	b.do("BF.ADD", "f", "item")
	goOn()
	for _, want := range []any{simple("OK"), null{2}} {
		if got, err := readReply(a.r); got != want || err != nil {
			t.Fatal(got, err)
		}
	}
	if got := b.do("BF.EXISTS", "f", "item"); got != any(int64(1)) {
		t.Errorf("the filter that was created after FLUSHALL: %v", got)
	}
}

// A client that waits for others' large values is not disconnected as idle.
func TestLargeNotEvicted(t *testing.T) { everyWay(t, testLargeNotEvicted) }

func testLargeNotEvicted(t *testing.T) {
	s := start(t, t.TempDir(), Config{RequestBytes: 8 << 20, Fsync: FsyncNo}, func(s *Server) { s.shortTime = 50 * time.Millisecond })
	c := dial(t, s)
	goOn := waiting(t, s, c, []string{"SET", "large", strings.Repeat("v", heavyBytes)})
	for range 3 {
		time.Sleep(2 * s.shortTime) // longer than a client may hold memory without progress
		s.short.Store(true)
		waitFor(t, "the server looks for clients to close", func() bool { return !s.short.Load() })
	}
	goOn()
	if got, err := readReply(c.r); got != simple("OK") || err != nil {
		t.Errorf("%v, %v; %d closed", got, err, s.stats.evicted.Load())
	}
}

// Short commands that write a large value wait as well.
func TestLargeExtended(t *testing.T) { everyWay(t, testLargeExtended) }

func testLargeExtended(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	const copies = 4000 // of 264 bytes
	packed := append([]byte{0, 'a'}, bytes.Repeat([]byte{0xe0, 0xff, 0}, copies)...)
	dump := appendDumpLen([]byte{dumpString, 0xc3}, uint64(len(packed)))
	dump = appendDumpLen(dump, 1+264*copies)
	dump = appendDumpTail(append(dump, packed...))
	for _, call := range [][]string{{"SETRANGE", "range", "1000000", "x"}, {"SETBIT", "bit", "8000000", "1"}, {"RESTORE", "dump", "0", string(dump)}} {
		goOn := waiting(t, s, c, call)
		goOn()
		if got, failed := c.reply().(failure); failed {
			t.Errorf("%s: %v", call[0], got)
		}
		if got, ok := c.do("STRLEN", call[1]).(int64); !ok || got < 1000000 {
			t.Errorf("%s: a value of %d bytes", call[0], got)
		}
	}
	for _, call := range []string{"SETRANGE k 10 x", "SETRANGE k -1 x", "SETRANGE k 9999999999 x", "SETRANGE k x x", "SETBIT k 80000 1", "SETBIT k", "RESTORE k 0 x"} {
		args := fields(call)
		if n := s.extended(lookup(args[0]), args); n != 0 {
			t.Errorf("%s waits for %d bytes", call, n)
		}
	}
}

// An EXEC waits as the largest of its commands would.
func TestLargeExec(t *testing.T) { everyWay(t, testLargeExec) }

func testLargeExec(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	c.do("SET", "large", strings.Repeat("v", heavyBytes))
	for _, call := range [][]string{{"SETRANGE", "range", "1000000", "x"}, {"APPEND", "large", "x"}, {"SET", "k", strings.Repeat("v", heavyBytes)}} {
		c.do("MULTI")
		c.do("PING")
		c.do(call...)
		goOn := waiting(t, s, c, []string{"EXEC"})
		goOn()
		if got, ok := c.reply().([]any); !ok || len(got) != 2 {
			t.Errorf("EXEC with %s: %v", call[0], got)
		}
	}
}

// RESTORE of a filter counts as a command on a large value if its strings are compressed.
func TestLargeFilterDump(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	const copies = 4000
	const size = 1 + 264*copies
	packed := append([]byte{0, 0}, bytes.Repeat([]byte{0xe0, 0xff, 0}, copies)...) // a zero, repeated
	if v, err := unpackLZF(packed, size); err != nil || len(v) != size {
		t.Fatal(len(v), err)
	}
	dump := append(appendDumpLen([]byte{dumpModule}, moduleID(kindCuckoo)), moduleString, 0xc3)
	dump = append(appendDumpLen(appendDumpLen(dump, uint64(len(packed))), size), packed...)
	args := append(fields("RESTORE k 0"), dump)
	if got := s.largest(lookup(args[0]), args); got < size {
		t.Errorf("a dump of %d bytes with a string of %d counts as %d bytes", len(dump), size, got)
	}
}

// BITOP pads short sources with zeros, and copies no source but the first, however many there are.
func TestBitOp(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	run := func(args [][]byte) string {
		t.Helper()
		c := localClient(s)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
		return string(c.w.Buf)
	}
	run(fields("MSET a \x0f b \xff\x0f\x01"))
	for call, want := range map[string]string{
		"AND r a b": "\x0f\x00\x00", "AND r b a": "\x0f\x00\x00", "AND r b none": "\x00\x00\x00", "OR r none a b": "\xff\x0f\x01",
		"XOR r a b": "\xf0\x0f\x01", "XOR r b none b b": "\xff\x0f\x01", "NOT r b": "\x00\xf0\xfe",
	} {
		if got := run(fields("BITOP "+call)) + run(fields("GET r")); got != ":3\r\n$3\r\n"+want+"\r\n" {
			t.Errorf("BITOP %s, GET r: %q, want the value %q", call, got, want)
		}
	}
	if got := run(fields("BITOP OR r none nothing")) + run(fields("GET r")); got != ":0\r\n$-1\r\n" {
		t.Errorf("BITOP of keys that do not exist: %q", got)
	}
	const size, sources = 1 << 18, 64
	run([][]byte{[]byte("SET"), []byte("large"), make([]byte, size)})
	args := fields("BITOP OR r" + strings.Repeat(" large", sources))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := run(args)
	runtime.ReadMemStats(&after)
	if want := fmt.Sprintf(":%d\r\n", size); got != want {
		t.Errorf("BITOP of large values: %q, want %q", got, want)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > size*sources/2 {
		t.Errorf("BITOP of %d values of %d bytes allocates %d bytes", sources, size, n)
	}
}

// No command writes a value that does not fit in the memory for requests and replies.
func TestValuesFitInMemory(t *testing.T) { everyWay(t, testValuesFitInMemory) }

func testValuesFitInMemory(t *testing.T) {
	s := start(t, t.TempDir(), Config{RequestBytes: 2 << 20, Fsync: FsyncNo}) // MaxBulkBytes is 64 MiB
	c := dial(t, s)
	const copies = 12_000 // of 264 bytes
	packed := append([]byte{0, 'a'}, bytes.Repeat([]byte{0xe0, 0xff, 0}, copies)...)
	dump := appendDumpLen([]byte{dumpString, 0xc3}, uint64(len(packed)))
	dump = appendDumpLen(dump, 1+264*copies)
	dump = appendDumpTail(append(dump, packed...))
	part := strings.Repeat("v", 900<<10)
	c.do("APPEND", "k", part)
	c.do("APPEND", "k", part)
	for _, call := range [][]string{
		{"APPEND", "k", part}, {"SETRANGE", "k", "3000000", "x"}, {"SETBIT", "k", "24000000", "1"}, {"RESTORE", "k", "0", string(dump), "REPLACE"},
	} {
		if got, failed := c.do(call...).(failure); !failed {
			t.Errorf("%s writes a value above the limit: %.60v", call[0], got)
		}
		if got := c.do("STRLEN", "k"); got != any(int64(2*len(part))) {
			t.Errorf("after %s the value has %v bytes", call[0], got)
		}
	}
}

// TestLargeRefused: a command that will be refused because its value would be too long does not
// wait for others.
func TestLargeRefused(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", RequestBytes: 2 << 20, Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"SETRANGE k 3000000 x", "SETBIT k 24000000 1", fmt.Sprint("SETBIT k ", 8*s.maxValue(), " 1")} {
		args := fields(call)
		if n := s.extended(lookup(args[0]), args); n != 0 {
			t.Errorf("%s waits for %d bytes", call, n)
		}
	}
	got := doAll(t, s, []string{"MULTI"}, []string{"SETRANGE", "k", "3000000", "x"}, []string{"EXEC"})
	if want := "+OK\r\n+QUEUED\r\n*1\r\n-" + errTooLong.Error() + "\r\n"; got != want {
		t.Errorf("in a transaction: %q, want %q", got, want)
	}
}

// TestRestoreFilterInTransaction: RESTORE of a filter in a transaction takes only the memory that
// its compressed strings need.
func TestRestoreFilterInTransaction(t *testing.T) { everyWay(t, testRestoreFilterInTransaction) }

func testRestoreFilterInTransaction(t *testing.T) {
	s := start(t, t.TempDir(), Config{RequestBytes: 8 << 20, MaxBulkBytes: 4 << 20, Fsync: FsyncNo})
	c := dial(t, s)
	c.do("BF.RESERVE", "b", "0.01", "1000000", "NONSCALING") // 1.2 MB
	dump := c.do("DUMP", "b").(string)
	c.do("MULTI")
	c.do("RESTORE", "copy", "0", dump)
	if got, ok := c.do("EXEC").([]any); !ok || len(got) != 1 || got[0] != any(simple("OK")) {
		t.Errorf("EXEC with RESTORE of %d bytes: %v", len(dump), got)
	}
	// A cuckoo filter of 1 MiB of zeros, compressed.
	const size = 1 << 20 // a zero, 3971 copies of 264 bytes, and one of 231
	slots := append([]byte{0, 0}, bytes.Repeat([]byte{0xe0, 0xff, 0}, 3971)...)
	slots = append(slots, 0xe0, 222, 0)
	packed := appendDumpLen([]byte{dumpModule}, moduleID(kindCuckoo))
	for _, n := range []uint64{1, size / 2, 0, 0, 2, 20, 1, size / 2} {
		packed = appendModuleUint(packed, n)
	}
	packed = append(packed, moduleString, 0xc3)
	packed = append(appendDumpLen(appendDumpLen(packed, uint64(len(slots))), size), slots...)
	packed = appendDumpTail(append(packed, moduleEnd))
	if n := s.extended(lookup([]byte("restore")), append(fields("RESTORE c 0"), packed)); n != size {
		t.Errorf("a compressed dump of %d slots counts as %d bytes", size, n)
	}
	if got := c.do("RESTORE", "c", "0", string(packed)); got != simple("OK") {
		t.Error(got)
	}
}

// TestSmallDumpOfMuch: a dump that claims more than its bytes can unpack to is refused at once.
func TestSmallDumpOfMuch(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", RequestBytes: 2 << 20, MaxBulkBytes: 64 << 20, Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	packed := appendDumpLen([]byte{dumpModule}, moduleID(kindCuckoo))
	for _, n := range []uint64{1, 16 << 20, 0, 0, 2, 20, 1, 16 << 20} {
		packed = appendModuleUint(packed, n)
	}
	packed = append(packed, moduleString, 0xc3)
	packed = append(appendDumpLen(appendDumpLen(packed, 3), 32<<20), 0, 0, 0)
	packed = appendDumpTail(append(packed, moduleEnd))
	if n := s.extended(lookup([]byte("restore")), append(fields("RESTORE c 0"), packed)); n != 0 {
		t.Errorf("a dump of %d bytes waits for %d", len(packed), n)
	}
	got := doAll(t, s, []string{"MULTI"}, []string{"RESTORE", "c", "0", string(packed)}, []string{"EXEC"})
	if want := "+OK\r\n+QUEUED\r\n*1\r\n-" + errFormat.Error() + "\r\n"; got != want {
		t.Errorf("in a transaction: %q, want %q", got, want)
	}
}
