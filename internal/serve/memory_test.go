//go:build linux && !race

package serve

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// resident returns the resident memory of a process.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// Whatever clients do, requests and replies make the process take up to twice what
// RequestBytes is: garbage is counted, but not what the race detector takes.
func TestResidentMemory(t *testing.T) {
	const budget, beside = 64 << 20, 64 << 20 // beside: the store's buffers and cache
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
	large := strings.Repeat("v", 4<<20)
	c := connect()
	c.Write(appendCall(nil, "SET", "large", large))
	if _, err := io.ReadFull(c, make([]byte, len("+OK\r\n"))); err != nil {
		t.Fatal(err)
	}
	before := resident(t, cmd.Process.Pid)
	var wg sync.WaitGroup
	for range 16 {
		slow, half := connect(), connect()
		wg.Go(func() { // takes no replies
			for range 8 {
				slow.Write(appendCall(nil, "GET", "large"))
			}
		})
		wg.Go(func() { // sends half of its request
			io.WriteString(half, "*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$8388608\r\n"+large)
		})
	}
	wg.Wait()
	most := before
	for range 200 {
		most = max(most, resident(t, cmd.Process.Pid))
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("%d MiB before, %d MiB at most", before>>20, most>>20)
	if most-before > 2*budget+beside {
		t.Errorf("the process took %d MiB more, %d MiB are allowed", (most-before)>>20, 2*budget>>20)
	}
}
