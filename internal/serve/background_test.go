package serve

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/vfs/vfstest"
)

// Expired keys are removed even if earlier ones cannot be read.
func TestSweeperSkipsDamage(t *testing.T) {
	s := start(t, t.TempDir(), Config{Fsync: FsyncNo})
	c := dial(t, s)
	s.world.Lock() // the sweeper waits
	var b sift.Batch
	put := func(name string, expiry int64, damaged bool) {
		v := appendHead(nil, head{kind: kindString, expiry: expiry})
		if damaged {
			v[0] = 0xff
		}
		b.Put(append(appendSpace(nil, spaceHead, 0), name...), v)
		b.Put((&writes{srv: s}).expiryKey(nil, expiry, []byte(name)), nil)
		s.expiring.add(maphash.Bytes(s.seed, []byte(name)))
	}
	const damaged, healthy = 2*sweepBatch + 1, 10
	for i := range damaged {
		put(fmt.Sprint("damaged", i), 1000, true)
	}
	for i := range healthy {
		put(fmt.Sprint("healthy", i), 2000, false)
	}
	err := s.db.Write(&b, sift.NoSync)
	s.expiring.due(1000)
	s.world.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the healthy keys are removed", func() bool { return s.stats.expired.Load() == healthy })
	if got, ok := c.do("GET", "damaged0").(failure); !ok {
		t.Errorf("GET of a damaged key: %v", got)
	}
	for i := range healthy {
		if has, err := s.db.Has(append(appendSpace(nil, spaceHead, 0), fmt.Sprint("healthy", i)...)); has || err != nil {
			t.Error("an expired key is still there", err)
		}
	}
}

// The collector does not mistake a filter that moves from one database to another for a deleted
// one, and keeps its entries.
func TestMovedFilterIsKept(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	c := localClient(s)
	run := func(call, want string) bool {
		c.w.Buf = c.w.Buf[:0]
		args := fields(call)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil || string(c.w.Buf) != want {
			t.Errorf("%s: %q, %v", call, c.w.Buf, err)
			return false
		}
		return true
	}
	if !run("BF.ADD f x", ":1\r\n") {
		return
	}
	id := filterOf(s, "f").id
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for to := numDatabases - 1; ; to = numDatabases - 1 - to {
			select {
			case <-stop:
				return
			default:
			}
			if !run(fmt.Sprintf("MOVE f %d", to), ":1\r\n") {
				return
			}
			c.db = to
		}
	}()
	for i := range 5000 {
		if named, err := s.isNamed(id); err != nil || !named {
			t.Errorf("try %d: the moved filter counts as named: %v, %v", i, named, err)
			break
		}
	}
	close(stop)
	<-done
}

// Filters that are deleted faster than the collector works are removed, too.
func TestCollectorFallsBehind(t *testing.T) {
	db, _ := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	s.ctx = t.Context()
	c := localClient(s)
	run := func(call string) {
		args := fields(call)
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (n int) {
		for _, space := range []byte{spaceHead, spaceName, spaceFilter} {
			for _, err := range db.Scan(&sift.IterOptions{Prefix: []byte{space}}) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
		}
		return n
	}
	for _, last := range []string{"DEL f", "FLUSHDB"} {
		run("BF.ADD f x")
		for len(s.garbage) < cap(s.garbage) {
			s.garbage <- 1 << 40
		}
		run(last)
		for len(s.garbage) > 0 {
			if err := s.collect(<-s.garbage); err != nil {
				t.Fatal(err)
			}
		}
		if n := left(); n > 0 {
			t.Errorf("%s: %d entries are left", last, n)
		}
	}
}

// waitFor waits until is returns true, for up to a minute. what describes the condition.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

// TestCollectorTriesAgain: what FLUSHDB leaves behind is removed even if that fails at first, as
// while the disk is full.
func TestCollectorTriesAgain(t *testing.T) {
	db, fsys := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	s.collectPause = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	s.ctx = ctx
	c := localClient(s)
	run := func(args ...[]byte) {
		c.do(lookup(args[0]), args)
		if err := c.finishWrites(); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.NewChaCha8([32]byte{})
	for i := range 64 {
		value := make([]byte, 2*minDrop/64) // incompressible
		rng.Read(value)
		run([]byte("SET"), fmt.Append(nil, "key", i), value)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.collector()
	}()
	defer func() {
		cancel()
		<-done
	}()
	s.garbage <- 1 << 40
	waitFor(t, "the collector waits for filters", func() bool { return len(s.garbage) == 0 })
	var refused atomic.Int64
	fsys.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpCreate && strings.HasSuffix(op.Name, ".ldb") {
			refused.Add(1)
			return syscall.ENOSPC
		}
		return nil
	})
	run([]byte("FLUSHDB"))
	waitFor(t, "a flush fails and is retried", func() bool { return refused.Load() > 1 })
	fsys.SetHook(nil)
	waitFor(t, "the old keys are removed", func() bool {
		for _, err := range db.Scan(&sift.IterOptions{Prefix: []byte{spaceHead}}) {
			if err != nil {
				t.Fatal(err)
			}
			return false
		}
		return true
	})
}

// TestSaveStatus: INFO reports a save that is running, and how the last one ended.
func TestSaveStatus(t *testing.T) {
	db, fsys := faultyStore(t)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo})
	if err != nil {
		t.Fatal(err)
	}
	status := func() string {
		info := doAll(t, s, []string{"INFO", "persistence"})
		_, running, _ := strings.Cut(info, "rdb_bgsave_in_progress:")
		_, last, _ := strings.Cut(info, "rdb_last_bgsave_status:")
		return running[:1] + " " + strings.Fields(last)[0]
	}
	doAll(t, s, []string{"SET", "k", "v"})
	if got := status(); got != "0 ok" {
		t.Errorf("before a save: %s", got)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fsys.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpCreate && strings.HasSuffix(op.Name, ".ldb") {
			once.Do(func() { close(entered); <-leave })
			return syscall.ENOSPC
		}
		return nil
	})
	doAll(t, s, []string{"BGSAVE"})
	<-entered
	if got := status(); got != "1 ok" {
		t.Errorf("during a save: %s", got)
	}
	close(leave)
	waitFor(t, "the save has failed", func() bool { return status() == "0 err" })
	fsys.SetHook(nil)
	waitFor(t, "SAVE succeeds", func() bool { return strings.HasPrefix(doAll(t, s, []string{"SAVE"}), "+OK") })
	if got := status(); got != "0 ok" {
		t.Errorf("after SAVE: %s", got)
	}
}

// failures counts the failures of the collector that are logged.
type failures struct{ n atomic.Int64 }

func (f *failures) Enabled(context.Context, slog.Level) bool { return true }
func (f *failures) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f *failures) WithGroup(string) slog.Handler            { return f }

func (f *failures) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "removing old entries failed" {
		f.n.Add(1)
	}
	return nil
}

// TestCollectorGivesWay: while old entries cannot be removed, as with damage, the collector looks
// for them less and less often.
func TestCollectorGivesWay(t *testing.T) {
	db, fsys := faultyStore(t)
	logged := new(failures)
	s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo, Logger: slog.New(logged)})
	if err != nil {
		t.Fatal(err)
	}
	doAll(t, s, []string{"SET", "k", "v"})
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	fsys.SetHook(func(op vfstest.Op) error {
		if op.Kind == vfstest.OpReadAt {
			return syscall.EIO
		}
		return nil
	})
	defer fsys.SetHook(nil)
	doAll(t, s, []string{"FLUSHDB"})
	s.collectPause = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	s.ctx = ctx
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.collector()
	}()
	time.Sleep(time.Second)
	cancel()
	<-done
	if n := logged.n.Load(); n == 0 || n > 20 {
		t.Errorf("%d attempts in a second", n)
	}
}
