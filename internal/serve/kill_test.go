package serve

import (
	"bufio"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"go.uber.org/goleak"
)

// TestMain runs the tests, or a server if a test has started this process as one.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SIFT_SERVE_CHILD"); dir != "" {
		fmt.Println(child(dir))
		os.Exit(1)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // tests make stores fail
	goleak.VerifyTestMain(m)
}

func child(dir string) error {
	db, err := sift.Open(dir, &sift.Options{MemtableBytes: 1 << 20})
	if err != nil {
		return err
	}
	fsync, err := ParseFsync(os.Getenv("SIFT_SERVE_FSYNC"))
	if err != nil {
		return err
	}
	cfg := Config{Addr: "127.0.0.1:0", Fsync: fsync, MaxClients: 20_000, Password: os.Getenv("SIFT_SERVE_PASSWORD")}
	if addr := os.Getenv("SIFT_SERVE_ADDR"); addr != "" {
		cfg.Addr = addr
	}
	if most := os.Getenv("SIFT_SERVE_CLIENTS"); most != "" {
		cfg.MaxClients, _ = strconv.Atoi(most)
	}
	cfg.RequestBytes, _ = strconv.ParseInt(os.Getenv("SIFT_SERVE_REQUEST_BYTES"), 10, 64)
	cfg.LimitMemory = true
	way := serving(os.Getenv("SIFT_SERVE_WAY"))
	way.set(&cfg)
	most := cfg.MaxClients
	s, err := New(db, cfg)
	if err != nil {
		return err
	}
	s.cfg.MaxClients = most // its few tables need few descriptors
	way.slow(s)
	s.minRedo = 4 << 10 // checkpoints all the time
	if err := s.Listen(); err != nil {
		return err
	}
	fmt.Println("ready", s.Addr())
	return s.Serve()
}

// spawn starts a server in another process and returns its address.
func spawn(t *testing.T, dir string, fsync Fsync, env ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SIFT_SERVE_CHILD="+dir, "SIFT_SERVE_FSYNC="+fsync.String(), "SIFT_SERVE_WAY="+string(way))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if !ok {
		cmd.Process.Kill()
		t.Fatalf("the server printed %q, %v", line, err)
	}
	return cmd, addr
}

// writer adds items, from next on, to the string keys, the growing Bloom filter and the cuckoo
// filter with its number, until its connection ends. It returns the first item that was not
// acknowledged.
func writer(addr string, number, next, pipeline int) (int, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return next, err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	// The filter grows, but not too often for the number of items that a test adds.
	conn.Write(appendCall(nil, "CF.RESERVE", fmt.Sprintf("c%d", number), "2000", "EXPANSION", "2"))
	if _, err := readReply(r); err != nil {
		return next, nil
	}
	for {
		var b []byte
		for i := next; i < next+pipeline; i++ {
			item := strconv.Itoa(i)
			b = appendCall(b, "SET", fmt.Sprintf("s%d:%d", number, i), item)
			b = appendCall(b, "BF.ADD", fmt.Sprintf("b%d", number), item)
			b = appendCall(b, "CF.ADD", fmt.Sprintf("c%d", number), item)
			b = appendCall(b, "BF.ADD", "shared", fmt.Sprintf("%d:%d", number, i))
		}
		if _, err := conn.Write(b); err != nil {
			return next, nil
		}
		for range pipeline {
			for range 4 {
				v, err := readReply(r)
				if err != nil {
					return next, nil
				}
				if e, ok := v.(failure); ok {
					return next, fmt.Errorf("writer %d: %s", number, e)
				}
			}
			next++
		}
	}
}

// checkWritten checks that all items of a writer below next are there.
func checkWritten(addr string, number, next int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	const step = 500
	for from := 0; from < next; from += step {
		to := min(from+step, next)
		mget := []string{"MGET"}
		bf := []string{"BF.MEXISTS", fmt.Sprintf("b%d", number)}
		cf := []string{"CF.MEXISTS", fmt.Sprintf("c%d", number)}
		shared := []string{"BF.MEXISTS", "shared"}
		for i := from; i < to; i++ {
			mget = append(mget, fmt.Sprintf("s%d:%d", number, i))
			bf, cf = append(bf, strconv.Itoa(i)), append(cf, strconv.Itoa(i))
			shared = append(shared, fmt.Sprintf("%d:%d", number, i))
		}
		if _, err := conn.Write(appendCall(appendCall(appendCall(appendCall(nil, mget...), bf...), cf...), shared...)); err != nil {
			return err
		}
		for _, what := range []string{"string", "Bloom filter", "cuckoo filter", "shared filter"} {
			v, err := readReply(r)
			if err != nil {
				return err
			}
			list, ok := v.([]any)
			if !ok || len(list) != to-from {
				return fmt.Errorf("%s: reply %v", what, v)
			}
			for i, got := range list {
				if got != any(strconv.Itoa(from+i)) && got != any(int64(1)) {
					return fmt.Errorf("%s: item %d of writer %d, which was acknowledged, is %v", what, from+i, number, got)
				}
			}
		}
	}
	return nil
}

// No acknowledged write is lost when the server is killed, with any setting of fsync.
// SIFT_SERVE_KILLS sets how often it is killed, and SIFT_SERVE_FSYNC one setting of fsync for all
// rounds.
func TestKill(t *testing.T) {
	kills, _ := strconv.Atoi(os.Getenv("SIFT_SERVE_KILLS"))
	if kills == 0 {
		kills = 4
	}
	settings := []Fsync{FsyncAlways, FsyncEverySec, FsyncNo}
	if only, err := ParseFsync(os.Getenv("SIFT_SERVE_FSYNC")); err == nil {
		settings = []Fsync{only}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	dir := t.TempDir()
	const writers = 4
	var next [writers]int
	defer func() { way = loops }()
	for round := range kills {
		way = []serving{loops, handedOn, loops, goroutines}[round%4]
		cmd, addr := spawn(t, dir, settings[round%len(settings)])
		for n := range writers {
			if err := checkWritten(addr, n, next[n]); err != nil {
				cmd.Process.Kill()
				cmd.Wait()
				t.Fatalf("round %d: %v", round, err)
			}
		}
		var wg sync.WaitGroup
		var errs [writers]error
		for n := range writers {
			wg.Go(func() { next[n], errs[n] = writer(addr, n, next[n], 1+n*7) })
		}
		time.Sleep(time.Duration(50+rng.IntN(250)) * time.Millisecond)
		cmd.Process.Kill()
		wg.Wait()
		cmd.Wait()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd, addr := spawn(t, dir, FsyncAlways)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	total := 0
	for n := range writers {
		if err := checkWritten(addr, n, next[n]); err != nil {
			t.Fatal(err)
		}
		total += next[n]
	}
	t.Logf("%d kills, %d items in each of four places, none lost", kills, total)
}

// Everything survives a clean shutdown and a restart, including deletions and expiries.
func TestRestart(t *testing.T) { everyWay(t, testRestart) }

func testRestart(t *testing.T) {
	dir := t.TempDir()
	run := func(fn func(c *caller)) {
		db, err := sift.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(db, Config{Addr: "127.0.0.1:0", Fsync: FsyncNo, NoLoops: way == goroutines})
		if err != nil {
			t.Fatal(err)
		}
		way.slow(s)
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.Serve() }()
		c := dial(t, s)
		fn(c)
		c.conn.Close()
		if err := s.Close(time.Second); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var bloom, cuckoo any
	run(func(c *caller) {
		for i := range 3000 {
			c.conn.Write(appendCall(appendCall(nil, "BF.ADD", "b", fmt.Sprint(i)), "CF.ADD", "c", fmt.Sprint(i)))
			c.reply()
			c.reply()
		}
		for i := range 2000 {
			c.do("CF.DEL", "c", fmt.Sprint(i))
		}
		c.do("RENAME", "b", "bb")
		c.do("SET", "s", "v", "EX", "1000")
		c.do("SET", "old", "v")
		c.do("FLUSHALL")
		c.do("SET", "s", "v2", "EX", "1000")
		for i := range 3000 {
			c.do("BF.ADD", "b", fmt.Sprint(i))
			c.do("CF.ADD", "c", fmt.Sprint(i))
		}
		for i := range 2000 {
			c.do("CF.DEL", "c", fmt.Sprint(i))
		}
		c.do("RENAME", "b", "bb")
		c.do("EXPIRE", "bb", "1000")
		c.do("BF.ADD", "gone", "x")
		c.do("DEL", "gone")
		bloom, cuckoo = c.do("BF.DEBUG", "bb"), c.do("CF.DEBUG", "c")
	})
	run(func(c *caller) {
		for _, step := range []struct {
			args []string
			want any
		}{
			{[]string{"GET", "s"}, "v2"},
			{[]string{"TTL", "s"}, int64(1000)},
			{[]string{"TTL", "bb"}, int64(1000)},
			{[]string{"EXISTS", "b", "gone", "old"}, int64(0)},
			{[]string{"BF.DEBUG", "bb"}, bloom},
			{[]string{"CF.DEBUG", "c"}, cuckoo},
			{[]string{"DBSIZE"}, int64(3)},
		} {
			got := c.do(step.args...)
			if n, ok := got.(int64); ok && step.want == any(int64(1000)) && n > 900 {
				got = int64(1000)
			}
			if fmt.Sprint(got) != fmt.Sprint(step.want) {
				t.Errorf("%v: %v, want %v", step.args, got, step.want)
			}
		}
		for i := 2000; i < 3000; i++ {
			if c.do("CF.EXISTS", "c", fmt.Sprint(i)) != any(int64(1)) || c.do("BF.EXISTS", "bb", fmt.Sprint(i)) != any(int64(1)) {
				t.Fatalf("%d is gone", i)
			}
		}
	})
}
