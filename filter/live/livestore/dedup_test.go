package livestore

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// A Dedup is exact, whatever its filter returns: at an FPR of 0.5, half of the new elements are
// false positives.
func TestExact(t *testing.T) {
	dir := t.TempDir()
	db := must(sift.Open(dir, nil))
	o := Options[string]{Prefix: "seen/", FPR: 0.5, NoSync: true}
	d := must(Open(db, o))
	if err := db.Put([]byte("other"), []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	const n = 5000
	for i := range n {
		v := strconv.Itoa(i)
		if isNew, err := d.Add(v); !isNew || err != nil {
			t.Fatalf("%s: %v, %v", v, isNew, err)
		}
		if isNew, err := d.Add(v); isNew || err != nil {
			t.Fatalf("%s again: %v, %v", v, isNew, err)
		}
	}
	vs := []string{"7", "a", "b", "a", "4999", "c"}
	isNew := make([]bool, len(vs))
	if k, err := d.AddMany(vs, isNew); k != len(vs) || err != nil || !slices.Equal(isNew, []bool{false, true, true, false, false, true}) {
		t.Errorf("AddMany: %d, %v, %v", k, err, isNew)
	}
	if d.Seen() != 2*n+6 || d.Dropped() != n+3 || d.Reads() < n {
		t.Errorf("seen %d, dropped %d, reads %d", d.Seen(), d.Dropped(), d.Reads())
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = must(sift.Open(dir, nil))
	defer db.Close()
	d = must(Open(db, o))
	for i := range n + 10 {
		if there, err := d.Contains(strconv.Itoa(i)); there != (i < n) || err != nil {
			t.Fatalf("after a restart %d: %v, %v", i, there, err)
		}
	}
	if _, err := Open(db, Options[float64]{}); err == nil {
		t.Error("floats need a funnel")
	}
}

// Adding new elements rarely reads the store, because the filter excludes them.
func TestReads(t *testing.T) {
	db := must(sift.Open(t.TempDir(), nil))
	defer db.Close()
	d := must(Open(db, Options[int]{NoSync: true}))
	vs := make([]int, 20_000)
	for i := range vs {
		vs[i] = i
	}
	must(d.AddMany(vs, nil))
	if d.Reads() > 400 { // 2%; the FPR is at most 1%
		t.Errorf("%d reads for %d new elements", d.Reads(), len(vs))
	}
}

// If many callers add the same elements, Add returns true for each element to exactly one of them.
func TestOnce(t *testing.T) {
	db := must(sift.Open(t.TempDir(), nil))
	defer db.Close()
	d := must(Open(db, Options[int]{NoSync: true}))
	var first atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				if w%2 == 0 {
					if must(d.Add(i)) {
						first.Add(1)
					}
					continue
				}
				isNew := make([]bool, 2)
				must(d.AddMany([]int{i, 499 - i}, isNew))
				for _, n := range isNew {
					if n {
						first.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	if first.Load() != 500 {
		t.Errorf("%d new elements, want 500", first.Load())
	}
}

// When a process is killed, the store has all elements that were reported as new.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	next := 0
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
		cmd.Env = append(os.Environ(), "LIVESTORE_DIR="+dir)
		out := must(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		watchdog := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		began := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("the process prints %q", lines.Text())
			}
			if n < next {
				t.Errorf("%d is new a second time", n)
			}
			if next = n + 1; !began {
				began = true
				time.AfterFunc(20*time.Millisecond, func() { cmd.Process.Kill() })
			}
		}
		cmd.Wait()
		watchdog.Stop()
		if !began {
			t.Fatal("the process has printed nothing")
		}
	}
}

// TestKilled is the process that TestKill kills.
func TestKilled(t *testing.T) {
	dir := os.Getenv("LIVESTORE_DIR")
	if dir == "" {
		t.Skip("run by TestKill")
	}
	d := must(Open(must(sift.Open(dir, nil)), Options[int]{}))
	for i := range 1 << 20 {
		if must(d.Add(i)) {
			fmt.Println(i)
		}
	}
}

func ExampleDedup() {
	dir, _ := os.MkdirTemp("", "dedup")
	defer os.RemoveAll(dir)
	db, err := sift.Open(dir, nil)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	d, err := Open(db, Options[string]{Prefix: "seen/"})
	if err != nil {
		panic(err)
	}
	for v, err := range d.Unique(slices.Values([]string{"a", "b", "a", "c", "b"})) {
		fmt.Print(v, " ", err, " ")
	}
	fmt.Println(d.Dropped())
	// Output: a <nil> b <nil> c <nil> 2
}
