package siftd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// load is a set of clients that write while the cluster changes.
type load struct {
	t      *testing.T
	c      *redis.ClusterClient
	stop   chan struct{}
	wg     sync.WaitGroup
	acked  [4]int64
	failed atomic.Int64
}

// startLoad starts clients that write ascending numbers to keys of many slots, and add each
// number to a filter.
func startLoad(t *testing.T, c *redis.ClusterClient) *load {
	l := &load{t: t, c: c, stop: make(chan struct{})}
	ctx := t.Context()
	for i := range l.acked {
		l.wg.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				n := l.acked[i] + 1
				err := errors.Join(c.Set(ctx, loadKey(i, n), n, 0).Err(), c.BFAdd(ctx, loadFilter(i, n), n).Err())
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					if !strings.Contains(err.Error(), "UNKNOWN ") { // a leader that is too slow is deposed
						l.failed.Add(1)
					}
					t.Logf("write: %v", err)
					continue // both commands are idempotent
				}
				l.acked[i] = n
			}
		})
	}
	return l
}

func loadKey(client int, n int64) string    { return fmt.Sprintf("key:%d:%d", client, n) }
func loadFilter(client int, n int64) string { return fmt.Sprintf("seen:%d:%d", client, n%16) }

// end stops the clients and checks that all acknowledged writes are there.
func (l *load) end() {
	l.t.Helper()
	close(l.stop)
	l.wg.Wait()
	ctx, total := l.t.Context(), int64(0)
	for i, last := range l.acked {
		total += last
		for n := int64(1); n <= last; n++ {
			if got, err := l.c.Get(ctx, loadKey(i, n)).Int64(); err != nil || got != n {
				l.t.Fatalf("%s is %d, %v", loadKey(i, n), got, err)
			}
			if has, err := l.c.BFExists(ctx, loadFilter(i, n), n).Result(); err != nil || !has {
				l.t.Fatalf("%s has lost %d: %v", loadFilter(i, n), n, err)
			}
		}
	}
	l.t.Logf("%d writes, %d failures", total, l.failed.Load())
	if total == 0 {
		l.t.Error("nothing was written")
	}
}

func clusterClient(t *testing.T, addrs []string) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Password: "secret", MaxRedirects: 200, MaxRetryBackoff: 50 * time.Millisecond,
		DialerRetries: 1, ClusterStateReloadInterval: 100 * time.Millisecond})
	t.Cleanup(func() { c.Close() })
	return c
}

// TestGrow: a cluster of five groups grows from one node to three and five, and shrinks to
// one, while clients write. No write fails for a client that retries idempotent commands, and
// nothing is lost. After each growth the groups are spread evenly.
func TestGrow(t *testing.T) {
	redis.SetLogger(silent{})
	g := newNodes(t, 5, Shape{5, 3})
	g.start(0)
	c := clusterClient(t, g.addrs)
	g.waitPlaced(c, 1)
	l := startLoad(t, c)
	for _, more := range [][]int{{1, 2}, {3, 4}} {
		for _, i := range more {
			g.start(i)
		}
		g.waitPlaced(c, more[1]+1)
		g.even(c, more[1]+1)
	}
	for i, left := range []int{4, 3, 2, 1} { // the first one, which created the cluster, leaves, too
		g.forget(c, i, left)
		g.stop(i)
	}
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d writes failed", n)
	}
	l.end()
	one := redis.NewClient(&redis.Options{Addr: g.addrs[4], Password: "secret"})
	defer one.Close()
	keys := int64(1) // the key of waitPlaced
	for _, n := range l.acked {
		keys += n + min(n, 16)
	}
	if n, err := one.DBSize(t.Context()).Result(); err != nil || n != keys {
		t.Errorf("DBSIZE is %d, %v, want %d", n, err, keys)
	}
	found := map[string]bool{}
	for it := one.Scan(t.Context(), 0, "", 100).Iterator(); it.Next(t.Context()); {
		found[it.Val()] = true
	}
	if int64(len(found)) != keys {
		t.Errorf("SCAN finds %d keys of %d", len(found), keys)
	}
}

// even waits until the numbers of groups that nodes are in, and lead, differ by at most one.
func (g *nodes) even(c *redis.ClusterClient, nodes int) {
	g.t.Helper()
	var last string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		shards, err := c.ClusterShards(g.t.Context()).Result()
		if err != nil {
			continue
		}
		in, leads := map[string]int{}, map[string]int{}
		for _, s := range shards {
			for _, n := range s.Nodes {
				in[n.ID]++
				if n.Role == "master" {
					leads[n.ID]++
				}
			}
		}
		if last = fmt.Sprint(in, leads); len(in) == nodes && len(leads) == nodes && spreadOf(in) < 2 && spreadOf(leads) < 2 {
			return
		}
	}
	g.t.Errorf("the groups are not spread evenly: %s", last)
}

func spreadOf(n map[string]int) int {
	low, high := 1<<30, 0
	for _, v := range n {
		low, high = min(low, v), max(high, v)
	}
	return high - low
}

// TestMoved: to clients that use it directly, a node replies MOVED with the leader's address for
// keys whose group it does not lead, and CROSSSLOT for keys in several slots. DBSIZE counts the
// keys of the groups that it leads.
func TestMoved(t *testing.T) {
	redis.SetLogger(silent{})
	g := newNodes(t, 3, Shape{4, 2})
	for i := range 3 {
		g.start(i)
	}
	c := clusterClient(t, g.addrs)
	g.waitPlaced(c, 3)
	ctx := t.Context()
	g.even(c, 3) // leaders no longer move
	waitUntil(t, "all nodes report the same leaders", func() bool {
		var first string
		for _, addr := range g.addrs {
			one := redis.NewClient(&redis.Options{Addr: addr, Password: "secret", MaxRetries: -1})
			shards, err := one.ClusterShards(ctx).Result()
			one.Close()
			leaders := ""
			for _, s := range shards {
				leaders += s.Nodes[0].ID
			}
			if first == "" {
				first = leaders
			}
			if err != nil || leaders == "" || leaders != first {
				return false
			}
		}
		return true
	})
	//lint:ignore SA1019 clients use it
	slots, err := c.ClusterSlots(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	leader := func(slot int64) string {
		for _, s := range slots {
			if int64(s.Start) <= slot && slot <= int64(s.End) {
				return s.Nodes[0].Addr
			}
		}
		return ""
	}
	moved := 0
	for _, addr := range g.addrs {
		one := redis.NewClient(&redis.Options{Addr: addr, Password: "secret", MaxRetries: -1})
		defer one.Close()
		for i := range 16 {
			key := "key" + strconv.Itoa(i)
			slot := one.ClusterKeySlot(ctx, key).Val()
			err, want := one.Set(ctx, key, i, 0).Err(), ""
			if leader(slot) != addr {
				want = fmt.Sprintf("MOVED %d %s", slot, leader(slot))
				moved++
			}
			if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
				t.Errorf("%s: %v, want %q", key, err, want)
			}
		}
		// These have slots in two groups, and in one.
		for _, keys := range [][2]string{{"a", "b"}, {"{a}1", "b"}} {
			if err := one.MSet(ctx, keys[0], 1, keys[1], 2).Err(); err == nil || !strings.HasPrefix(err.Error(), "CROSSSLOT ") {
				t.Errorf("MSET of %v: %v", keys, err)
			}
		}
	}
	if moved == 0 {
		t.Error("one node leads everything")
	}
	if _, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "{a}1", 1, 0)
		p.Incr(ctx, "{a}1")
		return nil
	}); err != nil {
		t.Errorf("transaction: %v", err)
	}
	total := int64(0)
	c.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		n, err := one.DBSize(ctx).Result()
		atomic.AddInt64(&total, n)
		return err
	})
	if total != 18 { // 16, the key of waitPlaced, and {a}1
		t.Errorf("DBSIZE adds up to %d", total)
	}
}
