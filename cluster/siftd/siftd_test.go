package siftd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/redis/go-redis/v9"

	"github.com/siftdb/sift/cluster"
	"github.com/siftdb/sift/cluster/internal/testca"
)

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// nodes are the nodes of a test, with TLS between them and a password for clients.
type nodes struct {
	t         *testing.T
	dir       string
	authority *testca.Authority
	addrs     []string // for clients
	raft      []string
	running   []*Node
	shape     Shape
	config    *raft.Config // nil: the default
}

func newNodes(t *testing.T, n int, shape Shape) *nodes {
	t.Helper()
	g := &nodes{t: t, shape: shape, dir: t.TempDir(), authority: testca.New(t), running: make([]*Node, n)}
	for range n {
		for _, to := range []*[]string{&g.addrs, &g.raft} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			*to = append(*to, l.Addr().String())
		}
	}
	t.Cleanup(func() {
		for i := range g.running {
			g.stop(i)
		}
	})
	return g
}

func (g *nodes) start(i int) {
	g.t.Helper()
	cfg := Config{
		Dir: filepath.Join(g.dir, g.addrs[i]), Addr: g.addrs[i], RaftAddr: g.raft[i], Init: i == 0, Shape: g.shape, Password: "secret", Join: g.addrs[:1],
		Raft: g.config, Peers: &cluster.TLS{Certificate: g.authority.Sign(g.t, "127.0.0.1"), Authority: g.authority.Pool}, HTTPAddr: "127.0.0.1:0",
	}
	if cfg.Init {
		cfg.Join = nil
	}
	n, err := Start(cfg)
	// While a node is not running, a connection of another process may have its port for a while.
	for begin := time.Now(); errors.Is(err, syscall.EADDRINUSE) && time.Since(begin) < time.Minute; time.Sleep(100 * time.Millisecond) {
		n, err = Start(cfg)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	g.running[i] = n
}

func (g *nodes) stop(i int) {
	if n := g.running[i]; n != nil {
		g.running[i] = nil
		if err := n.Close(); err != nil {
			g.t.Errorf("node %d: %v", i, err)
		}
	}
}

// waitPlaced waits until there are want nodes, each group has all its members, and a write
// succeeds.
func (g *nodes) waitPlaced(c *redis.ClusterClient, want int) {
	g.t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = c.Set(g.t.Context(), "quiesced", 1, 0).Err(); err == nil {
			if err = g.checkPlaced(c, want); err == nil {
				return
			}
		}
	}
	g.t.Fatalf("the groups are not placed on %d nodes within a minute: %v", want, err)
}

func (g *nodes) checkPlaced(c *redis.ClusterClient, want int) error {
	nodes, err := c.ClusterNodes(g.t.Context()).Result()
	if err != nil {
		return err
	}
	if n := strings.Count(nodes, "\n"); n != want {
		return fmt.Errorf("%d nodes", n)
	}
	shards, err := c.ClusterShards(g.t.Context()).Result()
	if err == nil && len(shards) != g.shape.Groups {
		err = fmt.Errorf("%d groups", len(shards))
	}
	for _, s := range shards {
		if len(s.Nodes) != min(want, g.shape.Replicas) {
			err = fmt.Errorf("%v", s)
		}
	}
	return err
}

// leads returns the address of the leader of the first group.
func (g *nodes) leads(c *redis.ClusterClient) string {
	g.t.Helper()
	shards, err := c.ClusterShards(g.t.Context()).Result()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, n := range shards[0].Nodes {
		if n.Role == "master" {
			return net.JoinHostPort(n.Endpoint, strconv.FormatInt(n.Port, 10))
		}
	}
	g.t.Fatalf("no node leads: %v", shards)
	return ""
}

// forget makes a node leave, and waits until it has left.
func (g *nodes) forget(c *redis.ClusterClient, i, left int) {
	g.t.Helper()
	if err := c.Do(g.t.Context(), "CLUSTER", "FORGET", g.running[i].ID()).Err(); err != nil {
		g.t.Errorf("forget: %v", err)
	}
	g.waitPlaced(c, left)
}

// patientRaft keeps leaders on a busy machine: a deposed one would reply UNKNOWN.
func patientRaft() *raft.Config {
	c := Raft()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 2*time.Second, 2*time.Second, 2*time.Second
	return c
}

// TestMembership: nodes join, are restarted, lead, and are removed, while clients write. No
// write fails for a client that retries idempotent commands, and nothing is lost: a node
// transfers its leadership before it stops.
func TestMembership(t *testing.T) {
	redis.SetLogger(silent{})
	g := newNodes(t, 4, Shape{1, 4})
	g.config = patientRaft()
	for i := range 3 {
		g.start(i)
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: g.addrs, Password: "secret", MaxRedirects: 100, MaxRetryBackoff: 50 * time.Millisecond,
		DialerRetries: 1, ClusterStateReloadInterval: 100 * time.Millisecond})
	defer c.Close()
	g.waitPlaced(c, 3)
	ctx := t.Context()
	stop := make(chan struct{})
	var acked [4]int64
	var failed atomic.Int64
	var wg sync.WaitGroup
	for i := range acked {
		wg.Go(func() {
			counter := string(rune('a' + i))
			for {
				select {
				case <-stop:
					return
				default:
				}
				// All of these are idempotent.
				if err := c.Set(ctx, counter, acked[i]+1, 0).Err(); err != nil {
					failed.Add(1)
					t.Logf("write: %v", err)
				} else {
					acked[i]++
				}
				if err := c.BFAdd(ctx, "seen", acked[i]).Err(); err != nil {
					failed.Add(1)
					t.Logf("filter: %v", err)
				}
				if err := g.transact(c, "{tx}"+counter, acked[i]); err != nil {
					failed.Add(1)
					t.Logf("transaction: %v", err)
				}
			}
		})
	}
	g.start(3)
	g.waitPlaced(c, 4)
	for i := range 4 {
		g.stop(i)
		g.start(i)
		g.waitPlaced(c, 4)
	}
	for _, addr := range g.addrs { // only the one that leads can transfer leadership
		one := redis.NewClient(&redis.Options{Addr: addr, Password: "secret"})
		if err := one.Do(ctx, "CLUSTER", "FAILOVER", g.running[2].ID()).Err(); err != nil && err.Error() != "ERR the node leads no group" {
			t.Errorf("failover: %v", err)
		}
		one.Close()
		g.waitPlaced(c, 4)
	}
	leads := g.leads(c)
	if leads != g.addrs[2] {
		t.Errorf("after the failover %s leads", leads)
	}
	leader := redis.NewClient(&redis.Options{Addr: leads, Password: "secret"})
	defer leader.Close()
	gone := 0
	for g.addrs[gone] == leads {
		gone++
	}
	g.forget(c, gone, 3)
	g.stop(gone)
	close(stop)
	wg.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d writes failed", n)
	}
	total := int64(0)
	for i, n := range acked {
		total += n
		if got, err := c.Get(ctx, string(rune('a'+i))).Int64(); err != nil || got != n {
			t.Errorf("counter %d is %d, %v; %d was acknowledged", i, got, err, n)
		}
		for v := int64(1); v <= n; v++ {
			if has, err := c.BFExists(ctx, "seen", v).Result(); err != nil || !has {
				t.Fatalf("the filter has lost %d: %v", v, err)
			}
		}
	}
	t.Logf("%d writes", total)
	if n, err := leader.Wait(ctx, 2, 10*time.Second).Result(); err != nil || n != 2 {
		t.Errorf("WAIT: %d, %v", n, err)
	}
	g.pages(leads)
}

// transact sets a key and reads it in one transaction, and retries while connections break
// or the reply means that nothing was done. A node that stops in an orderly way never
// replies UNKNOWN.
func (g *nodes) transact(c *redis.ClusterClient, key string, v int64) error {
	for {
		var got *redis.StringCmd
		_, err := c.TxPipelined(g.t.Context(), func(p redis.Pipeliner) error {
			p.Set(g.t.Context(), key, v, 0)
			got = p.Get(g.t.Context(), key)
			return nil
		})
		switch {
		case err == nil && got.Val() != strconv.FormatInt(v, 10):
			return fmt.Errorf("%q, want %d", got.Val(), v)
		case err == nil || !again(err):
			return err
		}
	}
}

// again reports whether an idempotent command should be retried after err.
func again(err error) bool {
	for _, prefix := range []string{"MOVED ", "CLUSTERDOWN ", "EXECABORT "} {
		if strings.HasPrefix(err.Error(), prefix) {
			return true
		}
	}
	opErr := (*net.OpError)(nil)
	return errors.Is(err, io.EOF) || errors.As(err, &opErr)
}

// pages checks the status page and the metrics of a node.
func (g *nodes) pages(addr string) {
	g.t.Helper()
	for i, n := range g.running {
		if g.addrs[i] != addr || n == nil {
			continue
		}
		for path, want := range map[string][]string{"/": {"Group", "entries behind", "this one", "0-16383"}, "/metrics": {"sift_group_nodes 3", `sift_shard_leads{slots="0-16383"} 1`, `sift_shard_nodes{slots="0-16383"} 3`, "sift_shard_lag_entries"}} {
			req, _ := http.NewRequest("GET", "http://"+n.HTTPAddr()+path, nil)
			req.SetBasicAuth("", "secret")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				g.t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			for _, text := range want {
				if !strings.Contains(string(body), text) {
					g.t.Errorf("%s has no %q", path, text)
				}
			}
		}
	}
}

// TestStrangers: a node without a certificate, or with another authority's, is rejected.
func TestStrangers(t *testing.T) {
	g := newNodes(t, 2, Shape{1, 2})
	g.start(0)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: g.addrs[:1], Password: "secret", MaxRedirects: 100, MaxRetryBackoff: 50 * time.Millisecond})
	defer c.Close()
	g.waitPlaced(c, 1)
	other := testca.New(t)
	for name, config := range map[string]*tls.Config{
		"without a certificate":    {RootCAs: g.authority.Pool},
		"with another authority's": {RootCAs: g.authority.Pool, Certificates: []tls.Certificate{other.Sign(t, "127.0.0.1")}},
	} {
		conn, err := tls.Dial("tcp", g.raft[0], config)
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 the client learns of it here
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "certificate") && !strings.Contains(err.Error(), "unknown") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", RaftAddr: ":0", Init: true}); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("a port that is not on loopback: %v", err)
	}
	if _, err := Start(Config{Dir: t.TempDir(), Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty directory without Init or Join: %v", err)
	}
}
