package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire is a node of siftd as its clients see it. A token is appended by a transaction that
// also reads the list.
type wire struct{ client *redis.Client }

func (w wire) append(ctx context.Context, key, token string) (string, error) {
	var list *redis.StringCmd
	_, err := w.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Append(ctx, key, token+",")
		list = p.Get(ctx, key)
		return nil
	})
	if err != nil {
		return "", known(err)
	}
	return list.Val(), nil
}

func (w wire) read(ctx context.Context, key string) (string, error) {
	list, err := w.client.Get(ctx, key).Result()
	if err == redis.Nil {
		err = nil
	}
	return list, err
}

// known returns err if it means that nothing was done, else an error that matches ErrUnknown.
func known(err error) error {
	for _, prefix := range []string{"MOVED ", "CLUSTERDOWN ", "EXECABORT "} {
		if strings.HasPrefix(err.Error(), prefix) {
			return err
		}
	}
	if opErr := (*net.OpError)(nil); errors.As(err, &opErr) && opErr.Op == "dial" {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// wireGroups is the number of groups that the keys of the tests are divided among.
const wireGroups = 3

// newWire sets up three siftd nodes that are not running yet.
func newWire(t *testing.T, flags ...string) (p *processes, addrs []string) {
	t.Helper()
	p = newProcesses(t, "./cmd/siftd")
	addrs = p.http
	p.command = func(i int) *exec.Cmd {
		args := []string{"--data", filepath.Join(p.dir, fmt.Sprint("n", i)), "--listen", addrs[i], "--raft", p.raft[i], "--snapshot-entries", "200", "--snapshot-interval", "500ms"}
		args = append(args, flags...)
		if i == 0 {
			return exec.Command(p.exe, append(args, "--init", "--groups", fmt.Sprint(wireGroups))...)
		}
		return exec.Command(p.exe, append(args, "--join", addrs[0])...)
	}
	return p, addrs
}

// startWire starts three nodes of siftd, and returns when all have a vote.
func startWire(t *testing.T, flags ...string) (p *processes, addrs []string, members []member) {
	t.Helper()
	p, addrs = newWire(t, flags...)
	for i, addr := range addrs {
		if err := p.start(i); err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true})
		t.Cleanup(func() { c.Close() })
		members = append(members, wire{c})
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		shards, err := members[0].(wire).client.ClusterShards(t.Context()).Result()
		if err == nil && allIn(shards, len(addrs)) {
			return p, addrs, members
		}
		if time.Now().After(end) {
			t.Fatalf("not all groups have all nodes within a minute: %v, %v", shards, err)
		}
	}
}

// allIn reports whether each group has this many nodes.
func allIn(shards []redis.ClusterShard, nodes int) bool {
	return len(shards) == wireGroups && !slices.ContainsFunc(shards, func(s redis.ClusterShard) bool { return len(s.Nodes) != nodes })
}

// TestWire: what clients see is linearizable while siftd nodes are killed with SIGKILL, and paused.
func TestWire(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGSTOP")
	}
	redis.SetLogger(silent{})
	p, _, members := startWire(t)
	r := &recorder{seed: *seed, members: func() []member { return members }}
	stop := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		failed <- p.disturb(rand.New(rand.NewPCG(*seed, 78)), lasting(12*time.Second))
		close(stop)
	}()
	r.run(5, stop)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	lists := map[string]string{}
	for key := range r.keys() {
		lists[key] = finally(t, members, key)
	}
	t.Log(r)
	if len(r.acked) == 0 {
		t.Error("nothing was acknowledged")
	}
	if err := r.check(lists); err != nil {
		t.Error(err)
	}
}

// finally reads a key from the leader.
func finally(t *testing.T, members []member, key string) string {
	t.Helper()
	for p := patient(5 * time.Minute); p.more(); time.Sleep(10 * time.Millisecond) {
		for _, m := range members {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			list, err := m.read(ctx, key)
			cancel()
			if err == nil {
				return list
			}
		}
	}
	t.Fatal("no leader within minutes")
	return ""
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// TestRedisCLI: redis-cli -c, and other client libraries if they are installed, follow redirections
// to the leader.
func TestRedisCLI(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("no redis-cli here")
	}
	_, addrs, _ := startWire(t)
	for i, addr := range addrs {
		_, port, _ := net.SplitHostPort(addr)
		for args, want := range map[string]string{
			fmt.Sprintf("SET k%d v", i): "OK", fmt.Sprintf("CF.ADD f%d x", i): "1", "CLUSTER KEYSLOT foo": "12182", "MSET a 1 b 2": "CROSSSLOT",
		} {
			out, err := exec.Command(cli, append([]string{"-c", "-p", port}, strings.Fields(args)...)...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %q, %v", args, out, err)
			}
		}
	}
	keys := keysOfAllSlots()
	t.Run("script", func(t *testing.T) { testCLIScript(t, cli, addrs[0], keys) })
	if dir := os.Getenv("SIFT_CLUSTER_NODE"); dir != "" {
		t.Run("ioredis", func(t *testing.T) { testLibrary(t, "node", filepath.Join(dir, "cluster.mjs"), addrs, keys) })
	}
	if python := os.Getenv("SIFT_CLUSTER_PYTHON"); python != "" {
		t.Run("redis-py", func(t *testing.T) { testLibrary(t, python, "testdata/cluster.py", addrs, keys) })
	}
}

// keysOfAllSlots returns 100 keys, one for each hundredth of the slots.
func keysOfAllSlots() []string {
	keys := make([]string, 100)
	for n, found := 0, 0; found < len(keys); n++ {
		key := fmt.Sprintf("key:%d", n)
		if at := &keys[slotOf(key)*len(keys)/16384]; *at == "" {
			*at = key
			found++
		}
	}
	return keys
}

// testCLIScript sets and reads keys over one connection of redis-cli, which is redirected
// from leader to leader.
func testCLIScript(t *testing.T, cli, addr string, keys []string) {
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(cli, "-c", "-p", port)
	var script strings.Builder
	for i, key := range keys {
		fmt.Fprintf(&script, "SET %s %d\nGET %s\n", key, 1000+i, key)
	}
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q, %v", out, err)
	}
	var values []string // without OK and redirections
	for line := range strings.Lines(string(out)) {
		if line = strings.Trim(line, "\"\n"); len(line) == 4 {
			values = append(values, line)
		}
	}
	for i := range keys {
		if len(values) != len(keys) || values[i] != fmt.Sprint(1000+i) {
			t.Fatalf("%d values: %q", len(values), out)
		}
	}
}

// testLibrary runs a script, and passes it the nodes' addresses and the keys to use.
func testLibrary(t *testing.T, program, script string, addrs, keys []string) {
	t.Helper()
	out, err := exec.Command(program, slices.Concat([]string{script}, addrs, []string{"--"}, keys)...).CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Errorf("%s: %v", script, err)
	}
}
