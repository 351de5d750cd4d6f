//go:build unix

package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift/filter/live"
	"github.com/siftdb/sift/filter/live/redisfilter"
)

var lookups = flag.Int("guardtest.lookups", 100_000, "lookups of TestGuard, nine in ten of which are for keys that do not exist")

const numUsers = 20_000

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// users is the table of the application.
type users struct {
	db      *sql.DB
	queries atomic.Int64
}

// load reads a row. A Guard calls it for keys that neither the filter nor the cache decide.
func (u *users) load(ctx context.Context, name string) (string, error) {
	u.queries.Add(1)
	var email string
	err := u.db.QueryRowContext(ctx, "SELECT email FROM users WHERE name = $1", name).Scan(&email)
	if errors.Is(err, sql.ErrNoRows) {
		return "", live.ErrAbsent
	}
	return email, err
}

// names returns all keys, to fill the filter.
func (u *users) names(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		rows, err := u.db.QueryContext(ctx, "SELECT name FROM users")
		if err != nil {
			yield("", err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil || !yield(name, nil) {
				if err != nil {
					yield("", err)
				}
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield("", err)
		}
	}
}

// redisCache is a live.Cache in Redis.
type redisCache struct {
	c   *redis.Client
	ttl time.Duration
}

func (r redisCache) Get(ctx context.Context, key string) (string, bool, error) {
	v, err := r.c.Get(ctx, "user:"+key).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return v, err == nil, err
}

func (r redisCache) Set(ctx context.Context, key, v string) error {
	return r.c.Set(ctx, "user:"+key, v, r.ttl).Err()
}

// TestGuard looks up keys, nine in ten of which do not exist, with the filter in memory and with
// the filter in Redis: at most 1% of the lookups of absent keys may reach the database.
func TestGuard(t *testing.T) {
	u, cache := newUsers(t), redisCache{startRedis(t), time.Hour}
	ctx := context.Background()
	shared, err := redisfilter.Open(ctx, cache.c, "users", redisfilter.Options[string]{Items: numUsers, FPR: 0.001})
	if err != nil {
		t.Fatal(err)
	}
	local := must(live.NewBloom(live.BloomOptions[string]{Items: numUsers, FPR: 0.001}))
	for name, tc := range map[string]struct {
		keys live.KeySet[string]
		n    int
	}{
		"in memory": {live.Local(local), *lookups},
		"in Redis":  {shared, *lookups / 10},
	} {
		t.Run(name, func(t *testing.T) {
			cache.c.Del(ctx, cache.c.Keys(ctx, "user:*").Val()...)
			g := must(live.NewGuard(live.GuardOptions[string, string]{Keys: tc.keys, Cache: cache, Incomplete: true}))
			if err := g.LearnAll(ctx, u.names(ctx)); err != nil {
				t.Fatal(err)
			}
			u.queries.Store(0)
			start := time.Now()
			var absent, absentQueries atomic.Int64
			var wg sync.WaitGroup
			const workers = 16
			for w := range workers {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(7, uint64(w)))
					for range tc.n / workers {
						key, want := fmt.Sprint("user", r.IntN(numUsers)), error(nil)
						if r.IntN(10) > 0 {
							key, want = fmt.Sprint("nobody", r.IntN(1<<40)), live.ErrAbsent
							absent.Add(1)
						}
						v, err := g.Get(ctx, key, func(ctx context.Context, k string) (string, error) {
							if want != nil {
								absentQueries.Add(1)
							}
							return u.load(ctx, k)
						})
						if !errors.Is(err, want) || want == nil && v != key+"@example.com" {
							t.Errorf("%s: %q, %v", key, v, err)
							return
						}
					}
				})
			}
			wg.Wait()
			s := g.Stats()
			share := float64(absentQueries.Load()) / float64(absent.Load())
			t.Logf("%d lookups in %.1fs, %d of them for absent keys; of these %d (%.3f%%) reached the database",
				s.Lookups, time.Since(start).Seconds(), absent.Load(), absentQueries.Load(), 100*share)
			t.Logf("%+v", s)
			if share > 0.01 {
				t.Errorf("%.2f%% of the absent keys reached the database", 100*share)
			}
			if s.Loads != uint64(u.queries.Load()) || s.LoadedAbsent != uint64(absentQueries.Load()) || s.FilterErrors+s.CacheErrors+s.LoadErrors != 0 {
				t.Errorf("%d queries, %+v", u.queries.Load(), s)
			}
			if s.Loads-s.LoadedAbsent > numUsers {
				t.Errorf("%d loads of %d rows", s.Loads-s.LoadedAbsent, numUsers)
			}
		})
	}
	t.Run("a new user", func(t *testing.T) {
		g := must(live.NewGuard(live.GuardOptions[string, string]{Keys: shared, Cache: cache}))
		if _, err := g.Get(ctx, "newcomer", u.load); !errors.Is(err, live.ErrAbsent) {
			t.Fatal(err)
		}
		if _, err := u.db.Exec("INSERT INTO users VALUES ('newcomer', 'newcomer@example.com')"); err != nil {
			t.Fatal(err)
		}
		if err := g.Learn(ctx, "newcomer"); err != nil {
			t.Fatal(err)
		}
		// Another process, with the same filter in Redis, finds it too.
		other := must(live.NewGuard(live.GuardOptions[string, string]{Keys: shared, Cache: cache}))
		for _, g := range []*live.Guard[string, string]{g, other} {
			if v, err := g.Get(ctx, "newcomer", u.load); err != nil || v != "newcomer@example.com" {
				t.Errorf("%q, %v", v, err)
			}
		}
	})
	t.Run("stampede", func(t *testing.T) {
		g := must(live.NewGuard(live.GuardOptions[string, string]{Keys: live.Local(local), Cache: cache}))
		cache.c.Del(ctx, "user:user5")
		u.queries.Store(0)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				<-start
				if v, err := g.Get(ctx, "user5", u.load); err != nil || v != "user5@example.com" {
					t.Errorf("%q, %v", v, err)
				}
			})
		}
		close(start)
		wg.Wait()
		if n := u.queries.Load(); n != 1 {
			t.Errorf("1000 callers made %d queries: %+v", n, g.Stats())
		}
	})
}

// program returns the path of a program, or skips the test.
func program(t *testing.T, name, where string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	if found, _ := filepath.Glob(filepath.Join(where, name)); len(found) > 0 {
		return found[len(found)-1]
	}
	t.Skipf("%s is not installed", name)
	return ""
}

func freePort() int {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func startRedis(t *testing.T) *redis.Client {
	port := freePort()
	cmd := exec.Command(program(t, "redis-server", "/usr/bin"), "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", port)})
	t.Cleanup(func() {
		c.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	waitFor(t, "redis-server", func() error { return c.Ping(context.Background()).Err() })
	return c
}

func waitFor(t *testing.T, what string, ping func() error) {
	t.Helper()
	var err error
	for range 500 {
		if err = ping(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s does not answer: %v", what, err)
}

// newUsers starts a PostgreSQL server with the table.
func newUsers(t *testing.T) *users {
	initdb := program(t, "initdb", "/usr/lib/postgresql/*/bin")
	postgres := program(t, "postgres", "/usr/lib/postgresql/*/bin")
	dir := must(os.MkdirTemp("", "guardtest"))
	t.Cleanup(func() { os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{}
	name := "guardtest"
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Skip("PostgreSQL does not run as root, and there is no user postgres")
		}
		uid, gid := must(strconv.Atoi(u.Uid)), must(strconv.Atoi(u.Gid))
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	run := exec.Command(initdb, "-D", dir+"/data", "-U", name, "--auth", "trust", "-N")
	run.SysProcAttr, run.Dir = attr, dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	port := freePort()
	server := exec.Command(postgres, "-D", dir+"/data", "-p", strconv.Itoa(port), "-h", "127.0.0.1", "-k", dir, "-F")
	server.SysProcAttr, server.Dir = attr, dir
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGQUIT) // an immediate shutdown
		server.Wait()
	})
	db := sql.OpenDB(must(pq.NewConnector(fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=postgres sslmode=disable", port, name))))
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	waitFor(t, "postgres", db.Ping)
	for _, q := range []string{
		"CREATE TABLE users (name text PRIMARY KEY, email text NOT NULL)",
		fmt.Sprintf("INSERT INTO users SELECT 'user' || i, 'user' || i || '@example.com' FROM generate_series(0, %d) i", numUsers-1),
		"ANALYZE users",
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	return &users{db: db}
}
