package siftd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startAt starts a node on free ports.
func startAt(t *testing.T, cfg Config) *Node {
	t.Helper()
	cfg.Addr, cfg.RaftAddr, cfg.HTTPAddr, cfg.Password = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "secret"
	n, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func clientOf(t *testing.T, nodes ...*Node) *redis.ClusterClient {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr())
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Password: "secret", MaxRedirects: 100, MaxRetryBackoff: 50 * time.Millisecond,
		DialerRetries: 1, ClusterStateReloadInterval: 100 * time.Millisecond})
	t.Cleanup(func() { c.Close() })
	return c
}

// TestBackup: a cluster of three nodes is backed up while clients write, and restored into one of
// two. The result holds everything that was acknowledged before the backup, and a prefix of the
// later writes to each group.
func TestBackup(t *testing.T) {
	redis.SetLogger(silent{})
	ctx := t.Context()
	first := startAt(t, Config{Dir: t.TempDir(), Init: true})
	nodes := []*Node{first, startAt(t, Config{Dir: t.TempDir(), Join: []string{first.Addr()}}), startAt(t, Config{Dir: t.TempDir(), Join: []string{first.Addr()}})}
	c := clientOf(t, nodes...)
	const keys = 500
	for i := range keys {
		if err := errors.Join(c.Set(ctx, fmt.Sprint("k", i), i, time.Hour).Err(), c.BFAdd(ctx, fmt.Sprint("f", i%7), i).Err()); err != nil {
			t.Fatal(err)
		}
	}
	writing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { // a, then b: in one slot, so in one group
		for i := 1; writing.Err() == nil; i++ {
			if err := errors.Join(c.Set(ctx, "{x}a", i, 0).Err(), c.Set(ctx, "{x}b", i, 0).Err()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	dir := filepath.Join(t.TempDir(), "backup")
	var from BackupSource
	for _, n := range nodes {
		from.Pages = append(from.Pages, "http://"+n.HTTPAddr())
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	if err := Backup(short, from, filepath.Join(t.TempDir(), "b")); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a backup without the password: %v", err)
	}
	cancel()
	from.Password = "secret"
	err := Backup(ctx, from, dir)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := Backup(ctx, from, dir); err == nil {
		t.Error("a backup is overwritten")
	}
	one := startAt(t, Config{Dir: t.TempDir(), Init: true, Restore: dir})
	two := startAt(t, Config{Dir: t.TempDir(), Join: []string{one.Addr()}})
	r := clientOf(t, one, two)
	for i := range keys {
		v, err := r.Get(ctx, fmt.Sprint("k", i)).Int()
		if err != nil || v != i {
			t.Fatalf("k%d is %d, %v", i, v, err)
		}
		if has, err := r.BFExists(ctx, fmt.Sprint("f", i%7), i).Result(); err != nil || !has {
			t.Fatalf("filter %d has lost %d, %v", i%7, i, err)
		}
	}
	if ttl, err := r.TTL(ctx, "k0").Result(); err != nil || ttl <= 0 || ttl > time.Hour {
		t.Errorf("k0 expires in %v, %v", ttl, err)
	}
	got := r.MGet(ctx, "{x}a", "{x}b").Val()
	a, b := number(got, 0), number(got, 1)
	if a != b && a != b+1 {
		t.Errorf("a is %d, b %d", a, b)
	}
	if err := r.Set(ctx, "k0", "new", 0).Err(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		shards, err := r.ClusterShards(ctx).Result()
		if err == nil && len(shards) > 0 && len(shards[0].Nodes) == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the second node does not join: %v, %v", shards, err)
		}
	}
}

func number(values []any, i int) (n int) {
	if i < len(values) && values[i] != nil {
		fmt.Sscan(values[i].(string), &n)
	}
	return n
}

// TestDamagedBackup: a cluster starts neither from a damaged backup nor on the remains of
// an interrupted restore.
func TestDamagedBackup(t *testing.T) {
	redis.SetLogger(silent{})
	n := startAt(t, Config{Dir: t.TempDir(), Init: true})
	c := clientOf(t, n)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	if err := Backup(t.Context(), BackupSource{Pages: []string{"http://" + n.HTTPAddr()}, Password: "secret"}, dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, groupPrefix+"0")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := []byte(string(whole))
	flipped[len(flipped)/2] ^= 1
	into := t.TempDir()
	restore := func() error {
		n, err := Start(Config{Dir: into, Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0", Init: true, Restore: dir})
		if err == nil {
			n.Close()
		}
		return err
	}
	for _, damage := range []struct {
		name string
		file []byte
		want string
	}{
		{"cut", whole[:len(whole)-1], "bytes of"},
		{"flipped", flipped, "damaged"},
		{"whole, into the remains", whole, "interrupted"},
	} {
		if err := os.WriteFile(file, damage.file, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := restore(); err == nil || !strings.Contains(err.Error(), damage.want) {
			t.Errorf("%s: %v", damage.name, err)
		}
	}
	into = t.TempDir()
	if err := restore(); err != nil {
		t.Error(err)
	}
	if err := restore(); err != nil {
		t.Errorf("the second start: %v", err)
	}
	into = t.TempDir()
	if err := os.Remove(filepath.Join(dir, manifestName)); err != nil {
		t.Fatal(err)
	}
	if err := restore(); err == nil {
		t.Error("a backup without a manifest is restored")
	}
}

// TestBackupSilentNode: if a node accepts connections but does not answer, or stops in the middle
// of its answer, Backup tries the others.
func TestBackupSilentNode(t *testing.T) {
	for _, c := range []struct {
		name  string
		stops bool
		asked int64 // how often the silent node is asked
	}{{"never answers", false, 1}, {"stops", true, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			done := make(chan struct{})
			mute := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if c.stops && r.URL.Path == "/backup" {
					io.WriteString(w, "2\n")
					return
				}
				if c.stops {
					io.WriteString(w, "half of a gr")
					w.(http.Flusher).Flush()
				}
				<-done
			}))
			defer mute.Close()
			defer close(done) // before Close, which waits for the handlers
			answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/backup" {
					io.WriteString(w, "2\n")
					return
				}
				io.WriteString(w, "a whole group")
			}))
			defer answers.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			dir := filepath.Join(t.TempDir(), "backup")
			if err := Backup(ctx, BackupSource{Pages: []string{mute.URL, answers.URL}, silence: 500 * time.Millisecond}, dir); err != nil {
				t.Fatal(err)
			}
			for _, group := range []string{"group-0", "group-1"} {
				if text, err := os.ReadFile(filepath.Join(dir, group)); string(text) != "a whole group" || err != nil {
					t.Errorf("%s holds %q, %v", group, text, err)
				}
			}
			if n := asked.Load(); n != c.asked {
				t.Errorf("the silent node received %d requests", n)
			}
		})
	}
}

// TestBackupLeaderDies: if a node fails after it has sent a group for longer than a group may be
// without a leader, Backup waits for the next leader.
func TestBackupLeaderDies(t *testing.T) {
	const wait = 500 * time.Millisecond
	var died atomic.Pointer[time.Time]
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch at := died.Load(); {
		case r.URL.Path == "/backup":
			io.WriteString(w, "1\n")
		case at == nil:
			io.WriteString(w, "half of a gr")
			w.(http.Flusher).Flush()
			time.Sleep(wait + 200*time.Millisecond)
			now := time.Now()
			died.Store(&now)
			panic(http.ErrAbortHandler)
		case time.Since(*at) < wait/2:
			http.Error(w, "another node leads the group", http.StatusMisdirectedRequest)
		default:
			io.WriteString(w, "a whole group")
		}
	}))
	defer node.Close()
	dir := filepath.Join(t.TempDir(), "backup")
	if err := Backup(t.Context(), BackupSource{Pages: []string{node.URL}, wait: wait}, dir); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "group-0")); string(text) != "a whole group" || err != nil {
		t.Errorf("the group is %q, %v", text, err)
	}
}
