package cluster

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var failovers = flag.Int("cluster.failovers", 0, "how often TestFailovers kills a leader; 0: it is skipped")

// rival is a cluster of siftd or Redis processes.
type rival struct {
	t       *testing.T
	name    string
	dir     string
	addrs   []string
	command func(i int) *exec.Cmd
	running []*exec.Cmd
	joined  bool // nodes join the cluster by themselves
	wait    bool // each write is followed by WAIT 1
	whole   func(ctx context.Context, c *redis.ClusterClient) error
}

// data returns the directory of a node.
func (r *rival) data(i int) string { return filepath.Join(r.dir, fmt.Sprint(i)) }

func (r *rival) start(i int) {
	r.t.Helper()
	r.running[i] = r.command(i)
	if err := r.running[i].Start(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rival) kill(i int) {
	if r.running[i] != nil {
		r.running[i].Process.Kill()
		r.running[i].Wait()
		r.running[i] = nil
	}
}

func (r *rival) client() *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: r.addrs, MaxRedirects: 3, DialerRetries: 1, Protocol: 2, DisableIdentity: true,
		ReadTimeout: time.Second, DialTimeout: 300 * time.Millisecond, ClusterStateReloadInterval: 100 * time.Millisecond})
	r.t.Cleanup(func() { c.Close() })
	return c
}

// set writes a key, and reports whether it was acknowledged, by a replica too if wait is set.
func (r *rival) set(ctx context.Context, c *redis.ClusterClient, key string) bool {
	if !r.wait {
		return c.Set(ctx, key, "v", 0).Err() == nil
	}
	master, err := c.MasterForKey(ctx, key)
	if err != nil {
		return false
	}
	var set *redis.StatusCmd
	var have *redis.Cmd
	_, err = master.Pipelined(ctx, func(p redis.Pipeliner) error {
		set, have = p.Set(ctx, key, "v", 0), p.Do(ctx, "WAIT", 1, 1000)
		return nil
	})
	n, _ := have.Int()
	return err == nil && set.Err() == nil && n >= 1
}

// freePorts returns addresses that are free, as are the ports 10,000 above them, which Redis
// Cluster uses for its bus. The ports are outside the range of ephemeral ports.
func freePorts(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for port := 15000 + os.Getpid()*97%6000; len(addrs) < n && port < 22000; port++ {
		addr, above := fmt.Sprint("127.0.0.1:", port), fmt.Sprint("127.0.0.1:", port+10000)
		if a, err := net.Listen("tcp", addr); err == nil {
			defer a.Close()
			if b, err := net.Listen("tcp", above); err == nil {
				defer b.Close()
				addrs = append(addrs, addr)
			}
		}
	}
	if len(addrs) < n {
		t.Fatal("too few ports are free")
	}
	return addrs
}

// siftdRival returns a cluster of siftd nodes. The first one, which creates it, gets
// additional flags.
func siftdRival(t *testing.T, nodes int, first ...string) *rival {
	exe := filepath.Join(t.TempDir(), "siftd")
	if out, err := exec.Command("go", "build", "-o", exe, "./cmd/siftd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ports := freePorts(t, 2*nodes)
	r := &rival{t: t, name: "siftd", joined: true, dir: t.TempDir(), addrs: ports[:nodes], running: make([]*exec.Cmd, nodes)}
	r.command = func(i int) *exec.Cmd {
		args := []string{"--data", r.data(i), "--listen", r.addrs[i], "--raft", ports[nodes+i]}
		if i == 0 {
			return exec.Command(exe, slices.Concat(args, []string{"--init"}, first)...)
		}
		return exec.Command(exe, append(args, "--join", r.addrs[0])...)
	}
	r.whole = func(ctx context.Context, c *redis.ClusterClient) error {
		shards, err := c.ClusterShards(ctx).Result()
		if err != nil {
			return err
		}
		for i, shard := range shards {
			if len(shard.Nodes) != 3 {
				return fmt.Errorf("shard %d has %d nodes", i, len(shard.Nodes))
			}
		}
		return c.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error {
			if n, err := m.Do(ctx, "WAIT", 2, 1000).Int(); err != nil || n < 2 {
				return fmt.Errorf("%d replicas, %w", n, err)
			}
			return nil
		})
	}
	return r
}

func redisRival(t *testing.T, wait bool) *rival {
	server, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server here")
	}
	r := &rival{t: t, name: "Redis Cluster", dir: t.TempDir(), addrs: freePorts(t, 6), running: make([]*exec.Cmd, 6), wait: wait}
	if wait {
		r.name += ", WAIT 1"
	}
	r.command = func(i int) *exec.Cmd {
		_, port, _ := net.SplitHostPort(r.addrs[i])
		os.MkdirAll(r.data(i), 0o755) // without it, Redis does not start
		return exec.Command(server, "--port", port, "--dir", r.data(i), "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--appendonly", "yes", "--save", "")
	}
	r.whole = func(ctx context.Context, c *redis.ClusterClient) error {
		for _, addr := range r.addrs {
			one := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
			info := one.ClusterInfo(ctx).Val()
			role := one.Info(ctx, "replication").Val()
			one.Close()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(role, "role:master") && !strings.Contains(role, "master_link_status:up") {
				return fmt.Errorf("%s is not ready", addr)
			}
			if strings.Contains(role, "role:master") && !strings.Contains(role, "connected_slaves:1") {
				return fmt.Errorf("%s has no replica", addr)
			}
		}
		return nil
	}
	return r
}

// startAll starts the nodes, and creates a cluster of Redis nodes.
func (r *rival) startAll() {
	r.t.Helper()
	for i := range r.running {
		r.start(i)
	}
	if r.joined {
		return
	}
	eventually(r.t, func() error {
		out, err := exec.Command("redis-cli", append([]string{"--cluster", "create", "--cluster-replicas", "1", "--cluster-yes"}, r.addrs...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

func (r *rival) killAll() {
	for i := range r.running {
		r.kill(i)
	}
}

func (r *rival) waitPlaced(c *redis.ClusterClient) {
	r.t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = r.whole(r.t.Context(), c); err == nil {
			return
		}
	}
	r.t.Fatalf("%s is not complete within a minute: %v", r.name, err)
}

// round kills the node that leads a key while clients write. It returns for how long writes
// of that key failed, and which writes were acknowledged.
func (r *rival) round(c *redis.ClusterClient, round int) (down time.Duration, acked []string) {
	r.t.Helper()
	ctx := r.t.Context()
	probe := fmt.Sprintf("probe%d", round)
	c.ReloadState(ctx)
	time.Sleep(time.Second) // the reload is asynchronous
	master, err := c.MasterForKey(ctx, probe)
	if err != nil {
		r.t.Fatal(err)
	}
	victim := slices.Index(r.addrs, master.Options().Addr)
	var stop atomic.Bool
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				if key := fmt.Sprintf("%d.%d.%d", round, i, n); r.set(ctx, c, key) {
					mu.Lock()
					acked = append(acked, key)
					mu.Unlock()
				}
			}
		})
	}
	time.Sleep(time.Second)
	begin := time.Now()
	r.kill(victim)
	for c.Set(ctx, probe, "v", 0).Err() != nil {
		if time.Since(begin) > time.Minute {
			r.t.Fatalf("%s: no write within a minute", r.name)
		}
		time.Sleep(5 * time.Millisecond)
		c.ReloadState(ctx)
	}
	down = time.Since(begin)
	time.Sleep(200 * time.Millisecond)
	stop.Store(true)
	wg.Wait()
	r.start(victim)
	r.waitPlaced(c)
	return down, acked
}

// missing returns how many of the keys the cluster does not have.
func (r *rival) missing(c *redis.ClusterClient, keys []string) (lost int) {
	r.t.Helper()
	for part := range slices.Chunk(keys, 500) {
		var got []*redis.StringCmd
		_, err := c.Pipelined(r.t.Context(), func(p redis.Pipeliner) error {
			for _, key := range part {
				got = append(got, p.Get(r.t.Context(), key))
			}
			return nil
		})
		if err != nil && err != redis.Nil {
			r.t.Fatal(err)
		}
		for _, v := range got {
			if v.Err() == redis.Nil {
				lost++
			} else if v.Err() != nil {
				r.t.Fatal(v.Err())
			}
		}
	}
	return lost
}

// TestFailovers kills leaders of siftd and of Redis Cluster, and counts the acknowledged writes
// that are lost. siftd must lose none.
func TestFailovers(t *testing.T) {
	if *failovers == 0 {
		t.Skip("without -cluster.failovers")
	}
	redis.SetLogger(silent{})
	t.Run("siftd", func(t *testing.T) {
		if lost := siftdRival(t, 3).run(); lost > 0 {
			t.Error("acknowledged writes are lost")
		}
	})
	t.Run("redis", func(t *testing.T) { redisRival(t, false).run() })
	t.Run("wait", func(t *testing.T) { redisRival(t, true).run() })
}

// run returns how many acknowledged writes are lost.
func (r *rival) run() (lost int) {
	t := r.t
	r.startAll()
	defer r.killAll()
	c := r.client()
	r.waitPlaced(c)
	var downs []time.Duration
	var acked []string
	for round := range *failovers {
		down, keys := r.round(c, round)
		downs, acked = append(downs, down), append(acked, keys...)
	}
	slices.Sort(downs)
	lost = r.missing(c, acked)
	t.Logf("%s: %d failovers, no writes for %.2f s (median), %.2f s (longest); %d of %d acknowledged writes lost",
		r.name, len(downs), downs[len(downs)/2].Seconds(), downs[len(downs)-1].Seconds(), lost, len(acked))
	return lost
}

// eventually calls try until it succeeds, for up to a minute.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for p := patient(time.Minute); p.more(); time.Sleep(10 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("not within a minute: %v", err)
}
