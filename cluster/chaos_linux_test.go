package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// chaos is a group of three processes of siftd, and a fourth that joins and leaves, to which
// everything happens at once.
type chaos struct {
	t       *testing.T
	exe     string
	dir     string
	addrs   []string // for clients
	raft    []string
	net     *proxies
	clients []*redis.Client
	small   bool // node 2 is on a file system of its own
	stop    chan struct{}

	mu      sync.Mutex
	running []*chaosNode // nil while stopped

	events sync.Map // what happened, *atomic.Int64 by name
}

type chaosNode struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

const spare = 3

var chaotic = flag.Duration("cluster.chaos", 0, "how long TestChaos lasts; 0: it is skipped")

func newChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{t: t, dir: t.TempDir(), stop: make(chan struct{}), running: make([]*chaosNode, spare+1)}
	c.build()
	for range c.running {
		for _, to := range []*[]string{&c.addrs, &c.raft} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			*to = append(*to, l.Addr().String())
		}
	}
	for i, addr := range c.addrs {
		client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
			DialTimeout: 300 * time.Millisecond})
		t.Cleanup(func() { client.Close() })
		c.clients = append(c.clients, client)
		if err := os.Mkdir(c.data(i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// A full disk takes a file system that can be filled.
	if err := syscall.Mount("tmpfs", c.data(2), "tmpfs", 0, "size=400m"); err == nil {
		c.small = true
		t.Cleanup(func() { syscall.Unmount(c.data(2), syscall.MNT_DETACH) })
	} else {
		t.Log("no full disks: ", err)
	}
	c.net = newProxies(t, c.raft, func(i int) int {
		if n := c.node(i); n != nil {
			return n.cmd.Process.Pid
		}
		return 0
	})
	t.Cleanup(func() {
		for i := range c.running {
			c.kill(i)
		}
	})
	return c
}

// build makes a siftd whose clock is set by a file.
func (c *chaos) build() {
	source, err := filepath.Abs("../internal/serve/keyspace.go")
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		c.t.Fatal(err)
	}
	const clock = "time.Now().UnixMilli(), clockFloor"
	if strings.Count(string(text), clock) != 1 {
		c.t.Fatal("nowMs reads the clock in another way than this test knows")
	}
	changed := filepath.Join(c.dir, "keyspace.go")
	clocked := strings.Replace(string(text), clock, "time.Now().UnixMilli()+clockSkew.Load(), clockFloor", 1)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed, filepath.Join(filepath.Dir(source), "clockskew.go"): filepath.Join(c.dir, "clockskew.go")}})
	if err != nil {
		c.t.Fatal(err)
	}
	for path, content := range map[string]string{changed: clocked, filepath.Join(c.dir, "clockskew.go"): clockSkew, filepath.Join(c.dir, "overlay.json"): string(overlay)} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	c.exe = filepath.Join(c.dir, "siftd")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(c.dir, "overlay.json"), "-o", c.exe, "./cmd/siftd").CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
}

// clockSkew is added to the server's code.
const clockSkew = `package serve

import (
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

var clockSkew atomic.Int64 // ms

func init() {
	read := func() {
		text, _ := os.ReadFile(os.Getenv("CLOCK"))
		if ms, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			clockSkew.Store(ms)
		}
	}
	read()
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			read()
		}
	}()
}
`

func (c *chaos) data(i int) string  { return filepath.Join(c.dir, fmt.Sprint("n", i)) }
func (c *chaos) clock(i int) string { return filepath.Join(c.dir, fmt.Sprint("clock", i)) }

func (c *chaos) node(i int) *chaosNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[i]
}

// start starts a node unless it runs.
func (c *chaos) start(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.running[i]; n != nil {
		select {
		case <-n.done:
			c.happened("node ended by itself")
		default:
			return nil
		}
	}
	args := []string{"--data", c.data(i), "--listen", c.addrs[i], "--raft", c.raft[i], "--raft-announce", c.net.addrs[i], "--snapshot-entries", "200"}
	if i == 0 {
		args = append(args, "--init")
	} else {
		args = append(args, "--join", strings.Join(c.addrs[:spare], ","))
	}
	n := &chaosNode{exec.Command(c.exe, args...), make(chan struct{})}
	n.cmd.Env = append(os.Environ(), "CLOCK="+c.clock(i))
	if err := n.cmd.Start(); err != nil {
		return err
	}
	go func() {
		n.cmd.Wait()
		close(n.done)
	}()
	c.running[i] = n
	return nil
}

func (c *chaos) kill(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.running[i]; n != nil {
		n.cmd.Process.Kill()
		<-n.done
		c.running[i] = nil
	}
}

func (c *chaos) happened(what string) {
	n, _ := c.events.LoadOrStore(what, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// pause waits from least to most, and reports whether the chaos goes on.
func (c *chaos) pause(rng *rand.Rand, least, most time.Duration) bool {
	select {
	case <-time.After(least + time.Duration(rng.Int64N(int64(most-least)))):
		return true
	case <-c.stop:
		return false
	}
}

// leads returns which node leads, as one of them says, -1 if none does.
func (c *chaos) leads() int {
	for _, client := range c.clients {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		nodes, err := client.ClusterNodes(ctx).Result()
		cancel()
		if err != nil {
			continue
		}
		for line := range strings.Lines(nodes) {
			if f := strings.Fields(line); len(f) > 2 && strings.Contains(f[2], "master") {
				addr, _, _ := strings.Cut(f[1], "@")
				return slices.Index(c.addrs, addr)
			}
		}
	}
	return -1
}

// partitions cuts the network in one way after another.
func (c *chaos) partitions(rng *rand.Rand) error {
	for c.pause(rng, 200*time.Millisecond, 1500*time.Millisecond) {
		i := rng.IntN(spare)
		j := (i + 1 + rng.IntN(spare-1)) % spare
		var cut [][2]int
		switch rng.IntN(5) {
		case 0:
			cut = [][2]int{{i, j}, {j, i}}
			c.happened("two nodes parted")
		case 1:
			cut = [][2]int{{i, j}}
			c.happened("one direction cut")
		case 2:
			if leader := c.leads(); leader >= 0 {
				i = leader
			}
			cut = c.around(i, true, true)
			c.happened("leader isolated")
		case 3:
			cut = c.around(i, true, false)
			c.happened("node not heard")
		case 4:
			cut = c.around(i, false, true)
			c.happened("node hears nobody")
		}
		c.net.set(cut...)
		c.pause(rng, 300*time.Millisecond, 2500*time.Millisecond)
		c.net.set()
	}
	return nil
}

// around returns the directions from and to a node.
func (c *chaos) around(i int, from, to bool) (cut [][2]int) {
	for j := range c.addrs {
		if j != i && from {
			cut = append(cut, [2]int{i, j})
		}
		if j != i && to {
			cut = append(cut, [2]int{j, i})
		}
	}
	return cut
}

// processes kills nodes and stops them for a while.
func (c *chaos) processes(rng *rand.Rand) error {
	for c.pause(rng, 500*time.Millisecond, 2500*time.Millisecond) {
		i := rng.IntN(spare)
		switch rng.IntN(4) {
		case 0, 1:
			c.kill(i)
			c.happened("kill -9")
			c.pause(rng, 100*time.Millisecond, 1500*time.Millisecond)
		case 2:
			for j := range spare {
				c.kill(j)
			}
			c.happened("kill -9 of all")
		case 3:
			if n := c.node(i); n != nil {
				n.cmd.Process.Signal(syscall.SIGSTOP) // fails if it has ended
				c.happened("SIGSTOP")
				c.pause(rng, 200*time.Millisecond, 3*time.Second)
				n.cmd.Process.Signal(syscall.SIGCONT)
			}
		}
		for j := range spare {
			if err := c.start(j); err != nil {
				return err
			}
		}
	}
	return nil
}

// membership has a node join the group with an empty directory, and removes it.
func (c *chaos) membership(rng *rand.Rand) error {
	for c.pause(rng, 500*time.Millisecond, 2*time.Second) {
		if err := c.start(spare); err != nil {
			return err
		}
		var id string
		for id == "" && c.pause(rng, 20*time.Millisecond, 50*time.Millisecond) {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			id, _ = c.clients[spare].Do(ctx, "CLUSTER", "MYID").Text()
			cancel()
		}
		for range 100 {
			if c.lists(id) || !c.pause(rng, 20*time.Millisecond, 50*time.Millisecond) {
				break
			}
		}
		if c.lists(id) {
			c.happened("node joined with a vote")
			c.pause(rng, 200*time.Millisecond, 3*time.Second)
		}
		if rng.IntN(2) == 0 {
			c.kill(spare)
		}
		for !c.forget(id) {
			if !c.pause(rng, 50*time.Millisecond, 200*time.Millisecond) {
				return nil
			}
		}
		c.happened("node removed")
		c.kill(spare)
		if err := errors.Join(os.RemoveAll(c.data(spare)), os.Mkdir(c.data(spare), 0o755)); err != nil {
			return err
		}
	}
	return nil
}

// lists reports whether a node is one with a vote, as the leader says.
func (c *chaos) lists(id string) bool {
	i := c.leads()
	if i < 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	nodes, err := c.clients[i].ClusterNodes(ctx).Result()
	return err == nil && strings.Contains(nodes, id)
}

// forget removes a node, and reports whether the leader says that it is gone.
func (c *chaos) forget(id string) bool {
	i := c.leads()
	if i < 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err := c.clients[i].Do(ctx, "CLUSTER", "FORGET", id).Err()
	if err != nil && strings.Contains(err.Error(), "the leader stays") {
		c.clients[i].Do(ctx, "CLUSTER", "FAILOVER")
	}
	return err == nil || strings.Contains(err.Error(), "unknown node")
}

// fullDisk fills the file system of node 2.
func (c *chaos) fullDisk(rng *rand.Rand) error {
	for c.small && c.pause(rng, time.Second, 5*time.Second) {
		ballast := filepath.Join(c.data(2), "ballast")
		f, err := os.Create(ballast)
		if err != nil {
			continue // there is no room for a name
		}
		chunk := make([]byte, 64<<10)
		for err == nil {
			_, err = f.Write(chunk)
		}
		f.Close()
		c.happened("disk full")
		c.pause(rng, 500*time.Millisecond, 3*time.Second)
		if err := os.Remove(ballast); err != nil {
			return err
		}
	}
	return nil
}

// clocks sets the clocks of nodes, by up to ten seconds.
func (c *chaos) clocks(rng *rand.Rand) error {
	for c.pause(rng, 200*time.Millisecond, 2*time.Second) {
		path := c.clock(rng.IntN(len(c.addrs)))
		if err := os.WriteFile(path+".new", fmt.Append(nil, rng.IntN(20_000)-10_000), 0o644); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
		c.happened("clock set")
	}
	return nil
}

// ask tries a command on one node after another until the test ends or one answers.
func (c *chaos) ask(args ...any) (any, error) {
	var reply any
	err := errors.New("nobody was asked")
	for i := range spare {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		reply, err = c.clients[i].Do(ctx, args...).Result()
		cancel()
		if err == nil || err == redis.Nil {
			return reply, nil
		}
	}
	return nil, err
}

// filters adds items, and asks for those that were acknowledged: they are there, always.
func (c *chaos) filters(rng *rand.Rand, name string) (asked int, err error) {
	filter := "f" + name
	var acked []string
	exists := func(item string) (bool, error) {
		reply, err := c.ask("BF.EXISTS", filter, item)
		return err == nil && reply != int64(1), err
	}
	for i := 0; c.pause(rng, 0, 2*time.Millisecond); i++ {
		item := strconv.Itoa(i)
		if _, err := c.ask("BF.ADD", filter, item); err == nil {
			acked = append(acked, item)
		}
		if len(acked) == 0 {
			continue
		}
		item = acked[rng.IntN(len(acked))]
		if missing, err := exists(item); missing {
			return asked, fmt.Errorf("filter %s has lost %s, which was acknowledged", filter, item)
		} else if err == nil {
			asked++
		}
	}
	for _, item := range acked {
		missing, err := exists(item)
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			missing, err = exists(item)
		}
		if missing || err != nil {
			return asked, fmt.Errorf("in the end filter %s has lost %s, which was acknowledged, %w", filter, item, err)
		}
		asked++
	}
	return asked, nil
}

// expiring sets keys that expire. One that was seen to be gone stays so.
func (c *chaos) expiring(rng *rand.Rand, name string) (keys int, err error) {
	for i := 0; c.pause(rng, 0, 2*time.Millisecond); i++ {
		key := fmt.Sprintf("e%s.%d", name, i)
		at := time.Now().UnixMilli() + rng.Int64N(2000)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		err := c.clients[i%spare].Do(ctx, "SET", key, "v", "PXAT", at).Err()
		if cancel(); err != nil {
			continue // it may come later
		}
		gone := false
		for range 40 {
			reply, err := c.ask("GET", key)
			if err == nil && reply != nil && gone {
				return keys, fmt.Errorf("%s had expired, and is there again", key)
			}
			gone = gone || err == nil && reply == nil
			if !c.pause(rng, 0, 100*time.Millisecond) {
				break
			}
		}
		if gone {
			keys++
		}
	}
	return keys, nil
}

// TestChaos: partitions, kill -9, pauses, changes of the membership, full disks and clocks
// that jump, all at once. What clients see is linearizable, what was acknowledged stays.
func TestChaos(t *testing.T) {
	if *chaotic == 0 {
		t.Skip("-cluster.chaos sets how long it takes")
	}
	redis.SetLogger(silent{})
	c := newChaos(t)
	for i := range spare {
		if err := c.start(i); err != nil {
			t.Fatal(err)
		}
	}
	var members []member
	for _, client := range c.clients {
		members = append(members, wire{client})
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		shards, err := c.clients[0].ClusterShards(t.Context()).Result()
		if err == nil && len(shards) == 1 && len(shards[0].Nodes) == spare {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no group within a minute: %v, %v", shards, err)
		}
	}
	var troubles, users sync.WaitGroup
	for i, f := range []func(*rand.Rand) error{c.partitions, c.processes, c.membership, c.fullDisk, c.clocks} {
		troubles.Go(func() {
			if err := f(rand.New(rand.NewPCG(*seed, uint64(100+i)))); err != nil {
				t.Error(err)
			}
		})
	}
	r := &recorder{seed: *seed, members: func() []member { return members }}
	users.Go(func() { r.run(5, c.stop) })
	var asked, expired atomic.Int64
	for i := range 3 {
		rng := rand.New(rand.NewPCG(*seed, uint64(200+i)))
		users.Go(func() {
			n, err := c.filters(rng, strconv.Itoa(i))
			if asked.Add(int64(n)); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 5 {
		rng := rand.New(rand.NewPCG(*seed, uint64(300+i)))
		users.Go(func() {
			n, err := c.expiring(rng, strconv.Itoa(i))
			if expired.Add(int64(n)); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(*chaotic)
	close(c.stop)
	troubles.Wait()
	c.net.set()
	for i := range spare {
		if err := c.start(i); err != nil {
			t.Fatal(err)
		}
	}
	users.Wait()
	lists := map[string]string{}
	for key := range r.acked {
		lists[key] = finally(t, members[:spare], key)
	}
	for _, n := range c.running[:spare] {
		select {
		case <-n.done:
			t.Error("a node has ended by itself, in peace")
		default:
		}
	}
	acked := 0
	for _, tokens := range r.acked {
		acked += len(tokens)
	}
	t.Logf("%v; %d acknowledged appends; %d questions to filters; %d keys seen to expire", r, acked, asked.Load(), expired.Load())
	var what []string
	c.events.Range(func(name, n any) bool {
		what = append(what, fmt.Sprintf("%s %d", name, n.(*atomic.Int64).Load()))
		return true
	})
	slices.Sort(what)
	t.Log(strings.Join(what, ", "))
	if acked == 0 {
		t.Error("nothing was acknowledged")
	}
	if err := r.check(lists); err != nil {
		t.Error(err)
	}
}
