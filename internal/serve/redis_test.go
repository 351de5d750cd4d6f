package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"
)

// startRedis runs a redis-server, if this machine has one.
func startRedis(t *testing.T, args ...string) (addr string) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server here")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	ln.Close()
	cmd := exec.Command(path, append([]string{"--port", portOf(addr), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for range 200 {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return addr
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatal("redis-server does not answer")
	return ""
}

// The replies that TestStrings expects are those of Redis.
func TestStringsAreRedis(t *testing.T) {
	conn, err := net.Dial("tcp", startRedis(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	c := &caller{t, conn, bufio.NewReader(conn)}
	compared := 0
	for _, step := range stringSteps() {
		if strings.Contains(step.call, "filter") || strings.HasPrefix(step.call, "SELECT 16") || strings.HasSuffix(step.call, "1e400") {
			continue // Redis itself has no filters, more databases, and 80-bit floats
		}
		want := c.do(strings.Fields(step.call)...)
		compared++
		if !reflect.DeepEqual(step.want, want) {
			t.Errorf("%s: %#v, Redis %#v", step.call, step.want, want)
		}
	}
	t.Logf("%d commands compared", compared)
}

// What is malformed, truncated or huge is answered as Redis answers it.
func TestMalformedAsRedis(t *testing.T) {
	const secret = "p"
	open := start(t, t.TempDir(), Config{Fsync: FsyncNo, MaxBulkBytes: 512 << 20, RequestBytes: 2 << 30})
	guarded := start(t, t.TempDir(), Config{Fsync: FsyncNo, MaxBulkBytes: 512 << 20, RequestBytes: 2 << 30, Password: secret})
	redis := [2]string{startRedis(t), startRedis(t, "--requirepass", secret)}
	sift := [2]string{open.Addr().String(), guarded.Addr().String()}
	inputs := []string{
		"*1000000000\r\n", "*9223372036854775807\r\n", "*9223372036854775808\r\n", "*18446744073709551617\r\n",
		"*-2147483649\r\nPING\r\n", "*x\r\n", "*\r\n", "*1 \r\n", "EXEC x\r\n", "MULTI\r\nGET\r\nEXEC\r\n", "MULTI\r\nEXEC x\r\nEXEC\r\n", "NOSUCH " + strings.Repeat("abcdefghi ", 30) + "\r\n", "*+1\r\n", "*01\r\n", "*1.0\r\n", "*-1\r\nPING\r\n", "*0\r\nPING\r\n",
		"*1\r\n+x\r\n", "*1\r\n*1\r\n", "*1\r\n:1\r\n", "*1\r\n\r\n", "*1\r\nx",
		"*1\r\n$-1\r\n", "*1\r\n$x\r\n", "*1\r\n$\r\n", "*1\r\n$+4\r\nPING\r\n", "*1\r\n$04\r\nPING\r\n",
		"*1\r\n$536870913\r\n", "*1\r\n$9223372036854775800\r\nabc\r\n", "*1\r\n$9223372036854775808\r\n", "*1\r\n$18446744073709551617\r\nabc\r\n",
		"*1\r\n$4\r\nPINGxxPING\r\n",
		"*1\r\n$0\r\n\r\nPING\r\n", "*2\r\n$0\r\n\r\n$0\r\n\r\n",
		"*2\r\n$3\r\nGET\r\n$5\r\nab", "*2\r\n$3\r\nGE", "*2\r\n$3", "*", "*1\r\n$4\r\nPING\r",
		"*" + strings.Repeat("1", 70000), "*1\r\n$" + strings.Repeat("1", 70000), strings.Repeat("a", 70000), strings.Repeat("a ", 40000),
		"GET \"a\r\n", "GET 'a\r\n", "GET \"a\"b\r\n", "GET a\"b\r\n", "ECHO \"\\x41\\n\\q\"\r\n", "ECHO 'a\\'b\\n'\r\n", "PING\n", "\r\n\r\nPING\r\n", "  PING  \r\n", "\x00\r\n", "\xff\xfe\r\n",
		"GET\r\n", "GET a b\r\n", "NOSUCH a b\r\n", "NOSUCH " + strings.Repeat("a", 300) + "\r\n", strings.Repeat("N", 300) + " a\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$-5\r\n", "*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n",
		"HELLO 4\r\n", "HELLO x\r\n", "HELLO 2 AUTH a\r\n", "HELLO 2 NOSUCH\r\n", "AUTH\r\n", "AUTH a b c\r\n", "AUTH wrong\r\n",
		"*10\r\n$4\r\nAUTH\r\n", "*11\r\n$4\r\nAUTH\r\n", "*2\r\n$4\r\nAUTH\r\n$16384\r\n", "*2\r\n$4\r\nAUTH\r\n$16385\r\n",
		"EXEC\r\nDISCARD\r\nMULTI\r\nMULTI\r\nEXEC\r\n", "SELECT x\r\n", "SCAN x\r\n", "SCAN 0 COUNT 0\r\n", "SCAN 0 COUNT x\r\n", "SCAN 0 MATCH\r\n",
	}
	for i, kind := range []string{"open", "with a password"} {
		for _, in := range inputs {
			if i == 1 && strings.HasPrefix(in, "NOSUCH abc") {
				continue // strangers may send ten words, in a line, too
			}
			got, want := exchange(t, sift[i], in), exchange(t, redis[i], in)
			if in == "*1000000000\r\n" && i == 0 {
				// Redis waits for as many as 2³¹ arguments.
				want = "-ERR Protocol error: invalid multibulk length\r\n"
			}
			if got != want {
				t.Errorf("%s: %.60q\n  sift %.300q\n redis %.300q", kind, in, got, want)
			}
		}
	}
	t.Logf("%d inputs, each in two ways", len(inputs))
}

// exchange sends bytes and then no more, and returns all that comes back.
func exchange(t *testing.T, addr, in string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, in)
	conn.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(conn)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		return fmt.Sprintf("%s %v", b, err)
	}
	return string(b)
}
