package torture

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/vfs"
)

const (
	killDirEnv  = "SIFT_TORTURE_KILL_DIR"
	killWriters = 4
	// killsPerDatabase is the number of kills of one database. It is limited so that reading the
	// database stays quick.
	killsPerDatabase = 20
)

var killOptions = &sift.Options{
	MemtableBytes: 64 << 10, TableBytes: 32 << 10, LevelBaseBytes: 128 << 10, LevelMultiplier: 4, L0Tables: 2,
}

func killKey(writer, n int) []byte { return fmt.Appendf(nil, "%d/%09d", writer, n) }

func killValue(writer, n int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%d:%d;", writer, n), 1+n%40)
}

// countWritten returns how many of a writer's keys are in the database, and fails if they
// are not a prefix of what it wrote. A batch holds the keys n and n+1 for even n.
func countWritten(db *sift.DB, writer int) (int, error) {
	n := 0
	for e, err := range db.Scan(&sift.IterOptions{Prefix: fmt.Appendf(nil, "%d/", writer)}) {
		if err != nil {
			return n, err
		}
		if !bytes.Equal(e.Key, killKey(writer, n)) || !bytes.Equal(e.Value, killValue(writer, n)) {
			return n, fmt.Errorf("writer %d: entry %d is %q", writer, n, e.Key)
		}
		n++
	}
	if n%2 != 0 {
		return n, fmt.Errorf("writer %d: half a batch: %d keys", writer, n)
	}
	return n, nil
}

// writeUntilKilled is the child: it writes, and prints on standard output what has been
// acknowledged. Meanwhile it flushes and compacts.
func writeUntilKilled(dir string) {
	fail := func(err error) {
		fmt.Printf("error %v\n", err)
		os.Exit(2)
	}
	db, err := sift.Open(dir, killOptions)
	if err != nil {
		fail(err)
	}
	var wg sync.WaitGroup
	for w := range killWriters {
		n, err := countWritten(db, w)
		if err != nil {
			fail(err)
		}
		wg.Go(func() {
			for ; ; n += 2 {
				var b sift.Batch
				b.Put(killKey(w, n), killValue(w, n))
				b.Put(killKey(w, n+1), killValue(w, n+1))
				o := sift.Sync
				if w < 2 {
					o = sift.NoSync // a killed process loses nothing that it wrote
				}
				if err := db.Write(&b, o); err != nil {
					fail(err)
				}
				// One write call per line, so that lines are whole.
				if _, err := os.Stdout.WriteString(fmt.Sprintf("%d %d\n", w, n+2)); err != nil {
					os.Exit(3)
				}
				if w == 0 && n%400 == 398 {
					if err := db.Compact(context.Background(), nil, nil); err != nil {
						fail(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestKill repeatedly kills a process that writes, and checks that every acknowledged write
// is there.
func TestKill(t *testing.T) { runKill(short(t)) }

func runKill(p *plan) {
	self, err := os.Executable()
	if err != nil {
		p.t.Skipf("cannot find the test binary: %v", err)
	}
	if p.full() {
		// The child's goroutines and the parent's keep the machine busy.
		p.t.Setenv("GOMAXPROCS", "2")
	}
	root := p.t.TempDir()
	var kills, keys atomic.Int64
	p.rounds(func(seed uint64) {
		p.each(choose(p, 1, 2), func(i int) error {
			dir := filepath.Join(root, fmt.Sprintf("%d-%d", seed, i))
			k := killer{self: self, dir: dir, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
			for round := range choose(p, 12, killsPerDatabase) {
				if p.over() {
					break
				}
				if err := k.kill(); err != nil {
					return fmt.Errorf("seed %d, database %d, kill %d: %w", seed, i, round, err)
				}
				kills.Add(1)
			}
			for _, n := range k.acked {
				keys.Add(int64(n))
			}
			return os.RemoveAll(dir)
		})
	})
	p.t.Logf("%d kills, %d keys acknowledged", kills.Load(), keys.Load())
	if keys.Load() == 0 {
		p.t.Error("no write was ever acknowledged")
	}
}

// killer kills children that write to one database.
type killer struct {
	self  string
	dir   string
	rng   *rand.Rand
	acked [killWriters]int
}

func (k *killer) kill() error {
	cmd := exec.Command(k.self)
	cmd.Env = append(os.Environ(), killDirEnv+"="+k.dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Most children are killed at work, some while they open the database.
	delay := time.Duration(10+k.rng.IntN(150)) * time.Millisecond
	if runtime.GOOS == "windows" {
		delay *= 10 // a process takes longer to start, especially under Wine
	}
	timer := time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
	err = readAcks(out, &k.acked)
	early := timer.Stop()
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	switch {
	case err != nil:
		return err
	case early:
		return fmt.Errorf("the child ended by itself: %v\n%s", cmd.ProcessState, stderr.String())
	}
	return k.check()
}

func (k *killer) check() error {
	db, err := sift.Open(k.dir, killOptions)
	if err != nil {
		return err
	}
	for w := range k.acked {
		n, err := countWritten(db, w)
		if err != nil || n < k.acked[w] {
			return errors.Join(fmt.Errorf("writer %d: %d keys, %d acknowledged: %w", w, n, k.acked[w], err), db.Close())
		}
		k.acked[w] = n
	}
	if err := db.Close(); err != nil {
		return err
	}
	e := &Env{Options: *killOptions}
	return checkClean(e, vfs.OS, k.dir)
}

// readAcks reads the child's lines until it is gone; the last may be cut short.
func readAcks(out io.Reader, acked *[killWriters]int) error {
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
				return nil
			}
			return err
		}
		if strings.HasPrefix(line, "error ") {
			return errors.New(strings.TrimSpace(line))
		}
		w, n, ok := strings.Cut(strings.TrimSpace(line), " ")
		writer, err1 := strconv.Atoi(w)
		count, err2 := strconv.Atoi(n)
		if !ok || err1 != nil || err2 != nil || writer >= killWriters {
			return fmt.Errorf("the child printed %q", line)
		}
		acked[writer] = max(acked[writer], count)
	}
}
