package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
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

	"github.com/siftdb/sift/cluster/internal/durable"
)

// chaos is a cluster of three siftd processes, and a fourth that joins and leaves, which suffers
// all faults at once. The keys are divided among several groups.
type chaos struct {
	t       *testing.T
	exe     string
	dir     string
	addrs   []string // for clients
	raft    []string
	net     *proxies
	clients []*redis.Client
	small   bool // the frail node has its own small file system
	stop    chan struct{}

	mu      sync.Mutex
	running []*chaosNode // nil while stopped

	believe []string // how long each node believes that it leads without hearing from others; "" for the default

	events sync.Map // what happened, *atomic.Int64 by name
}

type chaosNode struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

const (
	frail       = 2 // the node whose disk fails or is full
	spare       = 3 // the one that joins and leaves
	chaosGroups = 5
)

var chaotic = flag.Duration("cluster.chaos", 0, "how long TestChaos lasts; 0: it is skipped")

func newChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{t: t, dir: t.TempDir(), stop: make(chan struct{}), running: make([]*chaosNode, spare+1), believe: make([]string, spare+1)}
	c.exe = filepath.Join(c.dir, "siftd")
	buildFrail(t, c.exe)
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
	// A full disk needs a file system that can be filled.
	if err := syscall.Mount("tmpfs", c.data(frail), "tmpfs", 0, "size=400m"); err == nil {
		c.small = true
		t.Cleanup(func() { syscall.Unmount(c.data(frail), syscall.MNT_DETACH) })
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
		if t.Failed() {
			c.tell()
		}
		for i := range c.running {
			c.kill(i)
		}
	})
	return c
}

// tell logs the end of each node's log, and its goroutines.
func (c *chaos) tell() {
	for i := range c.running {
		text, _ := os.ReadFile(c.said(i)) // some never ran
		c.t.Logf("node %d at %s, which others reach at %s; the end of its log:\n%s", i, c.addrs[i], c.net.addrs[i], text[max(0, len(text)-60_000):])
		if n := c.node(i); n != nil {
			n.cmd.Process.Signal(syscall.SIGQUIT)
			<-n.done
		}
		all, _ := os.ReadFile(c.said(i))
		c.t.Logf("the goroutines of node %d:\n%s", i, all[max(len(text), len(all)-20_000):])
	}
}

func (c *chaos) data(i int) string  { return filepath.Join(c.dir, fmt.Sprint("n", i)) }
func (c *chaos) clock(i int) string { return filepath.Join(c.dir, fmt.Sprint("clock", i)) }
func (c *chaos) said(i int) string  { return filepath.Join(c.dir, fmt.Sprint("said", i)) }
func (c *chaos) disk(i int) string  { return filepath.Join(c.dir, fmt.Sprint("disk", i)) }

func (c *chaos) node(i int) *chaosNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[i]
}

// start starts a node unless it is running.
func (c *chaos) start(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.running[i]; n != nil {
		select {
		case <-n.done:
			c.happened("node exited by itself")
		default:
			return nil
		}
	}
	args := []string{"--data", c.data(i), "--listen", c.addrs[i], "--raft", c.raft[i], "--raft-announce", c.net.addrs[i], "--snapshot-entries", "200", "--snapshot-interval", "500ms"}
	if i == 0 {
		args = append(args, "--init", "--groups", fmt.Sprint(chaosGroups))
	} else {
		args = append(args, "--join", strings.Join(c.addrs[:spare], ","))
	}
	n := &chaosNode{exec.Command(c.exe, args...), make(chan struct{})}
	n.cmd.Env = append(os.Environ(), "CLOCK="+c.clock(i), "DISK="+c.disk(i), "BELIEVE="+c.believe[i])
	said, err := os.OpenFile(c.said(i), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer said.Close()
	n.cmd.Stderr = said
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

// startAll starts the nodes, and waits until all are in all groups and each leads some.
func (c *chaos) startAll() {
	c.t.Helper()
	for i := range spare {
		if err := c.start(i); err != nil {
			c.t.Fatal(err)
		}
	}
	eventually(c.t, func() error {
		hosts, leaders := c.hosts(c.clients[0])
		for i := range spare {
			if hosts[i] != chaosGroups || !slices.Contains(leaders, i) {
				return fmt.Errorf("the nodes are in %v groups, which are led by %v", hosts, leaders)
			}
		}
		return nil
	})
}

// hosts returns, according to one node, how many groups each node is in, and which node leads each
// group, -1 if none does.
func (c *chaos) hosts(client *redis.Client) (in [spare + 1]int, leaders []int) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	shards, err := client.ClusterShards(ctx).Result()
	if err != nil {
		return in, nil
	}
	for _, s := range shards {
		leader := -1
		for _, n := range s.Nodes {
			i := slices.Index(c.addrs, net.JoinHostPort(n.IP, fmt.Sprint(n.Port)))
			if i < 0 {
				continue
			}
			if in[i]++; n.Role == "master" {
				leader = i
			}
		}
		leaders = append(leaders, leader)
	}
	return in, leaders
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

func (c *chaos) happened(what string) { c.count(what, 1) }

func (c *chaos) count(what string, n int) {
	sum, _ := c.events.LoadOrStore(what, new(atomic.Int64))
	sum.(*atomic.Int64).Add(int64(n))
}

// pause waits between least and most, and reports whether the chaos continues.
func (c *chaos) pause(rng *rand.Rand, least, most time.Duration) bool {
	select {
	case <-time.After(least + time.Duration(rng.Int64N(int64(most-least)))):
		return true
	case <-c.stop:
		return false
	}
}

// leader returns a node that leads some group, according to the first node that replies, -1 if none
// does.
func (c *chaos) leader(rng *rand.Rand) int {
	for _, client := range c.clients {
		if _, leaders := c.hosts(client); len(leaders) > 0 {
			return leaders[rng.IntN(len(leaders))]
		}
	}
	return -1
}

// partitions partitions the network in various ways.
func (c *chaos) partitions(rng *rand.Rand) error {
	for c.pause(rng, 200*time.Millisecond, 1500*time.Millisecond) {
		i := rng.IntN(len(c.addrs))
		j := (i + 1 + rng.IntN(len(c.addrs)-1)) % len(c.addrs)
		var cut [][2]int
		switch rng.IntN(5) {
		case 0:
			cut = [][2]int{{i, j}, {j, i}}
			c.happened("two nodes parted")
		case 1:
			cut = [][2]int{{i, j}}
			c.happened("one direction cut")
		case 2:
			if leader := c.leader(rng); leader >= 0 {
				i = leader
			}
			cut = c.around(i, true, true)
			c.happened("node that leads isolated")
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

// around returns the directions from a node, to it, or both.
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

// processes kills and pauses nodes.
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
			c.happened("kill -9 of three")
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

// membership repeatedly makes a node join with an empty directory, so that it gets replicas, and
// removes it, so that the others get them back.
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
		moved := 0
		for range 200 {
			if moved = max(moved, c.moved()); moved >= chaosGroups/2 || !c.pause(rng, 20*time.Millisecond, 50*time.Millisecond) {
				break
			}
		}
		if moved > 0 {
			c.happened("node joined groups")
			c.count("groups joined", moved)
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

// moved returns how many groups the spare node is in, according to another node.
func (c *chaos) moved() (most int) {
	for _, client := range c.clients[:spare] {
		in, _ := c.hosts(client)
		most = max(most, in[spare])
	}
	return most
}

// forget makes a node leave, and reports whether it has left, according to the leader
// of the directory group.
func (c *chaos) forget(id string) bool {
	for _, client := range c.clients[:spare] {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		err := client.Do(ctx, "CLUSTER", "FORGET", id).Err()
		cancel()
		if err != nil && strings.Contains(err.Error(), "unknown node") {
			return true
		}
	}
	return false
}

// fullDisk fills the file system of the frail node.
func (c *chaos) fullDisk(rng *rand.Rand) error {
	for c.small && c.pause(rng, time.Second, 5*time.Second) {
		ballast := filepath.Join(c.data(frail), "ballast")
		f, err := os.Create(ballast)
		if err != nil {
			continue // there is no space for a directory entry
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

// diskErrors makes writes or syncs of the frail node's log and database fail for a while.
func (c *chaos) diskErrors(rng *rand.Rand) error {
	path := c.disk(frail)
	for c.pause(rng, time.Second, 5*time.Second) {
		what := []string{"write", "sync", "write sync"}[rng.IntN(3)]
		if err := durable.Replace(path, []byte(what)); err != nil {
			return err
		}
		c.happened("disk fails: " + what)
		c.pause(rng, 50*time.Millisecond, 2*time.Second)
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// clocks sets the clocks of nodes, by up to ten seconds.
func (c *chaos) clocks(rng *rand.Rand) error {
	for c.pause(rng, 200*time.Millisecond, 2*time.Second) {
		if err := durable.Replace(c.clock(rng.IntN(len(c.addrs))), fmt.Append(nil, rng.IntN(20_000)-10_000)); err != nil {
			return err
		}
		c.happened("clock set")
	}
	return nil
}

// ask tries a command on one node after another until one executes it.
func (c *chaos) ask(args ...any) (any, error) {
	var errs []error
	for _, client := range c.clients { // the spare one may lead, too
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		reply, err := client.Do(ctx, args...).Result()
		cancel()
		if err == nil || err == redis.Nil {
			return reply, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// once tries a command on one node after another until one may have executed it.
func (c *chaos) once(args ...any) error {
	err := errors.New("no node was asked")
	for _, client := range c.clients {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		err = client.Do(ctx, args...).Err()
		cancel()
		if err == nil || errors.Is(known(err), ErrUnknown) {
			return err
		}
	}
	return err
}

// filters adds items, and checks that acknowledged ones are always there.
func (c *chaos) filters(rng *rand.Rand, name string) (lookups int, err error) {
	filter := func(item string) string { return "f" + name + item[len(item)-1:] } // in different groups
	var acked []string
	exists := func(item string) (bool, error) {
		reply, err := c.ask("BF.EXISTS", filter(item), item)
		return err == nil && reply != int64(1), err
	}
	for i := 0; c.pause(rng, 0, 2*time.Millisecond); i++ {
		item := strconv.Itoa(i)
		if _, err := c.ask("BF.ADD", filter(item), item); err == nil {
			acked = append(acked, item)
		}
		if len(acked) == 0 {
			continue
		}
		item = acked[rng.IntN(len(acked))]
		if missing, err := exists(item); missing {
			return lookups, fmt.Errorf("filter %s has lost %s, which was acknowledged", filter(item), item)
		} else if err == nil {
			lookups++
		}
	}
	for _, item := range acked {
		missing, err := exists(item)
		for p := patient(5 * time.Minute); err != nil && p.more(); time.Sleep(10 * time.Millisecond) {
			missing, err = exists(item)
		}
		switch {
		case err != nil:
			return lookups, fmt.Errorf("in the end no node serves filter %s: %w", filter(item), err)
		case missing:
			return lookups, fmt.Errorf("in the end filter %s has lost %s, which was acknowledged", filter(item), item)
		}
		lookups++
	}
	return lookups, nil
}

// expiring sets keys that expire, and checks that an expired key does not come back.
func (c *chaos) expiring(rng *rand.Rand, name string) (keys int, err error) {
	for i := 0; c.pause(rng, 0, 2*time.Millisecond); i++ {
		key := fmt.Sprintf("e%s.%d", name, i)
		at := time.Now().UnixMilli() + rng.Int64N(2000)
		if err := c.once("SET", key, "v", "PXAT", at); err != nil {
			continue // it may still be executed
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

// TestChaos: what clients see is linearizable, and no acknowledged write is lost, under partitions,
// kill -9, pauses, membership changes, full and failing disks, and clocks that jump, all at once.
func TestChaos(t *testing.T) {
	if *chaotic == 0 {
		t.Skip("without -cluster.chaos")
	}
	redis.SetLogger(silent{})
	c := newChaos(t)
	c.startAll()
	var members []member
	for _, client := range c.clients {
		members = append(members, wire{client})
	}
	var troubles, users sync.WaitGroup
	for i, f := range []func(*rand.Rand) error{c.partitions, c.processes, c.membership, c.fullDisk, c.diskErrors, c.clocks} {
		troubles.Go(func() {
			if err := f(rand.New(rand.NewPCG(*seed, uint64(100+i)))); err != nil {
				t.Error(err)
			}
		})
	}
	r := &recorder{seed: *seed, spread: chaosGroups, members: func() []member { return members }}
	users.Go(func() { r.run(5, c.stop) })
	var lookups, expired atomic.Int64
	for i := range 3 {
		rng := rand.New(rand.NewPCG(*seed, uint64(200+i)))
		users.Go(func() {
			n, err := c.filters(rng, strconv.Itoa(i))
			if lookups.Add(int64(n)); err != nil {
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
	enough := make(chan os.Signal, 1)
	signal.Notify(enough, os.Interrupt)
	defer signal.Stop(enough)
	p := patient(*chaotic)
	for ended := false; p.more() && !ended; {
		select {
		case <-enough: // SIGINT ends the test early, with all checks
			ended = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Logf("%v of faults", (*chaotic - p.left).Round(time.Second))
	close(c.stop)
	troubles.Wait()
	c.net.set()
	c.kill(frail) // its disk may have failed, and it may be about to exit
	for i := range spare {
		if err := c.start(i); err != nil {
			t.Fatal(err)
		}
	}
	users.Wait()
	lists := map[string]string{}
	for key := range r.keys() {
		lists[key] = finally(t, members, key)
	}
	for _, n := range c.running[:spare] {
		select {
		case <-n.done:
			t.Error("a node has exited by itself")
		default:
		}
	}
	acked := 0
	for _, tokens := range r.acked {
		acked += len(tokens)
	}
	t.Logf("%v; %d acknowledged appends; %d filter lookups; %d keys seen to expire", r, acked, lookups.Load(), expired.Load())
	var what []string
	c.events.Range(func(name, n any) bool {
		what = append(what, fmt.Sprintf("%s %d", name, n.(*atomic.Int64).Load()))
		return true
	})
	slices.Sort(what)
	failed, _ := os.ReadFile(c.disk(frail) + ".failed") // exists only if something failed
	snapshots, err := filepath.Glob(filepath.Join(c.dir, "n*", "groups", "*", "snapshots", "*"))
	t.Logf("%s, writes and syncs that failed %d, replicas with a snapshot at the end %d", strings.Join(what, ", "), len(failed), len(snapshots))
	if err != nil || len(snapshots) == 0 {
		t.Error("no snapshot was taken", err)
	}
	if acked == 0 {
		t.Error("nothing was acknowledged")
	}
	if err := r.check(lists); err != nil {
		t.Error(err)
	}
}

// TestDeposedReads: an isolated leader that believes it leads for longer than the others wait
// serves no stale reads.
func TestDeposedReads(t *testing.T) {
	redis.SetLogger(silent{})
	c := newChaos(t)
	c.believe[0] = "3s"
	c.startAll()
	ctx := t.Context()
	var key string
	eventually(t, func() (err error) {
		for i := range 10 * chaosGroups { // it leads some group
			key = fmt.Sprint("k", i)
			if err = c.clients[0].Set(ctx, key, "old", 0).Err(); err == nil {
				return nil
			}
		}
		return err
	})
	c.net.set(c.around(0, true, true)...)
	eventually(t, func() error {
		_, err := c.ask("SET", key, "new")
		return err
	})
	for name, read := range map[string]func(context.Context, string) (string, error){
		"GET": wire{c.clients[0]}.read,
		"EXEC": func(ctx context.Context, key string) (string, error) {
			var got *redis.StringCmd
			_, err := c.clients[0].TxPipelined(ctx, func(p redis.Pipeliner) error { got = p.Get(ctx, key); return nil })
			return got.Val(), err
		},
	} {
		short, cancel := context.WithTimeout(ctx, time.Second)
		got, err := read(short, key)
		if cancel(); err == nil {
			t.Errorf("%s of the deposed leader: %q, want none", name, got)
		}
	}
}
