package sift_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

var killRounds = flag.Int("kill.rounds", 5, "how often the writing child is killed")

const (
	killDirEnv  = "SIFT_TEST_KILL_DIR"
	killWriters = 4
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDirEnv); dir != "" {
		writeUntilKilled(dir)
		return
	}
	os.Exit(m.Run())
}

var killOptions = &sift.Options{
	MemtableBytes: 64 << 10, TableBytes: 32 << 10, LevelBaseBytes: 128 << 10, LevelMultiplier: 4,
}

func killKey(writer, n int) []byte { return fmt.Appendf(nil, "%d/%09d", writer, n) }

func killValue(writer, n int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%d:%d;", writer, n), 1+n%40)
}

// countWritten returns how many keys a writer has in the database, and fails if
// they are not the first so many, each with its value. A batch holds the keys
// n and n+1 for even n.
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

// writeUntilKilled is the child: it writes, and says on standard output what
// has been acknowledged.
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
				if w == 0 {
					o = sift.NoSync // a killed process loses nothing that it wrote
				}
				if err := db.Write(&b, o); err != nil {
					fail(err)
				}
				// One write call a line, so that lines are whole.
				os.Stdout.WriteString(fmt.Sprintf("%d %d\n", w, n+2))
			}
		})
	}
	wg.Wait()
}

// TestKill kills a process that writes, over and over, and checks that every
// write that it saw acknowledged is there.
func TestKill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Skipf("cannot find the test binary: %v", err)
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 1))
	var acked [killWriters]int
	for round := range *killRounds {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), killDirEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(20+rng.IntN(300))*time.Millisecond, func() { cmd.Process.Kill() })
		if err := readAcks(out, &acked); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		cmd.Wait()
		db, err := sift.Open(dir, killOptions)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for w := range acked {
			n, err := countWritten(db, w)
			if err != nil || n < acked[w] {
				t.Fatalf("round %d, writer %d: %d keys, %d acknowledged: %v", round, w, n, acked[w], err)
			}
			acked[w] = n
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		checkClean(t, dir, killOptions)
	}
	t.Logf("%d kills; keys at the end: %v", *killRounds, acked)
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
			return fmt.Errorf("child said %q", line)
		}
		acked[writer] = max(acked[writer], count)
	}
}
