package cluster

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	moveMiB = flag.Int("cluster.move", 8, "size of the group that TestMove moves, in MiB")
	away    = flag.Duration("cluster.away", time.Second, "how long a node is away in TestAway")
)

// valueBytes is the size of the values of TestMove and TestAway.
const valueBytes = 4096

// valueOf returns the value of a version of a key. It does not compress.
func valueOf(key string, version uint64) []byte {
	var seed [32]byte
	copy(seed[8:], key)
	binary.LittleEndian.PutUint64(seed[:], version)
	value := make([]byte, valueBytes)
	rand.NewChaCha8(seed).Read(value)
	return value
}

// crowd is a set of clients that write one value at a time and record what was acknowledged.
type crowd struct {
	r       *rival
	writers []*writer
	acked   atomic.Int64
	failed  atomic.Int64
	longest atomic.Int64 // nanoseconds
	stop    chan struct{}
	wg      sync.WaitGroup
}

// writer writes every eighth key, over and over.
type writer struct {
	id      int
	loaded  int // keys written by load
	version map[string]uint64
}

func key(n int) string { return fmt.Sprintf("k%08d", n) }

const crowdSize = 8

func newCrowd(r *rival) *crowd {
	c := &crowd{r: r, stop: make(chan struct{})}
	for i := range crowdSize {
		c.writers = append(c.writers, &writer{id: i, version: map[string]uint64{}})
	}
	return c
}

// load writes the given number of keys.
func (c *crowd) load(client *redis.ClusterClient, keys int) {
	c.r.t.Helper()
	const each = 32
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				begin := int(next.Add(each)) - each
				if begin >= keys || c.r.t.Failed() {
					return
				}
				err := c.again(func(ctx context.Context) error {
					_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
						for n := begin; n < min(begin+each, keys); n++ {
							p.Set(ctx, key(n), valueOf(key(n), 0), 0)
						}
						return nil
					})
					return err
				})
				if err != nil {
					c.r.t.Errorf("load: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for _, w := range c.writers {
		w.loaded = keys
	}
}

// again calls try until it succeeds, up to a thousand times.
func (c *crowd) again(try func(context.Context) error) (err error) {
	for range 1000 {
		if err = try(c.r.t.Context()); err == nil {
			return nil
		}
		c.failed.Add(1)
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// wait calls try until it succeeds, for a quarter of an hour or more.
func (c *crowd) wait(try func() error) {
	c.r.t.Helper()
	var err error
	for range 10000 {
		if err = try(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.r.t.Fatal(err)
}

// begin starts the clients, which write until end is called. Half of the values are for new keys.
func (c *crowd) begin(client *redis.ClusterClient) {
	for _, w := range c.writers {
		c.wg.Go(func() {
			rng := rand.New(rand.NewPCG(*seed, uint64(w.id)))
			for n := 0; ; n++ {
				select {
				case <-c.stop:
					return
				default:
				}
				k := fmt.Sprintf("new%d.%d", w.id, n)
				if mine := w.loaded / crowdSize; n%2 == 0 && mine > 0 {
					k = key(rng.IntN(mine)*crowdSize + w.id)
				}
				version := w.version[k] + 1
				value, asked := valueOf(k, version), time.Now()
				if err := c.again(func(ctx context.Context) error { return client.Set(ctx, k, value, 0).Err() }); err != nil {
					c.r.t.Errorf("%s: %v", k, err)
					return
				}
				w.version[k] = version
				c.acked.Add(1)
				for took := int64(time.Since(asked)); ; {
					if old := c.longest.Load(); took <= old || c.longest.CompareAndSwap(old, took) {
						break
					}
				}
			}
		})
	}
}

func (c *crowd) end() {
	close(c.stop)
	c.wg.Wait()
}

// during logs how many writes a second were acknowledged while fn ran, and the slowest.
func (c *crowd) during(what string, fn func()) {
	begin, acked, failed := time.Now(), c.acked.Load(), c.failed.Load()
	c.longest.Store(0)
	fn()
	took := time.Since(begin)
	c.r.t.Logf("%s: %.1f s, %.0f writes/s of %d bytes, the longest took %v, %d tries failed", what, took.Seconds(),
		float64(c.acked.Load()-acked)/took.Seconds(), valueBytes, time.Duration(c.longest.Load()).Round(time.Millisecond), c.failed.Load()-failed)
}

// check reads everything that was written.
func (c *crowd) check(client *redis.ClusterClient) {
	c.r.t.Helper()
	want := map[string]uint64{}
	for n := range c.writers[0].loaded {
		want[key(n)] = 0
	}
	for _, w := range c.writers {
		for k, v := range w.version {
			want[k] = v
		}
	}
	wrong, ctx := 0, c.r.t.Context()
	asked := map[string]*redis.StringCmd{}
	look := func() {
		err := c.again(func(ctx context.Context) error {
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for k := range asked {
					asked[k] = p.Get(ctx, k)
				}
				return nil
			})
			if err == redis.Nil {
				err = nil
			}
			return err
		})
		if err != nil {
			c.r.t.Fatal(err)
		}
		for k, got := range asked {
			if got.Val() != string(valueOf(k, want[k])) {
				wrong++
			}
		}
		clear(asked)
	}
	for k := range want {
		if asked[k] = nil; len(asked) == 128 && ctx.Err() == nil {
			look()
		}
	}
	look()
	if wrong > 0 {
		c.r.t.Errorf("%d of %d keys do not have the value that was acknowledged", wrong, len(want))
	}
	c.r.t.Logf("%d keys, %d of them without the value that was acknowledged", len(want), wrong)
}

// diskBytes returns the size of a node's files; hard links count once.
func (r *rival) diskBytes(i int) (total int64) {
	seen := map[uint64]bool{}
	filepath.WalkDir(r.data(i), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, err := e.Info(); err == nil {
				if st := info.Sys().(*syscall.Stat_t); !seen[st.Ino] {
					seen[st.Ino] = true
					total += st.Blocks * 512
				}
			}
		}
		return nil
	})
	return total
}

// peaks measures memory and disk use of nodes until stop is called, which logs the peaks.
func (r *rival) peaks(nodes ...int) (stop func()) {
	memory, disk := map[int]int64{}, map[int]int64{}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, i := range nodes {
				memory[i], disk[i] = max(memory[i], r.resident(i)), max(disk[i], r.diskBytes(i))
			}
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		for _, i := range nodes {
			r.t.Logf("node %d: at most %d MiB of memory, %d MiB on disk", i, memory[i]>>20, disk[i]>>20)
		}
	}
}

// resident returns the resident memory of a node, 0 if unknown.
func (r *rival) resident(i int) int64 {
	if r.running[i] == nil {
		return 0
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", r.running[i].Process.Pid))
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// TestMove: the only replica of a group moves to a new node while clients write. No acknowledged
// write is lost.
func TestMove(t *testing.T) {
	redis.SetLogger(silent{})
	first := []string{"--groups", "1", "--replicas", "1"}
	if *moveMiB < 100 {
		first = append(first, "--snapshot-entries", "20") // otherwise there is no snapshot to send
	}
	r := siftdRival(t, 2, first...)
	r.start(0)
	defer r.killAll()
	client := r.client()
	c := newCrowd(r)
	c.wait(func() error { return client.Set(t.Context(), "ready", 1, 0).Err() })
	begin := time.Now()
	c.load(client, *moveMiB<<20/valueBytes)
	t.Logf("%d MiB loaded in %.1f s, %d tries failed", *moveMiB, time.Since(begin).Seconds(), c.failed.Load())
	window := min(20*time.Second, time.Duration(*moveMiB)*20*time.Millisecond)
	stop := r.peaks(0)
	c.begin(client)
	c.during("before", func() { time.Sleep(window) })
	stop()
	id := r.id(0)
	r.start(1)
	c.wait(func() error { return r.lists(1, 2) })
	stop = r.peaks(0, 1)
	c.during("the move", func() {
		c.wait(func() error { return r.forget(id) })
		c.wait(func() error { return r.lists(1, 1) })
	})
	stop()
	r.kill(0)
	c.during("afterwards", func() { time.Sleep(window) })
	c.end()
	if err := r.lists(1, 1); err != nil {
		t.Fatal(err)
	}
	c.check(client)
}

// id returns the id of a node.
func (r *rival) id(i int) string {
	one := redis.NewClient(&redis.Options{Addr: r.addrs[i]})
	defer one.Close()
	id, err := one.Do(r.t.Context(), "CLUSTER", "MYID").Text()
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// forget makes a node leave. One node accepts the command; the others return an error.
func (r *rival) forget(id string) (err error) {
	for _, addr := range r.addrs {
		one := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		err = one.Do(r.t.Context(), "CLUSTER", "FORGET", id).Err()
		one.Close()
		if err == nil {
			return nil
		}
	}
	return err
}

// lists returns an error unless a node lists this many nodes.
func (r *rival) lists(i, want int) error {
	one := redis.NewClient(&redis.Options{Addr: r.addrs[i], MaxRetries: -1})
	defer one.Close()
	nodes, err := one.ClusterNodes(r.t.Context()).Result()
	if n := strings.Count(nodes, "\n"); err == nil && n != want {
		err = fmt.Errorf("%d nodes", n)
	}
	return err
}

// TestAway: a node that was down while clients write catches up while they continue. No
// acknowledged write is lost.
func TestAway(t *testing.T) {
	redis.SetLogger(silent{})
	first := []string{"--groups", "4"}
	if *away >= time.Minute {
		first = nil
	}
	r := siftdRival(t, 3, first...)
	r.startAll()
	defer r.killAll()
	client := r.client()
	c := newCrowd(r)
	c.wait(func() error { return r.whole(t.Context(), client) })
	c.begin(client)
	c.during("with three nodes", func() { time.Sleep(min(20*time.Second, *away)) })
	r.kill(2)
	stop := r.peaks(0, 1)
	c.during("with two", func() { time.Sleep(*away) })
	stop()
	r.start(2)
	stop = r.peaks(0, 1, 2)
	c.during("until the third has caught up", func() { c.wait(func() error { return r.whole(t.Context(), client) }) })
	stop()
	t.Logf("groups that caught up by a snapshot: %d of %d", r.snapshots(2), r.groups(2))
	c.during("afterwards", func() { time.Sleep(min(20*time.Second, *away)) })
	c.end()
	c.check(client)
}

// groups returns how many groups a node is in.
func (r *rival) groups(i int) int {
	dirs, _ := filepath.Glob(filepath.Join(r.data(i), "groups", "*", "state", currentName))
	return len(dirs)
}

// snapshots returns how many groups of a node have installed a snapshot.
func (r *rival) snapshots(i int) (n int) {
	files, _ := filepath.Glob(filepath.Join(r.data(i), "groups", "*", "state", currentName))
	for _, file := range files {
		if text, _ := os.ReadFile(file); string(text) != statePrefix+"1\n" {
			n++
		}
	}
	return n
}
