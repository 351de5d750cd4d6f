package torture

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/siftdb/sift/internal/vfs/vfstest"
)

var (
	budget = flag.Duration("budget", 0, "how long TestFull may take in all; 0: it is skipped")
	rounds = flag.Uint64("rounds", 0, "how many rounds a part of TestFull makes at most; 0: as many as there is time for")
	seed   = flag.Uint64("seed", 1, "the first random seed")
	keep   = flag.String("keep", "", "the directory for disk images that violate a guarantee")
)

// TestMain runs a child of TestKill, TestTxnKill or TestLong, or the tests, which must leave no
// goroutine behind.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killDirEnv); dir != "" {
		writeUntilKilled(dir)
		return
	}
	if env := os.Getenv(txnDirEnv); env != "" {
		transactUntilKilled(env)
		return
	}
	if dir := os.Getenv(longDirEnv); dir != "" {
		longChild(dir)
		return
	}
	debug.SetGCPercent(400)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // tests damage their databases
	goleak.VerifyTestMain(m)
}

// plan says how much a part of the tests does: one round, or as many as there is
// time for.
type plan struct {
	t     *testing.T
	seed  uint64
	until time.Time // the zero time in the short form
}

func short(t *testing.T) *plan {
	t.Logf("seed %d", *seed)
	return &plan{t: t, seed: *seed}
}

// full reports whether this is the full form.
func (p *plan) full() bool { return !p.until.IsZero() }

// over reports whether the time is up.
func (p *plan) over() bool { return p.full() && time.Now().After(p.until) }

// choose returns one of two values, for the short and the full form.
func choose[T any](p *plan, short, full T) T {
	if p.full() {
		return full
	}
	return short
}

// rounds calls f with one seed after another.
func (p *plan) rounds(f func(seed uint64)) {
	for round := uint64(0); ; round++ {
		f(p.seed + round)
		if !p.full() || p.over() || p.t.Failed() || round+1 == *rounds {
			return
		}
	}
}

// each calls f for every i below n, several at a time, and reports the errors.
// It returns how many calls there were: fewer if the time was up, or after a few
// errors, with -failfast after one.
func (p *plan) each(n int, f func(i int) error) (calls int) {
	p.t.Helper()
	enough := int64(5)
	if flag.Lookup("test.failfast").Value.String() == "true" {
		enough = 1
	}
	var next, done, bad atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !p.over() && bad.Load() < enough {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				err := f(i)
				done.Add(1)
				if err != nil {
					bad.Add(1)
					mu.Lock()
					p.t.Error(err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return int(done.Load())
}

// parts are the parts of TestFull. Each has a share of its budget.
var parts = []struct {
	name  string
	share int
	run   func(*plan)
}{
	{"cut", 5, runCut},
	{"damage", 4, runDamage},
	{"errors", 5, runErrors},
	{"failedsync", 2, runFailedSync},
	{"space", 2, runSpace},
	{"closing", 3, runClosing},
	{"kill", 5, runKill},
	{"metamorphic", 4, runMetamorphic},
	{"linear", 4, runLinear},
	{"txn", 4, runTxn},
	{"txnkill", 3, runTxnKill},
	{"stress", 4, runStress},
}

// TestFull runs all parts within the time that -budget gives. With -run Full/PART, one part has all
// of it.
func TestFull(t *testing.T) {
	if *budget == 0 {
		t.Skip("the full form needs -budget")
	}
	shares := 0
	for _, part := range parts {
		shares += part.share
	}
	one := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			share := *budget * time.Duration(part.share) / time.Duration(shares)
			if one {
				share = *budget
			}
			t.Logf("seed %d, %v", *seed, share.Round(time.Second))
			part.run(&plan{t: t, seed: *seed, until: time.Now().Add(share)})
		})
	}
}

// keepDisk writes a disk to the directory that -keep names.
func keepDisk(t *testing.T, mem *vfstest.Mem, dir, name string) {
	if *keep == "" {
		return
	}
	to := filepath.Join(*keep, name)
	files, err := filesOf(mem, dir)
	if err == nil {
		err = os.MkdirAll(to, 0o755)
	}
	for name, b := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o644)
		}
	}
	if err != nil {
		t.Logf("keeping a disk: %v", err)
		return
	}
	t.Logf("the disk is in %s", to)
}
