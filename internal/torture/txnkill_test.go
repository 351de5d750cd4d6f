package torture

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
	"github.com/siftdb/sift/internal/torture/serial"
)

const (
	txnDirEnv = "SIFT_TORTURE_TXN_DIR" // DIR,LIFE
	// txnLives is how many processes use one set of keys.
	txnLives = 3
	// lifeTime is longer than a process lives, on its clock.
	lifeTime = int64(time.Hour)
)

// txnLine is what the child prints of a transaction, before it commits and after.
type txnLine struct {
	Txn  serial.Txn
	Done bool
}

// transactUntilKilled is the child: it runs transactions and prints them.
func transactUntilKilled(env string) {
	fail := func(err error) {
		fmt.Printf("error %v\n", err)
		os.Exit(2)
	}
	dir, text, _ := strings.Cut(env, ",")
	var life int64
	if _, err := fmt.Sscan(text, &life); err != nil {
		fail(err)
	}
	db, err := sift.Open(dir, killOptions)
	if err != nil {
		fail(err)
	}
	w := newTxnLoad(db, false, fmt.Sprintf("%d/", life/txnLives))
	w.value.Store(life * 1_000_000)
	begin := time.Now()
	w.clock = func() int64 { return life*lifeTime + int64(time.Since(begin)) }
	say := func(t *serial.Txn, done bool) {
		line, err := json.Marshal(txnLine{*t, done})
		if err != nil {
			fail(err)
		}
		// One write call per line, so that lines are whole.
		if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
			os.Exit(3)
		}
	}
	w.began = func(t *serial.Txn) { say(t, false) }
	var wg sync.WaitGroup
	for c := range 6 {
		rng := rand.New(rand.NewPCG(uint64(life), uint64(c)))
		wg.Go(func() {
			for i := 0; ; i++ {
				t, _, err := w.one(rng, fmt.Sprintf("%d.%d.%d", life, c, i))
				if err != nil {
					fail(err)
				}
				say(&t, true)
				if c == 0 && i%50 == 49 {
					if err := db.Flush(); err != nil {
						fail(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestTxnKill kills processes that run transactions, and checks their common history: a
// kill loses nothing that was acknowledged, and leaves no part of a transaction.
func TestTxnKill(t *testing.T) { runTxnKill(short(t)) }

func runTxnKill(p *plan) {
	self, err := os.Executable()
	if err != nil {
		p.t.Skipf("cannot find the test binary: %v", err)
	}
	root := p.t.TempDir()
	var kills, txns, commits atomic.Int64
	p.rounds(func(seed uint64) {
		p.each(choose(p, 1, 2), func(i int) error {
			dir := filepath.Join(root, fmt.Sprintf("%d-%d", seed, i))
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for set := range choose(p, 2, 6) {
				history := map[string]serial.Txn{}
				for life := set * txnLives; life < (set+1)*txnLives; life++ {
					delay := time.Duration(30+rng.IntN(120)) * time.Millisecond
					if err := killTxns(self, dir, life, delay, history); err != nil {
						return fmt.Errorf("seed %d, kill %d: %w", seed, life, err)
					}
					kills.Add(1)
				}
				if err := checkKilled(dir, set, history, &txns, &commits); err != nil {
					return fmt.Errorf("seed %d, set %d: %w", seed, set, err)
				}
			}
			return os.RemoveAll(dir)
		})
	})
	p.t.Logf("%d kills, %d transactions, %d of them acknowledged", kills.Load(), txns.Load(), commits.Load())
	if commits.Load() == 0 {
		p.t.Error("no transaction was ever acknowledged")
	}
}

// killTxns runs a child for a while and kills it.
func killTxns(self, dir string, life int, delay time.Duration, history map[string]serial.Txn) error {
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d", txnDirEnv, dir, life))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	in := bufio.NewReader(out)
	var timer *time.Timer
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				return err
			}
			if timer == nil || timer.Stop() {
				_ = cmd.Wait() // its state says more
				return fmt.Errorf("the child ended by itself: %v\n%s", cmd.ProcessState, stderr.String())
			}
			return nil // the last line may be cut short
		}
		if timer == nil { // it has opened the database
			timer = time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
		}
		if strings.HasPrefix(line, "error ") {
			return errors.New(strings.TrimSpace(line))
		}
		var l txnLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return fmt.Errorf("the child printed %q: %w", line, err)
		}
		if !l.Done {
			l.Txn.NoEnd = true // it may have ended at any time before the kill
		}
		history[l.Txn.Name] = l.Txn
	}
}

// checkKilled checks the transactions of some lives together with the contents after them.
func checkKilled(dir string, set int, history map[string]serial.Txn, txns, commits *atomic.Int64) error {
	db, err := sift.Open(dir, killOptions)
	if err != nil {
		return err
	}
	last, err := newTxnLoad(db, false, fmt.Sprintf("%d/", set)).all()
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	last.Name, last.Start = "last", int64(set+1)*txnLives*lifeTime
	last.End = last.Start
	h := []serial.Txn{last}
	for _, t := range history {
		h = append(h, t)
	}
	count(h, txns, commits)
	return serial.Lists(h)
}

// TestTxnKillNoticesEnd checks that a child that ends by itself does not count as killed.
func TestTxnKillNoticesEnd(t *testing.T) {
	self, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	if err := killTxns(self, t.TempDir(), 0, time.Minute, map[string]serial.Txn{}); err == nil {
		t.Error("a child that ended by itself counts as killed")
	}
}
