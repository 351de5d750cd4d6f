//go:build linux

package block

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	budget = flag.Duration("budget", time.Minute, "the time for all file systems together")
	seed   = flag.Uint64("seed", 0, "the seed of a run to repeat, except for its timing; 0: a random one")
	keep   = flag.String("keep", "", "a directory for images that violate a guarantee")
)

// TestMain serves a disk if a test started this process for that.
func TestMain(m *testing.M) {
	if dir := os.Getenv(serveEnv); dir != "" {
		seed, _ := strconv.ParseUint(os.Getenv(serveEnv+"_SEED"), 10, 64)
		if err := serve(dir, seed); err != nil {
			fmt.Fprintln(os.Stderr, "disk:", err)
			os.Exit(1)
		}
		return
	}
	go endOnSignal()
	os.Exit(m.Run())
}

// tempDirs are the directories that tempDir has made.
var tempDirs sync.Map

// tempDir is t.TempDir, in memory if possible: images are written there all the time.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "block")
	if err != nil {
		dir = t.TempDir()
	}
	tempDirs.Store(dir, true)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// endOnSignal ends the program when it is interrupted. It removes the temporary directories, and
// first unmounts what is mounted in them, which also detaches the loop devices.
func endOnSignal() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	<-end
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for dir := range tempDirs.Range {
		for line := range strings.Lines(string(mounts)) {
			if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir.(string)+"/") {
				_ = unix.Unmount(f[1], unix.MNT_DETACH)
			}
		}
		_ = os.RemoveAll(dir.(string))
	}
	os.Exit(1)
}

// TestBlock cuts the power below every file system that the kernel has. No guarantee may be
// violated.
func TestBlock(t *testing.T) {
	var usable []*fileSystem
	for i := range fileSystems {
		if f := &fileSystems[i]; f.missing() == "" && f.name != "ext4-fast-commit" {
			usable = append(usable, f)
		}
	}
	for i := range fileSystems {
		f := &fileSystems[i]
		if f.name == "ext4-fast-commit" {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			if why := f.missing(); why != "" {
				t.Skip(why)
			}
			s, err := runs(t, f, siftEngine, *budget/time.Duration(len(usable)))
			t.Log(s)
			if s.reclaims == 0 {
				t.Log("without a shortage of memory: it needs a memory cgroup that root can create")
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

var engines = flag.Bool("engines", false, "run the other engines, too")

// TestEngines tests other engines as TestBlock tests sift. It reports violations and does not fail.
func TestEngines(t *testing.T) {
	if !*engines {
		t.Skip("only with -engines")
	}
	for _, e := range others {
		t.Run(e.name, func(t *testing.T) {
			var all stats
			var first error
			for i := range fileSystems[:4] {
				if f := &fileSystems[i]; f.missing() == "" {
					s, err := many(t, f, e, *budget/time.Duration(4*len(others)))
					all.add(s)
					if first == nil {
						first = err
					}
				}
			}
			t.Logf("%s; the first violation: %v", all, first)
		})
	}
}

// many repeats runs until the time is up, even after violations.
func many(t *testing.T, f *fileSystem, e engine, budget time.Duration) (all stats, first error) {
	t.Helper()
	for until := time.Now().Add(budget); time.Now().Before(until); {
		s, err := runs(t, f, e, time.Until(until))
		all.add(s)
		if first == nil {
			first = err
		}
		if _, ok := errors.AsType[*violation](err); err != nil && !ok {
			t.Fatal(err)
		}
	}
	return all, first
}

// runs repeats a run of an engine on a file system, each time with another seed, until the time is
// up or a guarantee is violated.
func runs(t *testing.T, f *fileSystem, e engine, budget time.Duration) (s stats, err error) {
	t.Helper()
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1 << 32)
	}
	t.Logf("-seed %d", first)
	empty := filepath.Join(tempDir(t), "empty")
	if err := f.make(empty); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(budget)
	for n := first; time.Now().Before(until); n++ {
		r := &run{fs: f, engine: e, dir: tempDir(t), rng: rand.New(rand.NewPCG(n, 5)), writes: 160, images: 60, keep: *keep, until: until}
		if err := copyFile(filepath.Join(r.dir, baseName), empty); err != nil {
			t.Fatal(err)
		}
		err := r.do(nil)
		s.add(r.stats)
		os.RemoveAll(r.dir)
		if err != nil {
			return s, fmt.Errorf("-seed %d: %w", n, err)
		}
	}
	return s, nil
}

// TestCutter compares the images of a cutter with a disk that is computed event by event.
func TestCutter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const sectors = 64
	tp := &tape{base: make([]byte, sectors*sectorBytes)}
	busy := map[uint64]bool{}
	for i := range 400 {
		if rng.IntN(5) == 0 {
			e := event{flush: true, upTo: uint64(max(0, i-rng.IntN(3)))}
			for b := range maps.Keys(busy) {
				if b < e.upTo {
					e.except = append(e.except, b)
				}
			}
			clear(busy)
			tp.events = append(tp.events, e)
			continue
		}
		n := 1 + rng.IntN(4)
		data := make([]byte, n*sectorBytes)
		for j := range data {
			data[j] = byte(i + 1)
		}
		tp.events = append(tp.events, event{off: int64(rng.IntN(sectors-n)) * sectorBytes, data: data})
		if rng.IntN(8) == 0 {
			busy[uint64(i)] = true
		}
	}
	c := newCutter(tp)
	for clock := range len(tp.events) + 1 {
		// The last event that wrote each sector, and the last of those that a flush covers.
		last, safe := make([]int, sectors), make([]int, sectors)
		durable := make([]bool, clock)
		for _, e := range tp.events[:clock] {
			if !e.flush {
				continue
			}
			out := map[uint64]bool{}
			for _, x := range e.except {
				out[x] = true
			}
			for j := range e.upTo {
				durable[j] = durable[j] || !out[j]
			}
		}
		for i, e := range tp.events[:clock] {
			for s := int(e.off) / sectorBytes; s < (int(e.off)+len(e.data))/sectorBytes; s++ {
				last[s] = i + 1
				if durable[i] {
					safe[s] = i + 1
				}
			}
		}
		for s := keepNone; s < survivals; s++ {
			c.cut(clock, s, rng)
			for sector := range sectors {
				got := int(c.image[sector*sectorBytes])
				for i := 1; i < sectorBytes; i++ {
					if int(c.image[sector*sectorBytes+i]) != got {
						t.Fatalf("clock %d: sector %d is torn", clock, sector)
					}
				}
				switch {
				case s == keepAll && got != last[sector]&0xff:
					t.Fatalf("clock %d, all kept: sector %d is of event %d, want %d", clock, sector, got, last[sector])
				case s == keepNone && got != safe[sector]&0xff:
					t.Fatalf("clock %d, none kept: sector %d is of event %d, want %d", clock, sector, got, safe[sector])
				case last[sector] == safe[sector] && got != last[sector]&0xff:
					t.Fatalf("clock %d: sector %d is of event %d, want %d, which was flushed", clock, sector, got, last[sector])
				}
			}
		}
	}
}
