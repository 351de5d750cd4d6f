package live

import (
	"bytes"
	"context"
	"encoding"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

func TestRecordExample(t *testing.T) {
	f := must(NewBloom(BloomOptions[string]{Bits: 64, Hashes: 1}))
	f.Add("a")
	var b bytes.Buffer
	n, err := f.WriteTo(&b)
	if err != nil || n != int64(b.Len()) || n != recordSize+8+8 {
		t.Fatalf("%d bytes, %d in the buffer, %v", n, b.Len(), err)
	}
	want := "73696674" + "6c697665" + "01010001" + "01000000" + "0100000000000000"
	if got := hex.EncodeToString(b.Bytes()[:24]); got != want {
		t.Errorf("begins with\n%s, want\n%s", got, want)
	}
	if got := binary.LittleEndian.Uint64(b.Bytes()[recordSize:]); got != 1<<52 {
		t.Errorf("word %016x", got)
	}
}

// testKind is a filter of one kind, with some elements in it.
type testKind struct {
	f interface {
		Prober[string]
		io.WriterTo
		encoding.BinaryMarshaler
	}
	// empty returns a filter to read into: the zero value, if the kind supports that.
	empty func() testReader
	// read is the kind's Read function, nil for those that have none.
	read func(r io.Reader, o ReadOptions[string]) (testReader, error)
}

type testReader interface {
	Prober[string]
	io.WriterTo
	io.ReaderFrom
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

func reader[F testReader](read func(io.Reader, ReadOptions[string]) (F, error)) func(io.Reader, ReadOptions[string]) (testReader, error) {
	return func(r io.Reader, o ReadOptions[string]) (testReader, error) { return read(r, o) }
}

// fixedClock is the clock of testKinds, so that saved forms are the same in each run.
func fixedClock() time.Time { return time.Unix(1_700_000_000, 0) }

// layeredOfAll returns a Layered of a hot layer and a cold one with a recent filter.
func layeredOfAll(t testing.TB) *Layered[string] {
	o := BloomOptions[string]{Items: 50, FPR: 0.01, Scheme: Blocked, Seed: 2}
	file := coldFile(t, 50, o)
	cold := must(OpenCold(bytes.NewReader(file), int64(len(file)), ReadOptions[string]{}))
	hot := must(New[string](50, 0.1))
	for i := range 50 {
		hot.Add(member(i))
	}
	recent := must(New[string](50, 0.01))
	recent.Add("recent")
	return NewLayered(Hot(hot), Newer(recent, cold))
}

// testKinds returns a filter of every kind.
func testKinds(t testing.TB) map[string]testKind {
	all := map[string]testKind{}
	add := func(f Prober[string], n int) {
		for i := range n {
			if _, err := TryAdd(f, member(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range []Scheme{Scattered, Blocked, Guava, GuavaMitz32} {
		f := must(NewBloom(BloomOptions[string]{Items: 50, FPR: 0.01, Scheme: s}))
		add(f, 50)
		all["Bloom "+s.String()] = testKind{f, func() testReader { return new(Bloom[string]) }, reader(ReadBloom[string])}
	}
	counting := must(NewCounting(CountingOptions[string]{Items: 50, FPR: 0.01, Seed: 3}))
	add(counting, 60)
	for i := range 10 {
		counting.Delete(member(i))
	}
	all["Counting"] = testKind{counting, func() testReader { return new(Counting[string]) }, reader(ReadCounting[string])}
	for name, fpr := range map[string]float64{"Cuckoo": 0.01, "Cuckoo of half words": 0.03} {
		cuckoo := must(NewCuckoo(CuckooOptions[string]{Items: 50, FPR: fpr, Seed: 3}))
		add(cuckoo, 50)
		all[name] = testKind{cuckoo, func() testReader { return new(Cuckoo[string]) }, reader(ReadCuckoo[string])}
	}
	scalable := must(NewScalable(ScalableOptions[string]{Items: 10, FPR: 0.1, Seed: 5}))
	add(scalable, 50)
	all["Scalable"] = testKind{scalable, func() testReader { return new(Scalable[string]) }, reader(ReadScalable[string])}

	pair := must(NewPair(BloomOptions[string]{Items: 50, FPR: 0.01}, BloomOptions[string]{Items: 10, FPR: 0.01, Seed: 1}))
	add(pair, 50)
	pair.Delete(member(7))
	all["Pair"] = testKind{pair, func() testReader { return new(Pair[string]) }, reader(ReadPair[string])}

	generations := must(NewGenerations(GenerationsOptions[string]{Items: 60, FPR: 0.01, Span: time.Hour, Now: fixedClock}))
	add(generations, 50)
	all["Generations"] = testKind{generations, func() testReader {
		return must(NewGenerations(GenerationsOptions[string]{Items: 1, FPR: 0.5, Now: fixedClock}))
	}, nil} // the reader's clock is time.Now

	rotating := must(NewRotating(RotatingOptions[string]{Items: 50, FPR: 0.01, Source: noSource}))
	add(rotating, 50)
	all["Rotating"] = testKind{rotating, func() testReader {
		return must(NewRotating(RotatingOptions[string]{Items: 9, FPR: 0.1, Source: noSource}))
	}, nil}

	dedup := must(NewDedup(DedupOptions[string]{Items: 50, FPR: 0.01}))
	add(dedup, 40)
	add(dedup, 20)
	all["Dedup"] = testKind{dedup, func() testReader { return new(Dedup[string]) }, reader(ReadDedup[string])}
	window := must(NewDedup(DedupOptions[string]{Items: 50, FPR: 0.01, Window: true, Now: fixedClock}))
	add(window, 70)
	all["Dedup with a window"] = testKind{window, func() testReader { return new(Dedup[string]) }, reader(ReadDedup[string])}

	sharded := must(NewSharded(ShardedOptions[string]{Shards: 4}, func(int) (*Counting[string], error) {
		return NewCounting(CountingOptions[string]{Items: 20, FPR: 0.01})
	}))
	add(sharded, 50)
	all["Sharded"] = testKind{sharded, func() testReader { return new(Sharded[string, *Counting[string]]) }, reader(ReadSharded[string, *Counting[string]])}

	all["Layered"] = testKind{&layeredProber{layeredOfAll(t)}, func() testReader { return &layeredProber{new(Layered[string])} }, nil}

	file := coldFile(t, 50, BloomOptions[string]{Items: 50, FPR: 0.01, Scheme: Blocked})
	cold := must(OpenCold(bytes.NewReader(file), int64(len(file)), ReadOptions[string]{}))
	all["Cold"] = testKind{&coldProber{cold}, func() testReader { return &coldProber{new(Cold[string])} }, nil}
	return all
}

func noSource(context.Context) iter.Seq2[string, error] { return func(func(string, error) bool) {} }

// Filters whose lookups can fail, as Probers.
type layeredProber struct{ *Layered[string] }
type coldProber struct{ *Cold[string] }

func (l layeredProber) MayContain(v string) bool { return must(l.Layered.MayContain(v)) }
func (c coldProber) MayContain(v string) bool    { return must(c.Cold.MayContain(v)) }

var updateGolden = flag.Bool("live.update", false, "write the golden files of saved forms, and the table of methods")

// The saved form of each kind has not changed since its version was introduced, and can be read.
func TestGolden(t *testing.T) {
	for name, k := range testKinds(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "golden", strings.ReplaceAll(strings.ToLower(name), " ", "-")+".v1")
			got := must(k.f.MarshalBinary())
			if *updateGolden {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			file := must(os.ReadFile(path))
			if !bytes.Equal(got, file) {
				t.Errorf("the saved form differs from %s: a change needs a new version", path)
			}
			f := k.empty()
			if err := f.UnmarshalBinary(file); err != nil {
				t.Fatal(err)
			}
			for i := range 2000 {
				if f.MayContain(member(i)) != k.f.MayContain(member(i)) {
					t.Fatalf("%d: the answers differ", i)
				}
			}
		})
	}
}

// Every kind can be encoded with gob, in a struct of the caller's.
func TestGob(t *testing.T) {
	type state struct {
		At     int
		Seen   *Dedup[string]
		Counts *Counting[string]
	}
	gob1 := state{7, must(NewDedup(DedupOptions[string]{Items: 10, FPR: 0.01})), must(NewCounting(CountingOptions[string]{Items: 10, FPR: 0.01}))}
	gob1.Seen.Add("a")
	gob1.Seen.Add("a")
	gob1.Counts.Add("b")
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(gob1); err != nil {
		t.Fatal(err)
	}
	var gob2 state
	if err := gob.NewDecoder(&b).Decode(&gob2); err != nil {
		t.Fatal(err)
	}
	if gob2.At != 7 || gob2.Seen.Add("a") || gob2.Seen.Seen() != 3 || gob2.Seen.Dropped() != 2 || !gob2.Counts.Delete("b") {
		t.Error("decoded values differ from those encoded")
	}
	for name, k := range testKinds(t) {
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(k.f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f := k.empty()
		if err := gob.NewDecoder(&b).Decode(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !f.MayContain(member(30)) {
			t.Errorf("%s: lost an element", name)
		}
	}
}

// Read returns each kind that it supports as that kind's type.
func TestReadAnyKind(t *testing.T) {
	for name, k := range testKinds(t) {
		if name == "Layered" || name == "Cold" {
			continue
		}
		f, err := Read(bytes.NewReader(must(k.f.MarshalBinary())), ReadOptions[string]{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if name != "Rotating" && name != "Sharded" && reflect.TypeOf(f) != reflect.TypeOf(k.f) {
			t.Errorf("%s: read as %T", name, f)
		}
		if name != "Generations" && !f.MayContain(member(30)) { // its elements have expired
			t.Errorf("%s: lost an element", name)
		}
		if f.MemoryBytes() <= 0 || f.FPR() < 0 || f.FPR() > 1 || f.FillRatio() < 0 || f.FillRatio() > 1 {
			t.Errorf("%s: %d bytes, FPR %v, fill %v", name, f.MemoryBytes(), f.FPR(), f.FillRatio())
		}
	}
	nested := must(Build(must(Parse("sharded(shards=2,of=bloom(items=10,fpr=0.1))")), BuildOptions[string]{}))
	form := must(nested.MarshalBinary())
	outer := appendRecord(nil, record{kind: kindSharded, elements: 1, hashes: 1})
	outer = binary.LittleEndian.AppendUint64(outer, xxhash.Sum64(nil))
	if _, err := Read(bytes.NewReader(append(outer, form...)), ReadOptions[string]{}); !isFormat(err) {
		t.Errorf("a shard that is a Sharded: %v", err)
	}
}

// Reading a saved form replaces a filter. If the form is truncated or damaged, the filter stays
// unchanged.
func TestSaved(t *testing.T) {
	for name, k := range testKinds(t) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if n, err := k.f.WriteTo(&b); err != nil || n != int64(b.Len()) {
				t.Fatalf("%d of %d, %v", n, b.Len(), err)
			}
			file := b.Bytes()
			if m := must(k.f.MarshalBinary()); !bytes.Equal(m, file) {
				t.Error("MarshalBinary and WriteTo differ")
			}
			r := bytes.NewReader(append(bytes.Clone(file), "next"...))
			g := k.empty()
			if n, err := g.ReadFrom(r); err != nil || n != int64(len(file)) {
				t.Fatalf("read %d bytes of %d: %v", n, len(file), err)
			}
			if r.Len() != len("next") {
				t.Errorf("%d bytes left after the filter, want 4", r.Len())
			}
			same := func(g testReader) {
				t.Helper()
				for i := range 2000 {
					if g.MayContain(member(i)) != k.f.MayContain(member(i)) {
						t.Fatalf("%d: the answers differ", i)
					}
				}
				if again := must(g.MarshalBinary()); !bytes.Equal(again, file) {
					t.Fatal("it differs when written again")
				}
			}
			same(g)
			if err := g.UnmarshalBinary(append(bytes.Clone(file), 0)); !isFormat(err) {
				t.Errorf("a byte after the form: %v", err)
			}
			// Each truncation and each flipped bit is rejected, and changes nothing.
			step := 1
			if testing.Short() {
				step = 5
			}
			for n := 0; n < len(file); n += step {
				if err := g.UnmarshalBinary(file[:n]); !isFormat(err) {
					t.Fatalf("cut to %d of %d bytes: %v", n, len(file), err)
				}
			}
			for bit := 0; bit < len(file)*8; bit += step {
				bad := bytes.Clone(file)
				bad[bit/8] ^= 1 << (bit % 8)
				if _, err := g.ReadFrom(bytes.NewReader(bad)); !isFormat(err) {
					t.Fatalf("bit %d flipped: %v", bit, err)
				}
			}
			same(g)
			for after := 0; after < len(file); after += step {
				if _, err := k.f.WriteTo(&failingWriter{after}); err != errWrite {
					t.Fatalf("a write that fails after %d bytes: %v", after, err)
				}
			}
			if k.read == nil {
				return
			}
			same(must(k.read(bytes.NewReader(file), ReadOptions[string]{MaxBytes: 1 << 20})))
			if _, err := k.read(bytes.NewReader(file), ReadOptions[string]{MaxBytes: 7}); !errors.Is(err, ErrTooLarge) {
				t.Errorf("over the limit: %v", err)
			}
		})
	}
}

var errWrite = errors.New("disk full")

// failingWriter accepts some bytes and then fails.
type failingWriter struct{ left int }

func (w *failingWriter) Write(b []byte) (int, error) {
	if len(b) > w.left {
		n := w.left
		w.left = 0
		return n, errWrite
	}
	w.left -= len(b)
	return len(b), nil
}

func TestSavedOfOtherElements(t *testing.T) {
	f := must(NewBloom(BloomOptions[string]{Items: 10, FPR: 0.01}))
	var b bytes.Buffer
	f.WriteTo(&b)
	if _, err := ReadBloom(bytes.NewReader(b.Bytes()), ReadOptions[int64]{MaxBytes: 1 << 20}); !errors.Is(err, ErrIncompatible) {
		t.Errorf("strings read as integers: %v", err)
	}
	if _, err := ReadBloom(bytes.NewReader(b.Bytes()), ReadOptions[[]byte]{MaxBytes: 1 << 20}); err != nil {
		t.Errorf("strings read as byte slices: %v", err)
	}
}

// reseal corrects the checksum of a changed header.
func reseal(b []byte) []byte {
	binary.LittleEndian.PutUint64(b[56:], xxhash.Sum64(b[:56]))
	return b
}

// resealAll corrects the checksums of a record, so that a fuzzer gets past them.
func resealAll(file []byte) {
	if len(file) >= recordSize {
		reseal(file)
	}
	if end := len(file) - 8; end >= recordSize {
		binary.LittleEndian.PutUint64(file[end:], xxhash.Sum64(file[recordSize:end]))
	}
}

// Headers with invalid fields are rejected, even if their checksums are valid.
func TestReadBloomMalformed(t *testing.T) {
	f := must(NewBloom(BloomOptions[string]{Bits: 512, Hashes: 3, Scheme: Blocked}))
	var b bytes.Buffer
	f.WriteTo(&b)
	for _, tc := range []struct {
		desc   string
		change func(b []byte)
		is     error
	}{
		{"kind 9", func(b []byte) { b[9] = 9 }, ErrIncompatible},
		{"scheme 4", func(b []byte) { b[10] = 4 }, ErrFormat},
		{"elements 77", func(b []byte) { b[11] = 77 }, ErrIncompatible},
		{"no hashes", func(b []byte) { b[12] = 0 }, ErrFormat},
		{"256 hashes", func(b []byte) { b[13] = 1 }, ErrFormat},
		{"no words", func(b []byte) { b[16] = 0 }, ErrFormat},
		{"7 words of a block", func(b []byte) { b[16] = 7 }, ErrFormat},
		{"2^63 words", func(b []byte) { b[23] = 0x80 }, ErrFormat},
		{"2^31 words of a Guava filter", func(b []byte) { b[10], b[16], b[19] = 2, 0, 0x80 }, ErrFormat},
		{"seed of a Guava filter", func(b []byte) { b[10], b[24] = 2, 1 }, ErrFormat},
		{"items", func(b []byte) { b[32] = 1 }, ErrFormat},
		{"growth", func(b []byte) { b[48] = 1 }, ErrFormat},
		{"2^40 bits", func(b []byte) { copy(b[16:], []byte{0, 0, 0, 0, 4, 0, 0, 0}) }, ErrTooLarge},
	} {
		bad := bytes.Clone(b.Bytes())
		tc.change(bad)
		if _, err := ReadBloom(bytes.NewReader(reseal(bad)), ReadOptions[string]{MaxBytes: 1 << 20}); !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, want %v", tc.desc, err, tc.is)
		}
	}
}

// Rejecting a header that claims 2^40 bits takes no more memory than the input has, even if the
// caller allows that much. On 32-bit systems it is rejected at once.
func TestReadClaimsMuch(t *testing.T) {
	huge := reseal(appendRecord(nil, record{kind: kindBloom, elements: 1, hashes: 7, words: 1 << 34}))
	guava := append([]byte{1, 7, 0x7f, 0xff, 0xff, 0xff}, make([]byte, 100_000)...)
	huge = append(huge, make([]byte, 100_000)...)
	for name, read := range map[string]func() error{
		"own": func() error {
			_, err := ReadBloom(bytes.NewReader(huge), ReadOptions[string]{MaxBytes: 1 << 40})
			return err
		},
		"Guava": func() error {
			_, err := ReadGuava(bytes.NewReader(guava), ReadOptions[string]{MaxBytes: 1 << 40})
			return err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read()
		runtime.ReadMemStats(&after)
		want := ErrFormat
		if math.MaxInt == math.MaxInt32 {
			want = ErrTooLarge
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: allocated %d bytes to reject 100 kB", name, got)
		}
	}
}

func FuzzReadBloom(f *testing.F) {
	for _, s := range []Scheme{Scattered, Blocked, Guava} {
		b := must(NewBloom(BloomOptions[string]{Items: 5, FPR: 0.1, Scheme: s}))
		b.Add("a")
		var buf bytes.Buffer
		b.WriteTo(&buf)
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		resealAll(file)
		g, err := ReadBloom(bytes.NewReader(file), ReadOptions[string]{MaxBytes: 1 << 20})
		if err != nil {
			return
		}
		g.MayContain("b")
		g.Add("c")
		if !g.MayContain("c") || g.FPR() < 0 || g.FPR() > 1 {
			t.Errorf("the filter does not work after it was read")
		}
	})
}

func FuzzReadGuava(f *testing.F) {
	f.Add(must(hex.DecodeString("0101000000010000002000000000")))
	f.Add(must(hex.DecodeString("0007000000020000002000000000ffffffffffffffff")))
	f.Fuzz(func(t *testing.T, file []byte) {
		g, err := ReadGuava(bytes.NewReader(file), ReadOptions[string]{MaxBytes: 1 << 20})
		if err != nil {
			return
		}
		var out bytes.Buffer
		if _, err := g.WriteGuava(&out); err != nil || !bytes.HasPrefix(file, out.Bytes()) {
			t.Errorf("it differs when written again: %v", err)
		}
		g.Add("c")
		if !g.MayContain("c") {
			t.Error("the filter does not work after it was read")
		}
	})
}

// resealParts is resealAll for a record and its parts.
func resealParts(file []byte) {
	for len(file) >= recordSize && string(file[:8]) == recordMagic {
		words := binary.LittleEndian.Uint64(file[16:])
		reseal(file)
		if words > uint64(len(file)) || uint64(len(file)) < recordSize+words*8+8 {
			return
		}
		end := recordSize + words*8
		binary.LittleEndian.PutUint64(file[end:], xxhash.Sum64(file[recordSize:end]))
		file = file[end+8:]
	}
}

// FuzzRead reads saved forms of every kind, with their checksums corrected. A filter that can be
// read works, and can be written and read again.
func FuzzRead(f *testing.F) {
	for _, k := range testKinds(f) {
		f.Add(must(k.f.MarshalBinary()))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		resealParts(file)
		o := ReadOptions[string]{MaxBytes: 1 << 20}
		if l, err := OpenLayered(bytes.NewReader(file), int64(len(file)), o); err == nil {
			if positive, err := l.MayContain("b"); err != nil && !positive {
				t.Error("false with an error")
			}
		}
		g, err := Read(bytes.NewReader(file), o)
		if err != nil {
			return
		}
		_, err = TryAdd(Prober[string](g), "c")
		switch g.(type) {
		case *Bloom[string], *Scalable[string], *Counting[string], *Cuckoo[string]: // the others may forget it at once
			if err == nil && !g.MayContain("c") {
				t.Errorf("%T: an element that was added is lost", g)
			}
		}
		if p := g.FPR(); !(p >= 0 && p <= 1) {
			t.Errorf("FPR %v", p)
		}
		g.ApproxCount()
		if _, err := Read(bytes.NewReader(must(g.MarshalBinary())), ReadOptions[string]{}); err != nil {
			t.Errorf("written and read again: %v", err)
		}
	})
}
