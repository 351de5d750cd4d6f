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
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	demoNodes   = 3
	demoGroups  = 16
	demoClients = 8
	demoWrites  = 500 // per client
)

// demo runs three nodes of 16 groups, and kills one while clients write.
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
	// After a failover, the client learns the new leader at its next reload, by default after a
	// minute.
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: d.addrs, MaxRedirects: 30, MaxRetryBackoff: 100 * time.Millisecond,
		DialerRetries: 1, ClusterStateReloadInterval: 200 * time.Millisecond})
	defer c.Close()
	leads, err := d.spread(ctx, c, demoNodes)
	if err != nil {
		return err
	}
	fmt.Println("three nodes, each of which has all keys and leads some of the groups:")
	for _, addr := range d.addrs {
		fmt.Printf("  %s leads %d of %d groups\n", addr, leads[addr], demoGroups)
	}
	acked, err := d.load(ctx, c)
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
		if has, err := c.BFExists(ctx, seen(key), key).Result(); err != nil {
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

// seen names the filter that an item is in: one of several, in different groups.
func seen(key string) string { return "seen:" + key[len(key)-1:] }

// load runs clients that write, and kills a node when the first has done half of its writes.
func (d *demoGroup) load(ctx context.Context, c *redis.ClusterClient) (map[string]string, error) {
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
				if c.Set(ctx, key, value, 0).Err() == nil && c.BFAdd(ctx, seen(key), key).Err() == nil {
					mu.Lock()
					acked[key] = value
					mu.Unlock()
				}
			}
		})
	}
	<-half
	victim := d.addrs[0]
	d.kill(victim)
	begin := time.Now()
	fmt.Printf("killed %s while %d clients write\n", victim, demoClients)
	leads, err := d.spread(ctx, c, demoNodes-1)
	if err == nil {
		fmt.Printf("the others lead all groups, and each took a write, after %v:", time.Since(begin).Round(10*time.Millisecond))
		for _, addr := range d.addrs[1:] {
			fmt.Printf(" %s leads %d", addr, leads[addr])
		}
		fmt.Println()
	}
	wg.Wait()
	return acked, err
}

// spread waits until that many nodes lead all groups, as evenly as possible, all groups are on
// all three, and each group takes a write. It returns how many groups each node leads.
func (d *demoGroup) spread(ctx context.Context, c *redis.ClusterClient, nodes int) (map[string]int, error) {
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		c.ReloadState(ctx)
		var shards []redis.ClusterShard
		if shards, err = c.ClusterShards(ctx).Result(); err != nil {
			continue
		}
		leads, whole := map[string]int{}, 0
		for _, s := range shards {
			n := s.Nodes[0]
			leads[net.JoinHostPort(n.Endpoint, strconv.FormatInt(n.Port, 10))]++
			if len(s.Nodes) == demoNodes {
				whole++
			}
		}
		even := 0
		for i, addr := range d.addrs {
			if d.nodes[i] != nil && leads[addr] >= demoGroups/nodes {
				even++
			}
		}
		if whole == demoGroups && len(leads) == nodes && even == nodes {
			if err = d.writeAll(ctx, c); err == nil {
				return leads, nil
			}
		}
	}
	return nil, fmt.Errorf("not all groups have leaders after a minute: %w", errors.Join(err, ctx.Err()))
}

// writeAll writes a key to each group.
func (d *demoGroup) writeAll(ctx context.Context, c *redis.ClusterClient) error {
	done := map[int64]bool{}
	for i := 0; len(done) < demoGroups; i++ {
		key := "first:" + strconv.Itoa(i)
		slot, err := c.ClusterKeySlot(ctx, key).Result()
		if err != nil {
			return err
		}
		if group := slot * demoGroups / 16384; !done[group] {
			if err := c.Set(ctx, key, "?", 0).Err(); err != nil {
				return err
			}
			done[group] = true
		}
	}
	return nil
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
	d.nodes[i].Env = append(os.Environ(), "SIFT_PASSWORD=") // the demo's client has none
	return d.nodes[i].Start()
}

// kill kills a node with SIGKILL.
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
