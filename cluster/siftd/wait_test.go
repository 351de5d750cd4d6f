package siftd

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestWait: WAIT returns how many other nodes have earlier writes on disk, in all groups that the
// node leads, and respects its timeout.
func TestWait(t *testing.T) {
	redis.SetLogger(silent{})
	g := newNodes(t, 3, Shape{4, 3})
	for i := range 3 {
		g.start(i)
	}
	c := clusterClient(t, g.addrs)
	g.waitPlaced(c, 3)
	g.even(c, 3)
	ctx := t.Context()
	one := redis.NewClient(&redis.Options{Addr: g.addrs[0], Password: "secret", MaxRetries: -1, ReadTimeout: time.Minute})
	defer one.Close()
	// wait returns the reply of WAIT after writes to all groups, and how long it took. It checks
	// that the nodes that were counted have the logs of all groups that the node leads.
	wait := func(want int, most time.Duration) (int64, time.Duration) {
		t.Helper()
		for i := range 50 {
			if err := c.Set(ctx, fmt.Sprint("key", i), i, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		wrote := map[int]uint64{}
		for _, r := range g.running[0].replicaList() {
			if r.leads() {
				wrote[r.shard] = r.node.Raft().LastIndex()
			}
		}
		start := time.Now()
		n, err := one.Wait(ctx, want, most).Result()
		took := time.Since(start)
		if err != nil {
			t.Fatal(err)
		}
		for shard, index := range wrote {
			have := int64(0)
			for _, other := range g.running[1:] {
				if other != nil && other.replica(shard).node.Raft().LastIndex() >= index {
					have++
				}
			}
			if have < n {
				t.Errorf("WAIT returns %d, but group %d is on %d", n, shard, have)
			}
		}
		if len(wrote) == 0 {
			t.Error("the node leads nothing")
		}
		return n, took
	}
	if n, took := wait(2, 30*time.Second); n != 2 || took > 25*time.Second {
		t.Errorf("%d nodes have all after %v", n, took)
	}
	g.stop(2)
	for g.checkPlaced(c, 3) != nil { // until the groups that it led have new leaders
		time.Sleep(20 * time.Millisecond)
	}
	for end := time.Now().Add(time.Minute); ; {
		n, took := wait(2, 300*time.Millisecond)
		if n > 1 || took < 300*time.Millisecond {
			t.Errorf("with one node away, %d have all after %v", n, took)
		}
		if n == 1 {
			break
		}
		if time.Now().After(end) { // on a busy machine the other one may take longer than 300 ms, but not every time
			t.Fatalf("with one node away, %d have all", n)
		}
	}
	if n, took := wait(1, 30*time.Second); n != 1 || took > 25*time.Second {
		t.Errorf("with one node away, %d have all after %v, and one was enough", n, took)
	}
	g.start(2)
	if n, _ := wait(2, 30*time.Second); n != 2 {
		t.Errorf("%d nodes have all after the third has come back", n)
	}
}

// TestWaitHungUp: a WAIT without a limit ends when its client hangs up.
func TestWaitHungUp(t *testing.T) {
	redis.SetLogger(silent{})
	n := startAt(t, Config{Dir: t.TempDir(), Init: true, Shape: Shape{1, 3}})
	waitUntil(t, "the node leads", func() bool { return n.replica(0).leads() })
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), Password: "secret"})
	defer c.Close()
	waiting := func() int {
		return strings.Count(c.ClientList(t.Context()).Val(), "cmd=wait ")
	}
	for range 5 {
		conn, err := net.Dial("tcp", n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("AUTH secret\r\nWAIT 1 0\r\n")); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "WAIT is in progress", func() bool { return waiting() == 1 })
		conn.Close()
		waitUntil(t, "WAIT has ended", func() bool { return waiting() == 0 })
	}
}
