package measure

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

var block []byte

func TestCost(t *testing.T) {
	from := Now()
	deadline := time.Now().Add(50 * time.Millisecond)
	n := 0
	for time.Now().Before(deadline) {
		block = make([]byte, 1000)
		n++
	}
	c := from.Since()
	if c.Elapsed < 50*time.Millisecond {
		t.Errorf("elapsed %v", c.Elapsed)
	}
	if c.Mallocs < uint64(n) || c.AllocBytes < uint64(1000*n) {
		t.Errorf("%d allocations of %d bytes, want at least %d of 1000", c.Mallocs, c.AllocBytes, n)
	}
	// The CPU time depends on the machine's load, but it is not 0.
	if c.CPU <= 0 || c.CPU > time.Duration(runtime.NumCPU()+1)*c.Elapsed {
		t.Errorf("CPU time %v in %v", c.CPU, c.Elapsed)
	}
	if c.OthersCPU > 1 || c.OthersCPU < 0 && c.OthersCPU != -1 {
		t.Errorf("other processes used %v of the machine", c.OthersCPU)
	}
	if runtime.GOOS == "linux" {
		if now, peak := RSS(); now <= 0 || peak < now/2 {
			t.Errorf("resident memory %d, peak %d", now, peak)
		}
		if m := ThisMachine("."); m.Cores < 1 || m.MemoryBytes <= 0 || m.System == "" {
			t.Errorf("machine %+v", m)
		}
	}
}

func TestLatencies(t *testing.T) {
	l := NewLatencies()
	for i := 1; i <= 1000; i++ {
		l.Add(time.Duration(i))
	}
	l.Add(time.Hour) // counts as a minute
	for _, c := range []struct {
		q    float64
		want int64
	}{{0.5, 501}, {0.99, 991}} {
		if got := l.Quantile(c.q); got < c.want-2 || got > c.want+2 {
			t.Errorf("quantile %v is %d, want %d", c.q, got, c.want)
		}
	}
	if got := l.Max(); got < int64(59*time.Second) || got > int64(61*time.Second) {
		t.Errorf("the maximum is %d, want about a minute", got)
	}
	bars := l.Bars()
	var sum int64
	for i, b := range bars {
		sum += b.Count
		if b.To != 2*b.From || i > 0 && b.From < bars[i-1].To {
			t.Errorf("bar %d is %+v after %+v", i, b, bars[max(0, i-1)])
		}
	}
	if sum != 1001 || bars[0] != (Bar{1, 2, 1}) || bars[1] != (Bar{2, 4, 2}) {
		t.Errorf("%d latencies in bars %v", sum, bars)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{7}, 7}, {[]float64{9, 1}, 5}, {[]float64{3, 100, 1}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	if got := Median(nil); got == got {
		t.Errorf("Median(nil) = %v, want NaN", got)
	}
}

// TestCommitIgnoresResults checks that results that were just measured do not count as changes.
func TestCommitIgnoresResults(t *testing.T) {
	t.Chdir(t.TempDir())
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Skipf("git: %v %s", err, out)
		}
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("bench/results", 0o755); err != nil {
		t.Fatal(err)
	}
	write("bench/results/result.json", "1")
	write("a.go", "1")
	git("init", "-q")
	git("add", ".")
	git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x")
	write("bench/results/result.json", "2")
	t.Chdir("bench")
	if c := Commit(); c == "" || strings.HasSuffix(c, "+") {
		t.Errorf("after changing a result: %q", c)
	}
	write("../a.go", "2")
	if c := Commit(); !strings.HasSuffix(c, "+") {
		t.Errorf("after changing a source: %q", c)
	}
}
