package cluster

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// retrying returns a client that retries for as long as a node takes to start.
func retrying(t *testing.T, addrs []string) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, MaxRedirects: 200, MaxRetryBackoff: 50 * time.Millisecond, DialerRetries: 1,
		Protocol: 2, DisableIdentity: true, ClusterStateReloadInterval: 100 * time.Millisecond})
	t.Cleanup(func() { c.Close() })
	return c
}

// term stops a node with SIGTERM, and returns its exit status as an error.
func (p *processes) term(i int) error {
	p.mu.Lock()
	cmd := p.running[i]
	p.running[i] = nil
	p.mu.Unlock()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return cmd.Wait()
}

// whole waits until all nodes are in all groups, and each leads one.
func whole(t *testing.T, c *redis.Client, nodes int) {
	t.Helper()
	eventually(t, func() error {
		shards, err := c.ClusterShards(t.Context()).Result()
		if err != nil || !allIn(shards, nodes) {
			return fmt.Errorf("%v, %w", shards, err)
		}
		leaders := map[string]bool{}
		for _, s := range shards {
			leaders[s.Nodes[0].ID] = s.Nodes[0].Role == "master"
		}
		if len(leaders) != min(nodes, wireGroups) {
			return fmt.Errorf("the leaders are %v", leaders)
		}
		return nil
	})
}

// TestRollingRestart: one node after another is stopped with SIGTERM and restarted while
// clients write. No write fails for a client that retries, and none is lost.
func TestRollingRestart(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM")
	}
	redis.SetLogger(silent{})
	// Leaders that are slow on a busy machine must stay leaders: a deposed one would reply UNKNOWN.
	p, addrs, members := startWire(t, "--election-timeout", "3s")
	whole(t, members[0].(wire).client, len(addrs))
	c := retrying(t, addrs)
	ctx := t.Context()
	var stop atomic.Bool
	var wg sync.WaitGroup
	var written [4]int
	for client := range written {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				key := fmt.Sprintf("r%d.%d", client, i)
				if err := errors.Join(c.Set(ctx, key, i, 0).Err(), c.BFAdd(ctx, fmt.Sprintf("rf%d", i%8), key).Err()); err != nil {
					t.Errorf("write %s: %v", key, err)
					return
				}
				written[client] = i + 1
			}
		})
	}
	for i := range addrs {
		time.Sleep(500 * time.Millisecond) // writes to all nodes
		if err := p.term(i); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
		if err := p.start(i); err != nil {
			t.Fatal(err)
		}
		whole(t, members[i].(wire).client, len(addrs))
	}
	stop.Store(true)
	wg.Wait()
	total := 0
	for client, n := range written {
		total += n
		for i := range n {
			key := fmt.Sprintf("r%d.%d", client, i)
			if got, err := c.Get(ctx, key).Int(); err != nil || got != i {
				t.Fatalf("%s is %d, %v", key, got, err)
			}
			if has, err := c.BFExists(ctx, fmt.Sprintf("rf%d", i%8), key).Result(); err != nil || !has {
				t.Fatalf("the filter has lost %s: %v", key, err)
			}
		}
	}
	t.Logf("%d writes of a string and a filter each", total)
	if total == 0 {
		t.Error("nothing was written")
	}
}

// TestGoesOn: a follower that was killed and restarted never shows older values than it did before.
func TestGoesOn(t *testing.T) {
	redis.SetLogger(silent{})
	p, addrs, members := startWire(t, "--snapshot-entries", "1000000")
	whole(t, members[0].(wire).client, len(addrs))
	c := retrying(t, addrs)
	ctx := t.Context()
	counters := []string{"a", "b", "c", "d", "e"}
	want := map[string]int{}
	incr := func() {
		for _, key := range counters {
			n, err := c.Incr(ctx, key).Result()
			if err != nil {
				t.Fatal(err)
			}
			want[key] = int(n)
		}
	}
	for range 400 {
		incr()
	}
	follower := members[2].(wire).client
	shown := func(conn *redis.Conn, want map[string]int) error {
		got := map[string]*redis.StringCmd{}
		if _, err := conn.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.ReadOnly(ctx)
			for _, key := range counters {
				got[key] = p.Get(ctx, key)
			}
			return nil
		}); err != nil {
			return err
		}
		for key, cmd := range got {
			if n, err := cmd.Int(); err != nil || n < want[key] {
				return fmt.Errorf("%s is %d, %w", key, n, err)
			}
		}
		return nil
	}
	eventually(t, func() error {
		conn := follower.Conn()
		defer conn.Close()
		return shown(conn, want)
	})
	p.kill(2)
	before := maps.Clone(want)
	incr()
	if err := p.start(2); err != nil {
		t.Fatal(err)
	}
	// It serves reads before it hears from a leader, and catches up when it does.
	eventually(t, func() error {
		conn := follower.Conn()
		defer conn.Close()
		for {
			if err := shown(conn, before); err != nil && strings.Contains(err.Error(), " is ") {
				t.Fatalf("%v, want at least %v", err, before)
			} else if err != nil {
				return err
			}
			if shown(conn, want) == nil {
				return nil
			}
		}
	})
}
