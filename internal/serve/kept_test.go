package serve

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A client that has sent a large key keeps no memory for it while it is idle.
func TestIdleAfterLargeKey(t *testing.T) { everyWay(t, testIdleAfterLargeKey) }

func testIdleAfterLargeKey(t *testing.T) {
	const clients, size = 20, 1 << 20
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	live := func() uint64 {
		runtime.GC()
		runtime.GC() // drops what a sync.Pool holds
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	func() { // the test keeps no request either
		call := appendCall(nil, "GET", strings.Repeat("k", size))
		for range clients {
			c := dial(t, s)
			if _, err := c.conn.Write(call); err != nil {
				t.Fatal(err)
			}
			if got := c.reply(); got != any(null{2}) {
				t.Fatal(got)
			}
		}
	}()
	const allowed = clients*clientMemory + 4*size
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if after := live(); after < before+allowed {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%d idle clients take %d KiB each", clients, (after-before)>>10/clients)
		}
	}
}

// Once the writes of a client are finished, each of its buffers is small.
func TestBuffersAreDropped(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	run := func(args ...string) string {
		t.Helper()
		c.w.Reset()
		var b [][]byte
		for _, a := range args {
			b = append(b, []byte(a))
		}
		c.do(lookup(b[0]), b)
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
		return string(c.w.Buf)
	}
	const size = 1 << 20
	large := strings.Repeat("x", size)
	run("BF.RESERVE", "from", "0.01", fmt.Sprint(size))
	dump := strings.SplitN(run("BF.SCANDUMP", "from", "0"), "\r\n", 4) // *2, :1, a length, the header
	run("BF.LOADCHUNK", "f", "1", strings.TrimSuffix(dump[3], "\r\n"))
	for _, call := range [][]string{
		{"GET", large}, {"SET", "k", large}, {"SET", large, "v", "EX", "100"}, {"APPEND", "k", "x"}, {"DEL", large},
		{"BF.LOADCHUNK", "f", fmt.Sprint(size/2 + 1), large[:size/2]},
	} {
		if got := run(call...); strings.HasPrefix(got, "-") {
			t.Errorf("%s: %.80s", call[0], got)
		}
		run("BF.ADD", "small", call[0]) // another change in the meantime
		for name, n := range map[string]int{
			"keyBuf": cap(c.keyBuf), "valBuf": cap(c.valBuf), "changed": cap(c.changed), "pendKeys": cap(c.pendKeys),
			"batch": reflect.ValueOf(c.batch).FieldByName("data").Cap(), "pending": reflect.ValueOf(c.pending).FieldByName("data").Cap(),
		} {
			if n > 2*keptBytes {
				t.Errorf("after %s, %s has %d bytes", call[0], name, n)
			}
		}
	}
	const filters = keptBytes / 4
	for _, command := range []string{"CF.ADD c%d x", "DEL c%d"} {
		run("MULTI")
		for i := range filters {
			run(strings.Fields(fmt.Sprintf(command, i))...)
		}
		run("EXEC")
		if n := 8 * (cap(c.touched) + cap(c.garbage)); n > 2*keptBytes {
			t.Errorf("after %q for %d filters: %d bytes", command, filters, n)
		}
	}
}
