package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	demoNodes   = 3
	demoClients = 8
	demoWrites  = 500 // a client
)

// demo runs three nodes, loads them, and kills the leader meanwhile.
func demo(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "siftd")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := demoGroup{nodes: make([]*exec.Cmd, demoNodes)}
	defer d.stop()
	if err := d.addresses(dir); err != nil {
		return err
	}
	for i := range d.nodes {
		if err := d.start(i); err != nil {
			return err
		}
	}
	redis.SetLogger(silent{})
	// When the leader is gone the client asks the others who leads at its next interval,
	// by default after a minute.
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: d.addrs, MaxRedirects: 30, MaxRetryBackoff: 100 * time.Millisecond,
		DialerRetries: 1, ClusterStateReloadInterval: 200 * time.Millisecond})
	defer c.Close()
	leader, err := d.leader(ctx, c, demoNodes)
	if err != nil {
		return err
	}
	fmt.Printf("three nodes at %s; %s leads\n", strings.Join(d.addrs, ", "), leader)
	acked, err := d.load(ctx, c, leader)
	if err != nil {
		return err
	}
	lost := 0
	for key, want := range acked {
		if got, err := c.Get(ctx, key).Result(); err != nil && err != redis.Nil {
			return err
		} else if got != want {
			lost++
		}
		if has, err := c.BFExists(ctx, "seen", key).Result(); err != nil {
			return err
		} else if !has {
			lost++
		}
	}
	fmt.Printf("%d of %d writes acknowledged, each a SET and a BF.ADD; %d lost\n", len(acked), demoClients*demoWrites, lost)
	if lost > 0 {
		return errors.New("writes were lost")
	}
	return nil
}

// load has clients write, and kills the leader when half is written.
func (d *demoGroup) load(ctx context.Context, c *redis.ClusterClient, leader string) (map[string]string, error) {
	var mu sync.Mutex
	acked := map[string]string{}
	half := make(chan struct{})
	var wg sync.WaitGroup
	for n := range demoClients {
		wg.Go(func() {
			for i := range demoWrites {
				if n == 0 && i == demoWrites/2 {
					close(half)
				}
				key, value := fmt.Sprintf("key:%d:%d", n, i), fmt.Sprint(i)
				if c.Set(ctx, key, value, 0).Err() == nil && c.BFAdd(ctx, "seen", key).Err() == nil {
					mu.Lock()
					acked[key] = value
					mu.Unlock()
				}
			}
		})
	}
	<-half
	d.kill(leader)
	begin := time.Now()
	fmt.Printf("killed the leader while %d clients write\n", demoClients)
	next, err := d.leader(ctx, c, demoNodes-1)
	if err == nil {
		fmt.Printf("%s leads, a write was possible after %v\n", next, time.Since(begin).Round(10*time.Millisecond))
	}
	wg.Wait()
	return acked, err
}

// leader waits until there are so many nodes with a vote and a write is possible, and
// returns who leads.
func (d *demoGroup) leader(ctx context.Context, c *redis.ClusterClient, nodes int) (string, error) {
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if err = c.Set(ctx, "leader", "?", 0).Err(); err != nil {
			continue
		}
		c.ReloadState(ctx)
		shards, _ := c.ClusterShards(ctx).Result()
		if len(shards) == 1 && len(shards[0].Nodes) >= nodes {
			n := shards[0].Nodes[0]
			return net.JoinHostPort(n.Endpoint, strconv.FormatInt(n.Port, 10)), nil
		}
	}
	return "", fmt.Errorf("no leader within a minute: %w", errors.Join(err, ctx.Err()))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

type demoGroup struct {
	dirs, addrs, raft []string
	nodes             []*exec.Cmd
}

func (d *demoGroup) addresses(dir string) error {
	for i := range d.nodes {
		d.dirs = append(d.dirs, filepath.Join(dir, fmt.Sprint("n", i)))
		for _, to := range []*[]string{&d.addrs, &d.raft} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer l.Close()
			*to = append(*to, l.Addr().String())
		}
	}
	return nil
}

func (d *demoGroup) start(i int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"--data", d.dirs[i], "--listen", d.addrs[i], "--raft", d.raft[i]}
	if i == 0 {
		args = append(args, "--init")
	} else {
		args = append(args, "--join", d.addrs[0])
	}
	d.nodes[i] = exec.Command(self, args...)
	return d.nodes[i].Start()
}

// kill kills a node as kill -9 does.
func (d *demoGroup) kill(addr string) {
	for i, at := range d.addrs {
		if at == addr && d.nodes[i] != nil {
			d.nodes[i].Process.Kill()
			d.nodes[i].Wait()
			d.nodes[i] = nil
		}
	}
}

func (d *demoGroup) stop() {
	for _, addr := range d.addrs {
		d.kill(addr)
	}
}
