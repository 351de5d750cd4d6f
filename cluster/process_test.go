package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift/internal/torture/plant"
)

// process is a node in another process: the program of examples/processes.
type process struct {
	client *http.Client
	addr   string
}

func (p process) append(ctx context.Context, key, token string) (string, error) {
	return p.ask(ctx, http.MethodPost, key, token)
}

func (p process) read(ctx context.Context, key string) (string, error) {
	return p.ask(ctx, http.MethodGet, key, "")
}

func (p process) ask(ctx context.Context, method, key, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+"/"+key, strings.NewReader(token))
	if err != nil {
		return "", err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		// If the connection was refused, nothing was sent.
		if opErr := (*net.OpError)(nil); errors.As(err, &opErr) && opErr.Op == "dial" {
			return "", err
		}
		return "", fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil || resp.StatusCode == http.StatusGatewayTimeout:
		return "", fmt.Errorf("%w: %s: %s", ErrUnknown, resp.Status, body)
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), nil
}

// processes is a group of three.
type processes struct {
	exe, dir   string
	raft, http []string
	mu         sync.Mutex
	running    []*exec.Cmd
	command    func(i int) *exec.Cmd
}

func startProcesses(t *testing.T) *processes {
	t.Helper()
	p := newProcesses(t, "./examples/processes")
	p.command = func(i int) *exec.Cmd {
		var members []string
		for j, address := range p.raft {
			members = append(members, fmt.Sprintf("n%d=%s", j, address))
		}
		return exec.Command(p.exe, "node", "-id", fmt.Sprint("n", i), "-dir", filepath.Join(p.dir, fmt.Sprint("n", i)),
			"-http", p.http[i], "-group", strings.Join(members, ","), "-snapshots", "100")
	}
	return p
}

// newProcesses builds a program that command starts as processes.
func newProcesses(t *testing.T, program string) *processes {
	t.Helper()
	p := &processes{exe: filepath.Join(t.TempDir(), "node"), dir: t.TempDir(), running: make([]*exec.Cmd, 3)}
	args := []string{"build", "-o", p.exe, program}
	if edits := plantedEdits(t); edits != nil {
		root, err := filepath.Abs("..")
		if err != nil {
			t.Fatal(err)
		}
		path, err := plant.Overlay(root, t.TempDir(), edits)
		if err != nil {
			t.Fatal(err)
		}
		args = slices.Insert(args, 1, "-overlay", path)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for range p.running {
		for _, to := range []*[]string{&p.raft, &p.http} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			*to = append(*to, l.Addr().String())
		}
	}
	t.Cleanup(func() {
		for i := range p.running {
			p.kill(i)
		}
	})
	return p
}

func (p *processes) start(i int) error {
	cmd := p.command(i)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[i] = cmd
	return cmd.Start()
}

func (p *processes) kill(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[i] != nil {
		p.running[i].Process.Kill()
		p.running[i].Wait()
		p.running[i] = nil
	}
}

// TestProcesses: what clients see is linearizable while nodes are killed with SIGKILL, and paused.
// When a paused leader resumes, it still believes that it leads, although the others have elected
// another leader.
func TestProcesses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGSTOP")
	}
	p := startProcesses(t)
	for i := range p.running {
		if err := p.start(i); err != nil {
			t.Fatal(err)
		}
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	var members []member
	for _, addr := range p.http {
		members = append(members, process{client, addr})
	}
	final := func(key string) string {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			for _, m := range members {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				list, err := m.read(ctx, key)
				cancel()
				if err == nil {
					return list
				}
			}
		}
		t.Fatal("no leader within a minute")
		return ""
	}
	final("k0") // waits for a leader
	r := &recorder{seed: *seed, members: func() []member { return members }}
	stop := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		failed <- p.disturb(rand.New(rand.NewPCG(*seed, 77)), lasting(12*time.Second))
		close(stop)
	}()
	r.run(5, stop)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	lists := map[string]string{}
	for key := range r.keys() {
		lists[key] = final(key)
	}
	t.Log(r)
	if err := r.check(lists); err != nil {
		t.Error(err)
	}
}

func (p *processes) disturb(rng *rand.Rand, lasts time.Duration) error {
	pause := func(most int) { time.Sleep(time.Duration(200+rng.IntN(most)) * time.Millisecond) }
	for begin := time.Now(); time.Since(begin) < lasts; pause(1000) {
		i := rng.IntN(len(p.running))
		switch rng.IntN(3) {
		case 0:
			p.kill(i)
			pause(1500)
		case 1:
			for j := range p.running {
				p.kill(j)
			}
		case 2:
			p.mu.Lock()
			proc := p.running[i].Process
			p.mu.Unlock()
			err := proc.Signal(stopSignal)
			pause(3000)
			if err = errors.Join(err, proc.Signal(contSignal)); err != nil {
				return err
			}
		}
		for j := range p.running {
			if p.running[j] == nil {
				if err := p.start(j); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
