//go:build linux && !race

package serve

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// most returns the peak resident memory of a process.
func most(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// Whatever clients do, requests and replies take at most twice RequestBytes, including garbage, and
// the process takes at most the sum in docs/serve.md. Under the race detector it takes more.
func TestResidentMemory(t *testing.T) { everyWay(t, testResidentMemory) }

func testResidentMemory(t *testing.T) {
	const budget, clients, size, values = 32 << 20, 60, 12 << 20, 4
	cmd, addr := spawn(t, t.TempDir(), FsyncNo, fmt.Sprint("SIFT_SERVE_REQUEST_BYTES=", budget))
	defer cmd.Wait()
	defer cmd.Process.Kill()
	connect := func() net.Conn {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(time.Minute))
		return conn
	}
	large := string(randomBytes(size))
	c := connect()
	replies := bufio.NewReader(c)
	for i := range values {
		c.Write(appendCall(nil, "SET", fmt.Sprint("large", i), large))
		if got, err := readReply(replies); got != simple("OK") {
			t.Fatal(got, err)
		}
	}
	// A transaction of short commands that write long values.
	calls := appendCall(nil, "MULTI")
	for i := range 24 {
		calls = appendCall(calls, "SETRANGE", fmt.Sprint("extended", i), fmt.Sprint(size-1), "x")
	}
	c.Write(appendCall(calls, "EXEC"))
	for range 1 + 24 {
		readReply(replies)
	}
	if got, err := readReply(replies); err != nil || got.([]any)[0] != any(int64(size)) || got.([]any)[23] != any(failure(errOOM.Error())) {
		t.Errorf("EXEC: %.60s, %v", fmt.Sprint(got), err)
	}
	var wg sync.WaitGroup
	for range clients {
		slow, half := connect(), connect()
		wg.Go(func() { // reads no replies
			for i := range 8 {
				slow.Write(appendCall(nil, "GET", fmt.Sprint("large", i%values)))
			}
		})
		wg.Go(func() { // sends half of its request
			io.WriteString(half, "*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$8388608\r\n"+large[:4<<20])
		})
	}
	wg.Wait()
	// Others are served meanwhile. Each of these commands needs some memory.
	for i := range 100 {
		c.Write(appendCall(nil, "SET", fmt.Sprint("small", i), large[:1000]))
		c.Write(appendCall(nil, "GET", fmt.Sprint("small", i)))
		if got, err := readReply(replies); got != simple("OK") {
			t.Fatal(got, err)
		}
		if got, err := readReply(replies); got != large[:1000] {
			t.Fatalf("%.30v, %v", got, err)
		}
	}
	const (
		store   = (3 + 1) * size // memtables and a cache
		program = 32 << 20
		allowed = store + garbageFactor*budget + 2*clients*clientMemory + otherMemory + program
	)
	got := most(t, cmd.Process.Pid)
	t.Logf("%d MiB at most", got>>20)
	if got > allowed {
		t.Errorf("the process took %d MiB, %d MiB are allowed", got>>20, allowed>>20)
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{19}).Read(b)
	return b
}
