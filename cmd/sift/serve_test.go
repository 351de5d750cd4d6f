package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startServe runs sift serve in its own process and returns the addresses of the server and
// of its status page.
func startServe(t *testing.T, args ...string) (cmd *exec.Cmd, addr, status string) {
	t.Helper()
	cmd = program(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--http", "127.0.0.1:0"}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(stderr)
	at := regexp.MustCompile(`addr=(\S+)`)
	var printed string
	for status == "" {
		line, err := r.ReadString('\n')
		if printed += line; err != nil {
			t.Fatalf("sift serve printed %q", printed)
		}
		m := at.FindStringSubmatch(line)
		switch {
		case m == nil:
		case strings.Contains(line, "status page"):
			status = m[1]
		default:
			addr = m[1]
		}
	}
	go io.Copy(io.Discard, r)
	return cmd, addr, status
}

// TestServe: sift serve applies its flags, and after an interrupt and a restart, what was written
// is still there.
func TestServe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot interrupt another one here")
	}
	ctx := context.Background()
	db := filepath.Join(t.TempDir(), "db")
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("open sesame\r\nnot this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		cmd, addr, status := startServe(t, "--fsync", "everysec", "--bloom", "tight", "--pprof", "--password-file", password, db)
		r := redis.NewClient(&redis.Options{Addr: addr, Password: "open sesame"})
		if round == 0 {
			if err := r.Set(ctx, "k", "v", 0).Err(); err != nil {
				t.Error(err)
			}
			if ok, err := r.BFAdd(ctx, "seen", "alice").Result(); err != nil || !ok {
				t.Error(ok, err)
			}
		}
		if v, err := r.Get(ctx, "k").Result(); err != nil || v != "v" {
			t.Errorf("round %d: GET %q, %v", round, v, err)
		}
		if ok, err := r.BFExists(ctx, "seen", "alice").Result(); err != nil || !ok {
			t.Errorf("round %d: BF.EXISTS %v, %v", round, ok, err)
		}
		if v, err := r.ConfigGet(ctx, "bloom-layout").Result(); err != nil || v["bloom-layout"] != "tight" {
			t.Error(v, err)
		}
		other := redis.NewClient(&redis.Options{Addr: addr, Password: "not this", MaxRetries: -1})
		if err := other.Get(ctx, "k").Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("a wrong password: %v", err)
		}
		other.Close()
		resp, err := http.Get("http://" + status + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("/metrics without the password: %s", resp.Status)
		}
		// A second server cannot open the database.
		if r := runSift(t, "", "serve", "--addr", "127.0.0.1:0", db); r.status != statusFailed || !strings.Contains(r.err, "lock") {
			t.Errorf("a second server: status %d, %q", r.status, r.err)
		}
		// An idle client does not delay the shutdown.
		began := time.Now()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if status := exitCode(t, cmd.Wait()); status != 0 {
			t.Errorf("round %d: status %d", round, status)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		r.Close()
	}
	if r := runSift(t, "", "check", db); r.status != 0 {
		t.Errorf("check: %s%s", r.out, r.err)
	}
}

// TestServeRejects: unsafe or contradictory settings are reported before anything is served.
func TestServeRejects(t *testing.T) {
	t.Setenv("SIFT_PASSWORD", "")
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("\nsecret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign")
	mustSift(t, "", "put", foreign, "key", "value")
	missing := noSuchFile
	if runtime.GOOS == "windows" {
		missing = "--password-file: open"
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"requires a password", []string{"--addr", ":0"}},
		{"requires a password", []string{"--addr", "192.0.2.1:1"}},
		{"requires a password", []string{"--http", "0.0.0.0:0"}},
		{"is empty", []string{"--password-file", empty}},
		{missing, []string{"--password-file", filepath.Join(dir, "none")}},
		{"go together", []string{"--tls-cert", empty}},
		{"--tls-cert", []string{"--tls-cert", empty, "--tls-key", empty}},
		{"at least 1MiB", []string{"--filter-memory", "1024"}},
		{"at least 1MiB", []string{"--max-value", "0"}},
		{"at most 1048576GiB", []string{"--cache-memory", "1048577GiB"}},
		{"must be positive", []string{"--max-clients", "0"}},
		{"is not a size", []string{"--client-memory", "64megs"}},
		{"at most 512MiB", []string{"--max-value", "513MiB"}},
		{"must not be negative", []string{"--timeout=-1s"}},
		{"must not be negative", []string{"--grace=-1s"}},
		{"--pprof requires --http", []string{"--pprof"}},
		{"must be one of", []string{"--fsync", "sometimes"}},
		{"must be one of", []string{"--bloom", "loose"}},
	} {
		args := append(append([]string{"serve"}, c.args...), filepath.Join(dir, "db"))
		if r := runSift(t, "", args...); r.status == 0 || !strings.Contains(r.err, c.want) {
			t.Errorf("%q: status %d, %q", c.args, r.status, r.err)
		}
		if c.want == "requires a password" || c.want == "is empty" {
			fresh := filepath.Join(dir, "fresh")
			r := runSift(t, "", append(append([]string{"serve"}, c.args...), fresh)...)
			if _, err := os.Stat(fresh); r.status != statusUsage || !os.IsNotExist(err) {
				t.Errorf("%q: status %d; the directory: %v", c.args, r.status, err)
			}
		}
	}
	if r := runSift(t, "", "serve", "--addr", "127.0.0.1:0", foreign); r.status == 0 || !strings.Contains(r.err, "an empty directory") {
		t.Errorf("a database that no server wrote: status %d, %q", r.status, r.err)
	}
}
