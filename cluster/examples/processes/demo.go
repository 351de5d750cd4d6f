package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	clients = 4
	lines   = 250 // per client
)

// demo runs three nodes, and kills the leader while clients write.
func demo() error {
	dir, err := os.MkdirTemp("", "processes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g, err := newGroup(dir)
	if err != nil {
		return err
	}
	defer g.stop()
	for i := range g.nodes {
		if err := g.start(i); err != nil {
			return err
		}
	}
	if _, err := g.ask("hello", "world", 30*time.Second); err != nil {
		return err
	}
	fmt.Printf("three nodes, %s leads\n", g.leaderName())

	var wg sync.WaitGroup
	acked := make([][]string, clients)
	errs := make([]error, clients)
	half := make(chan struct{})
	reached := sync.OnceFunc(func() { close(half) })
	for c := range clients {
		wg.Go(func() {
			if c == 0 {
				defer reached() // after an error
			}
			for i := range lines {
				if c == 0 && i == lines/2 {
					reached()
				}
				line := fmt.Sprintf("%d.%d", c, i)
				_, err := g.ask(fmt.Sprint("list", c), line, 30*time.Second)
				if err == nil {
					acked[c] = append(acked[c], line)
				} else if !errors.Is(err, errUnknown) {
					errs[c] = err
					return
				}
			}
		})
	}
	<-half
	killed := g.leader()
	fmt.Printf("killed the leader, n%d\n", killed)
	begin := time.Now()
	g.kill(killed)
	if _, err := g.ask("hello", "again", 30*time.Second); err != nil {
		return err
	}
	fmt.Printf("%s leads, a write was possible after %v\n", g.leaderName(), time.Since(begin).Round(time.Millisecond))
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := g.start(killed); err != nil {
		return err
	}
	total, lost := 0, 0
	for c := range clients {
		list, err := g.ask(fmt.Sprint("list", c), "", 30*time.Second)
		if err != nil {
			return err
		}
		for _, line := range acked[c] {
			total++
			if strings.Count(","+list, ","+line+",") != 1 {
				lost++
			}
		}
	}
	fmt.Printf("%d of %d lines acknowledged, %d of them lost or duplicated\n", total, clients*lines, lost)
	if lost > 0 {
		return errors.New("lines were lost")
	}
	return nil
}

// errUnknown: the line may have been added or not.
var errUnknown = errors.New("unknown")

type group struct {
	dir         string
	raft, http  []string
	client      http.Client
	mu          sync.Mutex
	nodes       []*exec.Cmd
	knownLeader int
}

func newGroup(dir string) (*group, error) {
	g := &group{dir: dir, nodes: make([]*exec.Cmd, 3), client: http.Client{Timeout: 3 * time.Second}}
	for range g.nodes {
		for _, to := range []*[]string{&g.raft, &g.http} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			defer l.Close()
			*to = append(*to, l.Addr().String())
		}
	}
	return g, nil
}

func (g *group) start(i int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	id := fmt.Sprint("n", i)
	var members []string
	for j, address := range g.raft {
		members = append(members, fmt.Sprintf("n%d=%s", j, address))
	}
	cmd := exec.Command(self, "node", "-id", id, "-dir", filepath.Join(g.dir, id), "-http", g.http[i], "-group", strings.Join(members, ","))
	cmd.Stderr = os.Stderr
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes[i] = cmd
	return cmd.Start()
}

func (g *group) kill(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.nodes[i] != nil {
		g.nodes[i].Process.Kill()
		g.nodes[i].Wait()
		g.nodes[i] = nil
	}
}

func (g *group) stop() {
	for i := range g.nodes {
		g.kill(i)
	}
}

func (g *group) leader() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.knownLeader
}

func (g *group) leaderName() string { return fmt.Sprint("n", g.leader()) }

// ask adds a line, or reads the list if line is empty, on the node that leads.
func (g *group) ask(key, line string, within time.Duration) (string, error) {
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		i := g.leader()
		list, again, err := g.askOne(i, key, line)
		if err == nil || !again || time.Now().After(end) {
			return list, err
		}
		g.mu.Lock()
		if g.knownLeader == i {
			g.knownLeader = (i + 1) % len(g.nodes)
		}
		g.mu.Unlock()
	}
}

// askOne sends a request to a node. If again is true, the node did nothing, and another may
// succeed.
func (g *group) askOne(i int, key, line string) (list string, again bool, err error) {
	method := http.MethodPost
	if line == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequest(method, "http://"+g.http[i]+"/"+key, strings.NewReader(line))
	if err != nil {
		return "", false, err
	}
	resp, err := g.client.Do(req)
	if err != nil {
		// A refused connection has transmitted nothing.
		if opErr := (*net.OpError)(nil); line == "" || errors.As(err, &opErr) && opErr.Op == "dial" {
			return "", true, err
		}
		return "", false, fmt.Errorf("%w: %w", errUnknown, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusGatewayTimeout || err != nil && line != "":
		return "", false, errUnknown
	case resp.StatusCode != http.StatusOK || err != nil:
		return "", true, fmt.Errorf("n%d: %s", i, body)
	}
	return string(body), false, nil
}
