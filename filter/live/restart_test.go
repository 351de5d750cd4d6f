package live

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var restartKills = flag.Int("live.kills", 3, "number of times that TestRestart kills a process that saves filters, for each kind")

// restartKinds are filters that one process writes and another one reads.
var restartKinds = map[string]string{
	"Bloom":       "bloom(items=20000,fpr=0.0001)",
	"Counting":    "counting(items=20000,fpr=0.0001)",
	"Cuckoo":      "cuckoo(items=20000,fpr=0.0001)",
	"Scalable":    "scalable(items=100,fpr=0.0001)",
	"Generations": "generations(items=60000,fpr=0.0001)",
	"Dedup":       "dedup(items=20000,fpr=0.0001)",
	"Rotating":    "rotating(items=20000,fpr=0.0001)",
	"Pair":        "pair(added=bloom(items=20000,fpr=0.0001),removed=bloom(items=10,fpr=1e-9))",
	"Sharded":     "sharded(shards=4,of=counting(items=6000,fpr=0.0001))",
	"Layered":     "bloom(items=20000,fpr=0.0001)",
	"Cold":        "bloom(items=20000,fpr=0.0001,scheme=blocked)",
}

// restartFilter returns a filter of a kind, and the filter in which it is saved.
func restartFilter(kind string) (f Filter[int], whole fileFilter) {
	none := func(context.Context) iter.Seq2[int, error] { return func(func(int, error) bool) {} }
	f = must(Build(must(Parse(restartKinds[kind])), BuildOptions[int]{Source: none}))
	switch kind {
	case "Layered":
		return f, NewLayered(Hot(Prober[int](f)))
	case "Cold":
		return f, &coldForm{bloom: f.(*Bloom[int])}
	}
	return f, f
}

type fileFilter interface {
	io.WriterTo
	io.ReaderFrom
}

// coldForm is a Bloom that is written for OpenCold and read as a Cold.
type coldForm struct {
	bloom *Bloom[int]
	Cold[int]
}

func (c *coldForm) WriteTo(w io.Writer) (int64, error) { return c.bloom.WriteCold(w) }

// TestRestart kills a process that repeatedly writes its filter to a file. The next process reads
// the file, finds the elements added before the last acknowledged write, and continues.
func TestRestart(t *testing.T) {
	for kind := range restartKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "filter")
			saved := 0
			for range *restartKills {
				saved = killWhileSaving(t, kind, path, saved)
				f, whole := restartFilter(kind)
				if err := ReadFile(path, whole); err != nil {
					t.Fatalf("after a kill: %v", err)
				}
				has := f.MayContain
				switch whole := whole.(type) {
				case *Layered[int]:
					has = func(v int) bool { return must(whole.MayContain(v)) }
				case *coldForm:
					has = func(v int) bool { return must(whole.MayContain(v)) }
				}
				for i := 0; i < saved; i += 1 + saved/500 {
					if !has(i) {
						t.Fatalf("%d of %d is not in the acknowledged file", i, saved)
					}
				}
			}
			if saved == 0 {
				t.Error("nothing was saved")
			}
		})
	}
}

// killWhileSaving runs TestSavingProcess in another process and kills it. It returns the number of
// elements in the last file that the process reported.
func killWhileSaving(t *testing.T, kind, path string, from int) int {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestSavingProcess$")
	cmd.Env = append(os.Environ(), "LIVE_SAVE_KIND="+kind, "LIVE_SAVE_PATH="+path, "LIVE_SAVE_FROM="+strconv.Itoa(from))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer watchdog.Stop()
	saved, writes := from, 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Errorf("the process prints %q", lines.Text())
			continue
		}
		if saved = n; writes == 3 { // what it prints until it ends counts
			time.AfterFunc(time.Duration(n%7)*time.Millisecond/2, func() { cmd.Process.Kill() })
		}
		writes++
	}
	cmd.Wait()
	if writes < 4 {
		t.Fatalf("%s: the process ended without a kill after %d files", kind, writes)
	}
	return saved
}

// TestSavingProcess is the process that TestRestart kills.
func TestSavingProcess(t *testing.T) {
	kind, path := os.Getenv("LIVE_SAVE_KIND"), os.Getenv("LIVE_SAVE_PATH")
	if kind == "" {
		t.Skip("run by TestRestart")
	}
	from := must(strconv.Atoi(os.Getenv("LIVE_SAVE_FROM")))
	f, whole := restartFilter(kind)
	if from > 0 {
		if err := ReadFile(path, whole); err != nil {
			t.Fatal(err)
		}
		if l, ok := whole.(*Layered[int]); ok {
			f = l.Layers()[0].(Filter[int])
		}
		if kind == "Cold" { // a Cold cannot be added to: fill its Bloom again
			for i := range from {
				must(TryAdd(f, i))
			}
		}
	}
	for i := from; ; i++ {
		must(TryAdd(f, i))
		if i%50 == 49 {
			if err := WriteFile(path, whole); err != nil {
				t.Fatal(err)
			}
			fmt.Println(i + 1)
		}
		if i == 15_000 {
			t.Fatal("this process was not killed")
		}
	}
}

// Damage is reported with the file's name and the number of bytes read.
func TestReadFileSaysWhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cut.filter")
	whole := must(NewBloom[string](BloomOptions[string]{Items: 1000, FPR: 0.01}))
	if err := WriteFile(path, whole); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	err := ReadFile(path, whole)
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "in the first 100 bytes") {
		t.Error(err)
	}
}
