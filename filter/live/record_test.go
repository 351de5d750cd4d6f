package live

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"testing"

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

// A savedFilter is any filter, written and read again.
type savedFilter interface {
	io.WriterTo
	MayContain(string) bool
}

// saved returns a filter of every kind that can be saved, with some elements in
// it, and a function that reads its kind.
func saved(t testing.TB) map[string]struct {
	f    savedFilter
	read func(r io.Reader, maxBytes int64) (savedFilter, error)
} {
	type one = struct {
		f    savedFilter
		read func(r io.Reader, maxBytes int64) (savedFilter, error)
	}
	all := map[string]one{}
	for _, s := range []Scheme{Scattered, Blocked, Guava, GuavaMitz32} {
		f := must(NewBloom(BloomOptions[string]{Items: 50, FPR: 0.01, Scheme: s}))
		for i := range 50 {
			f.Add(member(i))
		}
		all["Bloom "+s.String()] = one{f, func(r io.Reader, maxBytes int64) (savedFilter, error) {
			return ReadBloom[string](r, maxBytes, nil)
		}}
	}
	counting := must(NewCounting(CountingOptions[string]{Items: 50, FPR: 0.01, Seed: 3}))
	for i := range 60 {
		counting.Add(member(i))
	}
	for i := range 10 {
		counting.Delete(member(i))
	}
	all["Counting"] = one{counting, func(r io.Reader, maxBytes int64) (savedFilter, error) {
		return ReadCounting[string](r, maxBytes, nil)
	}}
	for name, fpr := range map[string]float64{"Cuckoo": 0.01, "Cuckoo of half words": 0.03} {
		cuckoo := must(NewCuckoo(CuckooOptions[string]{Items: 50, FPR: fpr, Seed: 3}))
		for i := range 50 {
			cuckoo.Add(member(i))
		}
		all[name] = one{cuckoo, func(r io.Reader, maxBytes int64) (savedFilter, error) {
			return ReadCuckoo[string](r, maxBytes, nil)
		}}
	}
	scalable := must(NewScalable(ScalableOptions[string]{Items: 10, FPR: 0.1, Seed: 5}))
	for i := range 50 {
		scalable.Add(member(i))
	}
	all["Scalable"] = one{scalable, func(r io.Reader, maxBytes int64) (savedFilter, error) {
		return ReadScalable[string](r, maxBytes, nil)
	}}
	return all
}

func TestSaved(t *testing.T) {
	for name, s := range saved(t) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if n, err := s.f.WriteTo(&b); err != nil || n != int64(b.Len()) {
				t.Fatalf("%d of %d, %v", n, b.Len(), err)
			}
			file := b.Bytes()
			r := bytes.NewReader(append(bytes.Clone(file), "next"...))
			g, err := s.read(r, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if r.Len() != len("next") {
				t.Errorf("%d bytes left after the filter, not 4", r.Len())
			}
			for i := range 2000 {
				if g.MayContain(member(i)) != s.f.MayContain(member(i)) {
					t.Fatalf("%d: another answer", i)
				}
			}
			var again bytes.Buffer
			if _, err := g.WriteTo(&again); err != nil || !bytes.Equal(again.Bytes(), file) {
				t.Errorf("written again, it is not the same (%v)", err)
			}
			// Each cut and each flipped bit is refused.
			for n := range file {
				if _, err := s.read(bytes.NewReader(file[:n]), 1<<20); !isFormat(err) {
					t.Fatalf("cut to %d of %d bytes: %v", n, len(file), err)
				}
			}
			for bit := range len(file) * 8 {
				bad := bytes.Clone(file)
				bad[bit/8] ^= 1 << (bit % 8)
				if _, err := s.read(bytes.NewReader(bad), 1<<20); !isFormat(err) {
					t.Fatalf("bit %d flipped: %v", bit, err)
				}
			}
			if _, err := s.read(bytes.NewReader(file), 7); !errors.Is(err, ErrTooLarge) {
				t.Errorf("over the limit: %v", err)
			}
			for after := range len(file) {
				if _, err := s.f.WriteTo(&failingWriter{after}); err != errWrite {
					t.Fatalf("a write that fails after %d bytes: %v", after, err)
				}
			}
		})
	}
}

var errWrite = errors.New("disk full")

// failingWriter takes some bytes and then fails.
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
	if _, err := ReadBloom[int64](bytes.NewReader(b.Bytes()), 1<<20, nil); !errors.Is(err, ErrIncompatible) {
		t.Errorf("strings read as integers: %v", err)
	}
	if _, err := ReadBloom[[]byte](bytes.NewReader(b.Bytes()), 1<<20, nil); err != nil {
		t.Errorf("strings read as byte slices: %v", err)
	}
}

// reseal makes the checksum of a changed header right again.
func reseal(b []byte) []byte {
	binary.LittleEndian.PutUint64(b[56:], xxhash.Sum64(b[:56]))
	return b
}

// resealAll makes the checksums of a record right, so that a fuzzer gets past them.
func resealAll(file []byte) {
	if len(file) >= recordSize {
		reseal(file)
	}
	if end := len(file) - 8; end >= recordSize {
		binary.LittleEndian.PutUint64(file[end:], xxhash.Sum64(file[recordSize:end]))
	}
}

// Headers whose checksum is right and that make no sense all the same.
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
		{"seed of a Guava filter", func(b []byte) { b[10], b[24] = 2, 1 }, ErrFormat},
		{"items", func(b []byte) { b[32] = 1 }, ErrFormat},
		{"growth", func(b []byte) { b[48] = 1 }, ErrFormat},
		{"2^40 bits", func(b []byte) { copy(b[16:], []byte{0, 0, 0, 0, 4, 0, 0, 0}) }, ErrTooLarge},
	} {
		bad := bytes.Clone(b.Bytes())
		tc.change(bad)
		if _, err := ReadBloom[string](bytes.NewReader(reseal(bad)), 1<<20, nil); !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, want %v", tc.desc, err, tc.is)
		}
	}
}

// A form that claims 2^40 bits is refused at the cost of its own size, even when
// the caller would allow that much.
func TestReadClaimsMuch(t *testing.T) {
	huge := reseal(appendRecord(nil, record{kind: kindBloom, elements: 1, hashes: 7, words: 1 << 34}))
	guava := append([]byte{1, 7, 0x7f, 0xff, 0xff, 0xff}, make([]byte, 100_000)...)
	huge = append(huge, make([]byte, 100_000)...)
	for name, read := range map[string]func() error{
		"own":   func() error { _, err := ReadBloom[string](bytes.NewReader(huge), 1<<40, nil); return err },
		"Guava": func() error { _, err := ReadGuava[string](bytes.NewReader(guava), 1<<40, nil); return err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read()
		runtime.ReadMemStats(&after)
		if !isFormat(err) {
			t.Errorf("%s: %v", name, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: took %d bytes to refuse 100 kB", name, got)
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
		g, err := ReadBloom[string](bytes.NewReader(file), 1<<20, nil)
		if err != nil {
			return
		}
		g.MayContain("b")
		g.Add("c")
		if !g.MayContain("c") || g.FPR() < 0 || g.FPR() > 1 {
			t.Errorf("a filter that was read does not work")
		}
	})
}

func FuzzReadGuava(f *testing.F) {
	f.Add(must(hex.DecodeString("0101000000010000002000000000")))
	f.Add(must(hex.DecodeString("0007000000020000002000000000ffffffffffffffff")))
	f.Fuzz(func(t *testing.T, file []byte) {
		g, err := ReadGuava[string](bytes.NewReader(file), 1<<20, nil)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if _, err := g.WriteGuava(&out); err != nil || !bytes.HasPrefix(file, out.Bytes()) {
			t.Errorf("written again, it is not the same: %v", err)
		}
		g.Add("c")
		if !g.MayContain("c") {
			t.Error("a filter that was read does not work")
		}
	})
}
