package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siftdb/sift/filter"
	"github.com/siftdb/sift/internal/base"
)

// TestSplitAt checks where keys of common shapes are split into a prefix and a number.
func TestSplitAt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, tt := range []struct {
		desc string
		key  func(i int) string
		want int
	}{
		{"8-byte numbers", func(i int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(i)*1000)) }, 0},
		{"entity and 8 digits", func(i int) string { return fmt.Sprintf("device/%05d/%08d", i/100, i%100*50) }, 13},
		{"16 random bytes", func(int) string {
			return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rng.Uint64()), rng.Uint64()))
		}, 1},
		{"a counter after a long name", func(i int) string { return fmt.Sprintf("the/same/long/name/for/all/%08d", i) }, 27},
		{"paths with line numbers", func(i int) string { return fmt.Sprintf("src/p%02d/file%02d.go:%d", i/200, i/20%10, i%20) }, 12},
		{"long names at the end, most keys shorter", func(i int) string {
			if i < 100 {
				return fmt.Sprintf("\xffa long name%04d", i)
			}
			return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rng.Uint64()>>1), rng.Uint64()))
		}, 1},
		{"shorter than a number", func(i int) string { return fmt.Sprintf("%04x", i) }, 0},
	} {
		var keys []string
		for i := range 2000 {
			keys = append(keys, tt.key(i))
		}
		slices.Sort(keys)
		var k rangeKeys
		for _, key := range slices.Compact(keys) {
			k.add([]byte(key))
		}
		if at := k.splitAt(); at != tt.want {
			t.Errorf("%s: keys like %q are split at %d, want %d", tt.desc, keys[1], at, tt.want)
		}
	}
	var one rangeKeys
	one.add([]byte("a key of its own"))
	if at := one.splitAt(); at != 8 {
		t.Errorf("one key of 16 bytes is split at %d", at)
	}
	var empty rangeKeys
	empty.add(nil)
	if at := empty.splitAt(); at != 0 {
		t.Errorf("the empty key is split at %d", at)
	}
}

// hangingReader's reads at an offset wait.
type hangingReader struct {
	io.ReaderAt
	at            int64
	hung, release chan struct{}
}

func (h *hangingReader) ReadAt(p []byte, off int64) (int, error) {
	if off == h.at {
		close(h.hung)
		<-h.release
	}
	return h.ReaderAt.ReadAt(p, off)
}

// TestRangeDuringLoad checks that a probe of a range does not wait while the key filter is read.
func TestRangeDuringLoad(t *testing.T) {
	data, _ := buildTable(t, numbered(1000), &WriterOptions{Filter: filter.Ribbon(10), Range: filter.Range(12, 0)})
	r := openTable(t, data, &ReaderOptions{FilterLater: true, RangePolicies: []filter.RangePolicy{filter.Range(12, 0)}})
	h := &hangingReader{bytes.NewReader(data), int64(r.filterUnits[0].Offset), make(chan struct{}), make(chan struct{})}
	r.r = h
	loaded := make(chan error)
	go func() { loaded <- r.LoadFilterSteps(len(r.FilterSteps())) }()
	<-h.hung
	probed := make(chan bool)
	go func() {
		r.MayContainRange([]byte("key"), []byte("kez"))
		probed <- r.HasRangeFilter()
	}()
	select {
	case loaded := <-probed:
		if !loaded {
			t.Error("the range filter has not been loaded")
		}
	case <-time.After(time.Minute):
		t.Error("the probe waits for the key filter")
	}
	close(h.release)
	if err := <-loaded; err != nil {
		t.Error(err)
	}
}

// TestSplitBehindDelimiter checks that keys of various lengths that end with a number are split
// after a delimiter, and other keys at a fixed length.
func TestSplitBehindDelimiter(t *testing.T) {
	for _, tt := range []struct {
		desc string
		key  func(i int) string
		want string
	}{
		{"paths with line numbers", func(i int) string { return fmt.Sprintf("%s.go:%06d", strings.Repeat("p", i/40%23), i%40*7) }, "upto(0x3a,1)"},
		{"some keys have one more field", func(i int) string {
			return fmt.Sprintf("a/%s/%04d%s", strings.Repeat("u", i/30%19), i%30, []string{"", "/x"}[i%2])
		}, "upto(0x2f,2)"},
		{"short, with a delimiter", func(i int) string { return fmt.Sprintf("%02d:%02d", i/60, i%60) }, "at(0)"},
		{"one length", func(i int) string { return fmt.Sprintf("device/%05d/%08d", i/100, i%100*50) }, "at(13)"},
	} {
		var keys []string
		for i := range 3000 {
			keys = append(keys, tt.key(i))
		}
		slices.Sort(keys)
		var k rangeKeys
		for _, key := range slices.Compact(keys) {
			k.add([]byte(key))
		}
		if s := k.split(nil); s.name != tt.want {
			t.Errorf("%s: keys like %q have the split %s, want %s", tt.desc, keys[1], s.name, tt.want)
		}
	}
}

// sparseNumbers returns a table of the keys 0, 1000, 2000 and so on, with a range filter, and the
// function that encodes a key.
func sparseNumbers(t *testing.T, keys int) (data *bytes.Buffer, key func(int) []byte) {
	t.Helper()
	data = new(bytes.Buffer)
	w := NewWriter(data, &WriterOptions{Range: filter.Range(14, 0)})
	key = func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	for i := range keys {
		if err := w.Add(key(i*1000), 1, base.KindSet, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return data, key
}

// TestRangeBits checks that a range filter that is loaded by LoadRangeBits alone takes the memory
// that RangeSteps predicts and excludes no key at any size, and that shrinking it does not read the
// file.
func TestRangeBits(t *testing.T) {
	const keys = 5000
	data, key := sparseNumbers(t, keys)
	file := &countingReaderAt{r: bytes.NewReader(data.Bytes())}
	r, err := NewReader(file, int64(data.Len()), &ReaderOptions{MaxFilterUnits: -1})
	if err != nil {
		t.Fatal(err)
	}
	excluded := func() (n int) {
		for i := 1; i < keys; i++ {
			if !r.MayContainRange(key(i*1000-1), key(i*1000+2)) {
				t.Fatalf("with %d bits per key, key %d is excluded", r.HeldRangeBits(), i)
			}
			if !r.MayContainRange(key(i*1000+400), key(i*1000+416)) {
				n++
			}
		}
		return n
	}
	if n := excluded(); n != 0 || r.RangeFilterBytes() != 0 {
		t.Errorf("before loading, the filter takes %d bytes and excludes %d ranges", r.RangeFilterBytes(), n)
	}
	full := openTable(t, data.Bytes(), nil)
	if state, err := full.RangeFilterStatus(); state != FilterOK || err != nil || full.MayContainRange(key(1400), key(1416)) && full.MayContainRange(key(2400), key(2416)) {
		t.Errorf("by default: state %v, %v, or it excludes nothing", state, err)
	}
	steps := r.RangeSteps(16)
	if len(steps) != 8 || steps[0].BitsPerKey != 7 || steps[7].BitsPerKey != 14 {
		t.Fatalf("the steps are %v", steps)
	}
	for _, i := range []int{7, 4, 0, 2, 5} {
		reads, bits := file.reads, r.HeldRangeBits()
		step := steps[i]
		if err := r.LoadRangeBits(step.BitsPerKey); err != nil {
			t.Fatal(err)
		}
		if grows := step.BitsPerKey > bits; grows != (file.reads > reads) {
			t.Errorf("from %d to %d bits per key, the file was read %d times", bits, step.BitsPerKey, file.reads-reads)
		}
		if n := int64(r.RangeFilterBytes()); n > step.Bytes || n < step.Bytes*9/10 || r.HeldRangeBits() != step.BitsPerKey {
			t.Errorf("%d bits per key take %d bytes, want %d", r.HeldRangeBits(), n, step.Bytes)
		}
		if n := excluded(); float64(keys-1-n) > 1.3*step.FPR*keys {
			t.Errorf("with %d bits per key %d of %d empty ranges are not excluded, want %.3g", step.BitsPerKey, keys-n, keys, step.FPR)
		}
	}
	if err := r.LoadRangeBits(0); err != nil || r.RangeFilterBytes() != 0 || r.HasRangeFilter() {
		t.Errorf("after dropping, the filter takes %d bytes, %v", r.RangeFilterBytes(), err)
	}
	if state, err := r.RangeFilterStatus(); state != FilterOK || err != nil || r.HasRangeFilter() {
		t.Errorf("after dropping: state %v, %v", state, err)
	}
}

// TestRangeWithPrefixer checks that a range filter that splits keys with a Prefixer holds all keys
// that have a prefix, except those whose PrefixLen exceeds their length.
func TestRangeWithPrefixer(t *testing.T) {
	var list []kv
	for i := range 500 {
		if i%100 == 0 {
			list = append(list, kv{fmt.Sprintf("%c/", 'a'+i/100), 1, KindSet, ""})
		}
		list = append(list, kv{fmt.Sprintf("%c/%03d0", 'a'+i/100, i%100), 1, KindSet, ""})
	}
	for _, p := range []Prefixer{FixedPrefix(2), PrefixUpTo('/', 1), overlong{}} {
		data, info := buildTable(t, list, &WriterOptions{Range: filter.Range(14, 0), Prefix: p})
		r := openTable(t, data, &ReaderOptions{Prefix: p})
		if err := r.Verify(t.Context(), func(err error) { t.Errorf("%s: %v", p.Name(), err) }); err != nil {
			t.Fatal(err)
		}
		excluded := 0
		for i := range 100 {
			from := fmt.Appendf(nil, "c/%03d", i)
			if !r.MayContainRange(append(from, '1'), append(from, '9')) {
				excluded++
			}
		}
		if p == (overlong{}) != (excluded == 0) || p == (overlong{}) != (info.RangeKeys == 0) {
			t.Errorf("%s: %d keys, %d of 100 empty ranges are excluded", p.Name(), info.RangeKeys, excluded)
		}
	}
}

// TestRangeOfUnknownPrefixer checks that a range filter is not used without the Prefixer that split
// its keys.
func TestRangeOfUnknownPrefixer(t *testing.T) {
	data, _ := buildTable(t, numbered(100), &WriterOptions{Range: filter.Range(14, 0), Prefix: emptyPrefix{}})
	for _, c := range []struct {
		prefix Prefixer
		want   FilterState
	}{{nil, FilterUnknown}, {FixedPrefix(2), FilterUnknown}, {emptyPrefix{}, FilterOK}} {
		r := openTable(t, data, &ReaderOptions{Prefix: c.prefix})
		if state, err := r.RangeFilterStatus(); state != c.want || (err == nil) != (state == FilterOK) {
			t.Errorf("with %v: %v, %v", c.prefix, state, err)
		}
		if may := r.MayContainRange([]byte("a"), []byte("b")); may != (c.want != FilterOK) {
			t.Errorf("with %v: MayContainRange of an empty range is %t", c.prefix, may)
		}
	}
}

// TestLoadRangeBitsAgain checks that a filter that is loaded, not wanted or damaged is not read
// again.
func TestLoadRangeBitsAgain(t *testing.T) {
	data, _ := buildTable(t, numbered(100), &WriterOptions{Range: filter.Range(14, 0)})
	r := openTable(t, data, &ReaderOptions{MaxFilterUnits: -1})
	file := &countingReaderAt{r: r.r}
	r.r = file
	for _, c := range []struct{ bits, reads int }{{0, 0}, {10, 1}, {10, 1}, {0, 1}, {0, 1}} {
		if err := r.LoadRangeBits(c.bits); err != nil || file.reads != c.reads {
			t.Errorf("%d bits: %d reads, %v", c.bits, file.reads, err)
		}
	}
	data[r.meta[len(r.meta)-1].Offset] ^= 1 // the range filter has the last name
	if err := r.LoadRangeBits(10); !errors.Is(err, base.ErrCorruption) || file.reads != 2 {
		t.Errorf("damaged: %d reads, %v", file.reads, err)
	}
	for _, bits := range []int{10, 12, 0} {
		if err := r.LoadRangeBits(bits); err != nil || file.reads != 2 || r.HasRangeFilter() {
			t.Errorf("after damage, %d bits: %d reads, %v", bits, file.reads, err)
		}
	}
	if steps := r.RangeSteps(1); steps != nil {
		t.Errorf("after damage: %v", steps)
	}
	without, _ := buildTable(t, numbered(100), nil)
	r = openTable(t, without, nil)
	for range 2 {
		if state, err := r.RangeFilterStatus(); state != FilterNone || err != nil || r.RangeSteps(1) != nil {
			t.Errorf("without a range filter: %v, %v, %v", state, err, r.RangeSteps(1))
		}
		r.props = nil
	}
}

// TestFixedSplitName checks that names of splits at a fixed length can be parsed, and that other
// names cannot.
func TestFixedSplitName(t *testing.T) {
	for _, at := range []int{0, 1, 12} {
		if got, ok := fixedSplit(fixedSplitName(at)); !ok || got != at {
			t.Errorf("%s: %d, %t", fixedSplitName(at), got, ok)
		}
	}
	for _, name := range []string{"", "0", "(0)", "at(", "at()", "at(0", "at(00)", "at(-1)", "at(x)", "at(99999999999999999999)"} {
		if at, ok := fixedSplit(name); ok {
			t.Errorf("%q: %d", name, at)
		}
	}
}

// TestEndsPrefix checks that the first key after all keys with a prefix is the prefix without the
// bytes 0xff at its end, and with its last byte then increased.
func TestEndsPrefix(t *testing.T) {
	for _, c := range []struct {
		prefix, key string
		want        bool
	}{
		{"a", "b", true},
		{"ab", "ac", true},
		{"ab", "b", false},
		{"ab", "ac\x00", false},
		{"ab", "ad", false},
		{"ab", "bc", false},
		{"ab", "", false},
		{"", "", false},
		{"", "a", false},
		{"a\xfe", "a\xff", true},
		{"a\xff", "b", true},
		{"a\xff\xff", "b", true},
		{"a\xff\xfe", "b", false},
		{"a\xfe\xff", "b", false},
		{"a\xff", "a\x00", false},
		{"a\xff", "a", false},
	} {
		if got := endsPrefix([]byte(c.prefix), []byte(c.key)); got != c.want {
			t.Errorf("%q ends the prefix %q: %t", c.key, c.prefix, got)
		}
	}
}

// TestEmptyRange checks that a range that ends where it begins, or before, causes no panic.
func TestEmptyRange(t *testing.T) {
	h := &heldRange{reader: exactRanges{}, prefixer: fixedPrefix(0)}
	h.mayContain(nil, nil)
	h.mayContain([]byte("b"), nil)
	h.mayContain([]byte("b"), []byte("a"))
	h.prefixer = fixedPrefix(1)
	h.mayContain([]byte("b"), []byte("b"))
}

type countingReaderAt struct {
	r     io.ReaderAt
	reads int
}

func (c *countingReaderAt) ReadAt(b []byte, at int64) (int, error) {
	c.reads++
	return c.r.ReadAt(b, at)
}

// TestSplitAtMemory checks that the memory of splitAt does not depend on the length of keys.
func TestSplitAtMemory(t *testing.T) {
	var k rangeKeys
	long := bytes.Repeat([]byte("k"), 16<<20)
	k.add(long)
	k.add(append(long, 'x'))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	at := k.splitAt()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 || at == 0 {
		t.Errorf("%d bytes for two keys of 16 MiB, split at %d", n, at)
	}
}
