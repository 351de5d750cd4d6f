package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/siftdb/sift/cluster/internal/testca"
)

// TestMain runs siftd itself in the processes that the tests start.
func TestMain(m *testing.M) {
	if os.Getenv("SIFTD_TEST_MAIN") != "" {
		main()
		return
	}
	redis.SetLogger(silent{})
	os.Exit(m.Run())
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "SIFTD_TEST_MAIN=1", "SIFT_PASSWORD=")
	return cmd
}

// freeAddrs returns loopback addresses that are free.
func freeAddrs(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// start runs a node until the test ends, and checks that it then exits with status 0 after SIGINT.
func start(t *testing.T, args ...string) {
	t.Helper()
	cmd := command(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%v: %v\n%s", args, err, &said)
		}
	})
}

// eventually calls try until it succeeds, for up to a minute.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("not within a minute: %v", err)
}

// TestFlags: two nodes use the password and TLS given by flags for clients, the status page and
// each other. Clients, and a third node, without the right password or certificate are rejected.
func TestFlags(t *testing.T) {
	forClients, forPeers, others := testca.New(t), testca.New(t), testca.New(t)
	clientCA, clientCert, clientKey := forClients.Files(t)
	peerCA, peerCert, peerKey := forPeers.Files(t)
	otherCA, otherCert, otherKey := others.Files(t)
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("secret\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addrs, raft, pages := freeAddrs(t, 3), freeAddrs(t, 3), freeAddrs(t, 3)
	args := func(i int, more ...string) []string {
		return append([]string{"--data", filepath.Join(dir, fmt.Sprint("n", i)), "--listen", addrs[i], "--raft", raft[i], "--http", pages[i], "--password-file", password,
			"--tls-cert", clientCert, "--tls-key", clientKey, "--tls-ca", clientCA}, more...)
	}
	peers := []string{"--peer-cert", peerCert, "--peer-key", peerKey, "--peer-ca", peerCA}
	start(t, args(0, append(peers, "--init", "--groups", "1")...)...)
	start(t, args(1, append(peers, "--join", addrs[0])...)...)
	// The others reject this node's certificate: it never receives the log, and so gets no vote.
	start(t, args(2, "--join", addrs[0], "--peer-cert", otherCert, "--peer-key", otherKey, "--peer-ca", otherCA)...)

	secure := &tls.Config{RootCAs: forClients.Pool}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs[:1], Password: "secret", TLSConfig: secure})
	defer c.Close()
	ctx := t.Context()
	eventually(t, func() error {
		shards, err := c.ClusterShards(ctx).Result()
		if err == nil && (len(shards) != 1 || len(shards[0].Nodes) != 2) {
			err = fmt.Errorf("%v", shards)
		}
		return err
	})
	if err := c.Set(ctx, "fruit", "apple", 0).Err(); err != nil {
		t.Error(err)
	}
	follower := redis.NewClient(&redis.Options{Addr: addrs[1], Password: "secret", TLSConfig: secure})
	defer follower.Close()
	eventually(t, func() error {
		conn := follower.Conn()
		defer conn.Close()
		if err := conn.ReadOnly(ctx).Err(); err != nil {
			return err
		}
		if v, err := conn.Get(ctx, "fruit").Result(); v != "apple" {
			return fmt.Errorf("%q, %w", v, err)
		}
		return nil
	})
	for name, o := range map[string]*redis.Options{
		"without TLS":               {Password: "secret"},
		"without a password":        {TLSConfig: secure},
		"with a wrong one":          {TLSConfig: secure, Password: "apple"},
		"that trusts somebody else": {TLSConfig: &tls.Config{RootCAs: others.Pool}, Password: "secret"},
	} {
		o.Addr, o.MaxRetries, o.DialerRetries = addrs[0], -1, 1
		one := redis.NewClient(o)
		if v, err := one.Get(ctx, "fruit").Result(); err == nil {
			t.Errorf("a client %s reads %q", name, v)
		}
		one.Close()
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	for path, want := range map[string][]string{"/": {"entries behind", "leader, this one", "joining"}, "/metrics": {"sift_group_leads 1", "sift_group_nodes 3", "sift_group_lag_entries"}} {
		body, err := page(web, "https://"+pages[0]+path, "secret")
		for _, text := range want {
			if err != nil || !strings.Contains(body, text) {
				t.Errorf("%s has no %q, %v", path, text, err)
			}
		}
		if _, err := page(web, "https://"+pages[0]+path, "apple"); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("%s with a wrong password: %v", path, err)
		}
		if _, err := page(web, "http://"+pages[0]+path, "secret"); err == nil {
			t.Errorf("%s is served without TLS", path)
		}
	}
}

func page(c *http.Client, url, password string) (string, error) {
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return "", err
	}
	req.SetBasicAuth("", password)
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(resp.Status))
	}
	return string(body), err
}

// TestBackupAuthority: with --tls-ca, backup uses TLS for an address without a scheme.
func TestBackupAuthority(t *testing.T) {
	ca, _, _ := testca.New(t).Files(t)
	page := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request without TLS") }))
	defer page.Close()
	args := []string{"--http", page.Listener.Addr().String(), "--to", filepath.Join(t.TempDir(), "backup"), "--tls-ca", ca}
	if err := backup(t.Context(), args); err == nil {
		t.Error("backup without TLS returns no error")
	}
}

// TestRefusedFlags: unsafe or impossible flags are rejected at startup, with exit status 2, and a
// node that knows no cluster ends with 3.
func TestRefusedFlags(t *testing.T) {
	ca, cert, key := testca.New(t).Files(t)
	empty, password := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "password")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(password, []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--init", "--listen", "0.0.0.0:0"}, "requires a password"},
		{[]string{"--init", "--http", "0.0.0.0:0"}, "requires a password"},
		{[]string{"--init", "--raft", "0.0.0.0:0"}, "TLS between nodes"},
		{[]string{"--init", "--raft", "0.0.0.0:0", "--peer-cert", cert, "--peer-key", key}, "--peer-ca"},
		{[]string{"--init", "--peer-ca", ca}, "--peer-cert"},
		{[]string{"--init", "--peer-cert", cert, "--peer-key", key, "--peer-ca", empty}, "holds no certificate"},
		{[]string{"--init", "--tls-cert", cert}, "--tls-cert"},
		{[]string{"--init", "--tls-cert", cert, "--tls-key", key, "--tls-ca", empty}, "holds no certificate"},
		{[]string{"--init", "--tls-ca", ca}, "requires --tls-cert"},
		{[]string{"--init", "--password-file", empty}, "is empty"},
		{[]string{"--init", "--listen", "0.0.0.0:0", "--password-file", password}, "announce another address"},
		{[]string{"--init", "--raft", ":0", "--peer-cert", cert, "--peer-key", key, "--peer-ca", ca}, "announce another address"},
		{[]string{"--join", "127.0.0.1"}, "is not an address"},
		{[]string{"--join", "127.0.0.1:1,"}, "is not an address"},
		{[]string{"--init", "--announce", "10.0.0.1"}, "is not an address"},
		{[]string{"--init", "--listen", "127.0.0.1"}, "is not an address"},
		{[]string{"--init", "--max-clients", "0"}, "must be positive"},
		{[]string{"--init", "--groups", "0"}, "must be positive"},
		{[]string{"--init", "--groups", "5000"}, "1 to 1024"},
		{[]string{"--init", "fruit"}, "unexpected argument"},
		{nil, "is empty"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := command(append([]string{"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--raft", "127.0.0.1:0"}, c.args...)...)
		var said bytes.Buffer
		cmd.Stderr = &said
		err := cmd.Start()
		if err == nil {
			stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
			err = cmd.Wait()
			stop()
		}
		cancel()
		status := 2
		if c.args == nil {
			status = 3
		}
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != status || !strings.Contains(said.String(), c.want) {
			t.Errorf("%v: %v, %q; want %q", c.args, err, &said, c.want)
		}
	}
}

// TestDemoWithPassword checks that the demo does not take over a password that is meant for a
// server.
func TestDemoWithPassword(t *testing.T) {
	cmd := command("demo")
	cmd.Env = append(cmd.Env, "SIFT_PASSWORD=secret") // the last one counts
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
