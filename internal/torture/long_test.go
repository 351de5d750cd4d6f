package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siftdb/sift"
)

var (
	long    = flag.Duration("long", 0, "how long TestLong runs; without it, it does not")
	longOut = flag.String("longout", "", "where TestLong puts its samples and its plot, NAME.csv and NAME.svg")
)

const (
	longDirEnv   = "SIFT_TORTURE_LONG_DIR"
	longKeys     = 150000
	longClients  = 4
	longInterval = 5 * time.Second
)

// longOptions make compactions frequent, and the database small for its hour.
var longOptions = &sift.Options{MemtableBytes: 2 << 20, TableBytes: 1 << 20, LevelBaseBytes: 8 << 20, CacheBytes: 4 << 20}

// sampleFields are what is noted every few seconds.
var sampleFields = []string{
	"seconds", "rss_bytes", "heap_bytes", "descriptors", "goroutines", "tables", "files", "disk_bytes",
	"gets", "writes", "get_p50_us", "get_p99_us", "write_p50_us", "write_p99_us",
}

// TestLong has a database under mixed load in a process that is killed now and
// then. Memory and descriptors must stay flat and obsolete files must go.
func TestLong(t *testing.T) {
	if *long == 0 {
		t.Skip("the long run needs -long")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(*seed, 31))
	begin := time.Now()
	var samples [][]float64
	kills := 0
	for time.Since(begin) < *long {
		life := min(time.Duration(60+rng.IntN(240))*time.Second, *long-time.Since(begin))
		got, err := longLife(self, dir, begin, life)
		if err != nil {
			t.Fatalf("after %v: %v", time.Since(begin).Round(time.Second), err)
		}
		samples = append(samples, got...)
		kills++
	}
	if len(samples) < 8 {
		t.Fatalf("%d samples are too few", len(samples))
	}
	writeSamples(t, samples, kills)
	report := fmt.Sprintf("%v, %d kills, %d samples\n", time.Since(begin).Round(time.Second), kills, len(samples))
	for i, name := range sampleFields[1:] {
		first, last := quarters(samples, i+1)
		report += fmt.Sprintf("%-14s median of the first quarter %14.0f, of the last %14.0f\n", name, first, last)
		limit := map[string]float64{"rss_bytes": 1.5, "heap_bytes": 1.5, "descriptors": 1.5, "goroutines": 1.5, "files": 1.5, "disk_bytes": 1.5}[name]
		if limit != 0 && last > limit*first {
			t.Errorf("%s grew from %.0f to %.0f", name, first, last)
		}
	}
	t.Log(report)
	for _, s := range samples {
		// Beside the tables: CURRENT, LOCK, the MANIFEST, logs, and the tables
		// that are being written or that an iterator still reads. Of these there
		// are more the more is written while the iterators are open.
		if extra := s[6] - s[5]; extra > 40+s[9]/2000 {
			t.Errorf("after %.0f s there are %.0f files and %.0f tables", s[0], s[6], s[5])
			break
		}
	}
}

// quarters returns the median of a field over the first quarter of the samples,
// without the very first while the database fills up, and over the last.
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

// longLife runs a child for a while, kills it and returns its samples.
func longLife(self, dir string, begin time.Time, life time.Duration) (samples [][]float64, err error) {
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), longDirEnv+"="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	timer := time.AfterFunc(life, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	in := bufio.NewScanner(out)
	for in.Scan() {
		if text, ok := strings.CutPrefix(in.Text(), "error "); ok {
			return nil, errors.New(text)
		}
		s := []float64{time.Since(begin).Seconds()}
		for _, f := range strings.Split(in.Text(), ",") {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return samples, nil // the last line, cut short
			}
			s = append(s, v)
		}
		if len(s) == len(sampleFields) {
			samples = append(samples, s)
		}
	}
	if strings.Contains(stderr.String(), "panic") {
		return nil, errors.New(stderr.String())
	}
	return samples, nil
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

// longChild is the process under load: it prints a line of samples at a time.
func longChild(dir string) {
	fail := func(err error) {
		fmt.Printf("error %v\n", err)
		os.Exit(2)
	}
	db, err := sift.Open(dir, longOptions)
	if err != nil {
		fail(err)
	}
	l := &longLoad{db: db, dir: dir}
	for c := range longClients {
		rng := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(c)))
		go func() {
			if err := l.client(rng); err != nil {
				fail(err)
			}
		}()
	}
	go func() {
		if err := l.housekeeping(); err != nil {
			fail(err)
		}
	}()
	for range time.Tick(longInterval) {
		line, err := l.sample()
		if err != nil {
			fail(err)
		}
		fmt.Println(line)
	}
}

// longLoad is the load on a database.
type longLoad struct {
	db           *sift.DB
	dir          string
	gets, writes histogram
}

func longKey(n int) []byte { return fmt.Appendf(nil, "user%08d", n*2) }

// client reads and writes forever, with iterators and snapshots that stay open
// for a while.
func (l *longLoad) client(rng *rand.Rand) error {
	type held struct {
		it    *sift.Iter
		snap  *sift.Snapshot
		until time.Time
	}
	var open []held
	for {
		n := int(math.Abs(rng.NormFloat64()) * longKeys / 4)
		start := time.Now()
		switch k := rng.IntN(1000); {
		case k < 550:
			key := longKey(n)
			if k < 250 {
				key[len(key)-1]++ // absent: only even numbers are written
			}
			v, err := l.db.Get(key)
			if err != nil && !errors.Is(err, sift.ErrNotFound) || err == nil && (k < 250 || !bytes.HasPrefix(v, key)) {
				return fmt.Errorf("Get(%s) = %.20q, %w", key, v, err)
			}
			l.gets.add(time.Since(start))
		case k < 900:
			key := longKey(n)
			if err := l.db.Put(key, append(key, make([]byte, rng.IntN(300))...), &sift.WriteOptions{NoSync: k < 890}); err != nil {
				return err
			}
			l.writes.add(time.Since(start))
		case k < 950:
			if err := l.db.Delete(longKey(n), sift.NoSync); err != nil {
				return err
			}
			l.writes.add(time.Since(start))
		case k < 990:
			it, err := l.db.NewIter(&sift.IterOptions{LowerBound: longKey(n)})
			if err != nil {
				return err
			}
			i := 0
			for ok := it.First(); ok && i < 50; ok = it.Next() {
				if !bytes.HasPrefix(it.Value(), it.Key()) {
					return fmt.Errorf("%s has the value %.20q", it.Key(), it.Value())
				}
				i++
			}
			if k < 985 || len(open) > 8 {
				if err := it.Close(); err != nil {
					return err
				}
				continue
			}
			open = append(open, held{it, l.db.Snapshot(), time.Now().Add(time.Duration(rng.IntN(8000)) * time.Millisecond)})
		default:
			for len(open) > 0 && time.Now().After(open[0].until) {
				h := open[0]
				open = open[1:]
				if _, err := h.snap.Get(longKey(n)); err != nil && !errors.Is(err, sift.ErrNotFound) {
					return err
				}
				if err := errors.Join(h.it.Close(), h.snap.Close()); err != nil {
					return err
				}
			}
		}
	}
}

// housekeeping compacts, and makes checkpoints and removes them.
func (l *longLoad) housekeeping() error {
	for i := 0; ; i++ {
		time.Sleep(20 * time.Second)
		if i%4 == 3 {
			if err := l.db.Compact(context.Background(), nil, nil); err != nil {
				return err
			}
		}
		copied := l.dir + "-copy"
		if err := os.RemoveAll(copied); err != nil {
			return err
		}
		if err := l.db.Checkpoint(copied); err != nil {
			return err
		}
	}
}

// sample returns the fields but the first, with commas.
func (l *longLoad) sample() (string, error) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	names, err := os.ReadDir(l.dir)
	if err != nil {
		return "", err
	}
	var bytes int64
	for _, n := range names {
		if info, err := n.Info(); err == nil {
			bytes += info.Size()
		}
	}
	tables := 0
	for _, level := range l.db.Metrics().Levels {
		tables += level.Tables
	}
	g, w := l.gets.take(), l.writes.take()
	fields := []float64{
		float64(residentBytes()), float64(mem.HeapAlloc), float64(descriptors()), float64(runtime.NumGoroutine()),
		float64(tables), float64(len(names)), float64(bytes), float64(g.count), float64(w.count),
		g.quantile(0.5), g.quantile(0.99), w.quantile(0.5), w.quantile(0.99),
	}
	text := make([]string, len(fields))
	for i, f := range fields {
		text[i] = strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strings.Join(text, ","), nil
}

// residentBytes and descriptors read what Linux says about the process; 0
// elsewhere.
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

// counts is what a histogram held when it was emptied.
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

// TestHistogram checks the one that the long run's figures come from.
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
		t.Error("not emptied")
	}
}
