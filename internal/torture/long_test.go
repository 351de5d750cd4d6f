package torture

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	long    = flag.Duration("long", 0, "how long TestLong runs; 0: it is skipped")
	longOut = flag.String("longout", "", "the files for TestLong's samples and plot, without .csv and .svg")
)

const (
	// longMemory is the limit of the child's control group, on systems that have them.
	longMemory = 192 << 20
	// longSilence is how long the child may go without a sample, and a call without an end.
	longSilence = 2 * time.Minute
	// longPause is when a call may hang, so that the child is not killed before this is known.
	longPause = 30 * time.Second
)

// sampleFields are what is recorded every few seconds.
var sampleFields = []string{
	"seconds", "rss_bytes", "heap_bytes", "descriptors", "goroutines", "tables", "files", "disk_bytes",
	"gets", "writes", "get_p50_us", "get_p99_us", "write_p50_us", "write_p99_us",
	"call_seconds", // how long the longest call that has not ended has taken so far
}

// TestLong has a database under mixed load in a process that is killed now and then, in a control
// group with little memory, on a disk that is slow, full or failing at times. What was acknowledged
// as synced must be there after each kill and each reopening, every call must return, memory and
// descriptors must not grow, and obsolete files must be removed.
func TestLong(t *testing.T) {
	if *long == 0 {
		t.Skip("the long run needs -long")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := &longRun{self: self, dir: filepath.Join(t.TempDir(), "db"), begin: time.Now(), silence: longSilence, pause: longPause, events: map[string]int{}}
	if run.group, err = newMemoryGroup(longMemory); err != nil {
		t.Logf("without a memory limit: %v", err)
	} else {
		defer run.group.remove()
	}
	rng := rand.New(rand.NewPCG(*seed, 31))
	kills := 0
	for time.Since(run.begin) < *long {
		life := min(time.Duration(30+rng.IntN(150))*time.Second, *long-time.Since(run.begin))
		// Every other life uses the host's file system directly, where files are mapped.
		if err := run.life(life, kills%2 == 1); err != nil {
			t.Fatalf("after %v: %v", time.Since(run.begin).Round(time.Second), err)
		}
		kills++
	}
	samples := run.samples
	if len(samples) < 8 {
		t.Fatalf("%d samples are too few", len(samples))
	}
	writeSamples(t, samples, kills)
	report := fmt.Sprintf("%v, %d kills, %d samples, %d acknowledged writes found, events %v\n",
		time.Since(run.begin).Round(time.Second), kills, len(samples), run.acked, run.events)
	for i, name := range sampleFields[1:] {
		first, last := quarters(samples, i+1)
		report += fmt.Sprintf("%-14s median of the first quarter %14.0f, of the last %14.0f\n", name, first, last)
		slack := map[string]float64{"rss_bytes": 32 << 20, "heap_bytes": 32 << 20, "descriptors": 16, "goroutines": 8, "files": 16, "disk_bytes": 16 << 20}
		if s, limited := slack[name]; limited && last > 1.5*first+s {
			t.Errorf("%s grew from %.0f to %.0f", name, first, last)
		}
	}
	t.Log(report)
	for _, s := range samples {
		// Besides the tables there are CURRENT, LOCK, the MANIFEST, logs, and tables that are
		// being written or that an iterator still reads. The more is written while iterators
		// are open, the more of these there are.
		if extra := s[6] - s[5]; extra > 40+s[9]/2000 {
			t.Errorf("after %.0f s there are %.0f files and %.0f tables", s[0], s[6], s[5])
			break
		}
	}
}

// TestLongHang checks that a child counts as hung if it prints nothing, and if it prints samples
// with a call that does not end, even if its time is over.
func TestLongHang(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("it needs a shell")
	}
	row := strings.Repeat("0,", len(sampleFields)-2)
	for name, c := range map[string]struct {
		script string
		hangs  bool
	}{
		"works":  {"while :; do echo sample " + row + "0; sleep 0.2; done", false},
		"silent": {"exec sleep 60", true},
		"stuck":  {"i=0; while :; do echo sample " + row + "$i; i=$((i+1)); sleep 1; done", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := filepath.Join(t.TempDir(), "child")
			if err := os.WriteFile(child, []byte("#!"+sh+"\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			run := &longRun{self: child, begin: time.Now(), silence: 6 * time.Second, pause: 2 * time.Second, events: map[string]int{}}
			if err := run.life(4*time.Second, false); (err != nil) != c.hangs {
				t.Errorf("after its life: %v", err)
			}
		})
	}
}

// quarters returns the median of a field over an early quarter of the samples, which
// leaves out the first eighth while the database fills up, and over the last quarter.
func quarters(samples [][]float64, field int) (first, last float64) {
	median := func(list [][]float64) float64 {
		var v []float64
		for _, s := range list {
			v = append(v, s[field])
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	n := len(samples)
	return median(samples[n/8 : n/8+n/4]), median(samples[n-n/4:])
}

// longRun is the parent's side of the run.
type longRun struct {
	self, dir string
	group     *memoryGroup
	begin     time.Time
	silence   time.Duration // longSilence
	pause     time.Duration // longPause
	acked     int           // entries of the ledger whose Put has returned
	samples   [][]float64
	events    map[string]int // the number of the child's events of each kind
}

// life runs a child for a while and kills it.
func (r *longRun) life(life time.Duration, trouble bool) error {
	cmd := exec.Command(r.self)
	cmd.Env = append(os.Environ(), longDirEnv+"="+r.dir, fmt.Sprintf("%s=%d", longAckedEnv, r.acked),
		fmt.Sprintf("%s=%t", longTroubleEnv, trouble))
	var stderr bytes.Buffer
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
	if r.group != nil {
		if err := r.group.join(cmd.Process.Pid); err != nil {
			return err
		}
	}
	lines, done := make(chan string), make(chan struct{})
	defer close(done)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-done:
				return
			}
		}
	}()
	// Ticks, not the clock: if this process is stopped, the child may be, too.
	second := time.NewTicker(time.Second)
	defer second.Stop()
	lived, silent := time.Duration(0), time.Duration(0)
	stuck := 0.0 // seconds
	killed := false
	for {
		select {
		case line, ok := <-lines:
			if !ok && killed {
				return nil
			} else if !ok {
				return fmt.Errorf("the child ended by itself: %v\n%s", cmd.Wait(), stderr.String())
			}
			sampled, err := r.take(line)
			if err != nil && (!killed || strings.HasPrefix(line, "error ")) { // the last line may be cut short
				return fmt.Errorf("%w\n%s", err, stderr.String())
			}
			if sampled {
				silent = 0
				stuck = r.samples[len(r.samples)-1][fieldIndex("call_seconds")]
			}
		case <-second.C:
			lived, silent = lived+time.Second, silent+time.Second
			if hung := silent + time.Duration(stuck)*time.Second; hung > r.silence {
				_ = cmd.Process.Signal(syscall.SIGQUIT) // its goroutines go to stderr
				time.Sleep(time.Second)
				_ = cmd.Process.Kill()
				for range lines {
				}
				return fmt.Errorf("the child has been silent for %v, and a call has taken %.0f s: %v\n%s", silent, stuck, cmd.Wait(), stderr.String())
			}
			// A child that may hang is not killed before it must have shown a sign of life.
			if lived >= life && !killed && silent+time.Duration(stuck)*time.Second <= r.pause {
				killed = true
				_ = cmd.Process.Kill()
			}
		}
	}
}

// take processes a line from the child.
func (r *longRun) take(line string) (sampled bool, err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "error":
		return false, errors.New(rest)
	case "event":
		r.events[rest]++
		return false, nil
	case "acked":
		n, err := strconv.Atoi(rest)
		if err != nil || n != r.acked+1 {
			return false, fmt.Errorf("acknowledgment %q after %d", rest, r.acked)
		}
		r.acked = n
		return false, nil
	case "sample":
		s := []float64{time.Since(r.begin).Seconds()}
		for f := range strings.SplitSeq(rest, ",") {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return false, err
			}
			s = append(s, v)
		}
		if len(s) != len(sampleFields) {
			return false, fmt.Errorf("a sample has %d fields", len(s))
		}
		r.samples = append(r.samples, s)
		return true, nil
	}
	return false, fmt.Errorf("the child printed %q", line)
}

func writeSamples(t *testing.T, samples [][]float64, kills int) {
	if *longOut == "" {
		return
	}
	f, err := os.Create(*longOut + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	w := csv.NewWriter(f)
	err = w.Write(sampleFields)
	for _, s := range samples {
		row := make([]string, len(s))
		for i, v := range s {
			row[i] = strconv.FormatFloat(v, 'f', 1, 64)
		}
		err = errors.Join(err, w.Write(row))
	}
	w.Flush()
	svg := plotSamples(samples, fmt.Sprintf("%.0f minutes of mixed load, %d kills", samples[len(samples)-1][0]/60, kills))
	if err := errors.Join(err, w.Error(), f.Close(), os.WriteFile(*longOut+".svg", []byte(svg), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// residentBytes and descriptors read /proc; they return 0 on other systems.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

func descriptors() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}

// histogram counts durations in buckets that are a factor of 2^(1/8) apart.
type histogram struct{ buckets [8 * 40]atomic.Uint64 }

func (h *histogram) add(d time.Duration) {
	i := int(8 * math.Log2(float64(max(d, 1))))
	h.buckets[min(i, len(h.buckets)-1)].Add(1)
}

// counts is the contents of a histogram.
type counts struct {
	count   uint64
	buckets []uint64
}

func (h *histogram) take() counts {
	c := counts{buckets: make([]uint64, len(h.buckets))}
	for i := range h.buckets {
		c.buckets[i] = h.buckets[i].Swap(0)
		c.count += c.buckets[i]
	}
	return c
}

// quantile returns a quantile in microseconds.
func (c counts) quantile(q float64) float64 {
	rank := uint64(q * float64(c.count))
	for i, n := range c.buckets {
		if rank < n {
			return math.Exp2((float64(i)+0.5)/8) / 1000
		}
		rank -= n
	}
	return 0
}

// TestHistogram checks the histogram from which the long run's figures come.
func TestHistogram(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Microsecond)
	}
	c := h.take()
	for q, want := range map[float64]float64{0.5: 500, 0.99: 990} {
		if got := c.quantile(q); got < want*0.9 || got > want*1.1 {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
	if h.take().count != 0 {
		t.Error("take does not empty the histogram")
	}
}
