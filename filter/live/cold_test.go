package live

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
)

func coldFile(t testing.TB, n int, o BloomOptions[string]) []byte {
	f := must(NewBloom(o))
	for i := range n {
		f.Add(member(i))
	}
	var b bytes.Buffer
	if k, err := f.WriteCold(&b); err != nil || k != int64(b.Len()) {
		t.Fatal(k, err)
	}
	return b.Bytes()
}

func TestColdExample(t *testing.T) {
	f := must(NewBloom(BloomOptions[string]{Bits: 512, Hashes: 1, Scheme: Blocked}))
	f.Add("a")
	var b bytes.Buffer
	f.WriteCold(&b)
	want := "73696674" + "636f6c64" + "01010000" + "01000000" + "0100000000000000"
	if got := hex.EncodeToString(b.Bytes()[:24]); got != want {
		t.Errorf("begins with\n%s, want\n%s", got, want)
	}
	block := b.Bytes()[coldHeader:][:64]
	for i, v := range block {
		if want := map[int]byte{63: 0x40}[i]; v != want {
			t.Errorf("byte %d of the block is %02x, want %02x", i, v, want)
		}
	}
}

// A Cold in a file gives the same answers as the filter that wrote it.
func TestCold(t *testing.T) {
	const n = 20_000
	o := BloomOptions[string]{Items: n, FPR: 0.01, Scheme: Blocked, Seed: 3}
	f := must(NewBloom(o))
	for i := range n {
		f.Add(member(i))
	}
	path := filepath.Join(t.TempDir(), "cold")
	file := must(os.Create(path))
	size := must(f.WriteCold(file))
	file.Close()
	file = must(os.Open(path))
	defer file.Close()
	c := must(OpenCold(file, size, ReadOptions[string]{}))
	if c.SizeBytes() != size {
		t.Errorf("%d bytes written, SizeBytes %d", size, c.SizeBytes())
	}
	for i := range 2 * n {
		for _, v := range []string{member(i), nonMember(i)} {
			got, err := c.MayContain(v)
			if err != nil || got != f.MayContain(v) {
				t.Fatalf("%s: %v, %v", v, got, err)
			}
		}
	}
	if c.Reads() != 4*n {
		t.Errorf("%d reads for %d lookups", c.Reads(), 4*n)
	}
	if _, err := must(NewBloom(BloomOptions[string]{Items: 1, FPR: 0.1})).WriteCold(io.Discard); !errors.Is(err, ErrIncompatible) {
		t.Errorf("a scattered filter was written: %v", err)
	}
	if _, err := OpenCold(file, size, ReadOptions[int64]{}); !errors.Is(err, ErrIncompatible) {
		t.Errorf("strings opened as integers: %v", err)
	}
}

// With each truncation and each flipped bit, a lookup gives an error or the right answer; one
// that fails returns true.
func TestColdDamage(t *testing.T) {
	t.Parallel()
	file := coldFile(t, 100, BloomOptions[string]{Items: 100, FPR: 0.01, Scheme: Blocked})
	check := func(what string, bad []byte) {
		c, err := OpenCold(bytes.NewReader(bad), int64(len(bad)), ReadOptions[string]{})
		if err != nil {
			if !isFormat(err) {
				t.Fatalf("%s: %v", what, err)
			}
			return
		}
		failed := false
		for i := range 100 {
			positive, err := c.MayContain(member(i))
			if !positive {
				t.Fatalf("%s: %d is lost", what, i)
			}
			if failed = failed || err != nil; err != nil && !isFormat(err) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if !failed {
			t.Fatalf("%s: no lookup reports it", what)
		}
	}
	for n := range file {
		check("cut", file[:n])
	}
	for bit := range len(file) * 8 {
		bad := bytes.Clone(file)
		bad[bit/8] ^= 1 << (bit % 8)
		check("flipped", bad)
	}
	swapped := bytes.Clone(file)
	copy(swapped[coldHeader:], file[coldHeader+coldBlock:][:coldBlock])
	copy(swapped[coldHeader+coldBlock:], file[coldHeader:][:coldBlock])
	check("two blocks swapped", swapped)
	huge := bytes.Clone(file)
	binary.LittleEndian.PutUint64(huge[16:], 1<<31)
	binary.LittleEndian.PutUint64(huge[56:], xxhash.Sum64(huge[:56]))
	check("2^40 bits", huge)
	for after := range len(file) {
		f := must(NewBloom(BloomOptions[string]{Items: 100, FPR: 0.01, Scheme: Blocked}))
		if _, err := f.WriteCold(&failingWriter{after}); err != errWrite {
			t.Fatalf("a write that fails after %d bytes: %v", after, err)
		}
	}
}

// A header that is damaged after the filter was opened is not copied.
func TestColdWriteToVerifiesHeader(t *testing.T) {
	file := coldFile(t, 10, BloomOptions[string]{Items: 10, FPR: 0.1, Scheme: Blocked})
	c := must(OpenCold(bytes.NewReader(file), int64(len(file)), ReadOptions[string]{}))
	if b := must(c.MarshalBinary()); !bytes.Equal(b, file) {
		t.Error("the copy differs")
	}
	file[24] ^= 1 // of the seed
	if n, err := c.WriteTo(io.Discard); n != 0 || !isFormat(err) {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
}

func FuzzOpenCold(f *testing.F) {
	f.Add(coldFile(f, 10, BloomOptions[string]{Items: 10, FPR: 0.1, Scheme: Blocked}))
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) >= coldHeader {
			binary.LittleEndian.PutUint64(file[56:], xxhash.Sum64(file[:56]))
		}
		c, err := OpenCold(bytes.NewReader(file), int64(len(file)), ReadOptions[string]{})
		if err != nil {
			return
		}
		if positive, err := c.MayContain("a"); err != nil && !positive {
			t.Error("false with an error")
		}
	})
}

func TestLayered(t *testing.T) {
	n := sized(50_000)
	coarse := must(NewBloom(BloomOptions[string]{Items: uint64(n), FPR: 0.05, Seed: 1}))
	for i := range n {
		coarse.Add(member(i))
	}
	file := coldFile(t, n, BloomOptions[string]{Items: uint64(n), FPR: 0.001, Scheme: Blocked, Seed: 2})
	cold := must(OpenCold(bytes.NewReader(file), int64(len(file)), ReadOptions[string]{}))
	recent := must(NewBloom(BloomOptions[string]{Items: 1000, FPR: 0.0001, Seed: 3}))
	l := NewLayered(Hot[string](coarse), Newer[string](recent, cold))
	for i := range 1000 { // later ones, which cannot be added to cold
		coarse.Add(member(n + i))
		recent.Add(member(n + i))
	}
	for i := range n + 1000 {
		if positive, err := l.MayContain(member(i)); err != nil || !positive {
			t.Fatalf("%d: %v, %v", i, positive, err)
		}
	}
	before := cold.Reads()
	probes := sized(400_000)
	got := measureFPR(probes, func(v string) bool { return must(l.MayContain(v)) })
	checkFPRBelow(t, "both layers", got, coarse.FPR()*0.0011, probes)
	reads := float64(cold.Reads()-before) / float64(probes)
	checkFPR(t, "reads of the cold layer per lookup", reads, coarse.FPR(), probes, 0.05)
	s := l.Stats()
	if s[0].Probes != uint64(n+1000+probes) || s[0].Probes-s[0].Excluded != s[1].Probes || s[1].Failed != 0 {
		t.Errorf("stats %+v", s)
	}

	// A layer that fails returns true; a later one may still return false.
	broken := must(OpenCold(bytes.NewReader(file), int64(len(file)), ReadOptions[string]{}))
	broken.r = bytes.NewReader(file[:coldHeader])
	l = NewLayered(broken, Hot[string](coarse))
	if positive, err := l.MayContain(member(1)); !positive || !isFormat(err) {
		t.Errorf("present: %v, %v", positive, err)
	}
	if positive, err := l.MayContain(nonMember(1)); positive != coarse.MayContain(nonMember(1)) || !positive && err != nil {
		t.Errorf("absent: %v, %v", positive, err)
	}
	if l.Stats()[0].Failed != 2 {
		t.Errorf("stats %+v", l.Stats())
	}
}

func TestDedup(t *testing.T) {
	n := sized(100_000)
	d := must(NewDedup(DedupOptions[string]{Items: uint64(n), FPR: 0.01}))
	passed := 0
	stream := func(yield func(string) bool) {
		for i := range n {
			for range 1 + i%3 { // two of three elements have duplicates
				if !yield(member(i)) {
					return
				}
			}
		}
	}
	seen := map[string]bool{}
	for v := range d.Unique(stream) {
		if seen[v] {
			t.Fatalf("%s passed twice", v)
		}
		seen[v] = true
		passed++
	}
	lost := float64(n-passed) / float64(n)
	t.Logf("%.3f%% lost, %.3f%% expected", 100*lost, 100*d.Loss())
	checkFPR(t, "lost", lost, d.Loss(), n, 0.05)
	if d.Seen() != d.Dropped()+uint64(passed) || d.FPR() < 0.008 || d.FPR() > 0.012 || d.MemoryBytes() > n*10/8 {
		t.Errorf("seen %d, dropped %d, FPR %v, %d bytes", d.Seen(), d.Dropped(), d.FPR(), d.MemoryBytes())
	}
}

// If several goroutines add the same element, Add returns true to one of them.
func TestDedupOnce(t *testing.T) {
	const workers = 16
	n := sized(20_000)
	d := must(NewDedup(DedupOptions[int]{Items: uint64(n), FPR: 1e-6}))
	first := make([]int32, n)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range n {
				if d.Add(i) {
					mu.Lock()
					first[i]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for i, c := range first {
		if c != 1 {
			t.Fatalf("%d was new %d times", i, c)
		}
	}
}

func TestDedupWindow(t *testing.T) {
	items := sized(10_000)
	d := must(NewDedup(DedupOptions[string]{Items: uint64(items), FPR: 0.01, Window: true}))
	lost := 0
	for i := range 20 * items {
		if !d.Add(member(i)) {
			lost++
		}
		if i >= items && i%13 == 0 && d.Add(member(i-items*9/10)) {
			t.Fatalf("a duplicate within the window passed at %d", i)
		}
	}
	checkFPRBelow(t, "lost", float64(lost)/float64(20*items), d.Loss(), 20*items)
}

// Load reads a Cold into memory as the Bloom that was written.
func TestColdLoad(t *testing.T) {
	for _, items := range []uint64{1, 500, 200_000} {
		b := must(NewBloom(BloomOptions[string]{Items: items, FPR: 0.01, Scheme: Blocked, Seed: 7}))
		for i := range 500 {
			b.Add(member(i))
		}
		var file bytes.Buffer
		must(b.WriteCold(&file))
		c := must(OpenCold(bytes.NewReader(file.Bytes()), int64(file.Len()), ReadOptions[string]{}))
		if got := must(c.Load()); !got.Equal(b) || c.MemoryBytes() != 0 || c.Hashes() != b.Hashes() {
			t.Errorf("%d items: not the same, or %d bytes in memory", items, c.MemoryBytes())
		}
		file.Bytes()[file.Len()-9] ^= 1
		if _, err := c.Load(); !isFormat(err) {
			t.Errorf("%d items, damaged: %v", items, err)
		}
	}
}
