package redisfilter

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// quiet discards the client's messages about connections that tests have cut.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	os.Exit(runTests(m))
}

// runTests runs the tests with a server for the examples, or without those that need one.
func runTests(m *testing.M) int {
	if os.Getenv("REDISFILTER_EXAMPLE") != "" {
		return m.Run()
	}
	s := &server{}
	if _, err := exec.LookPath("redis-server"); err == nil {
		if s.dir, err = os.MkdirTemp("", "redisfilter"); err == nil {
			defer os.RemoveAll(s.dir)
			defer s.kill()
			if s.port, err = findPort(); err == nil {
				err = s.tryStart()
			}
		}
		if err == nil {
			os.Setenv("REDISFILTER_EXAMPLE", s.addr())
			return m.Run()
		}
		fmt.Fprintln(os.Stderr, "redisfilter:", err)
	}
	fmt.Fprintln(os.Stderr, "redisfilter: no redis-server: Example_fromRedisson is skipped")
	flag.Set("test.skip", "^Example_fromRedisson$")
	return m.Run()
}

// An element that member returns is never equal to one that nonMember returns.
func member(i int) string    { return "user:" + strconv.Itoa(i) }
func nonMember(i int) string { return "ghost:" + strconv.Itoa(i) }

func members(from, n int) []string {
	vs := make([]string, n)
	for i := range vs {
		vs[i] = member(from + i)
	}
	return vs
}

func nonMembers(n int) []string {
	vs := make([]string, n)
	for i := range vs {
		vs[i] = nonMember(i)
	}
	return vs
}

// server is a redis-server that the test has started, on loopback.
type server struct {
	t    testing.TB
	port int
	dir  string
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

func freePort(t testing.TB) int {
	port, err := findPort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// findPort returns a free port whose cluster port is free too.
func findPort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if port > 55000 {
			continue
		}
		if bus, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+10000)); err == nil {
			bus.Close()
			return port, nil
		}
	}
	return 0, errors.New("no free port")
}

// newServer starts a server with additional arguments. It skips the test if redis-server is not
// installed.
func newServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	s := &server{t: t, args: args, dir: t.TempDir()}
	t.Cleanup(s.kill)
	err := error(nil)
	for range 3 { // another program may take the port meanwhile
		s.port = freePort(t)
		if err = s.tryStart(); err == nil {
			return s
		}
		s.kill()
	}
	t.Fatal(err)
	return nil
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// start starts a server again.
func (s *server) start() {
	s.t.Helper()
	if err := s.tryStart(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) tryStart() error {
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--appendonly", "no", "--loglevel", "warning",
	}, s.args...)
	s.cmd = exec.Command("redis-server", args...)
	log := must(os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	cmd, done := s.cmd, make(chan struct{})
	s.done = done
	go func() {
		cmd.Wait()
		close(done)
	}()
	c := redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	ctx := context.Background()
	ended := false
	for end := time.Now().Add(30 * time.Second); !ended && time.Now().Before(end); {
		// Check its process ID, since another server may have the port.
		if strings.Contains(c.Info(ctx, "server").Val(), fmt.Sprintf("process_id:%d\r", s.cmd.Process.Pid)) {
			return nil
		}
		select {
		case <-s.done:
			ended = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("redis-server does not answer: %s", text)
}

// kill ends the server as a crash does.
func (s *server) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		<-s.done
		s.cmd = nil
	}
}

func (s *server) client(t testing.TB, protocol int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr(), Protocol: protocol})
	t.Cleanup(func() { c.Close() })
	return c
}
