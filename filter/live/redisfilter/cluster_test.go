package redisfilter

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var clusterElements = flag.Int("redisfilter.elements", 40_000, "elements that TestCluster adds and looks up while nodes fail and slots move")

// cluster is a Redis Cluster on loopback: masters, each with or without a replica.
type cluster struct {
	t     testing.TB
	nodes []*server
	admin []*redis.Client // of each node
	ids   []string
}

const numSlots = 16384

func newCluster(t testing.TB, masters, replicas int) *cluster {
	t.Helper()
	c := &cluster{t: t}
	ctx := context.Background()
	for range masters * (1 + replicas) {
		s := newServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1500",
			"--cluster-config-file", "nodes.conf", "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb")
		c.nodes = append(c.nodes, s)
		c.admin = append(c.admin, s.client(t, 2))
	}
	for i, a := range c.admin {
		c.ids = append(c.ids, must(a.ClusterMyID(ctx).Result()))
		if i > 0 {
			c.do(i, "cluster", "meet", "127.0.0.1", c.nodes[0].port)
		}
		if i < masters {
			c.do(i, "cluster", "addslotsrange", i*numSlots/masters, (i+1)*numSlots/masters-1)
		}
	}
	c.until("all nodes know each other", func() bool {
		for _, a := range c.admin {
			if strings.Count(a.ClusterNodes(ctx).Val(), " connected") != len(c.nodes) {
				return false
			}
		}
		return true
	})
	for i := masters; i < len(c.nodes); i++ {
		c.do(i, "cluster", "replicate", c.ids[i%masters])
	}
	c.healthy(replicas)
	return c
}

func (c *cluster) do(node int, args ...any) {
	c.t.Helper()
	if err := c.admin[node].Do(context.Background(), args...).Err(); err != nil {
		c.t.Fatalf("node %d: %v: %v", node, args, err)
	}
}

func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("timeout: %s", what)
		}
	}
}

// healthy waits until every slot has a master, and every master its replicas.
func (c *cluster) healthy(replicas int) {
	c.t.Helper()
	ctx := context.Background()
	c.until("the cluster is healthy", func() bool {
		for i, a := range c.admin {
			if !strings.Contains(a.ClusterInfo(ctx).Val(), "cluster_state:ok") {
				return false
			}
			info := a.Info(ctx, "replication").Val()
			if c.isMaster(i) {
				if strings.Count(info, "state=online") != replicas {
					return false
				}
			} else if !strings.Contains(info, "master_link_status:up") {
				return false
			}
		}
		return true
	})
}

func (c *cluster) isMaster(node int) bool {
	return strings.Contains(c.admin[node].Info(context.Background(), "replication").Val(), "role:master")
}

func (c *cluster) masters() (is []int) {
	for i := range c.nodes {
		if c.isMaster(i) {
			is = append(is, i)
		}
	}
	return is
}

// replicaOf returns a replica of a master.
func (c *cluster) replicaOf(master int) int {
	for i := range c.nodes {
		if strings.Contains(c.admin[i].Info(context.Background(), "replication").Val(), fmt.Sprintf("master_port:%d", c.nodes[master].port)) {
			return i
		}
	}
	c.t.Fatalf("node %d has no replica", master)
	return 0
}

func (c *cluster) client(o redis.ClusterOptions) *redis.ClusterClient {
	for _, n := range c.nodes {
		o.Addrs = append(o.Addrs, n.addr())
	}
	o.DialTimeout, o.ReadTimeout = time.Second, 3*time.Second
	client := redis.NewClusterClient(&o)
	c.t.Cleanup(func() { client.Close() })
	return client
}

// move moves a slot and the keys in it, as redis-cli --cluster reshard does.
func (c *cluster) move(slot, from, to int) {
	c.t.Helper()
	ctx := context.Background()
	c.do(to, "cluster", "setslot", slot, "importing", c.ids[from])
	c.do(from, "cluster", "setslot", slot, "migrating", c.ids[to])
	for {
		keys := c.admin[from].ClusterGetKeysInSlot(ctx, slot, 10).Val()
		if len(keys) == 0 {
			break
		}
		time.Sleep(time.Millisecond) // so that clients find the key on this node
		args := []any{"migrate", "127.0.0.1", c.nodes[to].port, "", 0, 10000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		c.do(from, args...)
		time.Sleep(2 * time.Millisecond) // and on the other one
	}
	for _, at := range append([]int{to, from}, c.masters()...) {
		c.do(at, "cluster", "setslot", slot, "node", c.ids[to])
	}
}

// slots returns up to n slots of a master, and which of them have keys.
func (c *cluster) slots(master, n int) (withKeys, all []int) {
	ctx := context.Background()
	//lint:ignore SA1019 CLUSTER SHARDS, which is to replace it, needs Redis 7.
	for _, r := range c.admin[master].ClusterSlots(ctx).Val() {
		if len(r.Nodes) > 0 && r.Nodes[0].ID == c.ids[master] {
			for s := r.Start; s <= r.End && len(all) < n; s++ {
				if c.admin[master].ClusterCountKeysInSlot(ctx, s).Val() > 0 {
					withKeys = append(withKeys, s)
				}
				all = append(all, s)
			}
		}
	}
	return withKeys, all
}

// While elements are added and looked up in a cluster of three masters with a replica each, slots
// move, a master is failed over to its replica, and another one is killed. Elements are found from
// the time when they were added, and no caller gets an error.
func TestCluster(t *testing.T) {
	if testing.Short() {
		*clusterElements = min(*clusterElements, 10_000)
	}
	c := newCluster(t, 3, 1)
	ctx := context.Background()
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			total, kill := *clusterElements, true
			if layout == Scattered {
				total, kill = total/4, total >= 1_000_000
			}
			c.t = t
			c.trial(ctx, layout, total, kill)
		})
	}
}

func (c *cluster) trial(ctx context.Context, layout Layout, total int, kill bool) {
	t := c.t
	const workers, part, apart = 8, 100, 1 << 24
	o := Options[string]{Items: uint64(total) + 50_000, FPR: 0.01, Layout: layout, Replicas: 1, ReplicaWait: 500 * time.Millisecond, RetryFor: time.Minute}
	name := "cluster " + layout.String()
	client := c.client(redis.ClusterOptions{})
	f := open(t, client, name, o)

	var added, lookups, falseNegatives atomic.Int64
	var events, load sync.WaitGroup
	var counts [workers]int
	eventsDone := make(chan struct{})
	start := time.Now()
	for w := range workers {
		g := f
		if w%2 == 1 { // a separate client, as in another process
			g = open(t, c.client(redis.ClusterOptions{}), name, o)
		}
		load.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			positive := make([]bool, part)
			for i := 0; ; {
				n := min(part, total/workers-i)
				if n <= 0 { // the load lasts as long as the events
					select {
					case <-eventsDone:
						return
					case <-time.After(10 * time.Millisecond):
						n = 5
					}
				}
				if err := g.AddMany(ctx, members(w*apart+i, n), nil); err != nil {
					t.Errorf("add: %v", err)
					return
				}
				added.Add(int64(n))
				counts[w] = i + n
				vs := make([]string, n) // elements added just now, and earlier
				for j := range vs {
					vs[j] = member(w*apart + r.IntN(i+n))
				}
				vs[0] = member(w*apart + i)
				if err := g.MayContainMany(ctx, vs, positive[:n]); err != nil {
					t.Errorf("lookup: %v", err)
					return
				}
				lookups.Add(int64(n))
				for j, m := range positive[:n] {
					if !m {
						falseNegatives.Add(1)
						t.Errorf("%s is lost", vs[j])
					}
				}
				i += n
			}
		})
	}
	events.Go(func() {
		defer close(eventsDone)
		time.Sleep(200 * time.Millisecond)
		// Slots move, those with shards in them first.
		ms := c.masters()
		moved := 0
		withKeys, all := c.slots(ms[0], 4000)
		for _, s := range withKeys {
			c.move(s, ms[0], ms[1])
			moved++
		}
		for _, s := range all[:100] {
			if c.admin[ms[0]].ClusterCountKeysInSlot(ctx, s).Err() == nil && !contains(withKeys, s) {
				c.move(s, ms[0], ms[2])
				moved++
			}
		}
		t.Logf("%.1fs: %d slots moved, %d with shards", time.Since(start).Seconds(), moved, len(withKeys))
		// A master is failed over.
		to := c.replicaOf(ms[1])
		c.do(to, "cluster", "failover")
		c.until("failed over", func() bool { return c.isMaster(to) && !c.isMaster(ms[1]) })
		t.Logf("%.1fs: a master was failed over", time.Since(start).Seconds())
		c.healthy(1)
		if !kill { // it takes some seconds
			return
		}
		// A master is killed.
		ms = c.masters()
		to = c.replicaOf(ms[0])
		c.nodes[ms[0]].kill()
		c.until("the replica took over", func() bool { return c.isMaster(to) })
		t.Logf("%.1fs: a master was killed and replaced", time.Since(start).Seconds())
		time.Sleep(100 * time.Millisecond)
		c.nodes[ms[0]].start() // as a replica of the new one
		c.healthy(1)
		t.Logf("%.1fs: and started again", time.Since(start).Seconds())
	})
	load.Wait()
	took := time.Since(start)
	events.Wait()

	all := []string{}
	for w, n := range counts {
		all = append(all, members(w*apart, n)...)
	}
	positive := make([]bool, len(all))
	if err := f.MayContainMany(ctx, all, positive); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, m := range positive {
		if !m {
			lost++
		}
	}
	t.Logf("%d added, %d looked up in %.1fs meanwhile and %d at the end: %d and %d false negatives",
		added.Load(), lookups.Load(), took.Seconds(), len(all), falseNegatives.Load(), lost)
	if lost != 0 || falseNegatives.Load() != 0 || added.Load() < int64(total/workers*workers) {
		t.Errorf("%d lost at the end", lost)
	}
	if fpr := fprOf(t, f, 20_000); fpr > 0.0125 {
		t.Errorf("FPR %v", fpr)
	}
	// A rebuild, and Java's filter, in the cluster.
	if err := f.Rebuild(ctx, RebuildOptions{Items: 2000}, source(members(0, 2000))); err != nil {
		t.Fatal(err)
	}
	allKnown(t, f, members(0, 2000))
	j := must(OpenRedisson(ctx, client, "java "+layout.String(), RedissonOptions[string]{Items: 1000, FPR: 0.01}))
	if err := j.AddMany(ctx, members(0, 1000), nil); err != nil {
		t.Fatal(err)
	}
	allKnown(t, j, members(0, 1000))
}

func contains(is []int, v int) bool {
	for _, i := range is {
		if i == v {
			return true
		}
	}
	return false
}
